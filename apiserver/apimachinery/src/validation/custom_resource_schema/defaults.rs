//! Defaults have the type and satisfy the rules of their values, and say nothing that is not specified.

use crate::codec::structural::is_pruned;
use crate::field::{Errors, Field};
use crate::schema::Structural;
use crate::validation::structural;

/// Validates the defaults in a schema, which is read as `structural`.
pub(super) fn validate(schema: &Field<'_>, structural: &Structural, errors: &mut Errors) {
    validate_inside(schema, structural, true, errors);
}

fn validate_inside(schema: &Field<'_>, structural: &Structural, is_root: bool, errors: &mut Errors) {
    if errors.is_full() {
        return;
    }
    if let Some(default) = &structural.default {
        let field = schema.get("default");
        if is_pruned(&default.value, structural, is_root) {
            structural::validate_value(&default.value, structural, field.path(), errors);
        } else {
            errors.push(field.invalid("must not have unknown fields"));
        }
    }
    if let Some(items) = &structural.items {
        validate_inside(&schema.get("items"), items, false, errors);
    }
    let properties = schema.get("properties");
    for (name, property) in &structural.properties {
        validate_inside(&properties.entry(name), property, false, errors);
    }
    if let Some(additional) = structural.additional_properties.as_deref().filter(|inner| !inner.unspecified) {
        validate_inside(&schema.get("additionalProperties"), additional, false, errors);
    }
}
