use serde_json::json;

use super::*;

/// Returns the errors in a schema, or in that of a member `a` of its `spec`.
fn errors(schema: &Value) -> Vec<String> {
    let mut errors = Errors::new();
    validate(&Field::root(schema), false, &mut errors);
    errors.iter().map(ToString::to_string).collect()
}

fn errors_of_member(member: Value) -> Vec<String> {
    let schema = json!({"type": "object", "properties": {"a": member}});
    errors(&schema).into_iter().map(|text| text.replacen("properties[a]", "a", 1)).collect()
}

#[test]
fn members_are_structural() {
    for (member, want) in [
        (json!({"type": "string"}), vec![]),
        (json!({"x-kubernetes-preserve-unknown-fields": true}), vec![]),
        (json!({}), vec!["a.type: Required value: must not be empty for specified object fields"]),
        (json!({"type": "array"}), vec!["a.items: Required value: must be specified"]),
        (
            json!({"type": "array", "items": [{"type": "string"}]}),
            vec!["a.items: Forbidden: items must be a schema object and not an array"],
        ),
        (
            json!({"type": "strin"}),
            vec![
                r#"a.type: Unsupported value: "strin": supported values: "array", "boolean", "integer", "number", "object", "string""#,
            ],
        ),
        (
            json!({"type": "object", "properties": {"b": {"type": "string"}}, "additionalProperties": false}),
            vec![
                "a.additionalProperties: Forbidden: additionalProperties and properties are mutual exclusive",
            ],
        ),
        (json!({"type": "object", "oneOf": [{"properties": {"b": {"minLength": 1}}}]}), vec![]),
        (
            json!({"x-kubernetes-int-or-string": true, "anyOf": [{"type": "integer"}, {"type": "string"}]}),
            vec![],
        ),
        (
            json!({"x-kubernetes-int-or-string": true, "allOf": [
                {"anyOf": [{"type": "integer"}, {"type": "string"}]}, {"pattern": "a"},
            ]}),
            vec![],
        ),
        (
            json!({"anyOf": [{"type": "integer"}], "type": "integer"}),
            vec!["a.anyOf[0].type: Forbidden: must be empty to be structural"],
        ),
        (
            json!({"type": "string", "not": {"nullable": true, "description": "x"}}),
            vec![
                "a.not.description: Forbidden: must be empty to be structural",
                "a.not.nullable: Forbidden: must be false to be structural",
            ],
        ),
        (
            json!({"type": "string", "pattern": "("}),
            vec![
                r#"a.pattern: Invalid value: "(": must be a valid regular expression, but isn't: error parsing regexp: missing closing ): `(`"#,
            ],
        ),
        (json!({"$ref": "#/x"}), vec!["a.$ref: Forbidden: $ref is not supported"]),
        (
            json!({"type": "string", "$schema": "x"}),
            vec![r#": Invalid value: "": OpenAPIV3Schema 'schema' is not supported"#],
        ),
        (json!({"type": "string", "x-kubernetes-int-or-string": true}), vec![]),
        (json!({"type": "string", "anyOf": [{"type": "integer"}, {"type": "string"}]}), vec![]),
        (
            json!({"type": "string", "allOf": [{"anyOf": [{"type": "integer"}, {"type": "string"}], "minLength": 1}]}),
            vec![],
        ),
        (
            json!({"x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true}),
            vec!["a.type: Required value: must be object if x-kubernetes-embedded-resource is true"],
        ),
        (
            json!({"type": "object", "additionalProperties": {"type": "string"}, "allOf": [
                {"additionalProperties": {"type": "string"}}, {"additionalProperties": false},
            ]}),
            vec!["a.allOf[0].additionalProperties: Forbidden: must be undefined to be structural"],
        ),
        (
            json!({"type": "object", "not": {"x-kubernetes-validations": [{"rule": "true"}]}}),
            vec!["a.not.x-kubernetes-validations: Forbidden: must be empty to be structural"],
        ),
        (
            json!({"type": "null"}),
            vec![
                r#"a.type: Unsupported value: "null": supported values: "array", "boolean", "integer", "number", "object", "string""#,
                "a.type: Forbidden: type cannot be set to null, use nullable as an alternative",
            ],
        ),
        (
            json!({"type": "object", "x-kubernetes-embedded-resource": true}),
            vec![
                "a.properties: Required value: must not be empty if x-kubernetes-embedded-resource is true without x-kubernetes-preserve-unknown-fields",
            ],
        ),
    ] {
        assert_eq!(errors_of_member(member.clone()), want, "{member}");
    }
}

#[test]
fn the_root_is_an_object_with_its_own_metadata() {
    for (schema, want) in [
        (json!({}), "type: Required value: must not be empty at the root"),
        (json!({"type": "string"}), "type: Invalid value: \"string\": must be object at the root"),
        (json!({"type": "object", "default": {"apiVersion": "a/b"}}), "default.kind: Required value"),
        (
            json!({"type": "object", "properties": {"metadata": {"type": "object", "description": "d"}}}),
            "properties[metadata]: Forbidden: must not specify anything other than name and generateName, but metadata is implicitly specified",
        ),
        (
            json!({"type": "object", "nullable": true}),
            "nullable: Forbidden: nullable cannot be true at the root",
        ),
        (
            json!({"type": "object", "additionalProperties": {"type": "string"}}),
            "additionalProperties: Forbidden: must not be used at the root",
        ),
        (
            json!({"type": "object", "properties": {"metadata": {"type": "object", "properties": {"labels": {"type": "object"}}}}}),
            "properties[metadata]: Forbidden: must not specify anything other than name and generateName, but metadata is implicitly specified",
        ),
        (
            json!({"type": "object", "properties": {"metadata": {"type": "object", "properties": {"name": {"type": "string", "default": "x"}}}}}),
            "properties[metadata].properties[name].default: Forbidden: must not be set in top-level metadata",
        ),
        (
            json!({"type": "object", "allOf": [{"properties": {"x": {"minLength": 1}}}]}),
            "properties[x]: Required value: because it is defined in allOf[0].properties[x]",
        ),
    ] {
        assert_eq!(errors(&schema), [want], "{schema}");
    }
}

#[test]
fn defaults_are_values_of_their_type() {
    for (member, want) in [
        (json!({"type": "integer", "default": 3}), vec![]),
        (
            json!({"type": "integer", "default": "x"}),
            vec![r#"a.default: Invalid value: "string":  in body must be of type integer: "string""#],
        ),
        (
            json!({"type": "integer", "minimum": 5, "default": 1}),
            vec!["a.default: Invalid value: 1:  in body should be greater than or equal to 5"],
        ),
        (
            json!({"type": "object", "required": ["b"], "properties": {"b": {"type": "string"}}, "default": {}}),
            vec!["a.default.b: Required value"],
        ),
        (
            json!({"type": "object", "properties": {"b": {"type": "string"}}, "default": {"b": "x", "c": 1}}),
            vec![r#"a.default: Invalid value: {"b":"x","c":1}: must not have unknown fields"#],
        ),
    ] {
        assert_eq!(errors_of_member(member.clone()), want, "{member}");
    }
}

#[test]
fn lists_have_types_and_keys() {
    let items = json!({"type": "object", "required": ["k"], "properties": {"k": {"type": "string"}, "l": {"type": "array", "items": {"type": "string"}}}});
    let list = |list_type: &str, keys: Value| json!({"type": "array", "x-kubernetes-list-type": list_type, "x-kubernetes-list-map-keys": keys, "items": items});
    for (member, want) in [
        (list("map", json!(["k"])), vec![]),
        (
            list("map", json!(["l"])),
            vec![
                "a.items.properties[l].type: Invalid value: \"object\": must be a scalar type if parent array's x-kubernetes-list-type is map",
                "a.items.properties[l].default: Required value: this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property",
            ],
        ),
        (
            list("map", json!(["k", "k", "m"])),
            vec![
                "a.x-kubernetes-list-map-keys: Invalid value: [\"k\",\"k\",\"m\"]: must not contain duplicate entries",
                "a.x-kubernetes-list-map-keys: Invalid value: [\"k\",\"k\",\"m\"]: entries must all be names of item properties",
            ],
        ),
        (
            list("map", json!([])),
            vec![
                "a.x-kubernetes-list-map-keys: Required value: must not be empty if x-kubernetes-list-type is map",
            ],
        ),
        (
            list("atomic", json!(["k"])),
            vec![
                "a.x-kubernetes-list-type: Invalid value: \"atomic\": must be map if x-kubernetes-list-map-keys is non-empty",
            ],
        ),
        (
            list("set", json!(null)),
            vec![
                "a.items.x-kubernetes-map-type: Invalid value: null: must be atomic as item of a list with x-kubernetes-list-type=set",
            ],
        ),
        (
            json!({"type": "string", "x-kubernetes-map-type": "odd"}),
            vec![
                "a.type: Invalid value: \"string\": must be object if x-kubernetes-map-type is specified",
                "a.x-kubernetes-map-type: Unsupported value: \"odd\": supported values: \"atomic\", \"granular\"",
            ],
        ),
    ] {
        assert_eq!(errors_of_member(member.clone()), want, "{member}");
    }
}

#[test]
fn the_status_has_a_schema_of_its_own() {
    let mut errors = Errors::new();
    let schema = json!({"type": "object", "anyOf": [{"required": ["spec"]}]});
    validate(&Field::root(&schema), true, &mut errors);
    let text = errors.iter().map(ToString::to_string).next().unwrap_or_default();
    assert!(text.contains("only [Description Type Format"), "{text}");
}
