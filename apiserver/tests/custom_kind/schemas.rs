//! The markers of a schema reach what they should: which fields are kept, and which may be applied.

use coracle_apimachinery::resource_info::{CustomKind, CustomVersion};
use coracle_apiserver_testing::{APPLY, TestServer};
use http::Method;
use serde_json::{Value, json};

use super::widgets::{WIDGETS, message, widget};

const PRESERVE: &str = "x-kubernetes-preserve-unknown-fields";

/// Starts a server with widgets whose `spec` has one member `f` with a schema.
async fn server_of(schema: &Value) -> TestServer {
    let server = TestServer::start().await;
    let schema = json!({"type": "object", "properties": {
        "spec": {"type": "object", "properties": {"f": schema, "known": {"type": "string"}}},
    }});
    let version = CustomVersion { schema, ..CustomVersion::new("v1").stored() };
    server.serve(&CustomKind::new("example.com", "Widget", "widgets", true), vec![version]);
    server
}

/// Returns the schema of an object with one text member, and more.
fn object(more: Value) -> Value {
    let mut object = json!({"type": "object", "properties": {"a": {"type": "string"}}});
    object.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
    object
}

#[tokio::test]
async fn unknown_fields_are_kept_where_the_schema_preserves_them() {
    let list = |items: Value| json!({"type": "array", PRESERVE: true, "items": items});
    let closed = || object(json!({}));
    let open = || object(json!({PRESERVE: true}));
    let embedded = || {
        json!({
            "type": "object", "x-kubernetes-embedded-resource": true,
            "properties": {"spec": {"type": "object", "properties": {"a": {"type": "string"}}}},
        })
    };
    let pod = |more: Value| {
        let mut pod = json!({"apiVersion": "v1", "kind": "X", "metadata": {"name": "n"}});
        pod.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
        pod
    };
    for (case, schema, sent, kept) in [
        (
            "items of a list that preserves",
            list(closed()),
            json!([{"a": "1", "x": 1}]),
            json!([{"a": "1", "x": 1}]),
        ),
        (
            "but not inside of their known members",
            list(json!({"type": "object", "properties": {"n": closed()}})),
            json!([{"n": {"a": "1", "x": 1}, "y": {"z": 1}}]),
            json!([{"n": {"a": "1"}, "y": {"z": 1}}]),
        ),
        (
            "lists of lists",
            list(json!({"type": "array", "items": closed()})),
            json!([[{"a": "1", "x": 1}]]),
            json!([[{"a": "1", "x": 1}]]),
        ),
        (
            "items that preserve",
            json!({"type": "array", "items": open()}),
            json!([{"a": "1", "x": 1}]),
            json!([{"a": "1", "x": 1}]),
        ),
        (
            "a list that does not",
            json!({"type": "array", "items": closed()}),
            json!([{"a": "1", "x": 1}]),
            json!([{"a": "1"}]),
        ),
        (
            "the values of a map that preserves are closed",
            json!({"type": "object", PRESERVE: true, "additionalProperties": closed()}),
            json!({"k": {"a": "1", "x": 1}}),
            json!({"k": {"a": "1"}}),
        ),
        (
            "any values",
            json!({"type": "object", "additionalProperties": true}),
            json!({"k": {"a": 1}, "l": [1, {"b": 1}]}),
            json!({"k": {}, "l": [1, {}]}),
        ),
        (
            "embedded objects",
            embedded(),
            pod(json!({"spec": {"a": "1", "x": 1}, "q": 1})),
            pod(json!({"spec": {"a": "1"}})),
        ),
        (
            "embedded objects in a list that preserves",
            list(embedded()),
            json!([pod(json!({"q": 1}))]),
            json!([pod(json!({"q": 1}))]),
        ),
    ] {
        let server = server_of(&schema).await;
        let created = server.send(Method::POST, WIDGETS, &widget("a", json!({"f": sent}))).await;
        assert_eq!((created.0, &created.1["spec"]["f"]), (201, &kept), "{case}: {}", created.1);
        let (_, read) = server.get(&format!("{WIDGETS}/a")).await;
        assert_eq!(read["spec"]["f"], kept, "{case}");
    }
}

#[tokio::test]
async fn apply_accepts_what_the_schema_leaves_open() {
    let preserving = || json!({"type": "array", PRESERVE: true, "items": object(json!({}))});
    let embedded = || json!({"type": "object", "x-kubernetes-embedded-resource": true, "properties": {"spec": object(json!({}))}});
    let undeclared = |path: &str| Err((500, format!("{path}: field not declared in schema")));
    for (case, schema, applied, want) in [
        (
            "items of a list that preserves",
            preserving(),
            json!([{"a": "1", "x": 1}]),
            Ok(json!([{"a": "1", "x": 1}])),
        ),
        (
            "inside of their known members",
            json!({"type": "array", PRESERVE: true, "items": {"type": "object", "properties": {"n": object(json!({}))}}}),
            json!([{"n": {"a": "1", "x": 1}}]),
            Ok(json!([{"n": {"a": "1"}}])),
        ),
        (
            "known members of what preserves",
            json!({"type": "object", PRESERVE: true, "properties": {"n": object(json!({}))}}),
            json!({"n": {"a": "1", "x": 1}, "y": 1}),
            Ok(json!({"n": {"a": "1"}, "y": 1})),
        ),
        ("nothing specified", json!({"type": "object"}), json!({"x": 1}), Ok(json!({}))),
        (
            "an embedded object",
            embedded(),
            json!({"apiVersion": "v1", "kind": "X", "metadata": {"labels": {"a": "b"}}, "spec": {"a": "1"}}),
            Ok(
                json!({"apiVersion": "v1", "kind": "X", "metadata": {"labels": {"a": "b"}}, "spec": {"a": "1"}}),
            ),
        ),
        (
            "an unknown member of one",
            embedded(),
            json!({"apiVersion": "v1", "kind": "X", "foo": 1}),
            undeclared(".spec.f.foo"),
        ),
        ("an unknown member", object(json!({})), json!({"x": 1}), undeclared(".spec.f.x")),
        (
            "a text with a format has any scalar type",
            json!({"type": "string", "format": "ipv4"}),
            json!(5),
            Err((422, "spec.f in body must be of type ipv4: \"int64\"".to_owned())),
        ),
        (
            "int or string",
            json!({"x-kubernetes-int-or-string": true}),
            json!({"a": 1}),
            Err((422, "spec.f in body must be of type integer,string: \"object\"".to_owned())),
        ),
        (
            "null where none may be",
            json!({"type": "string"}),
            Value::Null,
            Err((422, "spec.f in body must be of type string: \"null\"".to_owned())),
        ),
        ("null with a default", json!({"type": "string", "default": "d"}), Value::Null, Ok(json!("d"))),
        ("null where it may be", json!({"type": "string", "nullable": true}), Value::Null, Ok(Value::Null)),
    ] {
        let server = server_of(&schema).await;
        for query in ["", "&dryRun=All"] {
            let path = format!("{WIDGETS}/a{}?fieldManager=m{query}", query.len());
            let name = format!("a{}", query.len());
            let answer = server.patch(&path, APPLY, &widget(&name, json!({"f": applied}))).await;
            match &want {
                Ok(kept) => {
                    assert_eq!((answer.0, &answer.1["spec"]["f"]), (201, kept), "{case}{query}: {}", answer.1)
                }
                Err((code, text)) => {
                    let (got, message) = message(&answer);
                    assert!(got == *code && message.ends_with(text), "{case}{query}: {}", answer.1);
                }
            }
        }
    }
}

#[tokio::test]
async fn nulls_are_dropped_or_replaced_by_defaults_at_every_level() {
    let text = |more: Value| {
        let mut text = json!({"type": "string"});
        text.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
        text
    };
    let (default, nullable) = (json!({"default": "d"}), json!({"nullable": true}));
    let map = |entry: Value| json!({"type": "object", "additionalProperties": entry});
    let list = |item: Value| json!({"type": "array", "items": item});
    let member = |schema: Value| json!({"type": "object", "properties": {"k": schema}});
    for (case, schema, sent, want) in [
        ("a member", member(text(json!({}))), json!({"k": null}), Some(json!({}))),
        ("with a default", member(text(default.clone())), json!({"k": null}), Some(json!({"k": "d"}))),
        ("nullable", member(text(nullable.clone())), json!({"k": null}), Some(json!({"k": null}))),
        ("the value of a map", map(text(json!({}))), json!({"k": null, "l": "1"}), Some(json!({"l": "1"}))),
        ("with a default", map(text(default.clone())), json!({"k": null}), Some(json!({"k": "d"}))),
        ("nullable", map(text(nullable.clone())), json!({"k": null}), Some(json!({"k": null}))),
        ("an item", list(text(json!({}))), json!(["a", null]), None),
        ("with a default", list(text(default)), json!(["a", null]), Some(json!(["a", "d"]))),
        ("nullable", list(text(nullable)), json!(["a", null]), Some(json!(["a", null]))),
        ("any value", map(json!(true)), json!({"k": null}), Some(json!({"k": null}))),
    ] {
        let server = server_of(&schema).await;
        let created = server.send(Method::POST, WIDGETS, &widget("a", json!({"f": sent}))).await;
        match want {
            Some(want) => assert_eq!((created.0, &created.1["spec"]["f"]), (201, &want), "{case}"),
            None => assert_eq!(created.0, 422, "{case}: {}", created.1),
        }
    }
}
