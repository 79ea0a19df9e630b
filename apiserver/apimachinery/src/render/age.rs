//! Ages and durations in two or three significant figures: `5s`, `2m30s`, `3h`, `47d`, `2y40d`.

use jiff::Timestamp;

use crate::field::Field;

const MINUTE: i64 = 60;
const HOUR: i64 = 60 * MINUTE;
const DAY: i64 = 24 * HOUR;
const YEAR: i64 = 365 * DAY;

/// Formats a duration, given in whole seconds. Clocks may differ by a second; a time further in the
/// future is `<invalid>`.
pub fn human_duration(seconds: i64) -> String {
    let two = |value: i64, unit: &str, rest: i64, rest_unit: &str| match rest {
        0 => format!("{value}{unit}"),
        rest => format!("{value}{unit}{rest}{rest_unit}"),
    };
    match seconds {
        ..-1 => "<invalid>".into(),
        -1 => "0s".into(),
        s if s < 2 * MINUTE => format!("{s}s"),
        s if s < 10 * MINUTE => two(s / MINUTE, "m", s % MINUTE, "s"),
        s if s < 3 * HOUR => format!("{}m", s / MINUTE),
        s if s < 8 * HOUR => two(s / HOUR, "h", s % HOUR / MINUTE, "m"),
        s if s < 2 * DAY => format!("{}h", s / HOUR),
        s if s < 8 * DAY => two(s / DAY, "d", s % DAY / HOUR, "h"),
        s if s < 2 * YEAR => format!("{}d", s / DAY),
        s if s < 8 * YEAR => two(s / YEAR, "y", s % YEAR / DAY, "d"),
        s => format!("{}y", s / YEAR),
    }
}

/// Parses the time in a field; None if it is absent or not a time.
pub fn moment(field: &Field<'_>) -> Option<Timestamp> {
    field.str().parse().ok()
}

/// Formats the age of a time.
pub fn since(then: Timestamp, now: Timestamp) -> String {
    human_duration(now.duration_since(then).as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_two_or_three_significant_figures() {
        for (seconds, want) in [
            (-2, "<invalid>"),
            (-1, "0s"),
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (121, "2m1s"),
            (599, "9m59s"),
            (600, "10m"),
            (659, "10m"),
            (3 * HOUR - 1, "179m"),
            (3 * HOUR, "3h"),
            (3 * HOUR + 61, "3h1m"),
            (8 * HOUR - 1, "7h59m"),
            (8 * HOUR + 61, "8h"),
            (48 * HOUR - 1, "47h"),
            (48 * HOUR, "2d"),
            (49 * HOUR, "2d1h"),
            (8 * DAY - 1, "7d23h"),
            (8 * DAY, "8d"),
            (2 * YEAR - 1, "729d"),
            (2 * YEAR, "2y"),
            (2 * YEAR + 3 * DAY, "2y3d"),
            (8 * YEAR - 1, "7y364d"),
            (8 * YEAR + DAY, "8y"),
        ] {
            assert_eq!(human_duration(seconds), want, "{seconds}");
        }
    }

    #[test]
    fn fractions_are_cut() {
        let now: Timestamp = "2026-01-01T00:00:10Z".parse().expect("a time");
        for (then, want) in [
            ("2026-01-01T00:00:00.900000Z", "9s"),
            ("2026-01-01T00:00:11.900000Z", "0s"),
            ("2026-01-01T00:00:12Z", "<invalid>"),
        ] {
            assert_eq!(since(then.parse().expect("a time"), now), want, "{then}");
        }
    }
}
