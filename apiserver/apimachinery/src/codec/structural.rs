//! Structural: custom resources, decoded by their structural schemas.
//!
//! A custom resource is read as JSON without a type. Its metadata then gets the type of all
//! metadata, members without a type are pruned, and defaults are filled in.
//!
//! Source: apiextensions-apiserver's `schema/pruning` and `schema/defaulting`; "Specifying a
//! structural schema".

use std::fmt::Write;

use serde_json::{Map, Value};

use super::{DecodeError, Decoded, json};
use crate::schema::structural::{ENVELOPE, object_meta};
use crate::schema::{Structural, StructuralSchema};

/// Gives an object the types of its schema: coerces metadata, prunes unknown fields, and drops
/// nulls of fields that are not nullable. `strict` gets the unknown fields.
///
/// # Errors
/// [`DecodeError::TypeMismatch`] if the value is not an object, or its metadata is not one.
pub fn conform(mut decoded: Decoded, schema: &StructuralSchema) -> Result<Decoded, DecodeError> {
    coerce_root(&mut decoded)?;
    let mut unknown = Vec::new();
    prune(&mut decoded.value, schema, &mut unknown);
    unknown.sort_unstable();
    decoded.strict.append(&mut unknown);
    drop_nulls(&mut decoded.value, schema.root());
    if schema.has_embedded_resources() {
        let mut unknown = Vec::new();
        coerce(&mut decoded.value, schema.root(), "", &mut unknown)?;
        unknown.sort_unstable();
        decoded.strict.append(&mut unknown);
    }
    Ok(decoded)
}

/// Gives an object's own metadata their type. `strict` gets the unknown fields.
///
/// # Errors
/// [`DecodeError::TypeMismatch`] if the value is not an object, or its metadata is not one.
pub fn coerce_root(decoded: &mut Decoded) -> Result<(), DecodeError> {
    let Some(object) = decoded.value.as_object_mut() else {
        let message =
            "json: cannot unmarshal a value that is no object into Go value of type map[string]interface {}";
        return Err(DecodeError::TypeMismatch(message.to_owned()));
    };
    coerce_metadata(object, "metadata", &mut decoded.strict)
}

fn coerce_metadata(
    object: &mut Map<String, Value>,
    path: &str,
    strict: &mut Vec<String>,
) -> Result<(), DecodeError> {
    let Some(metadata) = object.get_mut("metadata") else { return Ok(()) };
    let typed = typed_metadata(metadata)?;
    *metadata = typed.value;
    // The messages end in a quoted path.
    strict.extend(typed.strict.iter().map(|text| text.replacen('"', &format!("\"{path}."), 1)));
    Ok(())
}

/// Decodes the metadata of any object, with their type.
///
/// # Errors
/// [`DecodeError::TypeMismatch`] if the value is not metadata.
pub fn typed_metadata(metadata: &Value) -> Result<Decoded, DecodeError> {
    let got = match metadata {
        Value::Object(_) | Value::Null => return json::normalize(metadata, object_meta()),
        Value::Array(_) => "array",
        Value::String(_) => "string",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
    };
    let text = format!("json: cannot unmarshal {got} into Go value of type v1.ObjectMeta");
    Err(DecodeError::TypeMismatch(text))
}

/// Gives embedded objects their types.
fn coerce(
    value: &mut Value,
    structural: &Structural,
    path: &str,
    strict: &mut Vec<String>,
) -> Result<(), DecodeError> {
    match value {
        Value::Object(object) => {
            if structural.embedded_resource {
                coerce_embedded(object, path, strict)?;
            }
            for (name, value) in object.iter_mut() {
                if let Some(member) = structural.specified_member(name) {
                    coerce(value, member, &child(path, name), strict)?;
                }
            }
        }
        Value::Array(items) => {
            let Some(item_type) = structural.items.as_deref() else { return Ok(()) };
            for (index, item) in items.iter_mut().enumerate() {
                coerce(item, item_type, &format!("{path}[{index}]"), strict)?;
            }
        }
        _ => {}
    }
    Ok(())
}

/// Checks and converts the type and the metadata of an embedded object.
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
    coerce_metadata(object, &child(path, "metadata"), strict)
        .map_err(|error| mismatch("metadata", object.get("metadata").unwrap_or(&Value::Null), &error))
}

/// Removes the members of an object that have no type. `unknown` gets their paths as errors.
fn prune(object: &mut Value, schema: &StructuralSchema, unknown: &mut Vec<String>) {
    if let Value::Object(object) = object {
        let root = schema.root();
        let mut pruner = Pruner { path: String::new(), unknown };
        pruner.prune_members(object, Some(root), root.preserve_unknown_fields, true);
    }
}

/// Removes members without a type.
struct Pruner<'a> {
    /// The path of the value.
    path: String,
    /// An error for each member that was removed.
    unknown: &'a mut Vec<String>,
}

impl Pruner<'_> {
    /// Prunes a value. Without a type, all members are unknown.
    fn prune(&mut self, value: &mut Value, structural: Option<&Structural>, preserves: bool) {
        match value {
            Value::Object(members) => {
                let embedded = structural.is_some_and(|structural| structural.embedded_resource);
                self.prune_members(members, structural, preserves, embedded);
            }
            Value::Array(items) => {
                let item_type = structural.and_then(|structural| structural.items.as_deref());
                if preserves && item_type.is_none() {
                    return;
                }
                // A list that preserves unknown fields preserves those of its items.
                let preserves = preserves || item_type.is_some_and(|item| item.preserve_unknown_fields);
                for (index, item) in items.iter_mut().enumerate() {
                    let length = self.path.len();
                    // Writing to a String does not fail.
                    _ = write!(self.path, "[{index}]");
                    self.prune(item, item_type, preserves);
                    self.path.truncate(length);
                }
            }
            _ => {}
        }
    }

    /// Removes undeclared members. With `preserves`, members without a type stay; with `embedded`,
    /// the envelope stays as it is.
    fn prune_members(
        &mut self,
        members: &mut Map<String, Value>,
        structural: Option<&Structural>,
        preserves: bool,
        embedded: bool,
    ) {
        members.retain(|name, value| {
            if embedded && ENVELOPE.contains(&name.as_str()) {
                return true;
            }
            let member = structural.and_then(|structural| structural.member(name));
            if member.is_none() && preserves {
                return true;
            }
            let length = self.path.len();
            if length > 0 {
                self.path.push('.');
            }
            self.path.push_str(name);
            match member {
                Some(member) => {
                    let member = member.specified();
                    self.prune(value, member, member.is_some_and(|member| member.preserve_unknown_fields));
                }
                None => self.unknown.push(format!("unknown field {}", crate::field::quote(&self.path))),
            }
            self.path.truncate(length);
            member.is_some()
        });
    }
}

fn child(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

/// The maximum size of the defaults added to one object, in bytes. Further defaults are left out.
pub const MAX_DEFAULT_BYTES: usize = 3 << 20;

/// Fills in the defaults of an object. Returns false if there are more than [`MAX_DEFAULT_BYTES`]:
/// defaults inside of the items of lists multiply.
pub fn default(object: &mut Value, schema: &StructuralSchema) -> bool {
    if !schema.has_defaults() {
        return true;
    }
    let mut budget = MAX_DEFAULT_BYTES;
    default_value(object, schema.root(), &mut budget);
    budget > 0
}

/// Removes the unknown fields of an object.
pub fn prune_unknown(object: &mut Value, schema: &StructuralSchema) {
    prune(object, schema, &mut Vec::new());
}

/// Prunes an object that was stored under an older schema or converted from another version:
/// removes unknown fields, and nulls of fields that are not nullable.
pub fn prune_stored(object: &mut Value, schema: &StructuralSchema) {
    prune_unknown(object, schema);
    drop_nulls(object, schema.root());
}

/// Returns `true` if pruning leaves a value unchanged. `is_root` says that the value is a whole
/// object.
pub fn is_pruned(value: &Value, structural: &Structural, is_root: bool) -> bool {
    let mut pruned = value.clone();
    let mut unknown = Vec::new();
    let mut pruner = Pruner { path: String::new(), unknown: &mut unknown };
    let preserves = structural.preserve_unknown_fields;
    match &mut pruned {
        Value::Object(members) => {
            let embedded = is_root || structural.embedded_resource;
            pruner.prune_members(members, Some(structural), preserves, embedded);
        }
        other => pruner.prune(other, Some(structural), preserves),
    }
    unknown.is_empty()
}

/// Drops the nulls of members that are not nullable, unless a default replaces them.
fn drop_nulls(value: &mut Value, structural: &Structural) {
    match value {
        Value::Object(object) => object.retain(|name, value| match structural.specified_member(name) {
            Some(member) if value.is_null() => member.nullable || member.default.is_some(),
            Some(member) => {
                drop_nulls(value, member);
                true
            }
            None => true,
        }),
        Value::Array(items) => {
            if let Some(item_type) = &structural.items {
                items.iter_mut().for_each(|item| drop_nulls(item, item_type));
            }
        }
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
            for (name, value) in object.iter_mut() {
                if let Some(member) = structural.specified_member(name) {
                    default_inside(value, member, budget);
                }
            }
        }
        Value::Array(items) => {
            if let Some(item_type) = &structural.items {
                items.iter_mut().for_each(|item| default_inside(item, item_type, budget));
            }
        }
        _ => {}
    }
}

/// Fills in the defaults of an item or of the value of a map, and those inside of it.
fn default_inside(value: &mut Value, structural: &Structural, budget: &mut usize) {
    if let Some(default) = &structural.default
        && value.is_null()
        && !structural.nullable
    {
        *budget = budget.saturating_sub(default.bytes);
        if *budget > 0 {
            *value = default.value.clone();
        }
    }
    default_value(value, structural, budget);
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
            let decoded = Decoded { value: json!({"spec": spec}), strict: Vec::new() };
            let mut object = conform(decoded, &schema).expect("an object").value;
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
