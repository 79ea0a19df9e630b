//! The values of custom resources: what their structural schemas say of each.
//!
//! Source: OpenAPI v3, with the messages of kube-openapi's validator.

use serde_json::Value;

use crate::field::{ErrorType, Errors, Field, FieldError};
use crate::schema::{Structural, StructuralSchema, StructuralType};

/// Validates a custom resource without its metadata, which is validated as that of every object.
pub fn validate(object: &Field<'_>, schema: &StructuralSchema, errors: &mut Errors) {
    let root = schema.root();
    validate_members(object, root, &["apiVersion", "kind", "metadata"], errors);
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
    match value {
        Value::Object(_) => validate_members(field, structural, &[], errors),
        Value::Array(_) => {
            if let Some(item_type) = &structural.items {
                field.items().for_each(|item| validate_value(&item, item_type, errors));
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
