//! Conflicts: fields that an apply would change, and other managers own.

use std::collections::BTreeMap;

use serde_json::json;

use super::FieldPathSet;
use super::entry::{Entry, Operation};
use crate::Error;
use crate::error::Status;
use crate::field::quote;

/// The fields of one manager.
#[derive(Clone, Debug, PartialEq)]
pub struct Conflict {
    /// The manager, as messages name it.
    pub manager: String,
    /// The fields.
    pub fields: FieldPathSet,
}

/// The fields of all managers.
pub type Conflicts = Vec<Conflict>;

impl Conflict {
    /// Creates the conflict with the manager of an entry, about all of its fields.
    pub fn with(entry: &Entry) -> Conflict {
        let mut manager = quote(&entry.manager);
        if !entry.subresource.is_empty() {
            manager.push_str(&format!(" with subresource {}", quote(&entry.subresource)));
        }
        if entry.operation == Operation::Update {
            manager.push_str(&format!(" using {}", entry.api_version));
        }
        Conflict { manager, fields: entry.fields.clone() }
    }
}

/// Creates the 409 of an apply.
pub fn error(conflicts: &[Conflict]) -> Error {
    let mut managers: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for conflict in conflicts {
        managers.entry(&conflict.manager).or_default().extend(conflict.fields.paths());
    }
    let causes: Vec<_> = managers
        .iter()
        .flat_map(|(manager, paths)| paths.iter().map(move |path| (manager, path)))
        .map(|(manager, path)| {
            json!({"reason": "FieldManagerConflict", "message": format!("conflict with {manager}"), "field": path})
        })
        .collect();
    let message = match managers.first_key_value() {
        Some((manager, paths)) if causes.len() == 1 => {
            format!("Apply failed with 1 conflict: conflict with {manager}: {}", paths.concat())
        }
        _ => {
            let texts: Vec<String> = managers
                .iter()
                .map(|(manager, paths)| format!("conflicts with {manager}:\n- {}", paths.join("\n- ")))
                .collect();
            format!("Apply failed with {} conflicts: {}", causes.len(), texts.join("\n"))
        }
    };
    Error::Status(Box::new(Status {
        code: 409,
        reason: "Conflict".into(),
        message,
        details: Some(json!({"causes": causes})),
        continue_token: None,
    }))
}
