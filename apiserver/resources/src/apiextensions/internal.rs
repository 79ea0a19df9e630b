//! The internal representation of a CustomResourceDefinition's spec.
//!
//! The internal type has fields above the versions for what all of them share - schema,
//! subresources, columns, selectable fields - and v1 objects are converted to it, so errors are
//! reported under `spec.validation` and the like. The webhook of a conversion loses one level.

use coracle_apimachinery::strategy::defaulting::Object;
use serde_json::{Value, json};

/// The fields that move above the versions if they are the same in all of them: the name in a
/// version, and the name above.
const SHARED: [(&str, &str); 4] = [
    ("schema", "validation"),
    ("subresources", "subresources"),
    ("additionalPrinterColumns", "additionalPrinterColumns"),
    ("selectableFields", "selectableFields"),
];

/// Converts a v1 spec to its internal representation.
pub fn spec(v1: &Value) -> Value {
    let mut spec = v1.as_object().cloned().unwrap_or_default();
    if let Some(webhook) =
        spec.get_mut("conversion").and_then(|conversion| conversion.as_object_mut()?.remove("webhook"))
    {
        let conversion = &mut spec["conversion"];
        for (published, moved) in [
            ("clientConfig", "webhookClientConfig"),
            ("conversionReviewVersions", "conversionReviewVersions"),
        ] {
            if let Some(value) = webhook.get(published) {
                conversion[moved] = value.clone();
            }
        }
    }
    if !spec.contains_key("preserveUnknownFields") {
        spec.insert("preserveUnknownFields".into(), json!(false));
    }
    let first = spec.get("versions").and_then(|versions| versions.get(0)).cloned();
    if let Some(first) = first {
        spec.insert("version".into(), first["name"].clone());
        for (published, moved) in SHARED {
            move_up(&mut spec, &first, published, moved);
        }
    }
    Value::Object(spec)
}

fn move_up(spec: &mut Object, first: &Value, published: &str, moved: &str) {
    let Some(versions) = spec.get_mut("versions").and_then(Value::as_array_mut) else { return };
    if !versions.iter().all(|version| version.get(published) == first.get(published)) {
        return;
    }
    for version in versions.iter_mut().filter_map(Value::as_object_mut) {
        version.remove(published);
    }
    if let Some(shared) = first.get(published) {
        spec.insert(moved.to_owned(), shared.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shared_version_fields_move_up() {
        let v1 = json!({"versions": [
            {"name": "v1", "schema": {"a": 1}, "subresources": {"status": {}}},
            {"name": "v2", "schema": {"a": 1}},
        ]});
        assert_eq!(
            spec(&v1),
            json!({
                "version": "v1",
                "preserveUnknownFields": false,
                "validation": {"a": 1},
                "versions": [{"name": "v1", "subresources": {"status": {}}}, {"name": "v2"}],
            })
        );
    }
}
