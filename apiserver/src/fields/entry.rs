//! The entries of `metadata.managedFields`.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::collections::hash_map::Entry::{Occupied, Vacant};

use serde_json::{Value, json};

use super::FieldPathSet;
use super::set::Malformed;
use crate::object_meta::ObjectMeta;

/// The operation by which a manager got its fields. An apply sorts before an update.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Operation {
    /// Server-side apply.
    Apply,
    /// Any other write.
    Update,
}

/// The fields that one manager owns through one endpoint.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// The manager's name.
    pub manager: String,
    /// The operation.
    pub operation: Operation,
    /// The version of the fields.
    pub api_version: String,
    /// The subresource; "" for the main endpoint.
    pub subresource: String,
    /// RFC 3339, whole seconds; "" if absent.
    pub time: String,
    /// The owned fields.
    pub fields: FieldPathSet,
}

impl Entry {
    /// Returns `true` if both entries belong to the same manager. A manager that applies may change
    /// its version.
    pub fn is_same_manager(&self, other: &Entry) -> bool {
        self.manager == other.manager
            && self.operation == other.operation
            && self.subresource == other.subresource
            && (self.operation == Operation::Apply || self.api_version == other.api_version)
    }

    /// Returns the identity of the entry's manager, which is equal for two entries of the same
    /// manager.
    fn identity(&self) -> (Operation, String, String, Option<String>) {
        let version = (self.operation == Operation::Update).then(|| self.api_version.clone());
        (self.operation, self.manager.clone(), self.subresource.clone(), version)
    }

    /// Reads an entry of `managedFields`.
    ///
    /// # Errors
    /// The text of the malformed part.
    fn read(entry: &Value, index: usize) -> Result<Entry, String> {
        let text = |member: &str| entry.get(member).and_then(Value::as_str).unwrap_or("");
        let operation = match text("operation") {
            "Apply" => Operation::Apply,
            "Update" => Operation::Update,
            _ => return Err("operation must be `Apply` or `Update`".to_owned()),
        };
        if text("apiVersion").is_empty() {
            return Err("apiVersion must not be empty".to_owned());
        }
        match text("fieldsType") {
            "FieldsV1" => {}
            "" => return Err(format!("missing fieldsType in managed fields entry {index}")),
            other => {
                let other = crate::field::quote(other);
                return Err(format!("invalid fieldsType {other} in managed fields entry {index}"));
            }
        }
        let undecodable = |error: Malformed| {
            format!(
                "error decoding versioned set from managed fields entry {index}: error decoding set: {error}"
            )
        };
        Ok(Entry {
            manager: text("manager").to_owned(),
            operation,
            api_version: text("apiVersion").to_owned(),
            subresource: text("subresource").to_owned(),
            time: text("time").to_owned(),
            fields: FieldPathSet::parse(entry.get("fieldsV1").unwrap_or(&json!({}))).map_err(undecodable)?,
        })
    }

    fn write(self) -> Value {
        let operation = match self.operation {
            Operation::Apply => "Apply",
            Operation::Update => "Update",
        };
        let mut entry = json!({
            "manager": self.manager, "operation": operation, "apiVersion": self.api_version,
            "fieldsType": "FieldsV1", "fieldsV1": self.fields.into_value(),
        });
        for (member, value) in [("time", self.time), ("subresource", self.subresource)] {
            if !value.is_empty() {
                entry[member] = value.into();
            }
        }
        entry
    }

    /// Compares entries by their order in an object.
    pub fn order(&self, other: &Entry) -> Ordering {
        self.operation
            .cmp(&other.operation)
            .then_with(|| self.time.cmp(&other.time))
            .then_with(|| self.manager.cmp(&other.manager))
            .then_with(|| self.api_version.cmp(&other.api_version))
            .then_with(|| self.subresource.cmp(&other.subresource))
    }
}

/// Parses the list; None if any entry is malformed. Of two entries of one manager the later one
/// counts.
pub fn read(list: &Value) -> Option<Vec<Entry>> {
    parse(list).ok()
}

/// Parses the list. Of two entries of one manager the later one counts.
///
/// # Errors
/// The text of the malformed part.
pub fn parse(list: &Value) -> Result<Vec<Entry>, String> {
    let mut entries: Vec<Entry> = Vec::new();
    let mut places = HashMap::new();
    for (index, entry) in list.as_array().into_iter().flatten().enumerate() {
        let entry = Entry::read(entry, index)?;
        match places.entry(entry.identity()) {
            Occupied(place) => entries[*place.get()] = entry,
            Vacant(place) => {
                place.insert(entries.len());
                entries.push(entry);
            }
        }
    }
    Ok(entries)
}

/// Returns the list as objects have it, sorted; null if it is empty.
pub fn write(mut entries: Vec<Entry>) -> Value {
    if entries.is_empty() {
        return Value::Null;
    }
    entries.sort_by(Entry::order);
    entries.into_iter().map(Entry::write).collect()
}

/// Returns the entries of an object; empty if they are malformed.
pub fn entries_of(object: &Value) -> Vec<Entry> {
    object.meta("managedFields").and_then(read).unwrap_or_default()
}
