//! The values of custom resources: what their structural schemas say of each.
//!
//! Source: OpenAPI v3, with the messages of kube-openapi's validator.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use serde_json::{Number, Value};

use crate::field::{ErrorType, Errors, Field, FieldError};
use crate::names::Text;
use crate::schema::structural::{Bound, Rules, Size};
use crate::schema::{List, Structural, StructuralSchema, StructuralType};

/// Validates a custom resource without its metadata, which is validated as that of every object.
pub fn validate(object: &Field<'_>, schema: &StructuralSchema, errors: &mut Errors) {
    let root = schema.root();
    validate_members(object, root, &["apiVersion", "kind", "metadata"], errors);
    validate_lists(object, root, errors);
}

fn validate_value(field: &Field<'_>, structural: &Structural, errors: &mut Errors) {
    let Some(value) = field.value() else { return };
    if errors.is_full() || value.is_null() && structural.nullable {
        return;
    }
    if let Some(wanted) = wrong_type(value, structural) {
        let path = field.path();
        let got = type_name(value);
        let detail = format!("{path} in body must be of type {wanted}: \"{got}\"");
        errors.push(FieldError::new(ErrorType::TypeInvalid, path, Some(got.into()), detail));
        return;
    }
    let supported = &structural.rules.enumeration;
    if !supported.is_empty() && !supported.contains(value) {
        let names = supported.iter().map(|value| match value {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        });
        errors.push(field.not_supported(&names.collect::<Vec<String>>()));
    }
    let rules = &structural.rules;
    match value {
        Value::Number(number) => validate_number(field, number, rules, errors),
        Value::String(text) => validate_text(field, text, rules, errors),
        Value::Object(members) => {
            validate_size(field, members.len(), rules.properties, "properties", errors);
            validate_members(field, structural, &[], errors);
        }
        Value::Array(items) => {
            validate_size(field, items.len(), rules.items, "items", errors);
            if let Some(item_type) = &structural.items {
                field.items().for_each(|item| validate_value(&item, item_type, errors));
            }
        }
        _ => {}
    }
}

/// Where the value is whole, so are the bounds: their fractions are cut off.
fn validate_number(field: &Field<'_>, number: &Number, rules: &Rules, errors: &mut Errors) {
    let Some(value) = number.as_f64() else { return };
    let is_whole = !number.is_f64();
    let cut = |bound: f64| if is_whole { bound.trunc() } else { bound };
    let path = field.path();
    if let Some(Bound { value: bound, exclusive }) = rules.minimum {
        let (bound, words) =
            (cut(bound), if exclusive { "greater than" } else { "greater than or equal to" });
        let refused = if exclusive { value <= bound } else { value < bound };
        errors.push_if(refused, || field.invalid(format!("{path} in body should be {words} {bound}")));
    }
    if let Some(Bound { value: bound, exclusive }) = rules.maximum {
        let (bound, words) = (cut(bound), if exclusive { "less than" } else { "less than or equal to" });
        let refused = if exclusive { value >= bound } else { value > bound };
        errors.push_if(refused, || field.invalid(format!("{path} in body should be {words} {bound}")));
    }
    if let Some(factor) = rules.multiple_of.map(cut).filter(|factor| *factor > 0.0) {
        let refused = (value / factor).fract() != 0.0;
        errors.push_if(refused, || field.invalid(format!("{path} in body should be a multiple of {factor}")));
    }
}

fn validate_text(field: &Field<'_>, text: &str, rules: &Rules, errors: &mut Errors) {
    let path = field.path();
    let length = text.chars().count();
    if let Some(max) = rules.length.max.filter(|max| length > *max) {
        errors.push(field.too_long(max));
    }
    if let Some(min) = rules.length.min.filter(|min| length < *min) {
        errors.push(field.invalid(format!("{path} in body should be at least {min} chars long")));
    }
    if let Some(pattern) = rules.pattern.as_ref().filter(|pattern| !pattern.matches(text)) {
        errors.push(field.invalid(format!("{path} in body should match '{}'", pattern.text)));
    }
}

fn validate_size(field: &Field<'_>, count: usize, size: Size, of: &str, errors: &mut Errors) {
    let path = field.path();
    if let Some(min) = size.min.filter(|min| count < *min) {
        let detail = format!("{path} in body should have at least {min} {of}");
        errors.push(field.invalid_value(count, detail));
    }
    if let Some(max) = size.max.filter(|max| count > *max) {
        errors.push(field.too_many(count, max));
    }
}

/// The items of sets, and those with keys, are unique.
fn validate_lists(field: &Field<'_>, structural: &Structural, errors: &mut Errors) {
    match field.value() {
        Some(Value::Object(members)) => {
            for name in members.keys() {
                if let Some(member) = structural.member(name) {
                    validate_lists(&field.get(name), member, errors);
                }
            }
        }
        Some(Value::Array(_)) => {
            let mut seen: HashMap<String, bool> = HashMap::new();
            for item in field.items() {
                let Some(value) = item.value() else { continue };
                let key = match &structural.list {
                    List::Atomic => break,
                    List::Set => value.clone(),
                    List::Map(keys) => {
                        let key = |key: &Text| Some((key.to_string(), value.get(&**key)?.clone()));
                        Value::Object(keys.iter().filter_map(key).collect())
                    }
                };
                // However often an item is repeated, it is reported once.
                match seen.entry(key.to_string()) {
                    Entry::Vacant(place) => _ = place.insert(false),
                    Entry::Occupied(mut reported) => {
                        if !reported.insert(true) {
                            errors.push(item.duplicate_value(key));
                        }
                    }
                }
            }
            if let Some(item_type) = &structural.items {
                field.items().for_each(|item| validate_lists(&item, item_type, errors));
            }
        }
        _ => {}
    }
}

/// `known` are members that have rules of their own.
fn validate_members(object: &Field<'_>, structural: &Structural, known: &[&str], errors: &mut Errors) {
    for (name, _) in object.value().and_then(Value::as_object).into_iter().flatten() {
        if known.contains(&name.as_str()) {
            continue;
        }
        if let Some(member) = structural.properties.get(name) {
            validate_value(&object.get(name), member, errors);
        } else if let Some(entry) = &structural.additional_properties {
            validate_value(&object.get(name), entry, errors);
        }
    }
    for name in &structural.rules.required {
        let member = object.get(name);
        errors.push_if(member.value().is_none(), || member.required(""));
    }
}

/// The type that the value should have and has not.
fn wrong_type(value: &Value, structural: &Structural) -> Option<&'static str> {
    if structural.int_or_string {
        let fits = value.is_string() || value.is_i64() || value.is_u64();
        return (!fits).then_some("integer,string");
    }
    let wanted = structural.ty?;
    let fits = match wanted {
        StructuralType::Object => value.is_object(),
        StructuralType::Array => value.is_array(),
        StructuralType::String => value.is_string(),
        StructuralType::Integer => value.is_i64() || value.is_u64(),
        StructuralType::Number => value.is_number(),
        StructuralType::Boolean => value.is_boolean(),
    };
    (!fits).then(|| wanted.name())
}

fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_have_the_types_of_the_schema() {
        let schema = StructuralSchema::read(json!({"type": "object", "required": ["spec"], "properties": {
            "spec": {"type": "object", "required": ["size"], "properties": {
                "size": {"type": "integer"},
                "mode": {"type": "string", "enum": ["a", "b"], "nullable": true},
                "port": {"x-kubernetes-int-or-string": true},
                "list": {"type": "array", "items": {"type": "string"}},
                "map": {"type": "object", "additionalProperties": {"type": "number"}},
                "between": {"type": "integer", "minimum": 1.5, "exclusiveMinimum": true, "maximum": 10, "multipleOf": 2},
                "text": {"type": "string", "minLength": 2, "maxLength": 3, "pattern": "^[a-z]+$"},
                "few": {"type": "array", "items": {"type": "integer"}, "minItems": 1, "maxItems": 2},
                "set": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"},
                "keyed": {
                    "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
                    "items": {"type": "object", "properties": {"k": {"type": "integer"}, "v": {"type": "integer"}}},
                },
            }},
        }}))
        .expect("structural");
        for (object, want) in [
            (
                json!({"spec": {"size": 1, "mode": "a", "port": "http", "list": ["x"], "map": {"k": 1.5}}}),
                vec![],
            ),
            (json!({"spec": {"size": 1, "mode": null, "port": 1}}), vec![]),
            (json!({}), vec!["spec: Required value"]),
            (json!({"spec": {}}), vec!["spec.size: Required value"]),
            (
                json!({"spec": {"size": "1"}}),
                vec![
                    r#"spec.size: Invalid value: "string": spec.size in body must be of type integer: "string""#,
                ],
            ),
            // Defaulting drops a null where none may be; what is left of it is not there.
            (json!({"spec": {"size": null}}), vec!["spec.size: Required value"]),
            (
                json!({"spec": {"size": 1, "mode": "c"}}),
                vec![r#"spec.mode: Unsupported value: "c": supported values: "a", "b""#],
            ),
            (
                json!({"spec": {"size": 1, "between": 2, "text": "abc", "set": ["a", "b"], "keyed": [{"k": 1}, {"k": 2}]}}),
                vec![],
            ),
            (
                json!({"spec": {"size": 1, "between": 1}}),
                vec![
                    "spec.between: Invalid value: 1: spec.between in body should be greater than 1",
                    "spec.between: Invalid value: 1: spec.between in body should be a multiple of 2",
                ],
            ),
            (
                json!({"spec": {"size": 1, "between": 11}}),
                vec![
                    "spec.between: Invalid value: 11: spec.between in body should be less than or equal to 10",
                    "spec.between: Invalid value: 11: spec.between in body should be a multiple of 2",
                ],
            ),
            (
                json!({"spec": {"size": 1, "text": "X", "few": []}}),
                vec![
                    "spec.few: Invalid value: 0: spec.few in body should have at least 1 items",
                    "spec.text: Invalid value: \"X\": spec.text in body should be at least 2 chars long",
                    "spec.text: Invalid value: \"X\": spec.text in body should match '^[a-z]+$'",
                ],
            ),
            (
                json!({"spec": {"size": 1, "text": "äöüß", "few": [1, 2, 3]}}),
                vec![
                    "spec.few: Too many: 3: must have at most 2 items",
                    "spec.text: Too long: may not be more than 3 bytes",
                    "spec.text: Invalid value: \"äöüß\": spec.text in body should match '^[a-z]+$'",
                ],
            ),
            (
                json!({"spec": {"size": 1, "set": ["a", "a", "a"], "keyed": [{"k": 1}, {"k": 1, "v": 2}]}}),
                vec!["spec.keyed[1]: Duplicate value: {\"k\":1}", "spec.set[1]: Duplicate value: \"a\""],
            ),
            (
                json!({"spec": {"size": 1, "list": ["x", 2], "map": {"k": true}}}),
                vec![
                    r#"spec.list[1]: Invalid value: "integer": spec.list[1] in body must be of type string: "integer""#,
                    r#"spec.map.k: Invalid value: "boolean": spec.map.k in body must be of type number: "boolean""#,
                ],
            ),
        ] {
            let mut errors = Errors::new();
            validate(&Field::root(&object), &schema, &mut errors);
            let got: Vec<String> = errors.iter().map(ToString::to_string).collect();
            assert_eq!(got, want, "{object}");
        }
    }
}
