//! The validation of custom resources against their structural schemas.
//!
//! | file | owns |
//! | --- | --- |
//! | `value.rs` | one value: its type, its rules, and those of its children |
//! | `number.rs` | the rules for numbers |
//! | `composition.rs` | `allOf`, `anyOf`, `oneOf` and `not` |
//! | `list_type.rs` | unique items of sets, and of lists with keys |
//! | `embedded.rs` | embedded resources |
//!
//! An update may keep values that were invalid before: errors in a value that equals the old one
//! are dropped.
//!
//! Source: OpenAPI v3, with the messages of kube-openapi's validator; KEP-4008 for updates.

mod composition;
mod embedded;
mod list_type;
mod number;
mod value;

use serde_json::Value;

use crate::field::{Errors, Field, Path};
use crate::schema::{Structural, StructuralSchema};

use value::Validator;
pub(super) use value::is_unchanged;

/// Validates a new custom resource without its metadata, which is validated as that of every
/// object.
pub fn validate(object: &Field<'_>, schema: &StructuralSchema, errors: &mut Errors) {
    let Some(object) = object.value() else { return };
    Validator::new(Path::root()).validate(object, schema.root(), None, errors);
    embedded::validate(object, &Path::root(), schema.root(), errors);
    list_type::validate(&undeclared(object), schema.root(), errors);
}

/// Validates a changed custom resource.
pub fn validate_update(object: &Field<'_>, old: &Field<'_>, schema: &StructuralSchema, errors: &mut Errors) {
    let (Some(new), old) = (object.value(), old.value()) else { return };
    Validator::new(Path::root()).validate(new, schema.root(), old, errors);
    embedded::validate(new, &Path::root(), schema.root(), errors);
    validate_changed_lists(new, old, schema.root(), errors);
}

/// Validates only the status of a custom resource, after an update of its status. As in
/// kube-apiserver the lists of the whole object are validated, and embedded resources are not.
pub fn validate_status_update(
    object: &Field<'_>,
    old: &Field<'_>,
    schema: &StructuralSchema,
    errors: &mut Errors,
) {
    let Some(object) = object.value() else { return };
    if let (Some(status), Some(structural)) = (object.get("status"), schema.root().properties.get("status")) {
        let old = old.value().and_then(|old| old.get("status"));
        Validator::new(Path::of("status")).validate(status, structural, old, errors);
    }
    validate_changed_lists(object, old.value(), schema.root(), errors);
}

/// Returns the errors of the type and the metadata of an object.
pub fn object_errors(object: &Value) -> Errors {
    let mut errors = Errors::new();
    embedded::validate_object(object, &Path::root(), &mut errors);
    errors
}

/// Validates a value on its own, as a default in a schema is; `is_object`: it has metadata. The
/// paths of errors begin with `path`; their texts do not. Items may come twice.
pub fn validate_value(
    value: &Value,
    structural: &Structural,
    is_object: bool,
    path: &Path,
    errors: &mut Errors,
) {
    let mut found = Errors::new();
    if is_object && !structural.embedded_resource {
        embedded::validate_object(value, path, &mut found);
    }
    embedded::validate(value, path, structural, &mut found);
    if found.is_empty() {
        Validator::new(path.clone()).of_default().validate(value, structural, None, &mut found);
    }
    errors.extend(found);
}

/// Returns a custom resource as a field without the type of a built-in kind of its name, such as
/// PodMetrics.
fn undeclared(object: &Value) -> Field<'_> {
    Field::at(Some(object), Path::root())
}

/// Validates lists for duplicates. A list that had duplicates before may have others.
fn validate_changed_lists(new: &Value, old: Option<&Value>, structural: &Structural, errors: &mut Errors) {
    let (mut found, mut known) = (Errors::new(), Errors::new());
    list_type::validate(&undeclared(new), structural, &mut found);
    if !found.is_empty()
        && let Some(old) = old
    {
        list_type::validate(&undeclared(old), structural, &mut known);
    }
    if known.is_empty() {
        errors.extend(found.iter().cloned());
    }
}

#[cfg(test)]
mod tests;
