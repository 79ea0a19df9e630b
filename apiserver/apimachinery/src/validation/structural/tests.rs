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
            "between": {"type": "number", "minimum": 1.5, "exclusiveMinimum": true, "maximum": 10, "multipleOf": 2},
            "text": {"type": "string", "minLength": 2, "maxLength": 3, "pattern": "^[a-z]+$"},
            "few": {"type": "array", "items": {"type": "integer"}, "minItems": 1, "maxItems": 2},
            "set": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"},
            "keyed": {
                "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
                "items": {"type": "object", "properties": {"k": {"type": "integer"}, "v": {"type": "integer"}}},
            },
            "open": {
                "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
                "items": {"x-kubernetes-preserve-unknown-fields": true},
            },
        }},
    }}))
    .expect("structural");
    for (object, want) in [
        (json!({"spec": {"size": 1, "mode": "a", "port": "http", "list": ["x"], "map": {"k": 1.5}}}), vec![]),
        (json!({"spec": {"size": 1, "port": 1}}), vec![]),
        // Even where null is permitted, it is not in the enumeration.
        (
            json!({"spec": {"size": 1, "mode": null}}),
            vec![r#"spec.mode: Unsupported value: null: supported values: "a", "b""#],
        ),
        (json!({}), vec!["spec: Required value"]),
        (json!({"spec": {}}), vec!["spec.size: Required value"]),
        (
            json!({"spec": {"size": "1"}}),
            vec![
                r#"spec.size: Invalid value: "string": spec.size in body must be of type integer: "string""#,
            ],
        ),
        // Defaulting drops a null where none may be; what is left of it is not there.
        (
            json!({"spec": {"size": null}}),
            vec![r#"spec.size: Invalid value: "null": spec.size in body must be of type integer: "null""#],
        ),
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
                "spec.between: Invalid value: 1: spec.between in body should be a multiple of 2",
                "spec.between: Invalid value: 1: spec.between in body should be greater than 1",
            ],
        ),
        (
            json!({"spec": {"size": 1, "between": 11}}),
            vec![
                "spec.between: Invalid value: 11: spec.between in body should be a multiple of 2",
                "spec.between: Invalid value: 11: spec.between in body should be less than or equal to 10",
            ],
        ),
        (
            json!({"spec": {"size": 1, "text": "X", "few": []}}),
            vec![
                "spec.few: Invalid value: 0: spec.few in body should have at least 1 items",
                "spec.text: Invalid value: \"X\": spec.text in body should be at least 2 chars long",
            ],
        ),
        (
            json!({"spec": {"size": 1, "text": "äöüß", "few": [1, 2, 3]}}),
            vec![
                "spec.few: Too many: 3: must have at most 2 items",
                "spec.text: Too long: may not be more than 3 bytes",
            ],
        ),
        (
            json!({"spec": {"size": 1, "set": ["a", "a", "a"], "keyed": [{"k": 1}, {"k": 1, "v": 2}]}}),
            vec!["spec.keyed[1]: Duplicate value: {\"k\":1}", "spec.set[1]: Duplicate value: \"a\""],
        ),
        (
            json!({"spec": {"size": 1, "open": [{"k": 1}, true, true]}}),
            vec!["spec.open[1]: Invalid value: true: must be an object for an array of list-type map"],
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

fn schema(spec: serde_json::Value) -> StructuralSchema {
    let document = json!({"type": "object", "properties": {"spec": spec, "status": {
        "type": "object", "properties": {"n": {"type": "integer"}},
    }}});
    StructuralSchema::read(document).expect("structural")
}

fn texts(errors: &Errors) -> Vec<String> {
    errors.iter().map(ToString::to_string).collect()
}

#[test]
fn schemas_are_combined() {
    let schema = schema(json!({
        "type": "object",
        "properties": {
            "a": {"type": "string"}, "b": {"type": "string"}, "c": {"type": "string"}, "n": {"type": "integer"},
            "half": {"type": "number", "multipleOf": 0.5}, "whole": {"type": "integer"},
            "small": {"type": "integer", "format": "int32"}, "date": {"type": "string", "format": "date"},
            "shut": {"type": "object", "additionalProperties": false},
        },
        "oneOf": [{"required": ["a"]}, {"required": ["b"]}],
        "anyOf": [{"properties": {"a": {"minLength": 2}}}, {"required": ["n"]}],
        "not": {"required": ["c"]},
        "allOf": [{"properties": {"n": {"maximum": 100}}}, {"properties": {"n": {"minimum": 1}}}],
    }));
    for (spec, want) in [
        (json!({"a": "xx"}), vec![]),
        (
            json!({"a": "xx", "b": "y"}),
            vec![
                "<nil>: Invalid value: \"\": \"spec\" must validate one and only one schema (oneOf). Found 2 valid alternatives",
            ],
        ),
        (
            json!({}),
            vec![
                "<nil>: Invalid value: \"\": \"spec\" must validate one and only one schema (oneOf). Found none valid",
                "spec.a: Required value",
            ],
        ),
        (
            json!({"a": "x"}),
            vec![
                "<nil>: Invalid value: \"\": \"spec\" must validate at least one schema (anyOf)",
                "spec.a: Invalid value: \"x\": spec.a in body should be at least 2 chars long",
            ],
        ),
        (
            json!({"a": "xx", "c": "y"}),
            vec!["<nil>: Invalid value: \"\": \"spec\" must not validate the schema (not)"],
        ),
        (
            json!({"a": "xx", "n": 500}),
            vec![
                "spec.n: Invalid value: 500: spec.n in body should be less than or equal to 100",
                "<nil>: Invalid value: \"\": \"spec\" must validate all the schemas (allOf)",
            ],
        ),
        (
            json!({"a": "xx", "half": 1}),
            vec!["spec.half: Invalid value: 0: factor MultipleOf declared for spec.half must be positive: 0"],
        ),
        (
            json!({"a": "xx", "whole": 1.5}),
            vec![
                "spec.whole: Invalid value: \"number\": spec.whole in body must be of type integer: \"number\"",
                "<nil>: Invalid value: \"\": Checked value must be of type integer (default format) in spec.whole",
            ],
        ),
        (json!({"a": "xx", "whole": i64::MAX}), vec![]),
        (
            json!({"a": "xx", "small": 2147483648_u32}),
            vec![
                "<nil>: Invalid value: \"\": Checked value must be of type integer with format int32 in spec.small",
            ],
        ),
        (
            json!({"a": "xx", "date": 5}),
            vec!["spec.date: Invalid value: \"int64\": spec.date in body must be of type date: \"int64\""],
        ),
        (
            json!({"a": "xx", "shut": {"x": 1}}),
            vec!["spec.shut: Invalid value: \"x\": spec.shut.x in body is a forbidden property"],
        ),
    ] {
        let object = json!({"spec": spec});
        let mut errors = Errors::new();
        validate(&Field::root(&object), &schema, &mut errors);
        assert_eq!(texts(&errors), want, "{object}");
    }
}

#[test]
fn an_update_keeps_what_was_invalid_before() {
    let schema = schema(json!({"type": "object", "properties": {
        "a": {"type": "string", "maxLength": 2},
        "map": {"type": "object", "additionalProperties": {"type": "integer", "minimum": 10}},
        "keyed": {
            "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
            "items": {"type": "object", "properties": {"k": {"type": "string"}, "v": {"type": "integer", "minimum": 10}}},
        },
        "set": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string", "maxLength": 2}},
    }}));
    let old = json!({"spec": {
        "a": "long", "map": {"x": 1}, "keyed": [{"k": "a", "v": 1}, {"k": "b", "v": 2}], "set": ["same", "same"],
    }});
    for (path, value, want) in [
        ("/spec/a", json!("long"), None),
        ("/spec/a", json!("longer"), Some("spec.a: Too long")),
        ("/spec/map", json!({"x": 1, "y": 10}), None),
        ("/spec/map", json!({"x": 1, "y": 1}), Some("spec.map.y: Invalid value")),
        ("/spec/keyed", json!([{"k": "b", "v": 2}, {"k": "c", "v": 10}]), None),
        ("/spec/keyed", json!([{"k": "b", "v": 1}]), Some("spec.keyed[0].v: Invalid value")),
        // Items of sets are not the same from one update to the next.
        ("/spec/set", json!(["same", "same", "x"]), Some("spec.set[0]: Too long")),
    ] {
        let mut new = old.clone();
        *new.pointer_mut(path).expect("a member") = value.clone();
        let mut errors = Errors::new();
        validate_update(&Field::root(&new), &Field::root(&old), &schema, &mut errors);
        let first = texts(&errors).into_iter().next();
        assert_eq!(first.is_some(), want.is_some(), "{path} {value}: {first:?}");
        assert!(first.unwrap_or_default().starts_with(want.unwrap_or_default()), "{path} {value}");
    }
}

#[test]
fn an_update_of_the_status_validates_the_status() {
    let schema = schema(json!({"type": "object", "required": ["x"]}));
    let (old, new) = (json!({"spec": {}}), json!({"spec": {}, "status": {"n": "x"}}));
    let mut errors = Errors::new();
    validate_status_update(&Field::root(&new), &Field::root(&old), &schema, &mut errors);
    let want = "status.n: Invalid value: \"string\": n in body must be of type integer: \"string\"";
    assert_eq!(texts(&errors), [want]);
}

#[test]
fn embedded_objects_have_a_type_and_valid_metadata() {
    let schema = schema(json!({"type": "object", "properties": {"tpl": {
        "type": "object", "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true,
    }}}));
    for (tpl, want) in [
        (json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"labels": {"a": "b"}}}), ""),
        (json!({"kind": "Pod"}), "spec.tpl.apiVersion: Required value"),
        (json!({"apiVersion": "v1"}), "spec.tpl.kind: Required value"),
        (
            json!({"apiVersion": "a/b/c", "kind": "Pod"}),
            "spec.tpl.apiVersion: Invalid value: \"a/b/c\": unexpected GroupVersion string: a/b/c",
        ),
        (
            json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": ".."}}),
            "spec.tpl.metadata.name: Invalid value: \"..\": may not be '..'",
        ),
    ] {
        let object = json!({"spec": {"tpl": tpl}});
        let mut errors = Errors::new();
        validate(&Field::root(&object), &schema, &mut errors);
        assert_eq!(texts(&errors).first().map_or("", String::as_str), want, "{object}");
    }
}

#[test]
fn compositions_that_multiply_are_cut_off() {
    let mut rule = json!({"minLength": 1});
    for _ in 0..6 {
        rule = json!({"anyOf": [rule, rule, rule, rule]});
    }
    let schema = schema(json!({"type": "array", "items": {"type": "string", "allOf": [rule]}}));
    let object = json!({"spec": vec![""; 100]});
    let mut errors = Errors::new();
    let validator = Validator::new(Path::root()).with_steps(10_000);
    validator.validate(&object, schema.root(), None, &mut errors);
    let last = texts(&errors).pop().unwrap_or_default();
    assert!(last.ends_with("Internal error: the schema takes too many steps to validate"), "{last}");
}

#[test]
fn large_integers_are_compared_exactly() {
    let schema = schema(json!({"type": "object", "properties": {
        "three": {"type": "integer", "multipleOf": 3}, "most": {"type": "integer", "maximum": 1_000_000_000_000_000_000_i64},
        "float": {"type": "number", "maximum": 1e18}, "half": {"type": "number", "multipleOf": 0.5},
    }}));
    let most = "1000000000000000000";
    for (spec, want) in [
        (json!({"three": 9_007_199_254_740_993_i64}), vec![]),
        (
            json!({"three": 9_007_199_254_740_994_i64}),
            vec!["spec.three: Invalid value: 9007199254740994: spec.three in body should be a multiple of 3".to_owned()],
        ),
        (json!({"most": 1_000_000_000_000_000_000_i64}), vec![]),
        (
            json!({"most": 1_000_000_000_000_000_001_i64}),
            vec![format!("spec.most: Invalid value: 1000000000000000001: spec.most in body should be less than or equal to {most}")],
        ),
        (
            json!({"float": 1.5e18}),
            vec!["spec.float: Invalid value: 1.5e+18: spec.float in body should be less than or equal to 1e+18".to_owned()],
        ),
        (json!({"half": 1.5}), vec![]),
        (
            json!({"half": 1}),
            vec!["spec.half: Invalid value: 0: factor MultipleOf declared for spec.half must be positive: 0".to_owned()],
        ),
    ] {
        let mut errors = Errors::new();
        validate(&Field::root(&json!({"spec": spec})), &schema, &mut errors);
        assert_eq!(texts(&errors), want, "{spec}");
    }
}
