//! The rules for numbers, and for fields that hold a number or a percentage.

use serde_json::Value;

use crate::field::{Errors, Field};
use crate::validation::content;

/// The message about a negative number.
pub const NOT_NEGATIVE: &str = "must be greater than or equal to 0";

/// Requires that a number is not negative. An absent number is valid.
pub fn not_negative(field: &Field<'_>, errors: &mut Errors) {
    errors.push_if(field.int().is_some_and(|number| number < 0), || field.invalid(NOT_NEGATIVE));
}

/// Validates a non-negative number, or a percentage.
pub fn int_or_percent(field: &Field<'_>, errors: &mut Errors) {
    match field.value() {
        Some(Value::String(text)) => errors.invalid_each(field, content::percent(text)),
        _ => not_negative(field, errors),
    }
}

/// Rejects a percentage above 100; a number is never rejected.
pub fn at_most_100_percent(field: &Field<'_>, errors: &mut Errors) {
    errors.push_if(percent(field).is_some_and(|percent| percent > 100), || {
        field.invalid("must not be greater than 100%")
    });
}

/// Returns the number, given as a number or as a text, or the number before the percent sign; 0 for
/// anything else.
pub fn int_or_percent_value(field: &Field<'_>) -> i64 {
    field.int().or_else(|| percent(field)).or_else(|| field.str().parse().ok()).unwrap_or(0)
}

fn percent(field: &Field<'_>) -> Option<i64> {
    let digits = field.str().strip_suffix('%')?;
    digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_malformed_percentage_has_no_value() {
        for (value, want) in [("10%", 10), ("-10%", 0), ("%", 0), ("+5%", 0), ("7", 7), ("x", 0)] {
            let object = json!({"f": value});
            assert_eq!(int_or_percent_value(&Field::root(&object).get("f")), want, "{value}");
        }
    }

    #[test]
    fn numbers_and_percentages_are_validated() {
        for (value, want) in [
            (json!(null), ""),
            (json!(0), ""),
            (json!(-1), "f: Invalid value: -1: must be greater than or equal to 0"),
            (json!("100%"), ""),
            (json!("101%"), "f: Invalid value: \"101%\": must not be greater than 100%"),
            (
                json!("5"),
                "f: Invalid value: \"5\": a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', regex used for validation is '[0-9]+%')",
            ),
        ] {
            let object = json!({"f": value});
            let (field, mut errors) = (Field::root(&object).get("f"), Errors::new());
            int_or_percent(&field, &mut errors);
            at_most_100_percent(&field, &mut errors);
            assert_eq!(if errors.is_empty() { String::new() } else { errors.summary() }, want, "{value}");
        }
    }
}
