//! Directives: members of a patch that start with `$`.

use serde_json::{Map, Value};

use crate::Error;
use crate::go_value::{GoString, GoValue};

/// Says what is done with a map or an item.
pub const DIRECTIVE: &str = "$patch";
/// Lists the members that stay.
pub const RETAIN_KEYS: &str = "$retainKeys";
/// Begins the names of members with the order of a list.
pub const ORDER: &str = "$setElementOrder";
/// Begins the names of members with values to delete.
pub const DELETE_FROM: &str = "$deleteFromPrimitiveList";

/// Drops the directives in a value; returns false if the value itself is a directive.
pub fn drop_directives(value: &mut Value) -> bool {
    match value {
        Value::Object(members) if members.contains_key(DIRECTIVE) => return false,
        Value::Object(members) => members.retain(|_, member| drop_directives(member)),
        Value::Array(elements) => elements.retain_mut(drop_directives),
        _ => {}
    }
    true
}

/// Creates the error for an unknown value of `$patch`.
pub fn unknown_directive(patch: &Map<String, Value>) -> Error {
    let directive = patch.get(DIRECTIVE).unwrap_or(&Value::Null);
    let patch = Value::Object(patch.clone());
    Error::Unclassified(format!("unknown patch type: {} in map: {}", GoString(directive), GoValue(&patch)))
}
