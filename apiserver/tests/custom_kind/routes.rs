//! Paths and methods of custom resources, which have no router of their own.

use bytes::Bytes;
use coracle_apimachinery::resource_info::{CustomKind, CustomVersion};
use coracle_apiserver_testing::{MERGE_PATCH, TestServer, read};
use http::{Method, header};
use serde_json::{Value, json};

use super::widgets::{WIDGETS, widget};

#[tokio::test]
async fn paths_and_methods_are_answered_as_those_without_a_router() {
    let server = TestServer::start().await;
    let version = |name: &str| CustomVersion { status: name == "v1", ..CustomVersion::new(name) };
    let hidden = CustomVersion { served: false, ..version("v3") };
    let kind = CustomKind::new("example.com", "Widget", "widgets", true);
    server.serve(&kind, vec![version("v1").stored(), version("v2"), hidden]);
    assert_eq!(server.send(Method::POST, WIDGETS, &widget("a", json!({}))).await.0, 201);
    let (page, root) = ("404 page not found\n", "/apis/example.com");
    let not_found = "widgets.example.com \"a\" not found";
    let unsupported =
        |verb: &str| format!("{verb} is not supported on resources of kind \"widgets.example.com\"");
    for (method, path, code, text) in [
        ("GET", format!("{root}/v1/widgets"), 200, String::new()),
        ("GET", format!("{root}/v1/widgets/a"), 404, page.to_owned()),
        ("POST", format!("{root}/v1/widgets"), 404, page.to_owned()),
        ("DELETE", format!("{root}/v1/widgets"), 404, page.to_owned()),
        ("GET", format!("{root}/v3/namespaces/default/widgets/a"), 404, page.to_owned()),
        ("GET", format!("{root}/v1/namespaces/default/gadgets/a"), 404, page.to_owned()),
        ("GET", format!("{WIDGETS}/a/scale"), 404, not_found.to_owned()),
        ("POST", format!("{WIDGETS}/a/foo"), 404, not_found.to_owned()),
        ("GET", format!("{root}/v2/namespaces/default/widgets/a/status"), 404, not_found.to_owned()),
        ("GET", format!("{WIDGETS}/a/status"), 200, String::new()),
        ("GET", format!("{WIDGETS}/a/status/more"), 200, String::new()),
        ("GET", format!("{WIDGETS}//"), 200, String::new()),
        ("HEAD", format!("{WIDGETS}/a"), 200, String::new()),
        ("POST", format!("{WIDGETS}/a/status"), 405, unsupported("create")),
        ("DELETE", format!("{WIDGETS}/none/status"), 405, unsupported("delete")),
        ("OPTIONS", WIDGETS.to_owned(), 405, unsupported("")),
        ("GET", format!("{root}/v1/proxy/namespaces/default/widgets/a"), 405, unsupported("proxy")),
        ("PUT", WIDGETS.to_owned(), 400, "name must be provided".to_owned()),
        ("PATCH", WIDGETS.to_owned(), 400, "name must be provided".to_owned()),
        ("POST", format!("{WIDGETS}/path"), 201, String::new()),
    ] {
        let body = match method {
            "POST" | "PUT" => widget("body", json!({})).to_string(),
            "PATCH" => "{}".to_owned(),
            _ => String::new(),
        };
        let media_type = if method == "PATCH" { MERGE_PATCH } else { "application/json" };
        let headers = [(header::CONTENT_TYPE.as_str(), media_type)];
        let response =
            server.call(method.parse().expect("a method"), &path, &headers, Bytes::from(body)).await;
        assert_eq!(response.status().as_u16(), code, "{method} {path}");
        let answer = read(response).await;
        let said = answer.as_str().or(answer["message"].as_str()).unwrap_or_default();
        if code >= 400 {
            assert_eq!(said, text, "{method} {path}");
        }
    }
    assert_eq!(server.get(&format!("{WIDGETS}/body")).await.0, 200, "the name in the path does not matter");
}

#[tokio::test]
async fn bodies_that_are_no_widgets_are_refused() {
    let server = TestServer::start().await;
    let schema = json!({"type": "object", "properties": {"spec": {"type": "object"}}});
    let version = CustomVersion { schema, ..CustomVersion::new("v1").stored() };
    server.serve(&CustomKind::new("example.com", "Widget", "widgets", true), vec![version]);
    for (body, code, text) in [
        (
            json!({"kind": "Widget", "metadata": {"name": "a"}}),
            400,
            "the API version in the data () does not match the expected API version (example.com/v1)",
        ),
        (
            json!({"apiVersion": "example.com/v1", "kind": "WidgetList", "items": []}),
            422,
            "WidgetList.example.com \"\" is invalid: kind: Invalid value: \"WidgetList\": must be Widget",
        ),
        (
            json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": "x"}),
            400,
            "Widget in version \"v1\" cannot be handled as a Widget: json: cannot unmarshal string into Go value of type v1.ObjectMeta",
        ),
    ] {
        let headers = [(header::CONTENT_TYPE.as_str(), "application/json")];
        let response = server.call(Method::POST, WIDGETS, &headers, body.to_string().into()).await;
        let warnings = response.headers().get(header::WARNING).cloned();
        let status = response.status().as_u16();
        let answer: Value = read(response).await;
        assert_eq!((status, &answer["message"], warnings), (code, &json!(text), None), "{body}");
    }
}

#[tokio::test]
async fn a_patch_that_takes_the_type_is_refused() {
    let server = TestServer::start().await;
    let kind = CustomKind::new("example.com", "Widget", "widgets", true);
    let version = |name: &str| CustomVersion { status: true, ..CustomVersion::new(name) };
    server.serve(&kind, vec![version("v1").stored(), version("v2")]);
    assert_eq!(server.send(Method::POST, WIDGETS, &widget("a", json!({}))).await.0, 201);
    for (patch, code, end) in [
        (
            json!({"kind": null}),
            422,
            "}}\": Object 'Kind' is missing in '{\"apiVersion\":\"example.com/v1\",\"metadata\":",
        ),
        (
            json!({"kind": ""}),
            422,
            "\": Object 'Kind' is missing in '{\"apiVersion\":\"example.com/v1\",\"kind\":\"\",",
        ),
        (json!({"kind": null, "apiVersion": null}), 422, "\": Object 'Kind' is missing in '{\"metadata\":"),
        (
            json!({"apiVersion": ""}),
            500,
            "Internal error occurred: Object 'apiVersion' is missing in 'object has no apiVersion field'",
        ),
        (
            json!({"kind": 5}),
            422,
            "\": couldn't get version/kind; json parse error: json: cannot unmarshal number into Go struct field .kind of type string",
        ),
        (
            json!({"apiVersion": ["v1"]}),
            422,
            "\": couldn't get version/kind; json parse error: json: cannot unmarshal array into Go struct field .apiVersion of type string",
        ),
        (json!({"apiVersion": "a/b/c"}), 422, "\": unexpected GroupVersion string: a/b/c"),
        (
            json!({"kind": "Gadget"}),
            422,
            "Gadget.example.com \"a\" is invalid: kind: Invalid value: \"Gadget\": must be Widget",
        ),
        (
            json!({"apiVersion": "example.com/v2"}),
            422,
            "Widget.example.com \"a\" is invalid: apiVersion: Invalid value: \"example.com/v2\": must be example.com/v1",
        ),
        (
            json!({"apiVersion": "v1", "kind": "Pod"}),
            422,
            "Pod \"a\" is invalid: [kind: Invalid value: \"Pod\": must be Widget, apiVersion: Invalid value: \"v1\": must be example.com/v1]",
        ),
    ] {
        let headers = [(header::CONTENT_TYPE.as_str(), MERGE_PATCH)];
        let path = format!("{WIDGETS}/a");
        let response = server.call(Method::PATCH, &path, &headers, patch.to_string().into()).await;
        let status = response.status().as_u16();
        let answer = read(response).await;
        let message = answer["message"].as_str().unwrap_or_default();
        assert_eq!(status, code, "{patch}: {message}");
        assert!(message.contains(end), "{patch}: {message}");
    }
    // The status has no type of its own.
    let status = format!("{WIDGETS}/a/status");
    for (patch, code) in [
        (json!({"apiVersion": "example.com/v2"}), 200),
        (json!({"kind": "Gadget"}), 200),
        (json!({"kind": null}), 422),
    ] {
        let (got, answer) = server.patch(&status, MERGE_PATCH, &patch).await;
        assert_eq!(got, code, "{patch}: {answer}");
        if code == 200 {
            assert_eq!(
                (&answer["kind"], &answer["apiVersion"]),
                (&json!("Widget"), &json!("example.com/v1"))
            );
        }
    }
}

/// A definition may lose a version although objects are stored in it.
#[tokio::test]
async fn objects_of_a_version_that_was_removed_are_unreadable() {
    let server = TestServer::start().await;
    let kind = CustomKind::new("example.com", "Widget", "widgets", true);
    let (old, new) = (CustomVersion::new("v1"), CustomVersion::new("v2"));
    server.serve(&kind, vec![old.clone().stored(), new.clone()]);
    assert_eq!(server.send(Method::POST, WIDGETS, &widget("old", json!({}))).await.0, 201);
    let widgets = "/apis/example.com/v2/namespaces/default/widgets";
    let of_v2 =
        |name: &str| json!({"apiVersion": "example.com/v2", "kind": "Widget", "metadata": {"name": name}});
    // A version that is not served any more is converted all the same.
    server.serve(&kind, vec![CustomVersion { served: false, ..old }, new.clone().stored()]);
    assert_eq!(server.get(&format!("{widgets}/old")).await.0, 200);
    assert_eq!(server.send(Method::POST, widgets, &of_v2("new")).await.0, 201);
    let (code, list) = server.get(widgets).await;
    assert_eq!((code, list["items"].as_array().map(Vec::len)), (200, Some(2)));

    server.serve(&kind, vec![new.stored()]);
    assert_eq!(server.get(&format!("{widgets}/new")).await.0, 200);
    let unreadable = "request to convert CR from an invalid group/version: example.com/v1";
    let cold =
        format!("storage is (re)initializing: failed to list example.com/v2, Kind=Widget: {unreadable}");
    for (method, path, body, code, text) in [
        (Method::GET, "/old", Value::Null, 500, unreadable),
        (Method::PUT, "/old", of_v2("old"), 500, unreadable),
        (Method::DELETE, "/old", Value::Null, 500, unreadable),
        (Method::DELETE, "", Value::Null, 500, unreadable),
        (Method::GET, "", Value::Null, 429, &cold),
        (Method::GET, "?resourceVersion=0", Value::Null, 429, &cold),
        (Method::GET, "?watch=1&resourceVersion=1", Value::Null, 429, &cold),
        (Method::GET, "?watch=1", Value::Null, 429, &cold),
        (Method::GET, "?limit=2", Value::Null, 500, unreadable),
        (Method::POST, "", of_v2("old"), 409, "widgets.example.com \"old\" already exists"),
    ] {
        let sent = if body.is_null() { Bytes::new() } else { body.to_string().into() };
        let headers = [(header::CONTENT_TYPE.as_str(), "application/json")];
        let response = server.call(method.clone(), &format!("{widgets}{path}"), &headers, sent).await;
        assert_eq!(response.status().as_u16(), code, "{method} {path}");
        assert_eq!(read(response).await["message"], text, "{method} {path}");
    }
    let other = server.get("/apis/example.com/v2/namespaces/kube-system/widgets").await;
    assert_eq!((other.0, other.1["message"].as_str()), (429, Some(&*cold)), "in each namespace");
    let (code, patched) = server.patch(&format!("{widgets}/old"), MERGE_PATCH, &json!({})).await;
    assert_eq!((code, patched["message"].as_str()), (500, Some(unreadable)));
}
