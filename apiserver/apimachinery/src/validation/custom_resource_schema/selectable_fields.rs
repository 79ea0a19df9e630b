//! `selectableFields`: the fields of custom resources that selectors may name.

use std::collections::HashSet;

use serde_json::Value;

use crate::field::{Errors, Field};
use crate::validation::rules::{FieldPath, Notation};

/// The largest number of selectable fields of a version.
const MAX_FIELDS: usize = 8;

/// Validates the selectable fields of a version by its schema.
pub fn validate_selectable_fields(fields: &Field<'_>, schema: &Field<'_>, errors: &mut Errors) {
    let mut seen = HashSet::new();
    for field in fields.items() {
        let path = field.get("jsonPath");
        if path.is_empty() {
            errors.push(path.required(""));
            continue;
        }
        let root = schema.value().unwrap_or(&Value::Null);
        let (steps, found) = match FieldPath::resolve(path.str(), root, Notation::Dots) {
            Ok(found) => found,
            Err(error) => {
                errors.push(path.invalid(format!("is an invalid path: {error}")));
                continue;
            }
        };
        errors.push_if(steps.root() == Some("metadata"), || {
            path.invalid("must not point to fields in metadata")
        });
        let ty = found.and_then(|found| found.get("type")?.as_str());
        errors.push_if(!matches!(ty, Some("string" | "boolean" | "integer")), || {
            path.invalid("must point to a field of type string, boolean or integer. Enum string fields and strings with formats are allowed.")
        });
        errors.push_if(!seen.insert(steps), || path.duplicate());
    }
    errors.push_if(seen.len() > MAX_FIELDS, || fields.too_many(seen.len(), MAX_FIELDS));
}
