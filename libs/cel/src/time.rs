//! Times, with the zone that they are printed in, and durations.

use std::fmt;

use jiff::Timestamp;
use jiff::tz::Offset;

/// The first and the last second that a time may have: of the years 1 to 9999.
const SECONDS: std::ops::RangeInclusive<i64> = -62_135_596_800..=253_402_300_799;

/// A time and the offset of its zone, which has no part in comparisons.
#[derive(Clone, Copy, Debug)]
pub struct Time {
    /// The time.
    pub at: Timestamp,
    offset: Offset,
}

impl Time {
    /// Creates a time in UTC.
    pub fn utc(at: Timestamp) -> Option<Time> {
        Time { at, offset: Offset::UTC }.checked()
    }

    /// Parses an RFC 3339 time.
    pub fn parse(text: &str) -> Option<Time> {
        // The letters are capitals, and a zone is there.
        if text.as_bytes().get(10) != Some(&b'T') || text.len() < 20 || text.ends_with('z') {
            return None;
        }
        let at: Timestamp = text.parse().ok()?;
        let zone = text.get(text.len() - 6..)?;
        let (sign, zone) = zone.split_at(1);
        let offset = match (sign, zone.split_once(':')) {
            ("+" | "-", Some((hours, minutes))) => {
                let seconds = hours.parse::<i32>().ok()? * 3600 + minutes.parse::<i32>().ok()? * 60;
                Offset::from_seconds(if sign == "-" { -seconds } else { seconds }).ok()?
            }
            _ => Offset::UTC,
        };
        Some(Time { at, offset })
    }

    /// Returns the time if its year is in the valid range.
    pub fn checked(self) -> Option<Time> {
        SECONDS.contains(&self.at.as_second()).then_some(self)
    }

    /// Returns another time in the same zone.
    pub fn moved(self, at: Timestamp) -> Option<Time> {
        Time { at, ..self }.checked()
    }
}

impl PartialEq for Time {
    fn eq(&self, other: &Time) -> bool {
        self.at == other.at
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.offset == Offset::UTC {
            return write!(f, "{}", self.at);
        }
        write!(f, "{}", self.at.display_with_offset(self.offset))
    }
}

/// Parses a Go duration to nanoseconds.
pub fn parse_duration(text: &str) -> Option<i64> {
    i64::try_from(coracle_duration::parse(text).ok()?.as_nanos()).ok()
}

/// Parses an RFC 3339 time, or a date.
pub fn parse_time(text: &str) -> Option<Time> {
    if text.len() == 10 { Time::parse(&format!("{text}T00:00:00Z")) } else { Time::parse(text) }
}

/// Returns `true` if a text is a valid time in the supported range.
pub fn is_timestamp(text: &str) -> bool {
    Time::parse(text).and_then(Time::checked).is_some()
}

/// Returns `true` if a number of seconds is a time in the supported range.
pub fn is_second(seconds: i64) -> bool {
    jiff::Timestamp::from_second(seconds).ok().and_then(Time::utc).is_some()
}

/// Formats seconds with the suffix `s`, as CEL prints durations.
pub fn duration_text(nanos: i64) -> String {
    let text = format!("{:.9}", nanos.unsigned_abs() as f64 / 1e9);
    let exact =
        format!("{}.{:09}", nanos.unsigned_abs() / 1_000_000_000, nanos.unsigned_abs() % 1_000_000_000);
    let text = if text == exact { text } else { exact };
    let text = text.trim_end_matches('0').trim_end_matches('.');
    format!("{}{text}s", if nanos < 0 { "-" } else { "" })
}
