//! Parts of times and durations.

use jiff::tz::{Offset, TimeZone};

use super::failure::{Result, error, no_overload};
use super::function::Line;
use crate::value::Value;

const DATE: &str = "timestamp.()->int timestamp.(string)->int";
const TIME: &str = "timestamp.()->int timestamp.(string)->int duration.()->int";

pub const TABLE: &[Line] = &[
    ("getFullYear", DATE, |args, _| part(args, |time| time.year().into())),
    ("getMonth", DATE, |args, _| part(args, |time| i64::from(time.month()) - 1)),
    ("getDayOfYear", DATE, |args, _| part(args, |time| i64::from(time.day_of_year()) - 1)),
    ("getDayOfMonth", DATE, |args, _| part(args, |time| i64::from(time.day()) - 1)),
    ("getDate", DATE, |args, _| part(args, |time| time.day().into())),
    ("getDayOfWeek", DATE, |args, _| part(args, |time| time.weekday().to_sunday_zero_offset().into())),
    ("getHours", TIME, |args, _| either(args, 3_600_000_000_000, |time| time.hour().into())),
    ("getMinutes", TIME, |args, _| either(args, 60_000_000_000, |time| time.minute().into())),
    ("getSeconds", TIME, |args, _| either(args, 1_000_000_000, |time| time.second().into())),
    ("getMilliseconds", TIME, |args, _| match args {
        [Value::Duration(nanos)] => Ok(Value::Int(nanos / 1_000_000)),
        _ => part(args, |time| time.millisecond().into()),
    }),
];

fn either<'a>(args: &[Value<'a>], unit: i64, meaning: fn(&jiff::Zoned) -> i64) -> Result<Value<'a>> {
    match args {
        [Value::Duration(nanos)] => Ok(Value::Int(nanos / unit)),
        _ => part(args, meaning),
    }
}

fn part<'a>(args: &[Value<'a>], meaning: fn(&jiff::Zoned) -> i64) -> Result<Value<'a>> {
    let (time, zone) = match args {
        [Value::Timestamp(time)] => (time.at, TimeZone::UTC),
        [Value::Timestamp(time), Value::String(zone)] => (time.at, time_zone(zone)?),
        _ => return no_overload(),
    };
    Ok(Value::Int(meaning(&time.to_zoned(zone))))
}

/// Parses a zone by name, or by its offset `+hh:mm`.
fn time_zone(text: &str) -> Result<TimeZone> {
    if let Some((hours, minutes)) = text.split_once(':') {
        let negative = hours.starts_with('-');
        let parsed = (hours.trim_start_matches(['+', '-']).parse::<i32>(), minutes.parse::<i32>());
        if let (Ok(hours), Ok(minutes)) = parsed {
            let seconds = hours.saturating_mul(3600).saturating_add(minutes.saturating_mul(60));
            if let Ok(offset) = Offset::from_seconds(if negative { -seconds } else { seconds }) {
                return Ok(offset.to_time_zone());
            }
        }
    }
    TimeZone::get(text).or_else(|_| error(format!("unknown time zone {text}")))
}
