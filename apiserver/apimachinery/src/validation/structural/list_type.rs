//! The items of sets, and those with keys, are unique.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use serde_json::Value;

use crate::field::{Errors, Field};
use crate::names::Text;
use crate::schema::{List, Structural};

pub(super) fn validate(field: &Field<'_>, structural: &Structural, errors: &mut Errors) {
    match field.value() {
        Some(Value::Object(members)) => {
            for name in members.keys() {
                if let Some(member) = structural.member(name) {
                    validate(&field.get(name), member, errors);
                }
            }
        }
        Some(Value::Array(_)) => {
            validate_unique(field, &structural.list, errors);
            if let Some(item_type) = &structural.items {
                field.items().for_each(|item| validate(&item, item_type, errors));
            }
        }
        _ => {}
    }
}

fn validate_unique(field: &Field<'_>, list: &List, errors: &mut Errors) {
    if matches!(list, List::Map(_))
        && let Some(item) =
            field.items().find(|item| item.value().is_some_and(|item| !item.is_object() && !item.is_null()))
    {
        errors.push(item.invalid("must be an object for an array of list-type map"));
        return;
    }
    let mut seen: HashMap<String, bool> = HashMap::new();
    for item in field.items() {
        let Some(value) = item.value() else { continue };
        let key = match list {
            List::Atomic => return,
            List::Set => value.clone(),
            List::Map(keys) => key_of(value, keys),
        };
        // However often an item is repeated, it is reported once.
        match seen.entry(key.to_string()) {
            Entry::Vacant(place) => _ = place.insert(false),
            Entry::Occupied(mut reported) => {
                if !reported.insert(true) {
                    errors.push(item.duplicate_value(key));
                }
            }
        }
    }
}

/// Returns the members that identify an item.
pub(super) fn key_of(item: &Value, keys: &[Text]) -> Value {
    let key = |key: &Text| Some((key.to_string(), item.get(&**key)?.clone()));
    Value::Object(keys.iter().filter_map(key).collect())
}
