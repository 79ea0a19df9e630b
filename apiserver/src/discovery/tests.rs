use serde_json::json;

use super::*;
use crate::resource_info::{CustomKind, CustomVersion, ResourceInfo};
use crate::strategy::ScalePaths;
use crate::testing;

fn discovery() -> Discovery {
    Discovery::new(
        "127.0.0.1:6443",
        ["/healthz".to_owned()],
        SharedResourceTable::new(coracle_resources::built_in()),
    )
}

fn send(discovery: &Discovery, request: &str, accept: &str) -> Option<Result<Response<Bytes>>> {
    let (method, uri) = request.split_once(' ').expect("a method and a path");
    let mut request = http::Request::builder().method(method).uri(uri);
    if !accept.is_empty() {
        request = request.header(header::ACCEPT, accept);
    }
    let (parts, ()) = request.body(()).expect("a request").into_parts();
    discovery.respond(&parts, Timestamp::UNIX_EPOCH)
}

fn body(discovery: &Discovery, path: &str, accept: &str) -> Value {
    let response = send(discovery, &format!("GET {path}"), accept).expect(path).expect(path);
    serde_json::from_slice(response.body()).expect("JSON")
}

const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

#[test]
fn documents_match_the_real_servers() {
    let facts = testing::facts("discovery.json");
    let discovery = discovery();
    for root in ["api", "apis"] {
        assert_eq!(body(&discovery, &format!("/{root}"), AGGREGATED), facts[root], "/{root}");
    }
    let lists = testing::facts("resource-lists.json");
    let lists = lists.as_object().expect("lists by group version");
    assert!(lists.len() > 20);
    for (group_version, list) in lists {
        let root = if group_version.contains('/') { "/apis" } else { "/api" };
        assert_eq!(&body(&discovery, &format!("{root}/{group_version}"), ""), list, "{group_version}");
    }
}

/// Checks the response of each path: status and media type, or the error.
#[test]
fn paths_methods_and_media_types() {
    let discovery = discovery();
    let json = "200 application/json";
    for (request, accept, want) in [
        ("GET /api", "", json),
        ("GET /api/", "", json),
        ("GET /api//", "", json),
        ("POST /api", "", "405"),
        ("HEAD /api", "", "405"),
        ("GET /api", "text/html", "406 routed"),
        ("GET /api", "application/*", "406 routed"),
        ("GET /api", "text/html,application/json", json),
        ("GET /api/v1", "", json),
        ("GET /api/v1/", "", json),
        ("PUT /api/v1", "", "405"),
        ("GET /api/v2", "", "none"),
        ("GET //api", "", "none"),
        ("GET /apis", "", json),
        ("GET /apis/", "", json),
        ("GET /apis//", "", "none"),
        ("DELETE /apis", "", json),
        ("GET /apis", "text/html", "406"),
        ("GET /apis", "application/*", json),
        ("GET /apis/apps", "", json),
        ("POST /apis/apps/", "", json),
        ("GET /apis/nope", "", "none"),
        ("GET /apis/apps/v1", "", json),
        ("OPTIONS /apis/apps/v1", "", "405"),
        ("GET /apis/apps/v9", "", "none"),
        ("GET /apis/apps/v1/deployments", "", "none"),
        ("GET /version", "", json),
        ("GET /version/", "", json),
        ("OPTIONS /version", "", "405"),
        ("GET /version", "application/vnd.kubernetes.protobuf", "406 routed"),
        ("GET /version/x", "", "none"),
        ("POST /", "text/html", json),
        ("GET /index.html", "", json),
        ("GET /index.html/", "", "none"),
        ("GET /api", AGGREGATED, "200 application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"),
        (
            "GET /apis",
            "application/json;as=APIGroupDiscoveryList;v=v2beta1;g=apidiscovery.k8s.io,application/json",
            json,
        ),
        ("GET /apis", "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList", "406"),
        ("GET /apis/", AGGREGATED, "406"),
        ("GET /apis/apps", AGGREGATED, "406"),
        ("GET /api/v1", AGGREGATED, "406"),
        ("GET /apis", "application/json;as=Table;g=meta.k8s.io;v=v1", "406"),
        ("GET /version", AGGREGATED, json),
        ("GET /openapi/v9", "", "none"),
        ("GET /openapi/v3/nope", "", "404"),
        ("GET /openapi/v3/", "", "404"),
        ("GET /openapi/v2/", "", "none"),
        ("POST /openapi/v3", "text/html", "200 text/plain; charset=utf-8"),
        ("GET /openapi/v3/version", "", json),
        ("GET /openapi/v3/version", "text/html", "406"),
        (
            "GET /openapi/v3/version",
            "application/com.github.proto-openapi.spec.v3@v1.0+protobuf",
            "200 application/com.github.proto-openapi.spec.v3.v1.0+protobuf",
        ),
    ] {
        let got = match send(&discovery, request, accept) {
            None => "none".to_owned(),
            Some(Err(Error::Status(status))) => format!("{} routed", status.code),
            Some(Err(error)) => error.code().to_string(),
            Some(Ok(response)) => {
                let media_type = response.headers().get(header::CONTENT_TYPE).and_then(|v| v.to_str().ok());
                let status = response.status().as_u16().to_string();
                media_type.map_or(status.clone(), |media_type| format!("{status} {media_type}"))
            }
        };
        assert_eq!(got, want, "{request} {accept}");
    }
}

#[test]
fn index_version_and_group_documents_are_served() {
    let discovery = discovery();
    let addresses = json!([{"clientCIDR": "0.0.0.0/0", "serverAddress": "127.0.0.1:6443"}]);
    let versions =
        json!({"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": addresses});
    assert_eq!(body(&discovery, "/api", ""), versions);
    let named = |version: &str| json!({"groupVersion": format!("autoscaling/{version}"), "version": version});
    let group = json!({
        "kind": "APIGroup",
        "apiVersion": "v1",
        "name": "autoscaling",
        "versions": [named("v2"), named("v1")],
        "preferredVersion": named("v2"),
    });
    assert_eq!(body(&discovery, "/apis/autoscaling", ""), group);
    let groups = body(&discovery, "/apis", "");
    assert_eq!(groups["groups"][1]["name"], "apps");
    assert_eq!(groups["groups"].as_array().map(Vec::len), Some(20));
    let paths = body(&discovery, "/", "")["paths"].clone();
    for path in ["/api", "/api/v1", "/apis", "/apis/", "/apis/apps/v1", "/healthz", "/openapi/v3", "/version"]
    {
        assert!(paths.as_array().is_some_and(|paths| paths.contains(&path.into())), "{path}");
    }
}

/// Compares with the bytes of a real server.
#[test]
fn formats_of_a_document() {
    let discovery = discovery();
    for (path, accept, want) in [
        (
            "/api?pretty=1",
            "",
            "{\n  \"kind\": \"APIVersions\",\n  \"versions\": [\n    \"v1\"\n  ],\n  \
             \"serverAddressByClientCIDRs\": [\n    {\n      \"clientCIDR\": \"0.0.0.0/0\",\n      \
             \"serverAddress\": \"127.0.0.1:6443\"\n    }\n  ]\n}",
        ),
        (
            "/apis/apps",
            "",
            "{\"kind\":\"APIGroup\",\"apiVersion\":\"v1\",\"name\":\"apps\",\"versions\":[{\"groupVersion\":\
             \"apps/v1\",\"version\":\"v1\"}],\"preferredVersion\":{\"groupVersion\":\"apps/v1\",\"version\":\"v1\"}}\n",
        ),
        (
            "/apis/apps",
            "application/yaml",
            "apiVersion: v1\nkind: APIGroup\nname: apps\npreferredVersion:\n  groupVersion: apps/v1\n  version: v1\n\
             versions:\n- groupVersion: apps/v1\n  version: v1\n",
        ),
        (
            "/api",
            "application/vnd.kubernetes.protobuf",
            "k8s\0\n\u{f}\n\0\u{12}\u{b}APIVersions\u{12}!\n\u{2}v1\u{12}\u{1b}\n\t0.0.0.0/0\u{12}\u{e}127.0.0.1:6443\
             \u{1a}\0\"\0",
        ),
        (
            "/apis/apps",
            "application/vnd.kubernetes.protobuf",
            "k8s\0\n\u{e}\n\u{2}v1\u{12}\u{8}APIGroup\u{12}$\n\u{4}apps\u{12}\r\n\u{7}apps/v1\u{12}\u{2}v1\u{1a}\r\n\
             \u{7}apps/v1\u{12}\u{2}v1\u{1a}\0\"\0",
        ),
    ] {
        let response = send(&discovery, &format!("GET {path}"), accept).expect(path).expect(path);
        assert_eq!(std::str::from_utf8(response.body()), Ok(want), "{path} {accept}");
    }
}

#[test]
fn a_matching_etag_gives_304() {
    let discovery = discovery();
    let first = send(&discovery, "GET /apis", AGGREGATED).expect("answered").expect("a document");
    let etag = &first.headers()[header::ETAG];
    assert_eq!(first.headers()[header::VARY], "Accept");
    assert_eq!(first.headers()[header::CACHE_CONTROL], "public");
    for (held, want) in [(etag.to_str().expect("text"), 304), ("*", 200), ("\"other\"", 200)] {
        let request = http::Request::get("/apis")
            .header(header::ACCEPT, AGGREGATED)
            .header(header::IF_NONE_MATCH, held);
        let (parts, ()) = request.body(()).expect("a request").into_parts();
        let again = discovery.respond(&parts, Timestamp::UNIX_EPOCH).expect("answered").expect("a document");
        assert_eq!(again.status(), want, "{held}");
        assert_eq!(&again.headers()[header::ETAG], etag);
        assert_eq!(again.body().is_empty(), want == 304);
    }
}

/// Creates a custom resource in some versions.
pub(super) fn widgets(versions: &[&str]) -> Vec<ResourceInfo> {
    let kind = CustomKind {
        short_names: vec!["wd".to_owned()],
        categories: vec!["all".to_owned()],
        ..CustomKind::new("stable.example.com", "Widget", "widgets", true)
    };
    let schema = json!({
        "type": "object",
        "description": "a widget",
        "required": ["spec"],
        "properties": {"spec": {"type": "object", "properties": {
            "color": {"type": "string", "nullable": true, "enum": ["red", "blue"]},
            "port": {"x-kubernetes-int-or-string": true},
            "replicas": {"type": "integer", "default": 1, "minimum": 0},
        }}},
    });
    let version = |name: &&str| CustomVersion {
        schema: schema.clone(),
        status: true,
        scale: ScalePaths::read(
            &json!({"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}),
        ),
        storage: *name == "v1",
        ..CustomVersion::new(name)
    };
    kind.resources(versions.iter().map(version).collect()).expect("structural schemas")
}

#[test]
fn custom_resources_are_added_and_removed() {
    let discovery = discovery();
    let before = send(&discovery, "GET /apis", AGGREGATED).expect("answered").expect("a document");
    discovery.resources.replace(coracle_resources::built_in().with_custom(widgets(&["v1beta1", "v1"])));
    assert!(discovery.has_built_in_group("apps") && !discovery.has_built_in_group("stable.example.com"));
    let group = body(&discovery, "/apis/stable.example.com", "");
    assert_eq!(group["preferredVersion"]["version"], "v1");
    let list = body(&discovery, "/apis/stable.example.com/v1", "");
    let scale = json!({
        "name": "widgets/scale", "singularName": "", "namespaced": true, "group": "autoscaling",
        "version": "v1", "kind": "Scale", "verbs": ["get", "patch", "update"],
    });
    assert_eq!(list["resources"][2], scale);
    assert_eq!(list["resources"][1].get("group"), None);
    let aggregated = body(&discovery, "/apis", AGGREGATED);
    let listed = aggregated["items"].as_array().and_then(|items| items.last()).expect("a group");
    let own = json!({"group": "stable.example.com", "version": "v1", "kind": "Widget"});
    assert_eq!(listed["versions"][0]["resources"][0]["responseKind"], own);
    let posted = send(&discovery, "POST /apis/stable.example.com/v1", "application/*");
    assert!(matches!(posted, Some(Ok(response)) if response.status() == 200));
    discovery.resources.replace(coracle_resources::built_in());
    let after = send(&discovery, "GET /apis", AGGREGATED).expect("answered").expect("a document");
    assert_eq!(before.headers()[header::ETAG], after.headers()[header::ETAG]);
}
