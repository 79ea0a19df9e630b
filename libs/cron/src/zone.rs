//! Time zones by name, with the rules of Go's `time.LoadLocation`.

use jiff::tz::{TimeZone, TimeZoneDatabase};

/// Checks that a time zone with exactly this name exists.
///
/// # Errors
/// Go's message if there is none.
pub fn check_zone(name: &str) -> Result<(), String> {
    if ["", "UTC", "Local"].contains(&name) {
        return Ok(());
    }
    if name.contains("..") || name.starts_with(['/', '\\']) {
        return Err("time: invalid location name".to_owned());
    }
    if TimeZoneDatabase::bundled().available().any(|zone| zone.as_str() == name) {
        return Ok(());
    }
    Err(format!("unknown time zone {name}"))
}

/// Returns the time zone with this name. The local zone of a control plane is UTC.
///
/// # Errors
/// As for [`check_zone`].
pub fn time_zone(name: &str) -> Result<TimeZone, String> {
    check_zone(name)?;
    match name {
        "" | "UTC" | "Local" => Ok(TimeZone::UTC),
        _ => TimeZoneDatabase::bundled().get(name).map_err(|_| format!("unknown time zone {name}")),
    }
}

/// Splits a schedule into the time zone that may precede it, as in old stored CronJobs, and the
/// rest.
pub(crate) fn strip_zone(schedule: &str) -> Result<(Option<TimeZone>, &str), String> {
    let Some(rest) = schedule.strip_prefix("TZ=").or_else(|| schedule.strip_prefix("CRON_TZ=")) else {
        return Ok((None, schedule));
    };
    let Some((name, rest)) = rest.split_once(' ') else {
        return Err("invalid schedule format: runtime error: slice bounds out of range [:-1]".to_owned());
    };
    let zone = time_zone(name).map_err(|error| format!("provided bad location {name}: {error}"))?;
    Ok((Some(zone), rest.trim()))
}
