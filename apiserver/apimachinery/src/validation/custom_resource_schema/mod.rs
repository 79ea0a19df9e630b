//! The schemas in CustomResourceDefinitions, and the rules for them.
//!
//! | file | owns |
//! | --- | --- |
//! | `document.rs` | which parts of OpenAPI there are, and list types |
//! | `invariants.rs` | the rules of structural schemas |
//! | `defaults.rs` | defaults have the type and satisfy the rules of their values |
//! | `selectable_fields.rs` | the fields that selectors may name |
//!
//! Source: apiextensions-apiserver's `validateCustomResourceDefinitionValidation`; KEP-1693
//! (structural schemas).

mod defaults;
mod document;
mod invariants;
mod selectable_fields;

use serde_json::Value;

use crate::field::{Errors, Field};
use crate::schema::StructuralSchema;

pub use document::has_defaults;
pub use selectable_fields::validate_selectable_fields;

/// The members that the root of a schema may have where the status has an endpoint of its own, in
/// the words of Go.
const AT_STATUS_ROOT: [(&str, &str); 22] = [
    ("description", "Description"),
    ("type", "Type"),
    ("format", "Format"),
    ("title", "Title"),
    ("maximum", "Maximum"),
    ("exclusiveMaximum", "ExclusiveMaximum"),
    ("minimum", "Minimum"),
    ("exclusiveMinimum", "ExclusiveMinimum"),
    ("maxLength", "MaxLength"),
    ("minLength", "MinLength"),
    ("pattern", "Pattern"),
    ("maxItems", "MaxItems"),
    ("minItems", "MinItems"),
    ("uniqueItems", "UniqueItems"),
    ("multipleOf", "MultipleOf"),
    ("required", "Required"),
    ("items", "Items"),
    ("properties", "Properties"),
    ("externalDocs", "ExternalDocs"),
    ("example", "Example"),
    ("x-kubernetes-preserve-unknown-fields", "XPreserveUnknownFields"),
    ("x-kubernetes-validations", "XValidations"),
];

/// Validates the `openAPIV3Schema` of a version. `has_status`: the status has an endpoint of its
/// own.
pub fn validate(schema: &Field<'_>, has_status: bool, errors: &mut Errors) {
    if !schema.exists() {
        return;
    }
    let before = errors.len();
    if has_status {
        validate_status_root(schema, errors);
    }
    let nullable = schema.get("nullable");
    errors.push_if(nullable.bool(), || nullable.forbidden("nullable cannot be true at the root"));
    if !schema.value().is_some_and(document::is_unsupported) {
        errors.extend(structure_and_defaults(schema));
    }
    document::validate(schema, errors);
    let names_a_schema = || schema.value().is_some_and(document::names_a_schema);
    errors.push_if(errors.len() == before && names_a_schema(), || {
        schema.invalid_value("", "OpenAPIV3Schema 'schema' is not supported")
    });
}

/// Returns `true` if a schema is structural and its defaults are valid.
pub fn is_sound(schema: &Field<'_>) -> bool {
    structure_and_defaults(schema).is_empty()
}

fn structure_and_defaults(schema: &Field<'_>) -> Errors {
    let mut found = structural_errors(schema);
    if found.is_empty()
        && let Ok(structural) = StructuralSchema::read(schema.value().cloned().unwrap_or_default())
    {
        defaults::validate(schema, &structural, &mut found);
    }
    found
}

/// Returns the reasons why a schema is not structural, sorted.
pub fn structural_errors(schema: &Field<'_>) -> Errors {
    let mut found = Errors::new();
    invariants::validate(schema, &mut found);
    let mut sorted: Vec<_> = found.into_iter().map(|error| (error.to_string(), error)).collect();
    sorted.sort_by(|(a, _), (b, _)| a.cmp(b));
    let mut errors = Errors::new();
    errors.extend(sorted.into_iter().map(|(_, error)| error));
    errors
}

fn validate_status_root(schema: &Field<'_>, errors: &mut Errors) {
    let members = schema.value().and_then(Value::as_object).into_iter().flatten();
    for (name, value) in members {
        if name == "type" {
            let ty = schema.get("type");
            if ty.str() != "object" {
                return errors.push(ty.invalid(
                    "only \"object\" is allowed as the type at the root of the schema if the status subresource is enabled",
                ));
            }
        } else if !is_zero(value) && !AT_STATUS_ROOT.iter().any(|(known, _)| known == name) {
            let names: Vec<&str> = AT_STATUS_ROOT.iter().map(|(_, name)| *name).collect();
            return errors.push(schema.invalid(format!(
                "only [{}] fields are allowed at the root of the schema if the status subresource is enabled",
                names.join(" ")
            )));
        }
    }
}

fn is_zero(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::String(text) => text.is_empty(),
        _ => false,
    }
}

#[cfg(test)]
mod tests;
