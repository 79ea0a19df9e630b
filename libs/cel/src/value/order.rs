//! The order of values.

use std::cmp::Ordering;

use super::Value;

impl Value<'_> {
    /// Compares two numbers of any types; None if one is NaN or is not of a numeric type.
    pub fn compare_numbers(&self, other: &Value<'_>) -> Option<Ordering> {
        match (self, other) {
            (Value::Double(a), Value::Double(b)) => a.partial_cmp(b),
            (Value::Double(a), _) => Some(compare_double(*a, other.whole()?)?),
            (_, Value::Double(b)) => Some(compare_double(*b, self.whole()?)?.reverse()),
            _ => Some(self.whole()?.cmp(&other.whole()?)),
        }
    }

    fn whole(&self) -> Option<i128> {
        match self {
            Value::Int(value) => Some((*value).into()),
            Value::Uint(value) => Some((*value).into()),
            _ => None,
        }
    }

    /// Compares two values of one ordered type.
    pub fn compare(&self, other: &Value<'_>) -> Option<Ordering> {
        match (self, other) {
            (Value::Bool(a), Value::Bool(b)) => Some(a.cmp(b)),
            (Value::String(a), Value::String(b)) => Some((**a).cmp(&**b)),
            (Value::Bytes(a), Value::Bytes(b)) => Some(a.cmp(b)),
            (Value::Duration(a), Value::Duration(b)) => Some(a.cmp(b)),
            (Value::Timestamp(a), Value::Timestamp(b)) => Some(a.at.cmp(&b.at)),
            (Value::Quantity(a), Value::Quantity(b)) => a.partial_cmp(b),
            (Value::Semver(a), Value::Semver(b)) => Some(a.cmp_precedence(b)),
            _ => self.compare_numbers(other),
        }
    }
}

fn compare_double(a: f64, b: i128) -> Option<Ordering> {
    if a.is_nan() {
        return None;
    }
    // Beyond the range of integers a number is greater or less than all of them.
    if a >= 2e19 {
        return Some(Ordering::Greater);
    }
    if a <= -2e19 {
        return Some(Ordering::Less);
    }
    let whole = a.trunc() as i128;
    Some(whole.cmp(&b).then_with(|| a.fract().partial_cmp(&0.0).unwrap_or(Ordering::Equal)))
}
