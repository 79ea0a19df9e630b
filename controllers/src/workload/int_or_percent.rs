//! Numbers that may be given as a percentage of a total.

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

/// The rounding of a percentage that does not result in a whole number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Round {
    Up,
    Down,
}

/// Returns the number, or the percentage of `total`. Returns `None` if a text is not a percentage.
///
/// Source: apimachinery's `GetScaledValueFromIntOrPercent`.
pub fn scaled_value(value: &IntOrString, total: i32, round: Round) -> Option<i32> {
    let text = match value {
        IntOrString::Int(number) => return Some(*number),
        IntOrString::String(text) => text,
    };
    let percent: i32 = text.strip_suffix('%')?.parse().ok()?;
    let hundredths = i64::from(percent) * i64::from(total);
    let rounded = match round {
        Round::Down => hundredths.div_euclid(100),
        Round::Up => hundredths.div_euclid(100) + i64::from(hundredths.rem_euclid(100) > 0),
    };
    Some(i32::try_from(rounded).unwrap_or(i32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentages_are_rounded_and_integers_taken_as_they_are() {
        let text = |text: &str| IntOrString::String(text.to_owned());
        for (value, total, up, down) in [
            (IntOrString::Int(3), 0, Some(3), Some(3)),
            (text("25%"), 10, Some(3), Some(2)),
            (text("25%"), 4, Some(1), Some(1)),
            (text("0%"), 9, Some(0), Some(0)),
            (text("100%"), i32::MAX, Some(i32::MAX), Some(i32::MAX)),
            (text("200%"), i32::MAX, Some(i32::MAX), Some(i32::MAX)),
            (text("25"), 10, None, None),
            (text("x%"), 10, None, None),
            (text(""), 10, None, None),
        ] {
            assert_eq!(scaled_value(&value, total, Round::Up), up, "{value:?} of {total}");
            assert_eq!(scaled_value(&value, total, Round::Down), down, "{value:?} of {total}");
        }
    }
}
