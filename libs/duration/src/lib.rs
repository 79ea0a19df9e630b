//! Duration: durations as Go writes them (`1h30m`, `-1.5s`, `500ms`).
//!
//! They are in flags, in query parameters, in the schedules of CronJobs and in annotations.
//!
//! Accepts what Go's `time.ParseDuration` accepts, with the same result to the nanosecond and the
//! same errors, except for sums that wrap around in Go. Parsers of other notations, such as jiff's,
//! accept more (`1 hour`, `PT1H`).

#![warn(missing_docs)]

use jiff::SignedDuration;

/// An error about a text that is not a duration, with Go's message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DurationError {
    /// It is not a sequence of numbers with units, or is more than 2^63 nanoseconds.
    #[error("time: invalid duration {}", quote(.text))]
    Invalid {
        /// The text.
        text: String,
    },
    /// A number has no unit.
    #[error("time: missing unit in duration {}", quote(.text))]
    MissingUnit {
        /// The text.
        text: String,
    },
    /// A number has a unit that does not exist.
    #[error("time: unknown unit {} in duration {}", quote(.unit), quote(.text))]
    UnknownUnit {
        /// The unit.
        unit: String,
        /// The text.
        text: String,
    },
}

/// The units, in nanoseconds. Micro is written in two ways: as the micro sign and as the Greek
/// letter.
const UNITS: [(&str, u64); 8] = [
    ("ns", 1),
    ("us", 1_000),
    ("\u{b5}s", 1_000),
    ("\u{3bc}s", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
];

/// The maximum number of nanoseconds that any number may amount to; only a negative duration may
/// have that many.
const LIMIT: u64 = 1 << 63;

/// Prints a duration as Go's `time.Duration` does: `1h0m0.5s`, `250ms`, `0s`. It is cut to 64 bits
/// of nanoseconds.
pub fn print(duration: SignedDuration) -> String {
    let most = if duration.is_negative() { i64::MIN } else { i64::MAX };
    let nanos = i64::try_from(duration.as_nanos()).unwrap_or(most);
    let (sign, nanos) = (if nanos < 0 { "-" } else { "" }, nanos.unsigned_abs());
    let in_unit = |nanos: u64, unit: u64| {
        let digits = unit.ilog10() as usize;
        let fraction = format!("{:0digits$}", nanos % unit);
        let fraction = fraction.trim_end_matches('0');
        let whole = nanos / unit;
        if fraction.is_empty() { whole.to_string() } else { format!("{whole}.{fraction}") }
    };
    let text = match nanos {
        0 => "0s".to_owned(),
        1..1_000 => format!("{nanos}ns"),
        1_000..1_000_000 => format!("{}\u{b5}s", in_unit(nanos, 1_000)),
        1_000_000..1_000_000_000 => format!("{}ms", in_unit(nanos, 1_000_000)),
        _ => {
            let minutes = nanos / 60_000_000_000;
            let seconds = in_unit(nanos % 60_000_000_000, 1_000_000_000);
            match (minutes / 60, minutes % 60) {
                (0, 0) => format!("{seconds}s"),
                (0, minutes) => format!("{minutes}m{seconds}s"),
                (hours, minutes) => format!("{hours}h{minutes}m{seconds}s"),
            }
        }
    };
    format!("{sign}{text}")
}

/// Parses a duration: an optional sign, then numbers with units; `0` needs no unit.
///
/// # Errors
/// The text is not a duration, or does not fit into 64 bits of nanoseconds.
pub fn parse(text: &str) -> Result<SignedDuration, DurationError> {
    let invalid = || DurationError::Invalid { text: text.to_owned() };
    let mut rest = text.strip_prefix(['+', '-']).unwrap_or(text);
    if rest == "0" {
        return Ok(SignedDuration::ZERO);
    }
    if rest.is_empty() {
        return Err(invalid());
    }
    let mut total: u64 = 0;
    while !rest.is_empty() {
        let (whole, tail) = split_digits(rest);
        let (fraction, tail) = tail.strip_prefix('.').map_or(("", tail), split_digits);
        let number = match (whole, fraction) {
            ("", "") => None,
            ("", _) => Some(0),
            _ => whole.parse::<u64>().ok(),
        };
        let number = number.filter(|number| *number <= LIMIT).ok_or_else(invalid)?;
        let end = tail.find(|c: char| c == '.' || c.is_ascii_digit()).unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(end);
        if unit.is_empty() {
            return Err(DurationError::MissingUnit { text: text.to_owned() });
        }
        let Some((_, nanos)) = UNITS.iter().find(|(name, _)| *name == unit) else {
            return Err(DurationError::UnknownUnit { unit: unit.to_owned(), text: text.to_owned() });
        };
        let nanos = number.checked_mul(*nanos).and_then(|whole| whole.checked_add(part(fraction, *nanos)));
        let sum = nanos.and_then(|nanos| total.checked_add(nanos)).filter(|sum| *sum <= LIMIT);
        total = sum.ok_or_else(invalid)?;
        rest = tail;
    }
    let nanos = if text.starts_with('-') { -i128::from(total) } else { i128::from(total) };
    i64::try_from(nanos).map(SignedDuration::from_nanos).map_err(|_| invalid())
}

fn split_digits(text: &str) -> (&str, &str) {
    text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()))
}

/// Returns the nanoseconds of a fraction of a unit. Digits that do not fit into 63 bits are
/// ignored.
fn part(fraction: &str, unit: u64) -> u64 {
    let (mut number, mut scale) = (0_u64, 1.0_f64);
    for digit in fraction.bytes() {
        let longer = number.checked_mul(10).and_then(|tens| tens.checked_add(u64::from(digit - b'0')));
        let Some(longer) = longer.filter(|longer| *longer <= LIMIT) else { break };
        number = longer;
        scale *= 10.0;
    }
    (number as f64 * (unit as f64 / scale)) as u64
}

/// Quotes the text as Go's package `time` does: bytes that are not printable ASCII in hexadecimal.
fn quote(text: &str) -> String {
    let mut quoted = String::from('"');
    for byte in text.bytes() {
        match byte {
            b'"' | b'\\' => quoted.extend(['\\', char::from(byte)]),
            b' '..=0x7f => quoted.push(char::from(byte)),
            _ => quoted.push_str(&format!("\\x{byte:02x}")),
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests;
