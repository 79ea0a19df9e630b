//! Annotations and parameters below `sim.coracle.dev/`, which configure the simulation.

use std::collections::BTreeMap;
use std::time::Duration;

pub const PREFIX: &str = "sim.coracle.dev/";

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

pub fn flag(text: &str) -> Result<bool, &'static str> {
    text.parse().map_err(|_| "neither true nor false")
}

pub fn exit_code(text: &str) -> Result<i32, &'static str> {
    text.parse::<u8>().map(i32::from).map_err(|_| "not a number from 0 to 255")
}

pub fn count(text: &str) -> Result<u32, &'static str> {
    text.parse().map_err(|_| "not a number such as 0 or 3")
}

/// A duration as Go writes it, such as `1m30s`; none below zero.
pub fn duration(text: &str) -> Result<Duration, &'static str> {
    let duration = coracle_duration::parse(text).ok().and_then(|duration| duration.try_into().ok());
    duration.ok_or("not a duration such as 500ms, 2s or 1m30s")
}

#[cfg(test)]
mod tests {
    use super::*;

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
