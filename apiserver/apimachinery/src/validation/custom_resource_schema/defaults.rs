//! Defaults have the type and satisfy the rules of their values, and say nothing that is not
//! specified.
//!
//! Source: apiextensions-apiserver, `schema/defaulting/validation.go`.

use std::time::Duration;

use coracle_cel::{Limits, Meter};

use crate::codec::structural::is_pruned;
use crate::field::{Errors, Field};
use crate::schema::structural::DefaultValue;
use crate::schema::{Structural, StructuralSchema};
use crate::validation::rules::{self, RuleSet};
use crate::validation::structural;

/// The work that the rules of all defaults of a schema may cause: whoever writes a definition waits
/// for it.
const LIMITS: Limits = Limits { steps: 5_000_000, bytes: 16 << 20, time: Duration::from_secs(1) };

/// Validates the defaults in a schema, which is read as `structural`.
pub(super) fn validate(schema: &Field<'_>, structural: &StructuralSchema, errors: &mut Errors) {
    if structural.has_defaults() {
        validate_inside(schema, structural.root(), true, &Meter::new(LIMITS), errors);
    }
}

fn validate_inside(
    schema: &Field<'_>,
    structural: &Structural,
    is_root: bool,
    meter: &Meter,
    errors: &mut Errors,
) {
    if errors.is_full() {
        return;
    }
    let is_object = is_root || structural.embedded_resource;
    if let Some(default) = &structural.default {
        validate_default(schema, structural, default, is_object, meter, errors);
    }
    if let Some(items) = &structural.items {
        validate_inside(&schema.get("items"), items, false, meter, errors);
    }
    let properties = schema.get("properties");
    for (name, property) in &structural.properties {
        validate_inside(&properties.entry(name), property, false, meter, errors);
    }
    if let Some(additional) = structural.additional_properties.as_deref().filter(|inner| !inner.unspecified) {
        validate_inside(&schema.get("additionalProperties"), additional, false, meter, errors);
    }
}

fn validate_default(
    schema: &Field<'_>,
    structural: &Structural,
    default: &DefaultValue,
    is_object: bool,
    meter: &Meter,
    errors: &mut Errors,
) {
    let field = schema.get("default");
    if !is_pruned(&default.value, structural, is_object) {
        errors.push(field.invalid("must not have unknown fields"));
    }
    let mut found = Errors::new();
    structural::validate_value(&default.value, structural, field.path(), &mut found);
    if found.is_empty()
        && let Some(schema) = schema.value()
    {
        let rules = RuleSet::of_value(schema, is_object);
        rules::validate(&field, None, &rules, meter, &mut found);
        // Rules about changes hold for the default as what it was before, too.
        if found.is_empty() {
            rules::validate(&field, Some(&field), &rules, meter, &mut found);
        }
    }
    errors.extend(found);
}
