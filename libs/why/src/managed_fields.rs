//! The field managers of an object, by `metadata.managedFields`.

use serde_json::Value;

use crate::text::{items, text, text_or_empty};

/// The manager of a field, and the time of its last write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Manager {
    pub name: String,
    pub time: String,
}

/// Returns the manager that set a finalizer.
pub fn of_finalizer(object: &Value, finalizer: &str) -> Option<Manager> {
    let element = format!("v:{}", Value::from(finalizer));
    manager(object, |fields| fields["f:metadata"]["f:finalizers"].get(&element).is_some())
}

/// Returns the manager that has an entry for a field, or the oldest one if several have.
fn manager(object: &Value, has: impl Fn(&Value) -> bool) -> Option<Manager> {
    let entries = items(&object["metadata"]["managedFields"]).filter(|entry| has(&entry["fieldsV1"]));
    let entry = entries.min_by_key(|entry| text_or_empty(&entry["time"]))?;
    let name = text(&entry["manager"])?.to_owned();
    Some(Manager { name, time: text_or_empty(&entry["time"]).to_owned() })
}
