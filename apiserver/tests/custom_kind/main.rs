//! A custom kind, made at run time from a structural schema, passes the same pipeline as built-in
//! ones: over HTTP, from authentication to the bytes of the response.

mod ownership;
mod routes;
mod schemas;
mod widgets;

use std::sync::Arc;

use bytes::Bytes;
use coracle_apimachinery::resource_info::{Conversion, Converter, CustomKind, CustomVersion, ResourceTable};
use coracle_apimachinery::{Error, Result};
use coracle_apiserver_testing::{TestServer, read};
use futures::future::BoxFuture;
use http::{Method, header};
use http_body_util::BodyExt;
use serde_json::{Value, json};

use widgets::{WIDGETS, message, widget};

const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";

/// Returns a table with widgets of two versions, the older of which is stored.
fn widgets() -> ResourceTable {
    let schema = json!({"type": "object", "required": ["spec"], "properties": {
        "spec": {"type": "object", "required": ["size"], "properties": {
            "size": {"type": "integer"},
            "color": {"type": "string", "default": "blue", "enum": ["blue", "red"]},
            "ports": {
                "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["port"],
                "items": {"type": "object", "properties": {
                    "port": {"type": "integer"}, "name": {"type": "string"},
                }},
            },
        }},
        "status": {"type": "object", "properties": {"ready": {"type": "boolean"}}},
    }});
    let kind = CustomKind {
        short_names: vec!["wd".to_owned()],
        ..CustomKind::new("example.com", "Widget", "widgets", true)
    };
    let version = |name: &str| CustomVersion {
        schema: schema.clone(),
        status: true,
        columns: Some(json!([{"name": "Color", "type": "string", "jsonPath": ".spec.color"}])),
        selectable_fields: vec![".spec.color".to_owned()],
        ..CustomVersion::new(name)
    };
    let resources = kind.resources(vec![version("v1"), version("v1beta1").stored()]);
    coracle_resources::built_in().with_custom(resources.expect("structural schemas"))
}

#[tokio::test]
async fn a_custom_kind_passes_the_pipeline() {
    let server = TestServer::start().await;
    assert_eq!(server.get(WIDGETS).await.0, 404, "it is not there yet");
    server.resources.replace(widgets());

    // Discovery and OpenAPI.
    let (_, list) = server.get("/apis/example.com/v1").await;
    assert_eq!(list["resources"][0]["shortNames"], json!(["wd"]));
    assert_eq!(list["resources"][1]["name"], "widgets/status");
    let (_, openapi) = server.get("/openapi/v3/apis/example.com/v1").await;
    let properties = &openapi["components"]["schemas"]["com.example.v1.Widget"]["properties"];
    assert_eq!(properties["spec"]["properties"]["color"]["default"], "blue");

    // Create: defaults, pruning, what is invalid.
    let created = server.send(Method::POST, WIDGETS, &widget("a", json!({"size": 1, "junk": true}))).await;
    assert_eq!((created.0, &created.1["spec"]), (201, &json!({"size": 1, "color": "blue"})));
    assert_eq!(created.1["metadata"]["generation"], 1);
    let fields = &created.1["metadata"]["managedFields"][0];
    assert_eq!((&fields["operation"], &fields["apiVersion"]), (&json!("Update"), &json!("example.com/v1")));
    assert_eq!(fields["fieldsV1"], json!({"f:spec": {".": {}, "f:color": {}, "f:size": {}}}));
    let strict = format!("{WIDGETS}?fieldValidation=Strict");
    let refused = server.send(Method::POST, &strict, &widget("b", json!({"size": 1, "junk": true}))).await;
    assert_eq!(refused.0, 400);
    assert!(
        message(&refused).1.contains("strict decoding error: unknown field \"spec.junk\""),
        "{refused:?}"
    );
    let invalid =
        server.send(Method::POST, WIDGETS, &widget("b", json!({"size": "1", "color": "green"}))).await;
    let text = concat!(
        "Widget.example.com \"b\" is invalid: [spec.color: Unsupported value: \"green\": supported values: \"blue\", \"red\", ",
        "spec.size: Invalid value: \"string\": spec.size in body must be of type integer: \"string\"]",
    );
    assert_eq!(message(&invalid), (422, text));
    let taken = server.send(Method::POST, WIDGETS, &widget("a", json!({"size": 1}))).await;
    assert_eq!(message(&taken), (409, "widgets.example.com \"a\" already exists"));

    // Get and list, in both versions; the bytes are sorted.
    let response = server.call(Method::GET, &format!("{WIDGETS}/a"), &[], Bytes::new()).await;
    let bytes = response.into_body().collect().await.expect("a body").to_bytes();
    let text = String::from_utf8_lossy(&bytes).into_owned();
    assert!(
        text.starts_with(
            r#"{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"creationTimestamp":"#
        ),
        "{text}"
    );
    let (_, older) = server.get("/apis/example.com/v1beta1/namespaces/default/widgets/a").await;
    assert_eq!(
        (&older["apiVersion"], &older["spec"]["color"]),
        (&json!("example.com/v1beta1"), &json!("blue"))
    );
    for version in ["v1", "v1beta1"] {
        let (_, list) = server.get(&format!("/apis/example.com/{version}/widgets")).await;
        let api_version = json!(format!("example.com/{version}"));
        assert_eq!((&list["kind"], &list["apiVersion"]), (&json!("WidgetList"), &api_version));
        assert_eq!(
            (&list["items"][0]["kind"], &list["items"][0]["apiVersion"]),
            (&json!("Widget"), &api_version)
        );
        assert_eq!(list["metadata"]["continue"], "");
    }
    for (selector, items) in [("blue", 1), ("red", 0)] {
        let (_, list) = server.get(&format!("{WIDGETS}?fieldSelector=spec.color%3D{selector}")).await;
        assert_eq!(list["items"].as_array().map(Vec::len), Some(items), "{selector}");
    }
    let unknown = server.get(&format!("{WIDGETS}?fieldSelector=spec.size%3D1")).await;
    assert_eq!(message(&unknown), (400, "field label not supported: spec.size"));

    // Tables.
    let response = server.call(Method::GET, WIDGETS, &[("accept", TABLE)], Bytes::new()).await;
    let table = read(response).await;
    let columns = table["columnDefinitions"].as_array().into_iter().flatten();
    let names: Vec<Value> = columns.map(|column| column["name"].clone()).collect();
    assert_eq!((json!(names), &table["rows"][0]["cells"]), (json!(["Name", "Color"]), &json!(["a", "blue"])));

    // Protobuf is not among the forms of a custom resource; whoever prefers it gets the next one.
    let protobuf = "application/vnd.kubernetes.protobuf";
    for (accept, code) in [(format!("{protobuf},application/json"), 200), (protobuf.to_owned(), 406)] {
        let path = format!("{WIDGETS}/a");
        let response = server.call(Method::GET, &path, &[("accept", &accept)], Bytes::new()).await;
        assert_eq!(response.status().as_u16(), code, "{accept}");
    }

    // Watch, from before the object was made.
    let watch =
        server.call(Method::GET, &format!("{WIDGETS}?watch=1&resourceVersion=1"), &[], Bytes::new()).await;
    let mut events = watch.into_body();

    // Update, and its refusals.
    let mut changed = created.1.clone();
    changed["spec"]["size"] = json!(2);
    changed["status"] = json!({"ready": true});
    let (code, updated) = server.send(Method::PUT, &format!("{WIDGETS}/a"), &changed).await;
    assert_eq!((code, &updated["spec"]["size"], updated.get("status")), (200, &json!(2), None));
    assert_eq!(updated["metadata"]["generation"], 2);
    let stale = server.send(Method::PUT, &format!("{WIDGETS}/a"), &changed).await;
    assert_eq!(stale.0, 409);
    let blind = server.send(Method::PUT, &format!("{WIDGETS}/a"), &widget("a", json!({"size": 3}))).await;
    let text = "widgets.example.com \"a\" is invalid: metadata.resourceVersion: Invalid value: 0: must be specified for an update";
    assert_eq!(message(&blind), (422, text));
    changed["metadata"]["resourceVersion"] = updated["metadata"]["resourceVersion"].clone();
    let (code, with_status) = server.send(Method::PUT, &format!("{WIDGETS}/a/status"), &changed).await;
    assert_eq!((code, &with_status["status"]), (200, &json!({"ready": true})));
    assert_eq!(with_status["metadata"]["generation"], 2);

    // Patches: a strategic merge patch is not taken.
    let merged = server
        .patch(&format!("{WIDGETS}/a"), "application/merge-patch+json", &json!({"spec": {"color": "red"}}))
        .await;
    assert_eq!((merged.0, &merged.1["spec"]["color"]), (200, &json!("red")));
    let replaced = json!([{"op": "replace", "path": "/spec/size", "value": 5}]);
    let patched = server.patch(&format!("{WIDGETS}/a"), "application/json-patch+json", &replaced).await;
    assert_eq!((patched.0, &patched.1["spec"]["size"]), (200, &json!(5)));
    let strategic =
        server.patch(&format!("{WIDGETS}/a"), "application/strategic-merge-patch+json", &json!({})).await;
    let text = "the body of the request was in an unknown format - accepted media types include: application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml";
    assert_eq!(message(&strategic), (415, text));
    for (media_type, patch) in [
        ("application/merge-patch+json", json!({"spec": {"size": "x"}})),
        ("application/json-patch+json", json!([{"op": "add", "path": "/spec/size", "value": "x"}])),
        ("application/json-patch+json", json!([{"op": "replace", "path": "", "value": 5}])),
        ("application/json-patch+json", json!([{"op": "replace", "path": "/metadata", "value": "x"}])),
    ] {
        let refused = server.patch(&format!("{WIDGETS}/a"), media_type, &patch).await;
        assert_eq!(refused.0, 422, "{media_type}: {refused:?}");
    }

    // Server-side apply, by the schema's types.
    let apply = |manager: &str, size: u32| {
        let query = format!("{WIDGETS}/b?fieldManager={manager}");
        (query, widget("b", json!({"size": size})))
    };
    let (path, configuration) = apply("one", 1);
    let applied = server.patch(&path, "application/apply-patch+yaml", &configuration).await;
    assert_eq!((applied.0, &applied.1["spec"]["size"]), (201, &json!(1)));
    assert_eq!(applied.1["metadata"]["managedFields"][0]["fieldsV1"], json!({"f:spec": {"f:size": {}}}));
    let (path, configuration) = apply("two", 2);
    let refused = server.patch(&path, "application/apply-patch+yaml", &configuration).await;
    assert_eq!(message(&refused), (409, "Apply failed with 1 conflict: conflict with \"one\": .spec.size"));
    let mistyped = widget("b", json!({"size": "x"}));
    let refused = server.patch(&path, "application/apply-patch+yaml", &mistyped).await;
    let text = "failed to create typed patch object (/b; example.com/v1, Kind=Widget): .spec.size: expected numeric (int or float), got string";
    assert_eq!(message(&refused), (500, text));
    assert_eq!(server.send(Method::DELETE, &format!("{WIDGETS}/b"), &Value::Null).await.0, 200);

    // Delete.
    let (code, status) = server.send(Method::DELETE, &format!("{WIDGETS}/a"), &Value::Null).await;
    assert_eq!((code, &status["status"]), (200, &json!("Success")));
    assert_eq!(status["details"]["kind"], "widgets");
    assert_eq!(server.get(&format!("{WIDGETS}/a")).await.0, 404);

    // The watch saw all of it, in the version that was asked.
    let mut seen = Vec::new();
    let mut text = String::new();
    while seen.last() != Some(&"DELETED".to_owned()) {
        let frame = events.frame().await.expect("the watch goes on").expect("a frame");
        text.push_str(std::str::from_utf8(frame.data_ref().expect("data")).expect("text"));
        while let Some(end) = text.find('\n') {
            let event: Value = serde_json::from_str(&text[..end]).expect("an event");
            text.drain(..=end);
            assert_eq!(event["object"]["apiVersion"], "example.com/v1");
            seen.push(event["type"].as_str().expect("a type").to_owned());
        }
    }
    assert_eq!(
        seen,
        ["ADDED", "MODIFIED", "MODIFIED", "MODIFIED", "MODIFIED", "ADDED", "DELETED", "DELETED"]
    );

    // And it goes as it came.
    server.resources.replace(coracle_resources::built_in());
    assert_eq!(server.get(WIDGETS).await.0, 404);
    assert_eq!(server.get("/apis/example.com/v1").await.0, 404);
}

/// Calls `spec.size` of v1 `spec.width` in v1beta1. It is slow, and fails for objects with the name
/// `cursed`.
struct Renaming;

impl Converter for Renaming {
    fn convert<'a>(&'a self, objects: Vec<Value>, to: &'a str) -> BoxFuture<'a, Result<Vec<Value>>> {
        Box::pin(async move {
            tokio::task::yield_now().await;
            let mut converted = Vec::new();
            for mut object in objects {
                if object["metadata"]["name"] == "cursed" {
                    return Err(Error::Internal("conversion webhook failed".to_owned()));
                }
                let (from, into) = if to.ends_with("/v1") { ("width", "size") } else { ("size", "width") };
                if let Some(spec) = object["spec"].as_object_mut()
                    && let Some(value) = spec.remove(from)
                {
                    spec.insert(into.to_owned(), value);
                }
                object["apiVersion"] = to.into();
                converted.push(object);
            }
            Ok(converted)
        })
    }
}

#[tokio::test]
async fn versions_of_a_custom_kind_are_converted_by_others() {
    let server = TestServer::start().await;
    let schema = |field: &str| json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {field: {"type": "integer"}}}}});
    let kind = CustomKind {
        conversion: Conversion::Remote(Arc::new(Renaming)),
        ..CustomKind::new("example.com", "Widget", "widgets", true)
    };
    let version =
        |name: &str, field: &str| CustomVersion { schema: schema(field), ..CustomVersion::new(name) };
    let resources = kind.resources(vec![version("v1", "size"), version("v1beta1", "width").stored()]);
    server
        .resources
        .replace(coracle_resources::built_in().with_custom(resources.expect("structural schemas")));
    let watch =
        server.call(Method::GET, &format!("{WIDGETS}?watch=1&resourceVersion=1"), &[], Bytes::new()).await;
    let mut events = watch.into_body();

    // The pipeline works in the version of the request, and stores another.
    let (code, created) = server.send(Method::POST, WIDGETS, &widget("a", json!({"size": 1}))).await;
    assert_eq!((code, &created["spec"]), (201, &json!({"size": 1})));
    let older = "/apis/example.com/v1beta1/namespaces/default/widgets";
    let (_, shown) = server.get(&format!("{older}/a")).await;
    assert_eq!((&shown["apiVersion"], &shown["spec"]), (&json!("example.com/v1beta1"), &json!({"width": 1})));
    let merge = "application/merge-patch+json";
    let (code, patched) = server.patch(&format!("{WIDGETS}/a"), merge, &json!({"spec": {"size": 2}})).await;
    assert_eq!((code, &patched["spec"]), (200, &json!({"size": 2})));
    assert_eq!(patched["metadata"]["generation"], 2);
    let (_, list) = server.get(WIDGETS).await;
    assert_eq!(list["items"][0]["spec"], json!({"size": 2}));
    let (_, list) = server.get(older).await;
    assert_eq!(list["items"][0]["spec"], json!({"width": 2}));
    let frame = events.frame().await.expect("the watch goes on").expect("a frame");
    let text = std::str::from_utf8(frame.data_ref().expect("data")).expect("text").to_owned();
    let event: Value = serde_json::from_str(text.lines().next().expect("a line")).expect("an event");
    assert_eq!(event["object"]["spec"], json!({"size": 1}));

    // An object that cannot be converted is rejected; if it is stored, reading it in the other
    // version fails.
    let refused = server.send(Method::POST, WIDGETS, &widget("cursed", json!({"size": 1}))).await;
    assert_eq!(refused.0, 500, "{refused:?}");
    assert!(message(&refused).1.contains("conversion webhook failed"), "{refused:?}");
    let mut own = widget("cursed", json!({"width": 1}));
    own["apiVersion"] = json!("example.com/v1beta1");
    assert_eq!(server.send(Method::POST, older, &own).await.0, 201, "it is stored as it comes");
    assert_eq!(server.get(&format!("{WIDGETS}/cursed")).await.0, 500);
    assert_eq!(server.get(WIDGETS).await.0, 500);
    assert_eq!(server.get(older).await.0, 200);
    let (code, _) = server.send(Method::DELETE, &format!("{older}/cursed"), &Value::Null).await;
    assert_eq!((code, server.get(WIDGETS).await.0), (200, 200));
}

#[tokio::test]
async fn objects_are_selected_by_fields_with_any_names() {
    let server = TestServer::start().await;
    let kind = CustomKind::new("example.com", "Widget", "widgets", true);
    let text = json!({"type": "string"});
    let version = CustomVersion {
        schema: json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
            "color": text, "a/b": text, "~1": text,
        }}}}),
        selectable_fields: [".spec.color", ".spec.a/b", ".spec.~1"].map(str::to_owned).into(),
        ..CustomVersion::new("v1").stored()
    };
    let resources = kind.resources(vec![version]).expect("structural schemas");
    server.resources.replace(coracle_resources::built_in().with_custom(resources));
    let spec = json!({"color": "blue", "a/b": "1", "~1": "2"});
    assert_eq!(server.send(Method::POST, WIDGETS, &widget("a", spec)).await.0, 201);
    for (selector, items) in [
        ("spec.color%3Dblue", 1),
        ("spec.color%3Dred", 0),
        ("spec.a/b%3D1", 1),
        ("spec.~1%3D2", 1),
        ("spec.~1!%3D2", 0),
    ] {
        let (code, list) = server.get(&format!("{WIDGETS}?fieldSelector={selector}")).await;
        assert_eq!((code, list["items"].as_array().map(Vec::len)), (200, Some(items)), "{selector}: {list}");
    }
}

#[tokio::test]
async fn the_version_that_is_checked_is_the_version_that_is_used() {
    let server = TestServer::start().await;
    server.resources.replace(widgets());
    let mut created = widget("a", json!({"size": 1}));
    assert_eq!(server.send(Method::POST, WIDGETS, &created).await.0, 201);
    created["apiVersion"] = json!("example.com/v1beta1");
    created["apiversion"] = json!("example.com/v1");
    let text = "the API version in the data (example.com/v1beta1) does not match the expected API version (example.com/v1)";
    let a = format!("{WIDGETS}/a");
    for (method, path) in [(Method::POST, WIDGETS), (Method::PUT, a.as_str())] {
        for media_type in ["application/json", "application/yaml"] {
            let headers = [(header::CONTENT_TYPE.as_str(), media_type)];
            let response = server.call(method.clone(), path, &headers, created.to_string().into()).await;
            let answer = (response.status().as_u16(), read(response).await);
            assert_eq!(message(&answer), (400, text), "{method} {media_type}");
        }
    }
    // Nor does a patch bring in another version under cover of a name in other letters.
    let patch = json!({"apiVersion": "example.com/v1beta1", "apiversion": "example.com/v1"});
    for media_type in ["application/merge-patch+json", "application/apply-patch+yaml"] {
        let path = format!("{a}?fieldManager=m");
        let (code, answer) = server.patch(&path, media_type, &patch).await;
        assert!((400..600).contains(&code), "{media_type}: {answer}");
    }
    let (_, kept) = server.get(&a).await;
    assert_eq!((&kept["apiVersion"], &kept["spec"]["size"]), (&json!("example.com/v1"), &json!(1)));
}
