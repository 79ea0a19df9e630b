use std::path::Path;

use serde_json::Value;

use super::*;
use crate::resource_info::{CustomKind, CustomVersion};
use crate::testing;

fn built_in() -> OpenApi {
    OpenApi::new(&coracle_resources::built_in(), &[], None)
}

fn without_descriptions(value: &Value) -> Value {
    match value {
        Value::Object(members) => {
            let kept = members.iter().filter(|(name, value)| !(*name == "description" && value.is_string()));
            kept.map(|(name, value)| (name.clone(), without_descriptions(value))).collect()
        }
        Value::Array(items) => items.iter().map(without_descriptions).collect(),
        other => other.clone(),
    }
}

/// Returns a value without descriptions and item defaults, which the recorded facts lack.
fn bare(value: &Value) -> Value {
    let mut value = without_descriptions(value);
    drop_item_defaults(&mut value);
    value
}

fn drop_item_defaults(value: &mut Value) {
    match value {
        Value::Object(members) => {
            for (name, value) in members {
                drop_item_defaults(value);
                let item = matches!(name.as_str(), "items" | "additionalProperties");
                if let Some(members) = value.as_object_mut().filter(|_| item)
                    && members.remove("default").is_some()
                    && let Some(all) = members.remove("allOf")
                {
                    *value = all[0].clone();
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(drop_item_defaults),
        _ => {}
    }
}

/// Lists the differences of two documents.
fn differences(path: &str, ours: &Value, theirs: &Value, found: &mut Vec<String>) {
    match (ours, theirs) {
        (Value::Object(a), Value::Object(b)) => {
            let mut names: Vec<&String> = a.keys().chain(b.keys()).collect();
            names.sort();
            names.dedup();
            for name in names {
                let path = format!("{path}.{name}");
                differences(
                    &path,
                    ours.get(name).unwrap_or(&Value::Null),
                    theirs.get(name).unwrap_or(&Value::Null),
                    found,
                );
            }
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            for (index, (a, b)) in a.iter().zip(b).enumerate() {
                differences(&format!("{path}[{index}]"), a, b, found);
            }
        }
        _ if ours == theirs => {}
        _ => found.push(format!("{path}: {ours} instead of {theirs}")),
    }
}

/// Intended differences, and a part of their output.
const INTENDED: &[(&str, &str)] = &[
    (
        "meta.v1.WatchEvent.properties.object.$ref",
        "the description of WatchEvent includes its member's, so that the member has none",
    ),
    ("meta.v1.WatchEvent.properties.object.allOf", "likewise"),
    (
        "customresourcedefinitions/{name}.delete.responses",
        "DELETE answers with the definition, which its finalizer keeps; the real text has a Status",
    ),
];

fn compare(
    compared: &mut usize,
    dir: &Path,
    convert: fn(&Value) -> Value,
    part: fn(&Value) -> &Value,
) -> Vec<String> {
    let texts = Descriptions::parse();
    let mut found = Vec::new();
    for (key, document) in &built_in().documents {
        let Ok(theirs) = std::fs::read(dir.join(format!("{}.json", key.replace('/', "__")))) else {
            continue;
        };
        let theirs: Value = serde_json::from_slice(&theirs).expect("JSON");
        let ours = document.source.document(&texts);
        differences(key, &convert(part(&ours)), &convert(part(&theirs)), &mut found);
        *compared += 1;
    }
    found.retain(|difference| !INTENDED.iter().any(|(path, _)| difference.contains(path)));
    found
}

#[test]
fn schemas_match_the_real_servers() {
    let mut compared = 0;
    let found = compare(&mut compared, &testing::testdata().join("openapi-v3"), bare, |document| {
        &document["components"]["schemas"]
    });
    assert_eq!(compared, 42);
    assert!(found.is_empty(), "{} differences:\n{}", found.len(), found.join("\n"));
}

/// Compares the whole documents with those of a real server, in the folder PEER_OPENAPI: a file for
/// each, named as in the index with `__` for slashes.
#[test]
fn documents_match_those_of_a_peer() {
    let Some(dir) = std::env::var_os("PEER_OPENAPI") else { return };
    let mut compared = 0;
    let found = compare(&mut compared, Path::new(&dir), without_descriptions, |document| document);
    assert!(compared > 40);
    assert!(found.is_empty(), "{} differences:\n{}", found.len(), found.join("\n"));
}

/// Iterates over every operation of a document of version 3.
fn operations(document: &Value) -> impl Iterator<Item = (String, &Value)> {
    let paths = document["paths"].as_object().into_iter().flatten();
    paths.flat_map(|(path, item)| {
        let methods = item.as_object().into_iter().flatten().filter(|(name, _)| *name != "parameters");
        methods.map(move |(method, operation)| (format!("{method} {path}"), operation))
    })
}

fn names(parameters: &Value) -> String {
    let names =
        parameters.as_array().into_iter().flatten().filter_map(|parameter| parameter["name"].as_str());
    names.collect::<Vec<_>>().join(" ")
}

fn document(key: &str) -> Value {
    built_in().documents[key].source.document(&Descriptions::parse())
}

#[test]
fn operations_have_their_names() {
    let (core, apps) = (document("api/v1"), document("apis/apps/v1"));
    let known: BTreeMap<String, &Value> = operations(&core).chain(operations(&apps)).collect();
    let pods = "/api/v1/namespaces/{namespace}/pods";
    let deployments = "/apis/apps/v1/namespaces/{namespace}/deployments";
    for (operation, id, description) in [
        (format!("get {pods}"), "listCoreV1NamespacedPod", "list or watch objects of kind Pod"),
        ("get /api/v1/pods".into(), "listCoreV1PodForAllNamespaces", "list or watch objects of kind Pod"),
        (format!("delete {pods}"), "deleteCoreV1CollectionNamespacedPod", "delete collection of Pod"),
        (format!("get {pods}/{{name}}/log"), "readCoreV1NamespacedPodLog", "read log of the specified Pod"),
        (
            format!("post {pods}/{{name}}/exec"),
            "connectCoreV1PostNamespacedPodExec",
            "connect POST requests to exec of Pod",
        ),
        (
            format!("post {pods}/{{name}}/eviction"),
            "createCoreV1NamespacedPodEviction",
            "create eviction of a Pod",
        ),
        (
            format!("patch {deployments}/{{name}}/scale"),
            "patchAppsV1NamespacedDeploymentScale",
            "partially update scale of the specified Deployment",
        ),
        (format!("post {deployments}"), "createAppsV1NamespacedDeployment", "create a Deployment"),
        (
            "get /api/v1/componentstatuses".into(),
            "listCoreV1ComponentStatus",
            "list objects of kind ComponentStatus",
        ),
        ("get /apis/apps/v1/".into(), "getAppsV1APIResources", "get available resources"),
    ] {
        let details = known.get(&operation).expect(&operation);
        assert_eq!(
            (&details["operationId"], &details["description"]),
            (&id.into(), &description.into()),
            "{operation}"
        );
    }
    let ids: Vec<&str> = known.values().filter_map(|details| details["operationId"].as_str()).collect();
    let distinct: std::collections::BTreeSet<&str> = ids.iter().copied().collect();
    assert_eq!(ids.len(), distinct.len());
}

/// Checks that every PATCH has `fieldValidation`: kubectl reads this from the PATCH of the kind,
/// and then leaves validation to the server.
#[test]
fn patches_take_field_validation() {
    for (key, document) in &built_in().documents {
        let document = document.source.document(&Descriptions::parse());
        for (operation, details) in
            operations(&document).filter(|(_, details)| details["x-kubernetes-action"] == "patch")
        {
            let path = operation.split_once(' ').expect("a path").1;
            let all = format!(
                "{} {}",
                names(&details["parameters"]),
                names(&document["paths"][path]["parameters"])
            );
            assert!(all.contains("fieldValidation"), "{key} {operation}: {all}");
            assert!(details["x-kubernetes-group-version-kind"]["kind"].is_string(), "{key} {operation}");
        }
    }
}

#[test]
fn types_and_fields_have_descriptions() {
    let apps = document("apis/apps/v1");
    let schemas = apps["components"]["schemas"].as_object().expect("schemas");
    let mut silent: Vec<&str> = Vec::new();
    for (name, schema) in schemas {
        let details = schema["description"].is_string() || name.ends_with("List");
        if !details {
            silent.push(name);
        }
    }
    assert!(silent.is_empty(), "{silent:?}");
}

#[test]
fn hashes_redirect_and_documents_are_immutable() {
    let openapi = built_in();
    let key = "apis/apps/v1";
    let url = openapi.documents[key].url(key);
    let send = |uri: &str, held: &str| {
        let (path, query) = uri.split_once('?').unwrap_or((uri, ""));
        let mut headers = HeaderMap::new();
        headers.insert(header::IF_NONE_MATCH, held.parse().expect("a value"));
        let now = "2026-11-21T10:29:25Z".parse().expect("a time");
        openapi.respond(&Method::GET, path, &Query::parse(query), &headers, now).expect("answered")
    };
    let redirect = send("/openapi/v3/apis/apps/v1?hash=ABC", "x");
    assert_eq!(
        (redirect.status().as_u16(), redirect.headers()[header::LOCATION].to_str().ok()),
        (301, Some(&*url))
    );
    let whole = send(&url, "x");
    assert_eq!(whole.headers()[header::EXPIRES], "Sun, 21 Nov 2027 10:29:25 UTC");
    assert_eq!(whole.headers()[header::CACHE_CONTROL], "public, immutable");
    let etag = whole.headers()[header::ETAG].to_str().expect("text");
    for (held, want) in
        [(etag.to_owned(), 304), (format!("\"x\", W/{etag}"), 304), ("*".into(), 304), ("x".into(), 200)]
    {
        assert_eq!(send("/openapi/v3/apis/apps/v1", &held).status(), want, "{held}");
    }
    assert!(send("/openapi/v3", "x").body().windows(url.len()).any(|part| part == url.as_bytes()));
}

/// Checks that the digest follows the documents, since clients keep a document as long as its hash
/// is the same. `REGENERATE=1 cargo test -p coracle-apiserver --lib the_digest` rewrites it.
#[test]
fn the_digest_is_that_of_the_documents() {
    let table = coracle_resources::built_in().with_custom(super::super::tests::widgets(&["v1"]));
    let texts = Descriptions::parse();
    let mut parts = Vec::new();
    for (key, document) in &OpenApi::new(&table, &[], None).documents {
        let document = document.source.document(&texts);
        parts.push(key.clone().into_bytes());
        parts.push(document.to_string().into_bytes());
        parts.push(protobuf::openapi(&document));
    }
    let parts: Vec<&[u8]> = parts.iter().map(Vec::as_slice).collect();
    let now = digest(&parts) + "\n";
    if std::env::var_os("REGENERATE").is_some() {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/src/discovery/openapi/digest.txt");
        std::fs::write(file, now).expect("written");
    } else {
        assert!(now == DIGEST, "the documents changed: run this test with REGENERATE=1");
    }
}

#[test]
fn version_2_is_converted_from_version_3() {
    let openapi = built_in();
    let response = openapi.respond(
        &Method::GET,
        "/openapi/v2",
        &Query::default(),
        &HeaderMap::new(),
        Timestamp::UNIX_EPOCH,
    );
    let swagger: Value = serde_json::from_slice(response.expect("answered").body()).expect("JSON");
    let definitions = &swagger["definitions"];
    let quantity = &definitions["io.k8s.apimachinery.pkg.api.resource.Quantity"];
    assert_eq!((&quantity["type"], quantity.get("oneOf")), (&"string".into(), None));
    let spec = &definitions["io.k8s.api.apps.v1.Deployment"]["properties"]["spec"];
    assert_eq!(spec["$ref"], "#/definitions/io.k8s.api.apps.v1.DeploymentSpec");
    assert!(spec["description"].is_string() && spec.get("default").is_none());
    let kinds =
        &definitions["io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions"]["x-kubernetes-group-version-kind"];
    assert!(kinds.as_array().is_some_and(|kinds| kinds.len() > 15));
    let patch = &swagger["paths"]["/apis/apps/v1/namespaces/{namespace}/deployments/{name}"]["patch"];
    assert_eq!(names(&patch["parameters"]), "body dryRun fieldManager fieldValidation force");
    assert_eq!(patch["consumes"].as_array().map(Vec::len), Some(4));
    assert_eq!(patch["responses"]["200"]["schema"]["$ref"], "#/definitions/io.k8s.api.apps.v1.Deployment");
}

#[test]
fn custom_kinds_are_added_and_other_documents_kept() {
    let before = OpenApi::new(&coracle_resources::built_in(), &[], None);
    let widgets = super::super::tests::widgets(&["v1"]);
    let after = OpenApi::new(&coracle_resources::built_in().with_custom(widgets), &[], Some(&before));
    assert!(Arc::ptr_eq(&before.documents["api/v1"], &after.documents["api/v1"]));
    assert!(!after.documents.contains_key("apis/stable.example.com"));
    let document = after.documents["apis/stable.example.com/v1"].source.document(&Descriptions::parse());
    let schemas = &document["components"]["schemas"];
    let widget = &schemas["com.example.stable.v1.Widget"];
    assert_eq!(widget["properties"]["spec"]["properties"]["port"]["anyOf"][0]["type"], "integer");
    assert!(widget["properties"]["metadata"]["allOf"].is_array());
    assert_eq!(widget["x-kubernetes-group-version-kind"][0]["kind"], "Widget");
    assert!(schemas["com.example.stable.v1.WidgetList"]["properties"]["items"].is_object());
    assert!(schemas["io.k8s.api.autoscaling.v1.Scale"].is_object());
    let item = &document["paths"]["/apis/stable.example.com/v1/namespaces/{namespace}/widgets/{name}"];
    assert_eq!(item["patch"]["operationId"], "patchStableExampleComV1NamespacedWidget");
    assert_eq!(item["patch"]["tags"][0], "stableExampleCom_v1");
    assert_eq!(item["patch"]["requestBody"]["content"].as_object().map(Map::len), Some(3));
    assert_eq!(names(&item["get"]["parameters"]), "resourceVersion");
    let part = part_of(document);
    let mut swagger = Swagger::default();
    swagger.add(&part);
    let swagger: Value = serde_json::from_str(&swagger.finish()).expect("JSON");
    let spec = &swagger["definitions"]["com.example.stable.v1.Widget"]["properties"]["spec"]["properties"];
    let poorer = json!({"color": {"enum": ["red", "blue"]}, "port": {"x-kubernetes-int-or-string": true}, "replicas": {"type": "integer", "minimum": 0}});
    assert_eq!(*spec, poorer);
}

#[test]
fn documents_of_other_servers_are_merged() {
    let definition = |text: &str| json!({"type": "object", "description": text});
    let swagger = json!({
        "paths": {
            "/apis/wardle.example.com/v1/flunders": {"get": {
                "parameters": [{"$ref": "#/parameters/limit"}],
                "responses": {"200": {"schema": {"$ref": "#/definitions/com.example.wardle.v1.Flunder"}}},
            }},
            "/apis/": {"get": {"responses": {"200": {"schema": {"$ref": "#/definitions/unused"}}}}},
        },
        "definitions": {
            "com.example.wardle.v1.Flunder": {"type": "object", "properties": {
                "metadata": {"$ref": "#/definitions/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"},
            }},
            "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta": definition("another one"),
            "unused": definition("unused"),
        },
        "parameters": {"limit": {"in": "query", "name": "limit", "type": "integer"}},
    });
    let path = "apis/wardle.example.com/v1";
    let part = SwaggerPart::read(swagger.to_string().as_bytes(), path).expect("JSON");
    let remote = Arc::new(RemoteDocument {
        path: path.into(),
        url: Some("/openapi/v3/apis/wardle.example.com/v1?hash=ABC".into()),
        swagger: Some(Arc::new(part)),
    });
    let openapi = OpenApi::new(&coracle_resources::built_in(), &[remote], None);
    let get = |path: &str| {
        let response =
            openapi.respond(&Method::GET, path, &Query::default(), &HeaderMap::new(), Timestamp::UNIX_EPOCH);
        serde_json::from_slice::<Value>(response.expect("answered").body()).expect("JSON")
    };
    assert!(!openapi.is_generated("/openapi/v2", &HeaderMap::new()));
    let index = get("/openapi/v3");
    let url = "/openapi/v3/apis/wardle.example.com/v1?hash=ABC";
    assert_eq!(index["paths"]["apis/wardle.example.com/v1"]["serverRelativeURL"], url);
    let merged = get("/openapi/v2");
    assert!(openapi.is_generated("/openapi/v2", &HeaderMap::new()));
    let definitions = &merged["definitions"];
    let own = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";
    assert!(definitions[own]["properties"]["name"].is_object());
    assert_eq!(definitions[format!("{own}_v2")]["description"], "another one");
    let metadata = &definitions["com.example.wardle.v1.Flunder"]["properties"]["metadata"];
    assert_eq!(metadata["$ref"], format!("#/definitions/{own}_v2"));
    assert_eq!(definitions["unused"], Value::Null);
    assert!(merged["paths"]["/apis/wardle.example.com/v1/flunders"]["get"].is_object());
    assert_eq!(merged["parameters"]["limit"]["name"], "limit");
}

#[test]
fn a_schema_that_changes_has_another_hash() {
    let hash = |minimum: i64| {
        let schema = json!({"type": "object", "properties": {"n": {"type": "integer", "minimum": minimum}}});
        let version = CustomVersion { schema, storage: true, ..CustomVersion::new("v1") };
        let kind = CustomKind::new("stable.example.com", "Widget", "widgets", true);
        let widgets = kind.resources(vec![version]).expect("a structural schema");
        let table = coracle_resources::built_in().with_custom(widgets);
        let openapi = OpenApi::new(&table, &[], None);
        openapi.documents["apis/stable.example.com/v1"].hash().to_owned()
    };
    assert_ne!(hash(0), hash(1));
    assert_eq!(hash(1), hash(1));
}
