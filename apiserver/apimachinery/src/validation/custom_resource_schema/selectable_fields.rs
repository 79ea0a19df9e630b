//! `selectableFields`: the fields of custom resources that selectors may name.

use std::collections::HashSet;

use crate::field::{Errors, Field, selectable_path};

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
        let Some(found) = resolve(schema, path.str()) else {
            errors.push(path.invalid("is an invalid path: does not refer to a valid field"));
            continue;
        };
        errors.push_if(path.str().starts_with(".metadata."), || {
            path.invalid("must not point to fields in metadata")
        });
        errors.push_if(!matches!(found.get("type").str(), "string" | "boolean" | "integer"), || {
            path.invalid("must point to a field of type string, boolean or integer. Enum string fields and strings with formats are allowed.")
        });
        errors.push_if(!seen.insert(path.str()), || path.duplicate());
    }
    errors.push_if(seen.len() > MAX_FIELDS, || fields.too_many(seen.len(), MAX_FIELDS));
}

/// Returns the schema of the value at a path of names: `.spec.color` or `.spec['color']`.
fn resolve<'f>(schema: &Field<'f>, path: &'f str) -> Option<Field<'f>> {
    let mut found = schema.clone();
    for name in selectable_path::parse(path)? {
        let property = found.get("properties").entry(name);
        found = if property.exists() { property } else { found.get("additionalProperties") };
        if !found.exists() {
            return None;
        }
    }
    Some(found)
}
