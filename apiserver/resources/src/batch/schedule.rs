//! Cron schedules: five fields, or a descriptor such as `@daily` and `@every 1h30m`.
//!
//! Schedules are only parsed for validation; the messages are those of the real server's parser.

use coracle_apimachinery::field::quote;

/// The lowest and highest value of a field, and the names of values.
struct Bounds {
    least: i64,
    greatest: i64,
    names: &'static [&'static str],
}

const MONTHS: &[&str] = &["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
const DAYS: &[&str] = &["sun", "mon", "tue", "wed", "thu", "fri", "sat"];

/// Minute, hour, day of month, month, day of week. Names count from the lowest value.
const FIELDS: [Bounds; 5] = [
    Bounds { least: 0, greatest: 59, names: &[] },
    Bounds { least: 0, greatest: 23, names: &[] },
    Bounds { least: 1, greatest: 31, names: &[] },
    Bounds { least: 1, greatest: 12, names: MONTHS },
    Bounds { least: 0, greatest: 6, names: DAYS },
];

const DESCRIPTORS: [&str; 7] =
    ["@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight", "@hourly"];

/// The error in a schedule that is not empty.
pub fn check(schedule: &str) -> Result<(), String> {
    let schedule = strip_zone(schedule)?;
    if schedule.starts_with('@') {
        return check_descriptor(schedule);
    }
    let fields: Vec<&str> = schedule.split_whitespace().collect();
    if fields.len() != FIELDS.len() {
        return Err(format!("expected exactly 5 fields, found {}: [{}]", fields.len(), fields.join(" ")));
    }
    fields.iter().zip(&FIELDS).try_for_each(|(field, bounds)| {
        field.split(',').filter(|range| !range.is_empty()).try_for_each(|range| check_range(range, bounds))
    })
}

/// A time zone may precede a schedule; old stored CronJobs have it.
fn strip_zone(schedule: &str) -> Result<&str, String> {
    let Some(rest) = schedule.strip_prefix("TZ=").or_else(|| schedule.strip_prefix("CRON_TZ=")) else {
        return Ok(schedule);
    };
    let Some((zone, rest)) = rest.split_once(' ') else {
        return Err("invalid schedule format: runtime error: slice bounds out of range [:-1]".to_owned());
    };
    check_zone(zone).map_err(|error| format!("provided bad location {zone}: {error}"))?;
    Ok(rest.trim())
}

/// Whether a time zone with exactly this name exists.
pub fn check_zone(name: &str) -> Result<(), String> {
    if ["", "UTC", "Local"].contains(&name) {
        return Ok(());
    }
    if name.contains("..") || name.starts_with(['/', '\\']) {
        return Err("time: invalid location name".to_owned());
    }
    if jiff::tz::TimeZoneDatabase::bundled().available().any(|zone| zone.as_str() == name) {
        return Ok(());
    }
    Err(format!("unknown time zone {name}"))
}

fn check_range(range: &str, bounds: &Bounds) -> Result<(), String> {
    let (interval, step) = match range.split('/').collect::<Vec<_>>().as_slice() {
        [interval] => (*interval, None),
        [interval, step] => (*interval, Some(*step)),
        _ => {
            // The interval is parsed first, so its errors are reported first.
            let interval = range.split('/').next().unwrap_or(range);
            interval_limits(interval, range, bounds)?;
            return Err(format!("too many slashes: {range}"));
        }
    };
    let (first, mut last, single) = interval_limits(interval, range, bounds)?;
    let step = step.map_or(Ok(1), |step| {
        if single {
            last = bounds.greatest;
        }
        number(step)
    })?;
    if first < bounds.least {
        return Err(format!("beginning of range ({first}) below minimum ({}): {range}", bounds.least));
    }
    if last > bounds.greatest {
        return Err(format!("end of range ({last}) above maximum ({}): {range}", bounds.greatest));
    }
    if first > last {
        return Err(format!("beginning of range ({first}) beyond end of range ({last}): {range}"));
    }
    if step == 0 {
        return Err(format!("step of range should be a positive number: {range}"));
    }
    Ok(())
}

/// The first and last value, and whether only one is given.
fn interval_limits(interval: &str, range: &str, bounds: &Bounds) -> Result<(i64, i64, bool), String> {
    let limits: Vec<&str> = interval.split('-').collect();
    let single = limits.len() == 1;
    if matches!(limits.first(), Some(&("*" | "?"))) {
        return Ok((bounds.least, bounds.greatest, single));
    }
    let value = |text: &str| {
        let named = bounds.names.iter().position(|name| name.eq_ignore_ascii_case(text));
        named.and_then(|i| i64::try_from(i).ok()).map_or_else(|| number(text), |i| Ok(i + bounds.least))
    };
    match limits.as_slice() {
        [only] => value(only).map(|only| (only, only, single)),
        [first, last] => Ok((value(first)?, value(last)?, single)),
        [first, ..] => value(first).and(Err(format!("too many hyphens: {range}"))),
        [] => Ok((bounds.least, bounds.greatest, single)),
    }
}

fn number(text: &str) -> Result<i64, String> {
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    let number = text.parse::<i64>().map_err(|_| {
        let why = if !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()) {
            "value out of range"
        } else {
            "invalid syntax"
        };
        format!("failed to parse int from {text}: strconv.Atoi: parsing {}: {why}", quote(text))
    })?;
    if number < 0 {
        return Err(format!("negative number ({number}) not allowed: {text}"));
    }
    Ok(number)
}

fn check_descriptor(text: &str) -> Result<(), String> {
    if DESCRIPTORS.contains(&text) {
        return Ok(());
    }
    match text.strip_prefix("@every ") {
        Some(duration) => match coracle_duration::parse(duration) {
            Ok(_) => Ok(()),
            Err(error) => Err(format!("failed to parse duration {text}: {error}")),
        },
        None => Err(format!("unrecognized descriptor: {text}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn valid_schedules_are_accepted() {
        for schedule in [
            "* * * * *",
            "*/5 0-23/2 1,15 JAN-mar sun",
            "? ? ? ? ?",
            "5/10 * * * *",
            "@every 1h30m",
            "@midnight",
            "TZ=Europe/Berlin 0 0 * * *",
        ] {
            assert_eq!(check(schedule), Ok(()), "{schedule}");
        }
    }

    #[test]
    fn invalid_schedules_are_rejected() {
        for (schedule, want) in [
            ("* * * *", "expected exactly 5 fields, found 4: [* * * *]"),
            ("60 * * * *", "end of range (60) above maximum (59): 60"),
            ("* * 0 * *", "beginning of range (0) below minimum (1): 0"),
            ("5-1 * * * *", "beginning of range (5) beyond end of range (1): 5-1"),
            ("*/0 * * * *", "step of range should be a positive number: */0"),
            ("1-2-3 * * * *", "too many hyphens: 1-2-3"),
            ("1/2/3 * * * *", "too many slashes: 1/2/3"),
            ("x * * * *", "failed to parse int from x: strconv.Atoi: parsing \"x\": invalid syntax"),
            ("@often", "unrecognized descriptor: @often"),
            ("@every x", "failed to parse duration @every x: time: invalid duration \"x\""),
            ("@every 5", "failed to parse duration @every 5: time: missing unit in duration \"5\""),
            ("TZ=Nowhere 0 0 * * *", "provided bad location Nowhere: unknown time zone Nowhere"),
            ("TZ=0", "invalid schedule format: runtime error: slice bounds out of range [:-1]"),
        ] {
            assert_eq!(check(schedule), Err(want.to_owned()), "{schedule}");
        }
    }
}
