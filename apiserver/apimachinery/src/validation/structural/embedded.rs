//! Objects inside of an object: `x-kubernetes-embedded-resource`.
//!
//! Source: apiextensions-apiserver, `schema/objectmeta`.

use serde_json::Value;

use crate::codec::structural::typed_metadata;
use crate::field::{Errors, Field, Path};
use crate::schema::Structural;
use crate::validation::content;
use crate::validation::metadata::{self, Finalizers, Identity, NameRule};

/// Validates the types and the metadata of embedded objects in a value at a path.
pub(super) fn validate(value: &Value, path: &Path, structural: &Structural, errors: &mut Errors) {
    if errors.is_full() {
        return;
    }
    match value {
        Value::Object(members) => {
            if structural.embedded_resource {
                validate_object(value, path, errors);
            }
            for (name, value) in members {
                if let Some(property) = structural.properties.get(name) {
                    validate(value, &path.child(name), property, errors);
                } else if let Some(entry) = structural.specified_member(name) {
                    validate(value, &path.key(name), entry, errors);
                }
            }
        }
        Value::Array(items) => {
            let Some(item_type) = &structural.items else { return };
            for (index, item) in items.iter().enumerate() {
                validate(item, &path.index(index), item_type, errors);
            }
        }
        _ => {}
    }
}

/// Validates the type and the metadata of an object at a path.
pub(super) fn validate_object(object: &Value, path: &Path, errors: &mut Errors) {
    let field = Field::at(Some(object), path.clone());
    let (version, kind) = (field.get("apiVersion"), field.get("kind"));
    for member in [&version, &kind] {
        match member.value() {
            None => errors.push(member.required("")),
            Some(Value::String(text)) if text.is_empty() => errors.push(member.invalid("must not be empty")),
            Some(Value::String(_)) => {}
            Some(_) => errors.push(member.invalid("must be a string")),
        }
    }
    errors.push_if(version.str().matches('/').count() > 1, || {
        version.invalid(format!("unexpected GroupVersion string: {}", version.str()))
    });
    if !kind.is_empty() {
        let found = content::dns1035_label(&kind.str().to_lowercase());
        errors.push_if(!found.is_empty(), || {
            let detail = format!("may have mixed case, but should otherwise match: {}", found.join(","));
            kind.invalid(detail)
        });
    }
    let metadata = field.get("metadata");
    if let Some(Err(error)) = metadata.value().map(typed_metadata) {
        errors.push(metadata.invalid(error.to_string()));
    } else if metadata.exists() {
        let namespaced = !field.walk("metadata.namespace").is_empty();
        let identity = Identity { namespaced, name: NameRule::OptionalPathSegment };
        metadata::validate_object_meta(&field, identity, Finalizers::Qualified, errors);
    }
}
