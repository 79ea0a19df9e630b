//! The invariants of structural schemas: each value has its type in one place, and `allOf`,
//! `anyOf`, `oneOf` and `not` only validate.

use serde_json::Value;

use super::is_zero;
use crate::field::{Errors, Field, Path};
use crate::schema::structural::Pattern;

const COMPOSITIONS: [&str; 3] = ["anyOf", "allOf", "oneOf"];

/// The position of a schema: the root, the items of an array, or a field.
#[derive(Clone, Copy, PartialEq)]
enum Level {
    Root,
    Item,
    Field,
}

pub(super) fn validate(schema: &Field<'_>, errors: &mut Errors) {
    validate_schema(schema, Level::Root, errors);
    validate_completeness(schema, schema, schema.path(), errors);
}

fn validate_schema(schema: &Field<'_>, level: Level, errors: &mut Errors) {
    if !schema.exists() || errors.is_full() {
        return;
    }
    let (ty, items) = (schema.get("type"), schema.get("items"));
    let additional = schema.get("additionalProperties");
    errors.push_if(ty.str() == "array" && !items.exists(), || items.required("must be specified"));
    validate_schema(&items, Level::Item, errors);
    for (_, property) in schema.get("properties").entries() {
        validate_schema(&property, Level::Field, errors);
    }
    if additional.value().is_some_and(Value::is_object) {
        validate_schema(&additional, Level::Field, errors);
    }
    validate_type(schema, level, errors);
    let skips_any_of = is_either(&schema.get("anyOf"));
    let skips_first_all_of =
        schema.get("allOf").items().next().is_some_and(|first| is_either(&first.get("anyOf")));
    validate_value_validation(schema, skips_any_of, skips_first_all_of, errors);
    validate_object(schema, level, errors);
}

fn validate_type(schema: &Field<'_>, level: Level, errors: &mut Errors) {
    let ty = schema.get("type");
    let preserve = schema.get("x-kubernetes-preserve-unknown-fields");
    let embedded = schema.get("x-kubernetes-embedded-resource");
    let int_or_string = schema.get("x-kubernetes-int-or-string").bool();
    if embedded.bool() && ty.str() != "object" {
        let detail = "must be object if x-kubernetes-embedded-resource is true";
        errors.push(if ty.is_empty() { ty.required(detail) } else { ty.invalid(detail) });
    } else if ty.is_empty() && !int_or_string && !preserve.bool() {
        errors.push(ty.required(match level {
            Level::Root => "must not be empty at the root",
            Level::Item => "must not be empty for specified array items",
            Level::Field => "must not be empty for specified object fields",
        }));
    }
    if level == Level::Root && !ty.is_empty() && ty.str() != "object" {
        errors.push(ty.invalid("must be object at the root"));
    }
    for marker in [preserve, embedded] {
        errors.push_if(int_or_string && marker.bool(), || {
            marker.invalid("must be false if x-kubernetes-int-or-string is true")
        });
    }
}

fn validate_object(schema: &Field<'_>, level: Level, errors: &mut Errors) {
    let (additional, properties) = (schema.get("additionalProperties"), schema.get("properties"));
    let is_embedded = schema.get("x-kubernetes-embedded-resource").bool();
    if is_embedded {
        errors.push_if(additional.exists(), || {
            additional.forbidden("must not be used if x-kubernetes-embedded-resource is set")
        });
        let open = schema.get("x-kubernetes-preserve-unknown-fields").bool();
        errors.push_if(!open && properties.is_empty(), || {
            properties.required("must not be empty if x-kubernetes-embedded-resource is true without x-kubernetes-preserve-unknown-fields")
        });
    }
    if level == Level::Root {
        errors.push_if(additional.exists(), || additional.forbidden("must not be used at the root"));
    }
    if !is_embedded && level != Level::Root {
        return;
    }
    for (name, wanted) in [("kind", "string"), ("apiVersion", "string"), ("metadata", "object")] {
        let property = properties.entry(name);
        let ty = property.get("type");
        errors.push_if(property.exists() && ty.str() != wanted, || {
            ty.invalid_value(ty.str(), format!("must be {wanted}"))
        });
    }
    let metadata = properties.entry("metadata");
    errors.push_if(level == Level::Root && metadata.exists() && restricts_more_than_names(&metadata), || {
        metadata.forbidden(
            "must not specify anything other than name and generateName, but metadata is implicitly specified",
        )
    });
}

/// Returns `true` if a schema of metadata restricts more than the name and `generateName`, whose
/// types are specified already.
fn restricts_more_than_names(metadata: &Field<'_>) -> bool {
    let members = metadata.value().and_then(Value::as_object).into_iter().flatten();
    let other = members.clone().any(|(name, value)| {
        // A default is reported by itself.
        !matches!(name.as_str(), "type" | "properties" | "default") && !is_zero(value)
    });
    let unnamed =
        metadata.get("properties").entries().any(|(name, _)| !matches!(name, "name" | "generateName"));
    other || unnamed
}

/// Returns `true` if `any_of` is the `anyOf` of an integer and a string that accompanies
/// `x-kubernetes-int-or-string`.
fn is_either(any_of: &Field<'_>) -> bool {
    any_of.value().is_some_and(|value| *value == serde_json::json!([{"type": "integer"}, {"type": "string"}]))
}

fn validate_value_validation(
    schema: &Field<'_>,
    skips_any_of: bool,
    skips_first_all_of: bool,
    errors: &mut Errors,
) {
    for name in COMPOSITIONS {
        if name == "anyOf" && skips_any_of {
            continue;
        }
        for (index, nested) in schema.get(name).items().enumerate() {
            let skips_any_of = name == "allOf" && index == 0 && skips_first_all_of;
            validate_nested(&nested, skips_any_of, errors);
        }
    }
    validate_nested(&schema.get("not"), false, errors);
    let pattern = schema.get("pattern");
    if !pattern.is_empty()
        && let Err(error) = Pattern::check(pattern.str())
    {
        errors.push(pattern.invalid(format!("must be a valid regular expression, but isn't: {error}")));
    }
}

/// Validates a schema that only validates.
fn validate_nested(schema: &Field<'_>, skips_any_of: bool, errors: &mut Errors) {
    const FORBIDDEN: [(&str, &str); 13] = [
        ("type", "empty"),
        ("additionalProperties", "undefined"),
        ("default", "undefined"),
        ("title", "empty"),
        ("description", "empty"),
        ("nullable", "false"),
        ("x-kubernetes-preserve-unknown-fields", "false"),
        ("x-kubernetes-embedded-resource", "false"),
        ("x-kubernetes-int-or-string", "false"),
        ("x-kubernetes-list-map-keys", "empty"),
        ("x-kubernetes-list-type", "undefined"),
        ("x-kubernetes-map-type", "undefined"),
        ("x-kubernetes-validations", "empty"),
    ];
    if !schema.exists() || errors.is_full() {
        return;
    }
    validate_value_validation(schema, skips_any_of, false, errors);
    validate_nested(&schema.get("items"), false, errors);
    for (_, property) in schema.get("properties").entries() {
        validate_nested(&property, false, errors);
    }
    for (name, wanted) in FORBIDDEN {
        let member = schema.get(name);
        let is_false = member.value() == Some(&Value::Bool(false));
        let is_set = match (name, wanted) {
            // A default may be false.
            ("default", _) => member.exists(),
            (_, "undefined") => member.exists() && !is_false,
            _ => !member.is_empty() && !is_false,
        };
        errors.push_if(is_set, || member.forbidden(format!("must be {wanted} to be structural")));
    }
    let metadata = schema.get("properties").entry("metadata");
    errors.push_if(metadata.exists(), || metadata.forbidden("must not be specified in a nested context"));
}

/// Validates that every validated value is specified. `specified` is the schema that must specify
/// it, at the path `expected`.
fn validate_completeness(schema: &Field<'_>, specified: &Field<'_>, expected: &Path, errors: &mut Errors) {
    for name in COMPOSITIONS {
        for nested in schema.get(name).items() {
            validate_nested_completeness(&nested, specified, expected, errors);
        }
    }
    validate_nested_completeness(&schema.get("not"), specified, expected, errors);
}

fn validate_nested_completeness(
    nested: &Field<'_>,
    specified: &Field<'_>,
    expected: &Path,
    errors: &mut Errors,
) {
    if !nested.exists() || errors.is_full() {
        return;
    }
    if !specified.exists() {
        let missing = Field::at(None, expected.clone());
        return errors.push(missing.required(format!("because it is defined in {}", nested.path())));
    }
    validate_completeness(nested, specified, expected, errors);
    validate_nested_completeness(
        &nested.get("items"),
        &specified.get("items"),
        &expected.child("items"),
        errors,
    );
    for (name, property) in nested.get("properties").entries() {
        let path = expected.child("properties").key(name);
        validate_nested_completeness(&property, &specified.get("properties").entry(name), &path, errors);
    }
}
