//! The owners of the fields of an object that is written in several versions.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use coracle_apimachinery::resource_info::{Conversion, Converter, CustomKind, CustomVersion};
use coracle_apimachinery::{Error, Result};
use coracle_apiserver_testing::{APPLY, MERGE_PATCH, TestServer};
use futures::future::BoxFuture;
use http::Method;
use serde_json::{Value, json};

use super::widgets::message;

/// Has `spec.a` and a list `spec.l` in v1, and `spec.b` and a map `spec.m` of the same in v2.
#[derive(Default)]
struct Reshaping {
    fails: AtomicBool,
}

impl Reshaping {
    fn convert_one(mut object: Value, to: &str) -> Value {
        let is_v1 = to.ends_with("/v1");
        if object["apiVersion"] != to
            && let Some(spec) = object["spec"].as_object_mut()
        {
            let (from, into) = if is_v1 { ("b", "a") } else { ("a", "b") };
            if let Some(value) = spec.remove(from) {
                spec.insert(into.to_owned(), value);
            }
            let reshaped = match (spec.remove("l"), spec.remove("m")) {
                (Some(Value::Array(list)), _) => {
                    let entry =
                        |item: &Value| (item["k"].as_str().unwrap_or_default().to_owned(), item["v"].clone());
                    Some(("m", list.iter().map(entry).collect::<Value>()))
                }
                (_, Some(Value::Object(map))) => {
                    Some(("l", map.iter().map(|(k, v)| json!({"k": k, "v": v})).collect()))
                }
                _ => None,
            };
            spec.extend(reshaped.map(|(name, value)| (name.to_owned(), value)));
        }
        object["apiVersion"] = to.into();
        object
    }
}

impl Converter for Reshaping {
    fn convert<'a>(&'a self, objects: Vec<Value>, to: &'a str) -> BoxFuture<'a, Result<Vec<Value>>> {
        Box::pin(async move {
            tokio::task::yield_now().await;
            match self.fails.load(Ordering::Relaxed) {
                true => Err(Error::Unclassified("no way".to_owned())),
                false => Ok(objects.into_iter().map(|object| Reshaping::convert_one(object, to)).collect()),
            }
        })
    }
}

fn text() -> Value {
    json!({"type": "string"})
}

fn version(name: &str, spec: &Value) -> CustomVersion {
    let status = json!({"type": "object", "properties": {"s": text()}});
    let schema = json!({"type": "object", "properties": {
        "spec": {"type": "object", "properties": spec}, "status": status,
    }});
    CustomVersion { schema, status: true, ..CustomVersion::new(name) }
}

/// One client of one object.
struct Client {
    server: TestServer,
}

impl Client {
    fn path(version: &str, rest: &str) -> String {
        format!("/apis/example.com/{version}/namespaces/default/widgets/a{rest}")
    }

    async fn apply(&self, version: &str, manager: &str, spec: Value) -> (u16, Value) {
        self.apply_to(version, &format!("?fieldManager={manager}"), json!({"spec": spec})).await
    }

    async fn apply_to(&self, version: &str, rest: &str, mut configuration: Value) -> (u16, Value) {
        configuration["apiVersion"] = format!("example.com/{version}").into();
        configuration["kind"] = "Widget".into();
        configuration["metadata"] = json!({"name": "a"});
        self.server.patch(&Client::path(version, rest), APPLY, &configuration).await
    }

    async fn merge(&self, version: &str, manager: &str, patch: Value) -> (u16, Value) {
        self.server
            .patch(&Client::path(version, &format!("?fieldManager={manager}")), MERGE_PATCH, &patch)
            .await
    }
}

/// Returns the owners of an object: manager, version and fields.
fn owners(answer: &(u16, Value)) -> Vec<String> {
    let entries = answer.1["metadata"]["managedFields"].as_array().into_iter().flatten();
    let owner = |entry: &Value| {
        let version = entry["apiVersion"].as_str().unwrap_or_default().rsplit('/').next().unwrap_or_default();
        format!("{} {version} {}", entry["manager"].as_str().unwrap_or_default(), entry["fieldsV1"])
    };
    let mut owners: Vec<String> = entries.map(owner).collect();
    owners.sort_unstable();
    owners
}

async fn reshaping() -> (Client, Arc<Reshaping>) {
    let server = TestServer::start().await;
    let converter = Arc::new(Reshaping::default());
    let kind = CustomKind {
        conversion: Conversion::Remote(converter.clone()),
        ..CustomKind::new("example.com", "Widget", "widgets", true)
    };
    let list = json!({
        "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
        "items": {"type": "object", "required": ["k"], "properties": {"k": text(), "v": text()}},
    });
    let map = json!({"type": "object", "additionalProperties": text()});
    let selectable = |version: CustomVersion, path: &str| CustomVersion {
        selectable_fields: vec![path.to_owned()],
        ..version
    };
    let v1 = version("v1", &json!({"a": text(), "c": text(), "l": list})).stored();
    let v2 = version("v2", &json!({"b": text(), "c": text(), "m": map}));
    server.serve(&kind, vec![selectable(v1, ".spec.a"), selectable(v2, ".spec.b")]);
    (Client { server }, converter)
}

#[tokio::test]
async fn fields_are_compared_in_the_versions_of_their_owners() {
    let (client, _) = reshaping().await;
    let spec = json!({"a": "1", "c": "1", "l": [{"k": "x", "v": "1"}, {"k": "y", "v": "1"}]});
    assert_eq!(client.apply("v1", "one", spec).await.0, 201);
    for (spec, field) in [(json!({"b": "2"}), ".spec.a"), (json!({"m": {"x": "2"}}), ".spec.l[k=\"x\"].v")] {
        let answer = client.apply("v2", "two", spec).await;
        let text = format!("Apply failed with 1 conflict: conflict with \"one\": {field}");
        assert_eq!(message(&answer), (409, text.as_str()));
    }
    let answer = client.apply("v2", "two", json!({"m": {"z": "1"}})).await;
    assert_eq!(answer.1["spec"], json!({"b": "1", "c": "1", "m": {"x": "1", "y": "1", "z": "1"}}));
    // A field that the manager no longer applies is removed, though it was applied in the other
    // version.
    let answer = client.apply("v2", "one", json!({"b": "1", "m": {"x": "1"}})).await;
    assert_eq!(answer.1["spec"], json!({"b": "1", "m": {"x": "1", "z": "1"}}));
    let want =
        [r#"one v2 {"f:spec":{"f:b":{},"f:m":{"f:x":{}}}}"#, r#"two v2 {"f:spec":{"f:m":{"f:z":{}}}}"#];
    assert_eq!(owners(&answer), want);
    let answer = client.apply("v1", "one", json!({"l": [{"k": "x", "v": "1"}]})).await;
    assert_eq!(answer.1["spec"], json!({"l": [{"k": "x", "v": "1"}, {"k": "z", "v": "1"}]}));
    // A plain write takes fields from owners in other versions.
    let answer =
        client.merge("v1", "p", json!({"spec": {"l": [{"k": "x", "v": "1"}, {"k": "z", "v": "5"}]}})).await;
    let want = [
        r#"one v1 {"f:spec":{"f:l":{"k:{\"k\":\"x\"}":{".":{},"f:k":{},"f:v":{}}}}}"#,
        r#"p v1 {"f:spec":{"f:l":{"k:{\"k\":\"z\"}":{"f:v":{}}}}}"#,
    ];
    assert_eq!(owners(&answer), want);
}

#[tokio::test]
async fn nobody_owns_anything_where_the_conversion_fails() {
    let (client, converter) = reshaping().await;
    assert_eq!(client.apply("v1", "one", json!({"a": "1"})).await.0, 201);
    assert_eq!(client.apply("v2", "two", json!({"c": "1"})).await.0, 200);
    converter.fails.store(true, Ordering::Relaxed);
    assert_eq!(message(&client.apply("v1", "one", json!({"a": "2"})).await), (500, "no way"));
    let answer = client.merge("v1", "p", json!({"spec": {"a": "3"}})).await;
    assert_eq!((answer.0, &answer.1["spec"]["a"]), (200, &json!("3")));
    assert_eq!(owners(&answer), [""; 0]);
}

#[tokio::test]
async fn objects_are_selected_by_the_fields_of_the_version_that_is_shown() {
    let (client, _) = reshaping().await;
    assert_eq!(client.apply("v1", "one", json!({"a": "1"})).await.0, 201);
    for (version, selector, items) in
        [("v1", "spec.a%3D1", 1), ("v2", "spec.b%3D1", 1), ("v2", "spec.b%3D2", 0), ("v2", "spec.b!%3D1", 0)]
    {
        let path = format!("/apis/example.com/{version}/widgets?fieldSelector={selector}");
        let (code, list) = client.server.get(&path).await;
        assert_eq!((code, list["items"].as_array().map(Vec::len)), (200, Some(items)), "{path}: {list}");
    }
}

#[tokio::test]
async fn versions_that_differ_in_their_fields_do_not_convert() {
    let server = TestServer::start().await;
    let kind = CustomKind::new("example.com", "Widget", "widgets", true);
    let wide = version("v1", &json!({"a": text(), "b": text()})).stored();
    let narrow = version("v2", &json!({"a": text()}));
    server.serve(&kind, vec![wide.clone(), narrow]);
    let client = Client { server };
    assert_eq!(client.apply("v2", "old", json!({"a": "1"})).await.0, 201);
    let answer = client.apply("v1", "new", json!({"b": "1"})).await;
    let text = "failed to convert new object: .spec.b: field not declared in schema";
    assert_eq!(message(&answer), (500, text));
    // Nor does one that the definition no longer has.
    client.server.serve(&kind, vec![wide]);
    let text = "request to convert CR to an invalid group/version: example.com/v2";
    for manager in ["old", "new"] {
        assert_eq!(message(&client.apply("v1", manager, json!({"b": "1"})).await), (500, text));
    }
    let answer = client.merge("v1", "p", json!({})).await;
    assert_eq!((answer.0, owners(&answer)), (200, Vec::new()));
}

#[tokio::test]
async fn the_object_owns_its_status_in_other_versions_alone() {
    let server = TestServer::start().await;
    let kind = CustomKind::new("example.com", "Widget", "widgets", true);
    let spec = json!({"a": text()});
    server.serve(&kind, vec![version("v1", &spec).stored(), version("v2", &spec)]);
    let client = Client { server };
    let both = |a: &str, s: &str| json!({"spec": {"a": a}, "status": {"s": s}});
    assert_eq!(client.apply_to("v2", "?fieldManager=one", both("1", "1")).await.0, 201);
    // The status owns nothing of the spec and of metadata.
    let answer = client.apply_to("v2", "/status?fieldManager=st", both("1", "1")).await;
    let want = [r#"one v2 {"f:spec":{"f:a":{}}}"#, r#"st v2 {"f:status":{"f:s":{}}}"#];
    assert_eq!(owners(&answer), want);
    let answer = client.apply_to("v2", "?fieldManager=two", both("1", "2")).await;
    assert_eq!(answer.0, 200, "in its own version it does not write the status");
    let answer = client.apply_to("v1", "?fieldManager=two", both("1", "2")).await;
    let text = "Apply failed with 1 conflict: conflict with \"st\" with subresource \"status\": .status.s";
    assert_eq!(message(&answer), (409, text));
}

#[tokio::test]
async fn sets_of_objects_are_not_tracked() {
    let server = TestServer::start().await;
    let set = json!({
        "type": "array", "x-kubernetes-list-type": "set",
        "items": {"type": "object", "x-kubernetes-map-type": "atomic", "properties": {"a": text()}},
    });
    let kind = CustomKind::new("example.com", "Widget", "widgets", true);
    server.serve(&kind, vec![version("v1", &json!({"s": set, "t": text()})).stored()]);
    let client = Client { server };
    let object = json!({
        "apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "a"}, "spec": {"s": [{"a": "1"}]},
    });
    let created = client.server.send(Method::POST, super::widgets::WIDGETS, &object).await;
    assert_eq!((created.0, owners(&created)), (201, Vec::new()));
    let text = "failed to create manager for existing fields: failed to convert new object (default/a; example.com/v1, Kind=Widget) to smd typed: .spec.s: element 0: associative list without keys has an element that's a map type";
    assert_eq!(message(&client.apply("v1", "m", json!({"t": "x"})).await), (500, text));
}
