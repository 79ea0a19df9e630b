//! Fields that are set at creation and cannot change.

use serde_json::Value;

use super::printed;
use crate::field::{Errors, Field};

/// The message about a changed immutable field.
pub const IMMUTABLE: &str = "field is immutable";

/// Returns `true` if two members have the same value; an empty list or string equals an absent one.
pub fn same(new: &Field<'_>, old: &Field<'_>) -> bool {
    let empty = |field: &Field<'_>| field.value().is_none_or(is_empty);
    new.value() == old.value() || (empty(new) && empty(old))
}

/// Checks for an empty list or string, which equals an absent one. (An empty object may be a
/// pointer that is set.)
pub fn is_empty(value: &Value) -> bool {
    value.as_array().is_some_and(Vec::is_empty) || value.as_str().is_some_and(str::is_empty)
}

/// Requires that the new value equals the old one.
pub fn immutable(new: &Field<'_>, old: &Field<'_>, errors: &mut Errors) {
    errors.push_if(!same(new, old), || match new.value() {
        Some(_) => new.invalid(IMMUTABLE),
        None => new.invalid_value(Value::Null, IMMUTABLE),
    });
}

/// Applies [`immutable`] to a text that is not a pointer in Go: an absent one is printed as an
/// empty one.
pub fn immutable_text(new: &Field<'_>, old: &Field<'_>, errors: &mut Errors) {
    errors.push_if(new.str() != old.str(), || new.invalid(IMMUTABLE));
}

/// Applies [`immutable`] to a value that is printed in its internal representation, such as
/// `meta.LabelSelector`.
pub fn immutable_as(type_name: &'static str, new: &Field<'_>, old: &Field<'_>, errors: &mut Errors) {
    errors.push_if(!same(new, old), || printed::invalid(new, type_name, IMMUTABLE));
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn immutable_fields_cannot_change() {
        for (new, old, want) in [
            (json!("a"), json!("a"), ""),
            (json!([]), json!(null), ""),
            (json!("a"), json!("b"), "f: Invalid value: \"a\": field is immutable"),
            (json!(null), json!("b"), "f: Invalid value: null: field is immutable"),
        ] {
            let (new, old) = (json!({"f": new}), json!({"f": old}));
            let mut errors = Errors::new();
            immutable(&Field::root(&new).get("f"), &Field::root(&old).get("f"), &mut errors);
            assert_eq!(if errors.is_empty() { String::new() } else { errors.summary() }, want);
        }
    }

    #[test]
    fn an_absent_text_is_printed_as_an_empty_one() {
        let (new, old) = (json!({}), json!({"f": "b"}));
        let mut errors = Errors::new();
        immutable_text(&Field::root(&new).get("f"), &Field::root(&old).get("f"), &mut errors);
        immutable_text(&Field::root(&new).get("g"), &Field::root(&old).get("g"), &mut errors);
        assert_eq!(errors.summary(), "f: Invalid value: \"\": field is immutable");
    }
}
