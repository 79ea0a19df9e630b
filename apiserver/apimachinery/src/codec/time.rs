//! Times as Go parses and prints them: RFC 3339 in, UTC out, whole seconds or microseconds.
//!
//! The errors are Go's, which clients see. Start at [`parse`].

use jiff::SignedDuration;
use jiff::civil::DateTime;

/// The reason why a text is not a time, with Go's message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TimeError {
    #[error(
        "parsing time {} as {}: cannot parse {} as {}",
        quote(text),
        quote(layout),
        quote(rest),
        quote(element)
    )]
    /// An element of the layout does not match.
    Unparsable {
        /// The whole text.
        text: String,
        /// The layout that it must have.
        layout: &'static str,
        /// The text from the mismatch on.
        rest: String,
        /// The element of the layout.
        element: &'static str,
    },
    /// An element is out of its range.
    #[error("parsing time {}: {what} out of range", quote(text))]
    Range {
        /// The whole text.
        text: String,
        /// The element.
        what: &'static str,
    },
    /// Text follows the time.
    #[error("parsing time {}: extra text: {}", quote(text), quote(rest))]
    Extra {
        /// The whole text.
        text: String,
        /// The text after the time.
        rest: String,
    },
}

const SECONDS: &str = "2006-01-02T15:04:05Z07:00";
const MICROS: &str = "2006-01-02T15:04:05.000000Z07:00";

/// Converts a time to its canonical form in whole seconds (`2026-01-02T03:04:05Z`); None for the
/// zero time, which is stored as absent.
pub fn parse(text: &str) -> Result<Option<String>, TimeError> {
    if is_canonical(text) {
        return Ok(Some(text.to_owned()));
    }
    let time = Parser { text, rest: text, layout: SECONDS }.time()?;
    Ok((!is_zero(time)).then(|| time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()))
}

/// Converts a time to its canonical form in microseconds (`2026-01-02T03:04:05.000006Z`); None for
/// the zero time.
pub fn parse_micro(text: &str) -> Result<Option<String>, TimeError> {
    let time = Parser { text, rest: text, layout: MICROS }.time()?;
    Ok((!is_zero(time)).then(|| time.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string()))
}

/// Converts a canonical time to seconds since the epoch, and nanoseconds.
pub fn to_unix(canonical: &str) -> Option<(i64, i32)> {
    let timestamp: jiff::Timestamp = canonical.parse().ok()?;
    // Nanoseconds count forwards, also before the epoch.
    let (seconds, nanos) = (timestamp.as_second(), timestamp.subsec_nanosecond());
    Some(if nanos < 0 { (seconds - 1, nanos + 1_000_000_000) } else { (seconds, nanos) })
}

/// Converts seconds since the epoch to the canonical time in whole seconds; None for the zero time,
/// and beyond the calendar.
pub fn from_unix(seconds: i64) -> Option<String> {
    let time = jiff::tz::Offset::UTC.to_datetime(jiff::Timestamp::from_second(seconds).ok()?);
    (!is_zero(time)).then(|| time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string())
}

/// Converts seconds and nanoseconds since the epoch to the canonical time in microseconds.
pub fn micro_from_unix(seconds: i64, nanos: i32) -> Option<String> {
    let whole = jiff::Timestamp::from_second(seconds).ok()?;
    let timestamp = whole.checked_add(SignedDuration::from_nanos(nanos.into())).ok()?;
    let time = jiff::tz::Offset::UTC.to_datetime(timestamp);
    (!is_zero(time)).then(|| time.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string())
}

fn is_zero(time: DateTime) -> bool {
    time == jiff::civil::datetime(1, 1, 1, 0, 0, 0, 0)
}

/// Checks for the most frequent form, with days that every month has.
fn is_canonical(text: &str) -> bool {
    let bytes = text.as_bytes();
    let number = |at: usize| match (bytes.get(at), bytes.get(at + 1)) {
        (Some(tens @ b'0'..=b'9'), Some(ones @ b'0'..=b'9')) => (tens - b'0') * 10 + (ones - b'0'),
        _ => u8::MAX,
    };
    bytes.len() == 20
        && [(4, b'-'), (7, b'-'), (10, b'T'), (13, b':'), (16, b':'), (19, b'Z')]
            .iter()
            .all(|&(at, mark)| bytes[at] == mark)
        && (19..=99).contains(&number(0))
        && number(2) <= 99
        && (1..=12).contains(&number(5))
        && (1..=28).contains(&number(8))
        && number(11) < 24
        && number(14) < 60
        && number(17) < 60
}

struct Parser<'a> {
    text: &'a str,
    rest: &'a str,
    layout: &'static str,
}

impl Parser<'_> {
    fn time(mut self) -> Result<DateTime, TimeError> {
        let year = self.year()?;
        let month = self.after("-", "01", true)?;
        self.check("month", (1..=12).contains(&month))?;
        let day = self.after("-", "02", true)?;
        let hour = self.after("T", "15", false)?;
        self.check("hour", hour < 24)?;
        let minute = self.after(":", "04", true)?;
        self.check("minute", minute < 60)?;
        let second = self.after(":", "05", true)?;
        self.check("second", second < 60)?;
        let nanos = self.fraction()?;
        let offset = self.offset()?;
        if !self.rest.is_empty() {
            return Err(TimeError::Extra { text: self.text.to_owned(), rest: self.rest.to_owned() });
        }
        let local = DateTime::new(year, month, day, hour, minute, second, nanos).ok();
        let utc = local.and_then(|local| local.checked_sub(SignedDuration::from_secs(offset)).ok());
        utc.ok_or_else(|| self.range("day"))
    }

    fn year(&mut self) -> Result<i16, TimeError> {
        let digits = self.rest.get(..4).filter(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()));
        let year = digits.and_then(|digits| digits.parse().ok()).ok_or_else(|| self.type_mismatch("2006"))?;
        self.rest = &self.rest[4..];
        Ok(year)
    }

    fn check(&self, what: &'static str, holds: bool) -> Result<(), TimeError> {
        if holds { Ok(()) } else { Err(self.range(what)) }
    }

    /// Reads a number of two digits after a mark; one digit is enough if it is not `fixed`.
    fn after(&mut self, mark: &'static str, element: &'static str, fixed: bool) -> Result<i8, TimeError> {
        self.rest = self.rest.strip_prefix(mark).ok_or_else(|| self.type_mismatch(mark))?;
        let (number, rest) = two_digits(self.rest, fixed).ok_or_else(|| self.type_mismatch(element))?;
        self.rest = rest;
        Ok(number)
    }

    fn fraction(&mut self) -> Result<i32, TimeError> {
        let exact = self.layout == MICROS;
        let digits = self.rest.strip_prefix(['.', ',']);
        let count = digits.map_or(0, |rest| rest.bytes().take_while(u8::is_ascii_digit).count());
        let count = if exact { count.min(6) } else { count };
        if exact && count < 6 {
            return Err(self.type_mismatch(".000000"));
        }
        if count == 0 {
            return Ok(0);
        }
        let (digits, rest) = self.rest[1..].split_at(count);
        self.rest = rest;
        let nanos = digits.bytes().chain(std::iter::repeat(b'0')).take(9);
        Ok(nanos.fold(0, |nanos, digit| nanos * 10 + i32::from(digit - b'0')))
    }

    /// Reads the offset, in seconds east of Greenwich.
    fn offset(&mut self) -> Result<i64, TimeError> {
        if let Some(rest) = self.rest.strip_prefix('Z') {
            self.rest = rest;
            return Ok(0);
        }
        let type_mismatch = || self.type_mismatch("Z07:00");
        let zone = self.rest.get(..6).ok_or_else(type_mismatch)?;
        let colon = zone.as_bytes()[3] == b':';
        let (Some((hours, "")), Some((minutes, ""))) = (
            zone.get(1..3).and_then(|text| two_digits(text, true)),
            zone.get(4..6).and_then(|text| two_digits(text, true)),
        ) else {
            return Err(type_mismatch());
        };
        let sign = match zone.as_bytes()[0] {
            b'+' if colon => 1,
            b'-' if colon => -1,
            _ => return Err(type_mismatch()),
        };
        self.check("time zone offset hour", hours <= 24)?;
        self.check("time zone offset minute", minutes <= 60)?;
        self.rest = &self.rest[6..];
        Ok(sign * (i64::from(hours) * 60 + i64::from(minutes)) * 60)
    }

    fn type_mismatch(&self, element: &'static str) -> TimeError {
        TimeError::Unparsable {
            text: self.text.to_owned(),
            layout: self.layout,
            rest: self.rest.to_owned(),
            element,
        }
    }

    fn range(&self, what: &'static str) -> TimeError {
        TimeError::Range { text: self.text.to_owned(), what }
    }
}

fn two_digits(text: &str, fixed: bool) -> Option<(i8, &str)> {
    let digit = |at: usize| {
        let byte = text.as_bytes().get(at).filter(|byte| byte.is_ascii_digit())?;
        i8::try_from(byte - b'0').ok()
    };
    match (digit(0)?, digit(1)) {
        (tens, Some(ones)) => Some((tens * 10 + ones, &text[2..])),
        (one, None) if !fixed => Some((one, &text[1..])),
        _ => None,
    }
}

/// Quotes as Go's time errors do: by bytes.
fn quote(text: &str) -> String {
    let mut quoted = String::from('"');
    for byte in text.bytes() {
        match byte {
            b'"' | b'\\' => quoted.extend(['\\', char::from(byte)]),
            b' '..=b'~' | 0x7f => quoted.push(char::from(byte)),
            _ => quoted.push_str(&format!("\\x{byte:02x}")),
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_become_utc_in_whole_seconds() {
        for (text, want) in [
            ("2026-01-02T03:04:05Z", Some("2026-01-02T03:04:05Z")),
            ("2026-01-31T03:04:05Z", Some("2026-01-31T03:04:05Z")),
            ("2026-01-02T03:04:05.999Z", Some("2026-01-02T03:04:05Z")),
            ("2026-01-02T03:04:05,5Z", Some("2026-01-02T03:04:05Z")),
            ("2026-01-02T03:04:05+02:00", Some("2026-01-02T01:04:05Z")),
            ("2026-01-01T00:30:00+02:00", Some("2025-12-31T22:30:00Z")),
            ("2026-01-02T3:04:05-24:60", Some("2026-01-03T04:04:05Z")),
            ("2024-02-29T00:00:00Z", Some("2024-02-29T00:00:00Z")),
            ("0001-01-01T00:00:00Z", None),
            ("0001-01-01T01:00:00+01:00", None),
        ] {
            assert_eq!(parse(text), Ok(want.map(str::to_owned)), "{text}");
        }
        let micro = parse_micro("2026-01-02T03:04:05.000006+01:00");
        assert_eq!(micro, Ok(Some("2026-01-02T02:04:05.000006Z".to_owned())));
    }

    #[test]
    fn errors_have_gos_messages() {
        for (text, want) in [
            ("now", r#"parsing time "now" as "2006-01-02T15:04:05Z07:00": cannot parse "now" as "2006""#),
            ("", r#"parsing time "" as "2006-01-02T15:04:05Z07:00": cannot parse "" as "2006""#),
            (
                "2026-1-02T03:04:05Z",
                r#"parsing time "2026-1-02T03:04:05Z" as "2006-01-02T15:04:05Z07:00": cannot parse "1-02T03:04:05Z" as "01""#,
            ),
            (
                "2026-01-02",
                r#"parsing time "2026-01-02" as "2006-01-02T15:04:05Z07:00": cannot parse "" as "T""#,
            ),
            (
                "2026-01-02T03:04:05",
                r#"parsing time "2026-01-02T03:04:05" as "2006-01-02T15:04:05Z07:00": cannot parse "" as "Z07:00""#,
            ),
            ("2026-13-02T03:04:05Z", r#"parsing time "2026-13-02T03:04:05Z": month out of range"#),
            ("2026-02-30T03:04:05Z", r#"parsing time "2026-02-30T03:04:05Z": day out of range"#),
            ("2026-01-02T24:04:05Z", r#"parsing time "2026-01-02T24:04:05Z": hour out of range"#),
            ("2026-01-02T03:04:05Zx", r#"parsing time "2026-01-02T03:04:05Zx": extra text: "x""#),
            (
                "é",
                r#"parsing time "\xc3\xa9" as "2006-01-02T15:04:05Z07:00": cannot parse "\xc3\xa9" as "2006""#,
            ),
        ] {
            assert_eq!(parse(text).map_err(|error| error.to_string()), Err(want.to_owned()));
        }
        let micro = parse_micro("2026-01-02T03:04:05Z").map_err(|error| error.to_string());
        let want = r#"parsing time "2026-01-02T03:04:05Z" as "2006-01-02T15:04:05.000000Z07:00": cannot parse "Z" as ".000000""#;
        assert_eq!(micro, Err(want.to_owned()));
    }

    #[test]
    fn unix_times_go_both_ways() {
        for (text, unix) in [("2026-01-02T03:04:05Z", (1_767_323_045, 0)), ("1969-12-31T23:59:59Z", (-1, 0))]
        {
            assert_eq!(to_unix(text), Some(unix));
            assert_eq!(from_unix(unix.0).as_deref(), Some(text));
        }
        let micro = "1969-12-31T23:59:59.500000Z";
        assert_eq!(to_unix(micro), Some((-1, 500_000_000)));
        assert_eq!(micro_from_unix(-1, 500_000_000).as_deref(), Some(micro));
        assert_eq!(from_unix(-62_135_596_800), None);
        assert_eq!(from_unix(i64::MAX), None);
    }
}
