//! Annotations and parameters below `sim.coracle.dev/`, which configure the simulation.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::time::Duration;

/// The prefix of all keys that configure the simulation.
pub const PREFIX: &str = "sim.coracle.dev/";

/// The exit codes of processes.
pub const EXIT_CODES: RangeInclusive<i32> = 0..=255;

/// Passes each entry below the prefix to `set`, and returns a warning for each one that it rejects.
///
/// - `what`: of what kind the entries are
/// - `set`: gets the name without the prefix and the value; its error says what it expected
pub fn read(
    what: &str,
    entries: Option<&BTreeMap<String, String>>,
    mut set: impl FnMut(&str, &str) -> Result<(), &'static str>,
) -> Vec<String> {
    let ours = entries
        .into_iter()
        .flatten()
        .filter_map(|(key, value)| Some((key, key.strip_prefix(PREFIX)?, value)));
    ours.filter_map(|(key, name, value)| {
        let expected = set(name, value).err()?;
        Some(format!("Ignored {what} {key}={value:?}: {expected}"))
    })
    .collect()
}

/// Parses `true` or `false`.
///
/// # Errors
/// The text is neither.
pub fn flag(text: &str) -> Result<bool, &'static str> {
    text.parse().map_err(|_| "neither true nor false")
}

/// Parses the exit code of a process: 0 to 255.
///
/// # Errors
/// The text is invalid.
pub fn exit_code(text: &str) -> Result<i32, &'static str> {
    text.parse::<u8>().map(i32::from).map_err(|_| "not a number from 0 to 255")
}

/// Completion indexes of Jobs.
pub type IndexRanges = Vec<RangeInclusive<i32>>;

/// Parses indexes and ranges of them, such as `1,3-5`.
///
/// # Errors
/// A part is neither.
pub fn indexes(text: &str) -> Result<IndexRanges, &'static str> {
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (first.parse::<u16>().ok()?, last.parse::<u16>().ok()?);
        Some(i32::from(first)..=i32::from(last))
    };
    text.split(',').map(range).collect::<Option<_>>().ok_or("not indexes such as 1,3 or 0-2")
}

/// Parses a number of times.
///
/// # Errors
/// The text is invalid, or the number is too large.
pub fn count(text: &str) -> Result<u32, &'static str> {
    text.parse().map_err(|_| "not a number such as 0 or 3")
}

/// Checks an amount of CPU or memory.
///
/// # Errors
/// The text is invalid, or the number is negative.
pub fn amount(text: &str) -> Result<(), &'static str> {
    let amount = text.parse::<coracle_quantity::Quantity>().ok();
    amount.filter(|amount| !amount.is_negative()).map(drop).ok_or("not an amount such as 250m or 64Mi")
}

/// Parses a duration in Go's format, such as `1m30s`.
///
/// # Errors
/// The text is invalid, or the duration is negative.
pub fn duration(text: &str) -> Result<Duration, &'static str> {
    let duration = coracle_duration::parse(text).ok().and_then(|duration| duration.try_into().ok());
    duration.ok_or("not a duration such as 500ms, 2s or 1m30s")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_indexes() {
        assert_eq!(indexes("1,3-5"), Ok(vec![1..=1, 3..=5]));
        for wrong in ["", "1,", "x", "-1", "1-2-3", "1, 2"] {
            assert!(indexes(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn durations() {
        let millis = |text| duration(text).ok().map(|d| d.as_millis());
        for (text, want) in [
            ("2s", Some(2000)),
            ("500ms", Some(500)),
            ("1m30s", Some(90_000)),
            ("1.5h", Some(5_400_000)),
            ("0s", Some(0)),
            ("0", Some(0)),
            ("", None),
            ("2", None),
            ("-2s", None),
            ("soon", None),
            ("2 s", None),
            ("99999999999999999999h", None),
        ] {
            assert_eq!(millis(text), want, "{text}");
        }
    }
}
