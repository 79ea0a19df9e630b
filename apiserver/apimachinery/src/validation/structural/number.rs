//! The rules for numbers.
//!
//! If the value is an integer, the bounds are truncated to integers. A bound that is not a number
//! of the type is an error of its own.

use serde_json::Number;

use crate::schema::StructuralType;
use crate::schema::structural::{Bound, Structural};

/// An error in a number.
pub(super) enum NumberError {
    /// The value breaks a rule; the text follows the path.
    Value(String),
    /// This factor is invalid: no number is a multiple of it.
    Factor(f64),
    /// The number has another type; a complete message, which ends with the path.
    Type(String),
}

/// The greatest whole number that is exact as a float.
const MAX_EXACT: f64 = ((1_i64 << 53) - 1) as f64;

/// Returns `true` if a number counts as an integer.
pub(super) fn is_integer(number: &Number) -> bool {
    number.is_i64() || number.as_f64().is_some_and(is_whole)
}

fn is_whole(value: f64) -> bool {
    value.abs() <= MAX_EXACT && (value - value.round()).abs() < 1e-9
}

/// Returns the errors of a number.
pub(super) fn errors(number: &Number, structural: &Structural) -> Vec<NumberError> {
    let Some(value) = number.as_f64() else { return Vec::new() };
    let rules = &structural.rules;
    let mut errors = Vec::new();
    let mut check = |prefix: &str, value: f64| {
        let found = wrong_type(prefix, value, structural);
        let is_typed = found.is_none();
        errors.extend(found.map(NumberError::Type));
        is_typed
    };
    // A whole number has no other format to be of: as a float it might not be exact.
    if !number.is_i64() || rules.format.as_deref() == Some("int32") {
        check("Checked", value);
    }
    let cut = |bound: f64, is_typed: bool| if number.is_i64() && is_typed { bound.trunc() } else { bound };
    let factor = rules.multiple_of.map(|factor| cut(factor, check("MultipleOf", factor)));
    let minimum =
        rules.minimum.map(|bound| (cut(bound.value, check("Minimum boundary", bound.value)), bound));
    let maximum =
        rules.maximum.map(|bound| (cut(bound.value, check("Maximum boundary", bound.value)), bound));
    errors.extend(factor.and_then(|factor| not_multiple(value, factor)));
    if let Some((bound, Bound { exclusive, .. })) = minimum {
        let words = if exclusive { "greater than" } else { "greater than or equal to" };
        let refused = if exclusive { value <= bound } else { value < bound };
        errors.extend(refused.then(|| NumberError::Value(format!("in body should be {words} {bound}"))));
    }
    if let Some((bound, Bound { exclusive, .. })) = maximum {
        let words = if exclusive { "less than" } else { "less than or equal to" };
        let refused = if exclusive { value >= bound } else { value > bound };
        errors.extend(refused.then(|| NumberError::Value(format!("in body should be {words} {bound}"))));
    }
    errors
}

/// Returns the error if a number does not have the type. `prefix` names the validated number in the
/// message: the value or a bound.
fn wrong_type(prefix: &str, value: f64, structural: &Structural) -> Option<String> {
    let format = structural.rules.format.as_deref().unwrap_or_default();
    let ty = structural.ty?;
    // The limits are exact as floats.
    let fits = match (ty, format) {
        (StructuralType::Integer, "int32") => {
            value.fract() == 0.0 && value >= f64::from(i32::MIN) && value <= f64::from(i32::MAX)
        }
        (StructuralType::Integer, _) => {
            value.fract() == 0.0 && value >= i64::MIN as f64 && value < -(i64::MIN as f64)
        }
        (_, "float" | "float32") => value.abs() <= f64::from(f32::MAX),
        _ => true,
    };
    let form =
        if format.is_empty() { "(default format)".to_owned() } else { format!("with format {format}") };
    (!fits).then(|| format!("{prefix} value must be of type {} {form}", ty.name()))
}

fn not_multiple(value: f64, factor: f64) -> Option<NumberError> {
    if factor <= 0.0 {
        return Some(NumberError::Factor(factor));
    }
    let times = if factor < 1.0 { value * (1.0 / factor) } else { value / factor };
    (!is_whole(times)).then(|| NumberError::Value(format!("in body should be a multiple of {factor}")))
}
