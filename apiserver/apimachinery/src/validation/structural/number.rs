//! The rules for numbers.
//!
//! If the value is an integer, the bounds are truncated to integers. A bound that is not a number
//! of the type is an error of its own.

use std::cmp::Ordering;

use serde_json::{Number, Value};

use crate::go_value::GoValue;
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
    let mut compared = |prefix: &str, bound: f64| compare(number, bound, check(prefix, bound));
    let factor = rules.multiple_of.map(|factor| compared("MultipleOf", factor));
    let minimum = rules.minimum.map(|bound| (compared("Minimum boundary", bound.value), bound));
    let maximum = rules.maximum.map(|bound| (compared("Maximum boundary", bound.value), bound));
    errors.extend(factor.and_then(|factor| factor.not_multiple()));
    if let Some((compared, Bound { exclusive, .. })) = minimum {
        let words = if exclusive { "greater than" } else { "greater than or equal to" };
        errors.extend(compared.out_of_bound(Ordering::Less, exclusive, words));
    }
    if let Some((compared, Bound { exclusive, .. })) = maximum {
        let words = if exclusive { "less than" } else { "less than or equal to" };
        errors.extend(compared.out_of_bound(Ordering::Greater, exclusive, words));
    }
    errors
}

/// A number beside the one in a rule.
enum Compared {
    /// Both as integers.
    Whole(i64, i64),
    Float(f64, f64),
}

/// Brings a number and that of a rule to one type. An integer is compared with integers, exactly,
/// if the rule's number is of the type of the value; that number is cut then.
fn compare(number: &Number, of_rule: f64, is_typed: bool) -> Compared {
    match number.as_i64().filter(|_| is_typed) {
        Some(value) => Compared::Whole(value, of_rule as i64),
        None => Compared::Float(number.as_f64().unwrap_or(f64::NAN), of_rule),
    }
}

impl Compared {
    /// Returns the number of the rule.
    fn of_rule(&self) -> Value {
        match self {
            Compared::Whole(_, of_rule) => Value::from(*of_rule),
            Compared::Float(_, of_rule) => Value::from(*of_rule),
        }
    }

    /// Returns the error of a value that lies on the wrong side of a bound.
    fn out_of_bound(&self, wrong: Ordering, is_exclusive: bool, words: &str) -> Option<NumberError> {
        let ordering = match self {
            Compared::Whole(value, bound) => Some(value.cmp(bound)),
            Compared::Float(value, bound) => value.partial_cmp(bound),
        };
        let is_refused = ordering == Some(wrong) || is_exclusive && ordering == Some(Ordering::Equal);
        let bound = self.of_rule();
        is_refused.then(|| NumberError::Value(format!("in body should be {words} {}", GoValue(&bound))))
    }

    fn not_multiple(&self) -> Option<NumberError> {
        let is_multiple = match *self {
            Compared::Whole(_, factor) if factor <= 0 => return Some(NumberError::Factor(factor as f64)),
            Compared::Float(_, factor) if factor <= 0.0 => return Some(NumberError::Factor(factor)),
            Compared::Whole(value, factor) => value % factor == 0,
            Compared::Float(value, factor) if factor < 1.0 => is_whole(value * (1.0 / factor)),
            Compared::Float(value, factor) => is_whole(value / factor),
        };
        let factor = self.of_rule();
        (!is_multiple)
            .then(|| NumberError::Value(format!("in body should be a multiple of {}", GoValue(&factor))))
    }
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
