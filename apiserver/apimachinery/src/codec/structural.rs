//! Structural: custom resources, decoded by their structural schemas.
//!
//! A custom resource is read as JSON without a type. Its metadata then gets the type of all metadata, members without a
//! type are pruned, and defaults are filled in.
//!
//! Source: apiextensions-apiserver's `schema/pruning` and `schema/defaulting`; "Specifying a structural schema".

use serde_json::{Map, Value};

use super::{DecodeError, Decoded, json};
use crate::schema::structural::object_meta;
use crate::schema::{Structural, StructuralSchema};

/// The members that every object has, whatever its schema says of them.
const ENVELOPE: [&str; 3] = ["apiVersion", "kind", "metadata"];

/// Gives an object the types of its schema: coerces metadata, and prunes what has no type. `strict` gets the unknown fields.
///
/// # Errors
/// [`DecodeError::TypeMismatch`] for what is no object, and for metadata that is none.
pub fn conform(mut decoded: Decoded, schema: &StructuralSchema) -> Result<Decoded, DecodeError> {
    let Some(object) = decoded.value.as_object_mut() else {
        let message =
            "json: cannot unmarshal a value that is no object into Go value of type map[string]interface {}";
        return Err(DecodeError::TypeMismatch(message.to_owned()));
    };
    coerce_metadata(object, "metadata", &mut decoded.strict)?;
    let mut unknown = Vec::new();
    prune_object(object, schema.root(), &ENVELOPE, "", &mut unknown)?;
    unknown.sort_unstable();
    decoded.strict.append(&mut unknown);
    Ok(decoded)
}

fn coerce_metadata(
    object: &mut Map<String, Value>,
    path: &str,
    strict: &mut Vec<String>,
) -> Result<(), DecodeError> {
    let Some(metadata) = object.get_mut("metadata") else { return Ok(()) };
    let typed = json::normalize(metadata, object_meta())?;
    *metadata = typed.value;
    // The messages end in a quoted path.
    strict.extend(typed.strict.iter().map(|text| text.replacen('"', &format!("\"{path}."), 1)));
    Ok(())
}

fn prune(
    value: &mut Value,
    structural: &Structural,
    path: &str,
    strict: &mut Vec<String>,
) -> Result<(), DecodeError> {
    match value {
        Value::Object(object) => {
            let mut known: &[&str] = &[];
            if structural.embedded_resource {
                coerce_metadata(object, &child(path, "metadata"), strict)?;
                known = &ENVELOPE;
            }
            prune_object(object, structural, known, path, strict)
        }
        Value::Array(items) => {
            let Some(item_type) = &structural.items else { return Ok(()) };
            for (index, item) in items.iter_mut().enumerate() {
                prune(item, item_type, &format!("{path}[{index}]"), strict)?;
            }
            Ok(())
        }
        _ => Ok(()),
    }
}

/// `kept` are members that stay whatever the schema says.
fn prune_object(
    object: &mut Map<String, Value>,
    structural: &Structural,
    kept: &[&str],
    path: &str,
    strict: &mut Vec<String>,
) -> Result<(), DecodeError> {
    let mut failed = Ok(());
    object.retain(|name, value| {
        if kept.contains(&name.as_str()) || failed.is_err() {
            return true;
        }
        match structural.member(name) {
            Some(member) => failed = prune(value, member, &child(path, name), strict),
            None if structural.preserve_unknown_fields => {}
            None => {
                let path = crate::field::quote(&child(path, name));
                strict.push(format!("unknown field {path}"));
                return false;
            }
        }
        true
    });
    failed
}

fn child(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

/// Fills in the defaults of an object, after nulls that are no values were dropped.
pub fn default(object: &mut Value, schema: &StructuralSchema) {
    drop_nulls(object, schema.root());
    default_value(object, schema.root());
}

/// A null where none may be counts as nothing: it is dropped, or replaced by the default.
fn drop_nulls(value: &mut Value, structural: &Structural) {
    match value {
        Value::Object(object) => {
            object.retain(|name, value| match structural.member(name) {
                Some(member) if value.is_null() => member.nullable || member.default.is_some(),
                _ => true,
            });
            each_member(object, structural, drop_nulls);
        }
        Value::Array(items) => each_item(items, structural, drop_nulls),
        _ => {}
    }
}

fn default_value(value: &mut Value, structural: &Structural) {
    match value {
        Value::Object(object) => {
            for (name, member) in &structural.properties {
                let Some(default) = &member.default else { continue };
                if object.get(name).is_none_or(|value| value.is_null() && !member.nullable) {
                    object.insert(name.clone(), default.clone());
                }
            }
            each_member(object, structural, default_value);
        }
        Value::Array(items) => each_item(items, structural, default_value),
        _ => {}
    }
}

fn each_member(object: &mut Map<String, Value>, structural: &Structural, work: fn(&mut Value, &Structural)) {
    for (name, value) in object.iter_mut() {
        if let Some(member) = structural.member(name) {
            work(value, member);
        }
    }
}

fn each_item(items: &mut [Value], structural: &Structural, work: fn(&mut Value, &Structural)) {
    if let Some(item_type) = &structural.items {
        items.iter_mut().for_each(|item| work(item, item_type));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn schema() -> StructuralSchema {
        StructuralSchema::read(json!({"type": "object", "properties": {
            "spec": {"type": "object", "properties": {
                "size": {"type": "integer", "default": 3},
                "note": {"type": "string", "nullable": true},
                "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": {
                    "known": {"type": "object", "properties": {"a": {"type": "string"}}},
                }},
                "ports": {"type": "array", "items": {"type": "object", "properties": {
                    "port": {"type": "integer"}, "protocol": {"type": "string", "default": "TCP"},
                }}},
                "labels": {"type": "object", "additionalProperties": {"type": "string"}},
                "template": {"type": "object", "x-kubernetes-embedded-resource": true, "properties": {
                    "spec": {"type": "object"},
                }},
            }},
        }}))
        .expect("structural")
    }

    #[test]
    fn members_without_a_type_are_pruned_and_reported() {
        let object = json!({
            "apiVersion": "example.com/v1", "kind": "Widget", "extra": 1,
            "metadata": {"name": "w", "labels": {"a": "b"}, "nonsense": true, "creationTimestamp": null},
            "spec": {
                "size": 1, "unknown": {},
                "free": {"anything": [1], "known": {"a": "x", "b": 1}},
                "ports": [{"port": 1, "name": "p"}],
                "labels": {"any": "thing"},
                "template": {"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "p", "foo": 1}, "bar": 1},
            },
        });
        let got =
            conform(Decoded { value: object, strict: Vec::new() }, &schema()).expect("metadata is sound");
        let want = json!({
            "apiVersion": "example.com/v1", "kind": "Widget",
            "metadata": {"name": "w", "labels": {"a": "b"}},
            "spec": {
                "size": 1,
                "free": {"anything": [1], "known": {"a": "x"}},
                "ports": [{"port": 1}],
                "labels": {"any": "thing"},
                "template": {"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "p"}},
            },
        });
        assert_eq!(got.value, want);
        let unknown =
            ["metadata.nonsense", "extra", "spec.free.known.b", "spec.ports[0].name", "spec.template.bar"];
        for path in unknown {
            assert!(got.strict.contains(&format!("unknown field {path:?}")), "{path}: {:?}", got.strict);
        }
    }

    #[test]
    fn defaults_replace_what_is_missing_or_no_value() {
        let schema = schema();
        for (spec, want) in [
            (json!({}), json!({"size": 3})),
            (json!({"size": null, "note": null}), json!({"size": 3, "note": null})),
            (json!({"size": 1, "labels": null}), json!({"size": 1})),
            (
                json!({"size": 1, "ports": [{"port": 1}, {}]}),
                json!({"size": 1, "ports": [{"port": 1, "protocol": "TCP"}, {"protocol": "TCP"}]}),
            ),
        ] {
            let mut object = json!({"spec": spec});
            default(&mut object, &schema);
            assert_eq!(object, json!({"spec": want}));
        }
    }

    #[test]
    fn metadata_has_its_type() {
        let object = json!({"metadata": {"labels": {"a": 1}}});
        let error = conform(Decoded { value: object, strict: Vec::new() }, &schema()).err();
        assert!(matches!(error, Some(DecodeError::TypeMismatch(_))), "{error:?}");
    }
}
