//! Equality of values. It counts what it visits: values that are shared many times over are visited
//! as often.

use std::cmp::Ordering;
use std::collections::HashSet;

use super::{List, Map, Value};
use crate::decl::ListSemantics;
use crate::error::EvalError;
use crate::meter::{Limits, Meter};

type Result<T> = std::result::Result<T, EvalError>;

/// Items of a list in any order of more items than this are compared by their texts.
const SEARCHED: usize = 32;

impl Value<'_> {
    /// Returns `true` if two values are equal. Numbers are compared across types.
    ///
    /// # Errors
    /// [`EvalError::WorkLimit`] if they have more values than may be visited.
    pub fn equals(&self, other: &Value<'_>, meter: &Meter) -> Result<bool> {
        meter.visit(1)?;
        Ok(match (self, other) {
            (Value::Null, Value::Null) => true,
            (Value::Bool(a), Value::Bool(b)) => a == b,
            (Value::String(a), Value::String(b)) => {
                meter.read(a.len().min(b.len()))?;
                **a == **b
            }
            (Value::Bytes(a), Value::Bytes(b)) => {
                // Bytes of the object are decoded from base64 first.
                meter.read(a.len().max(b.len()) * 8)?;
                a == b
            }
            (Value::Duration(a), Value::Duration(b)) => a == b,
            (Value::Timestamp(a), Value::Timestamp(b)) => a == b,
            (Value::Type(a), Value::Type(b)) => a.name() == b.name(),
            (Value::List(a), Value::List(b)) => lists_equal(a, b, meter)?,
            (Value::Map(a), Value::Map(b)) => maps_equal(a, b, meter)?,
            (Value::Optional(a), Value::Optional(b)) => match (a, b) {
                (None, None) => true,
                (Some(a), Some(b)) => a.equals(b, meter)?,
                _ => false,
            },
            (Value::Quantity(a), Value::Quantity(b)) => a == b,
            (Value::Ip(a), Value::Ip(b)) => a == b,
            (Value::Cidr(a), Value::Cidr(b)) => a == b,
            (Value::Url(a), Value::Url(b)) => a == b,
            (Value::Semver(a), Value::Semver(b)) => a.cmp_precedence(b) == Ordering::Equal,
            (Value::Format(a), Value::Format(b)) => a == b,
            (Value::Object(a), Value::Object(b)) => {
                if a.name != b.name || a.fields.len() != b.fields.len() {
                    return Ok(false);
                }
                for (name, value) in &a.fields {
                    let Some(other) = b.fields.get(name) else { return Ok(false) };
                    if !value.equals(other, meter)? {
                        return Ok(false);
                    }
                }
                true
            }
            _ => self.compare_numbers(other) == Some(Ordering::Equal),
        })
    }
}

/// For tests, whose values are small.
impl PartialEq for Value<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.equals(other, &Meter::new(Limits::REQUEST)).unwrap_or(false)
    }
}

impl List<'_> {
    /// Returns the index of the first item that equals a value.
    pub(crate) fn position(&self, wanted: &Value<'_>, meter: &Meter) -> Result<Option<usize>> {
        for (at, item) in self.iter().enumerate() {
            if wanted.equals(&item, meter)? {
                return Ok(Some(at));
            }
        }
        Ok(None)
    }

    /// Returns `true` if the list has all items of another list.
    pub(crate) fn has_all(&self, others: &List<'_>, meter: &Meter) -> Result<bool> {
        for other in others.iter() {
            if self.position(&other, meter)?.is_none() {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

impl<'a> List<'a> {
    /// Returns the semantics of a list of the evaluated object, or of a union with it; None if it
    /// has none.
    pub(crate) fn semantics(&self) -> Option<&'a ListSemantics> {
        match self {
            List::Json(_, _, semantics) | List::Union(_, semantics) => Some(semantics),
            List::Values(_) => None,
        }
    }
}

/// Compares two lists by the semantics of the first one, as upstream does: all items of the second
/// are in a set, in any order and number.
fn lists_equal(a: &List<'_>, b: &List<'_>, meter: &Meter) -> Result<bool> {
    if a.len() != b.len() {
        return Ok(false);
    }
    if matches!(a.semantics(), None | Some(ListSemantics::Atomic)) {
        for (a, b) in a.iter().zip(b.iter()) {
            if !a.equals(&b, meter)? {
                return Ok(false);
            }
        }
        return Ok(true);
    }
    if a.len() > SEARCHED
        && let Some((a, b)) = texts(a, meter)?.zip(texts(b, meter)?)
    {
        return Ok(b.is_subset(&a));
    }
    a.has_all(b, meter)
}

/// Returns the items as texts; None if one of them has none.
fn texts(list: &List<'_>, meter: &Meter) -> Result<Option<HashSet<String>>> {
    let mut texts = HashSet::with_capacity(list.len());
    for item in list.iter() {
        let Some(json) = item.to_json(meter)? else { return Ok(None) };
        texts.insert(json.to_string());
    }
    Ok(Some(texts))
}

fn maps_equal(a: &Map<'_>, b: &Map<'_>, meter: &Meter) -> Result<bool> {
    if a.len() != b.len() {
        return Ok(false);
    }
    meter.visit(a.len() as u64)?;
    for key in a.keys() {
        let equal = match (a.at(&key), b.at(&key)) {
            (Some(a), Some(b)) => a.equals(&b, meter)?,
            (None, None) => true,
            _ => false,
        };
        if !equal {
            return Ok(false);
        }
    }
    Ok(true)
}
