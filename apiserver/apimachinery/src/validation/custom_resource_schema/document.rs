//! The supported parts of OpenAPI in schemas, and the list and map types of server-side apply.

use std::collections::HashSet;

use serde_json::Value;

use crate::field::{Errors, Field};

const TYPES: [&str; 6] = ["array", "boolean", "integer", "number", "object", "string"];

/// The parts of OpenAPI that are not supported.
const UNSUPPORTED: [&str; 6] =
    ["id", "additionalItems", "patternProperties", "definitions", "dependencies", "$ref"];

/// The members that hold lists of schemas.
const COMPOSITIONS: [&str; 3] = ["allOf", "oneOf", "anyOf"];

/// The position of a schema.
#[derive(Clone, Copy, Default)]
struct Place<'r> {
    is_root: bool,
    /// Inside of `metadata`.
    in_metadata: bool,
    /// The reason why defaults are forbidden; None if they are permitted.
    no_defaults: Option<&'r str>,
}

pub(super) fn validate(schema: &Field<'_>, errors: &mut Errors) {
    validate_schema(schema, Place { is_root: true, ..Place::default() }, errors);
}

/// Returns whether a schema has a part that prevents it from being read as a structural one.
pub(super) fn is_unsupported(schema: &Value) -> bool {
    UNSUPPORTED.into_iter().any(|name| is_set(name, &Field::root(schema).get(name)))
        || schema.get("items").is_some_and(Value::is_array)
        || inner(schema).any(is_unsupported)
}

/// Returns whether a schema or one inside of it has a `$schema`.
pub(super) fn names_a_schema(schema: &Value) -> bool {
    schema.get("$schema").is_some_and(|name| name != "") || inner(schema).any(names_a_schema)
}

/// Returns whether a schema or one inside of it has a default.
pub fn has_defaults(schema: &Value) -> bool {
    schema.get("default").is_some() || inner(schema).any(has_defaults)
}

/// Returns `true` if a part is set. A part that is a pointer in Go may be set to an empty value.
fn is_set(name: &str, part: &Field<'_>) -> bool {
    match name {
        "additionalItems" | "$ref" => part.exists(),
        _ => !part.is_empty(),
    }
}

/// Iterates over the schemas inside of a schema.
fn inner(schema: &Value) -> impl Iterator<Item = &Value> {
    let single = ["additionalProperties", "not", "items"].into_iter().filter_map(|name| schema.get(name));
    let lists = COMPOSITIONS.into_iter().filter_map(|name| schema.get(name)?.as_array());
    let properties = schema.get("properties").and_then(Value::as_object);
    let properties = properties.into_iter().flat_map(|properties| properties.values());
    single.filter(|schema| schema.is_object()).chain(properties).chain(lists.flatten())
}

fn validate_schema(schema: &Field<'_>, place: Place<'_>, errors: &mut Errors) {
    if !schema.exists() || errors.is_full() {
        return;
    }
    validate_parts(schema, place, errors);
    let unique = schema.get("uniqueItems");
    errors.push_if(unique.bool(), || {
        unique.forbidden("uniqueItems cannot be set to true since the runtime complexity becomes quadratic")
    });
    let additional = schema.get("additionalProperties");
    let properties = schema.get("properties");
    errors.push_if(
        !properties.is_empty() && additional.exists() && additional.value() != Some(&Value::Bool(true)),
        || additional.forbidden("additionalProperties and properties are mutual exclusive"),
    );
    if additional.value().is_some_and(Value::is_object) {
        let no_defaults = if place.in_metadata {
            Some("inside additionalProperties applying to object metadata")
        } else {
            place.no_defaults
        };
        validate_schema(&additional, Place { is_root: false, no_defaults, ..place }, errors);
    }
    let is_object = place.is_root || schema.get("x-kubernetes-embedded-resource").bool();
    for (name, property) in properties.entries() {
        let reason = format!("in top-level {name}");
        let is_meta = is_object && matches!(name, "metadata" | "apiVersion" | "kind");
        let inside = Place {
            is_root: false,
            in_metadata: place.in_metadata || is_meta,
            no_defaults: if is_meta && place.is_root { Some(&reason) } else { place.no_defaults },
        };
        validate_schema(&property, inside, errors);
    }
    let inside = Place { is_root: false, ..place };
    validate_schema(&schema.get("not"), inside, errors);
    for name in COMPOSITIONS {
        schema.get(name).items().for_each(|schema| validate_schema(&schema, inside, errors));
    }
    let items = schema.get("items");
    if items.value().is_some_and(Value::is_object) {
        validate_schema(&items, inside, errors);
    }
    items.items().for_each(|schema| validate_schema(&schema, inside, errors));
    let preserve = schema.get("x-kubernetes-preserve-unknown-fields");
    errors.push_if(preserve.value() == Some(&Value::Bool(false)), || {
        preserve.invalid("must be true or undefined")
    });
    validate_map_type(schema, errors);
    validate_list_type(schema, errors);
}

fn validate_parts(schema: &Field<'_>, place: Place<'_>, errors: &mut Errors) {
    let (ty, items) = (schema.get("type"), schema.get("items"));
    errors.push_if(!ty.is_empty() && !TYPES.contains(&ty.str()), || ty.not_supported(&TYPES));
    let default = schema.get("default");
    if let Some(reason) = place.no_defaults.filter(|_| default.exists()) {
        errors.push(default.forbidden(format!("must not be set {reason}")));
    }
    for name in UNSUPPORTED {
        let part = schema.get(name);
        errors.push_if(is_set(name, &part), || part.forbidden(format!("{name} is not supported")));
    }
    errors.push_if(ty.str() == "null", || {
        ty.forbidden("type cannot be set to null, use nullable as an alternative")
    });
    errors.push_if(items.value().and_then(Value::as_array).is_some_and(|items| !items.is_empty()), || {
        items.forbidden("items must be a schema object and not an array")
    });
    let embedded = schema.get("x-kubernetes-embedded-resource");
    errors.push_if(place.in_metadata && embedded.bool(), || {
        embedded.forbidden("must not be used inside of resource meta")
    });
}

/// Validates the type of a schema that has a list or map type; returns whether it is right.
fn validate_type_of(schema: &Field<'_>, wanted: &str, marker: &str, errors: &mut Errors) -> bool {
    let ty = schema.get("type");
    let fits = ty.str() == wanted;
    errors.push_if(!fits, || {
        let detail = format!("must be {wanted} if {marker} is specified");
        if ty.is_empty() { ty.required(detail) } else { ty.invalid(detail) }
    });
    fits
}

fn validate_map_type(schema: &Field<'_>, errors: &mut Errors) {
    const MAP_TYPE: &str = "x-kubernetes-map-type";
    let map_type = schema.get(MAP_TYPE);
    if map_type.exists() {
        validate_type_of(schema, "object", MAP_TYPE, errors);
        let known = ["atomic", "granular"];
        errors.push_if(!known.contains(&map_type.str()), || map_type.not_supported(&known));
    }
}

fn validate_list_type(schema: &Field<'_>, errors: &mut Errors) {
    const LIST_TYPE: &str = "x-kubernetes-list-type";
    let (list_type, keys) = (schema.get(LIST_TYPE), schema.get("x-kubernetes-list-map-keys"));
    let (items, item_type) = (schema.get("items"), schema.walk("items.type"));
    if list_type.exists() {
        let is_list = validate_type_of(schema, "array", LIST_TYPE, errors);
        if is_list && list_type.str() == "set" {
            validate_set_items(&items, errors);
        }
        let nullable = items.get("nullable");
        errors.push_if(nullable.bool() && matches!(list_type.str(), "set" | "map"), || {
            nullable.forbidden(format!("cannot be nullable when {LIST_TYPE} is {}", list_type.str()))
        });
        let known = ["atomic", "set", "map"];
        errors.push_if(!known.contains(&list_type.str()), || list_type.not_supported(&known));
    }
    if !keys.is_empty() {
        let detail = "must be map if x-kubernetes-list-map-keys is non-empty";
        if !list_type.exists() {
            errors.push(list_type.required(detail));
        } else if list_type.str() != "map" {
            errors.push(list_type.invalid(detail));
        }
    }
    if list_type.str() != "map" {
        return;
    }
    errors.push_if(keys.is_empty(), || keys.required("must not be empty if x-kubernetes-list-type is map"));
    if !items.exists() {
        errors.push(items.required("must have a schema if x-kubernetes-list-type is map"));
    } else if items.value().is_some_and(Value::is_array) {
        errors.push(items.invalid("must only have a single schema if x-kubernetes-list-type is map"));
    } else if item_type.str() != "object" {
        errors.push(item_type.invalid("must be object if parent array's x-kubernetes-list-type is map"));
    } else {
        validate_keys(&items, &keys, errors);
    }
    validate_keys_are_there(&items, &keys, errors);
}

fn validate_set_items(items: &Field<'_>, errors: &mut Errors) {
    let must = "must be atomic as item of a list with x-kubernetes-list-type=set";
    let (list_type, map_type) = (items.get("x-kubernetes-list-type"), items.get("x-kubernetes-map-type"));
    match items.get("type").str() {
        "array" => {
            errors.push_if(list_type.exists() && list_type.str() != "atomic", || list_type.invalid(must))
        }
        "object" => errors.push_if(map_type.str() != "atomic", || {
            map_type.invalid_value(list_type.value().cloned().unwrap_or_default(), must)
        }),
        _ => {}
    }
}

fn validate_keys(items: &Field<'_>, keys: &Field<'_>, errors: &mut Errors) {
    let mut seen = HashSet::new();
    for key in keys.items() {
        let property = items.get("properties").entry(key.str());
        if !property.exists() {
            errors.push(keys.invalid("entries must all be names of item properties"));
        } else if matches!(property.get("type").str(), "array" | "object") {
            let shown = items.get("type").value().cloned().unwrap_or_default();
            errors.push(property.get("type").invalid_value(
                shown,
                "must be a scalar type if parent array's x-kubernetes-list-type is map",
            ));
        }
        errors.push_if(!seen.insert(key.str()), || keys.invalid("must not contain duplicate entries"));
    }
}

/// Validates that items must have their keys: an item without its key could not be identified.
fn validate_keys_are_there(items: &Field<'_>, keys: &Field<'_>, errors: &mut Errors) {
    let required: HashSet<&str> = items.get("required").items().map(|name| name.str()).collect();
    for key in keys.items() {
        let property = items.get("properties").entry(key.str());
        if !property.exists() {
            continue;
        }
        let (default, nullable) = (property.get("default"), property.get("nullable"));
        errors.push_if(!required.contains(key.str()) && !default.exists(), || {
            default.required(
                "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property",
            )
        });
        errors.push_if(nullable.bool(), || {
            nullable.forbidden("this property is in x-kubernetes-list-map-keys, so it cannot be nullable")
        });
    }
}
