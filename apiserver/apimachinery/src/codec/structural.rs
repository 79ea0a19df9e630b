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

/// The type and the metadata of an embedded object.
fn coerce_embedded(
    object: &mut Map<String, Value>,
    path: &str,
    strict: &mut Vec<String>,
) -> Result<(), DecodeError> {
    let mismatch = |member: &str, value: &Value, text: &dyn std::fmt::Display| {
        DecodeError::TypeMismatch(format!("{}: Invalid value: {value}: {text}", child(path, member)))
    };
    for member in ["apiVersion", "kind"] {
        if let Some(value) = object.get(member).filter(|value| !value.is_string()) {
            return Err(mismatch(member, value, &"must be a string"));
        }
    }
    if let Some(metadata) =
        object.get("metadata").filter(|metadata| !metadata.is_object() && !metadata.is_null())
    {
        let got = match metadata {
            Value::Array(_) => "array",
            Value::String(_) => "string",
            Value::Bool(_) => "bool",
            _ => "number",
        };
        let text = format!("json: cannot unmarshal {got} into Go value of type v1.ObjectMeta");
        return Err(mismatch("metadata", metadata, &text));
    }
    coerce_metadata(object, &child(path, "metadata"), strict)
        .map_err(|error| mismatch("metadata", object.get("metadata").unwrap_or(&Value::Null), &error))
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
                coerce_embedded(object, path, strict)?;
                known = &ENVELOPE;
            }
            prune_object(object, structural, known, path, strict)
        }
        Value::Array(items) => {
            for (index, item) in items.iter_mut().enumerate() {
                let Some(item_type) =
                    structural.items.as_deref().or(structural.unspecified.then_some(structural))
                else {
                    return Ok(());
                };
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
            None if structural.preserve_unknown_fields && !structural.unspecified => {}
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

/// The bytes of defaults that an object may get. Where they would exceed it, the rest of them is left out.
pub const MAX_DEFAULT_BYTES: usize = 3 << 20;

/// Fills in the defaults of an object, after nulls that are no values were dropped. Returns false if there are more than
/// [`MAX_DEFAULT_BYTES`]: defaults inside of the items of lists multiply.
pub fn default(object: &mut Value, schema: &StructuralSchema) -> bool {
    drop_nulls(object, schema.root());
    fill_defaults(object, schema)
}

/// Fills in the defaults of an object that was merged by an apply: nulls that are no values stay, and are invalid. Returns as
/// [`default`].
pub fn fill_defaults(object: &mut Value, schema: &StructuralSchema) -> bool {
    if !schema.has_defaults() {
        return true;
    }
    let mut budget = MAX_DEFAULT_BYTES;
    default_value(object, schema.root(), &mut budget);
    budget > 0
}

/// Makes a stored object what its version shows today: with the defaults of the version in which it is stored, without
/// the members that this one does not know.
pub fn restore(object: &mut Value, stored: Option<&StructuralSchema>, shown: &StructuralSchema) {
    if let Some(stored) = stored {
        default(object, stored);
    }
    prune_stored(object, shown);
}

/// Removes the members that a version does not know.
pub fn prune_stored(object: &mut Value, schema: &StructuralSchema) {
    if let Some(object) = object.as_object_mut() {
        // Embedded objects were read before, so that nothing fails.
        let _ = prune_object(object, schema.root(), &ENVELOPE, "", &mut Vec::new());
    }
}

/// Whether pruning a value leaves it as it is. `is_root` is of a whole object.
pub fn is_pruned(value: &Value, structural: &Structural, is_root: bool) -> bool {
    let mut pruned = value.clone();
    let kept: &[&str] = if is_root || structural.embedded_resource { &ENVELOPE } else { &[] };
    let outcome = match &mut pruned {
        Value::Object(object) => prune_object(object, structural, kept, "", &mut Vec::new()),
        other => prune(other, structural, "", &mut Vec::new()),
    };
    outcome.is_ok() && pruned == *value
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

fn default_value(value: &mut Value, structural: &Structural, budget: &mut usize) {
    match value {
        Value::Object(object) => {
            for (name, member) in &structural.properties {
                let Some(default) = &member.default else { continue };
                if object.get(name).is_none_or(|value| value.is_null() && !member.nullable) {
                    *budget = budget.saturating_sub(default.bytes + name.len());
                    if *budget == 0 {
                        return;
                    }
                    object.insert(name.clone(), default.value.clone());
                }
            }
            each_member(object, structural, |value, member| default_value(value, member, budget));
        }
        Value::Array(items) => {
            each_item(items, structural, |item, item_type| default_value(item, item_type, budget));
        }
        _ => {}
    }
}

fn each_member(
    object: &mut Map<String, Value>,
    structural: &Structural,
    mut work: impl FnMut(&mut Value, &Structural),
) {
    for (name, value) in object.iter_mut() {
        if let Some(member) = structural.member(name) {
            work(value, member);
        }
    }
}

fn each_item(items: &mut [Value], structural: &Structural, mut work: impl FnMut(&mut Value, &Structural)) {
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
