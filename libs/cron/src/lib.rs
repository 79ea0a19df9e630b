//! Cron schedules as CronJobs have them: five fields, or a descriptor such as `@daily` and `@every
//! 1h30m`.
//!
//! Accepts what `ParseStandard` of Go's `robfig/cron` v3 accepts, with the same times and the same
//! errors.
//!
//! Start at [`Schedule::parse`] and [`Schedule::next`].

#![warn(missing_docs)]

mod field;
mod next;
mod zone;

use jiff::SignedDuration;
use jiff::tz::TimeZone;

pub use zone::{check_zone, time_zone};

use field::{Bits, Field, parse_field};

/// A schedule of recurring times.
#[derive(Clone, Debug)]
pub struct Schedule {
    times: Times,
    /// The zone that precedes the schedule in its text, as in `TZ=Asia/Tokyo 0 0 * * *`.
    zone: Option<TimeZone>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Times {
    /// All minutes that match.
    Fields(Fields),
    /// Fixed intervals, in whole seconds.
    Every(SignedDuration),
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Fields {
    minute: Bits,
    hour: Bits,
    day_of_month: Bits,
    month: Bits,
    day_of_week: Bits,
}

/// The descriptors, and the schedules they are equal to.
const DESCRIPTORS: [(&str, &str); 7] = [
    ("@yearly", "0 0 1 1 *"),
    ("@annually", "0 0 1 1 *"),
    ("@monthly", "0 0 1 * *"),
    ("@weekly", "0 0 * * 0"),
    ("@daily", "0 0 * * *"),
    ("@midnight", "0 0 * * *"),
    ("@hourly", "0 * * * *"),
];

impl Schedule {
    /// Parses a schedule that is not empty.
    ///
    /// # Errors
    /// The error, in the words of the Go library.
    pub fn parse(text: &str) -> Result<Schedule, String> {
        let (zone, text) = zone::strip_zone(text)?;
        let times = match text.starts_with('@') {
            true => parse_descriptor(text)?,
            false => Times::Fields(parse_fields(text)?),
        };
        Ok(Schedule { times, zone })
    }
}

fn parse_fields(text: &str) -> Result<Fields, String> {
    let fields: Vec<&str> = text.split_whitespace().collect();
    let [minute, hour, day_of_month, month, day_of_week] = fields.as_slice() else {
        return Err(format!("expected exactly 5 fields, found {}: [{}]", fields.len(), fields.join(" ")));
    };
    Ok(Fields {
        minute: parse_field(minute, Field::Minute)?,
        hour: parse_field(hour, Field::Hour)?,
        day_of_month: parse_field(day_of_month, Field::DayOfMonth)?,
        month: parse_field(month, Field::Month)?,
        day_of_week: parse_field(day_of_week, Field::DayOfWeek)?,
    })
}

fn parse_descriptor(text: &str) -> Result<Times, String> {
    if let Some((_, fields)) = DESCRIPTORS.iter().find(|(descriptor, _)| *descriptor == text) {
        return parse_fields(fields).map(Times::Fields);
    }
    let Some(duration) = text.strip_prefix("@every ") else {
        return Err(format!("unrecognized descriptor: {text}"));
    };
    match coracle_duration::parse(duration) {
        Ok(duration) => Ok(Times::Every(SignedDuration::from_secs(duration.as_secs().max(1)))),
        Err(error) => Err(format!("failed to parse duration {text}: {error}")),
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
            assert!(Schedule::parse(schedule).is_ok(), "{schedule}");
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
            assert_eq!(Schedule::parse(schedule).map(|_| ()), Err(want.to_owned()), "{schedule}");
        }
    }
}
