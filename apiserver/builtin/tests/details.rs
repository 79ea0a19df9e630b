//! Details of single kinds that depend on more than their strategy, through a whole server.

use coracle_apiserver_testing::{MERGE_PATCH, TestServer};
use http::Method;
use serde_json::{Value, json};

const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";

fn message(body: &Value) -> &str {
    body["message"].as_str().unwrap_or_default()
}

#[tokio::test]
async fn the_metadata_of_a_scale_are_validated() {
    let server = TestServer::start().await;
    let containers = json!([{"name": "c", "image": "i"}]);
    let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": containers}});
    let spec = json!({"selector": {"matchLabels": {"a": "b"}}, "template": template});
    let (code, body) =
        server.send(Method::POST, DEPLOYMENTS, &json!({"metadata": {"name": "d"}, "spec": spec})).await;
    assert_eq!(code, 201, "{body}");
    let path = format!("{DEPLOYMENTS}/d/scale");
    for (metadata, code, want) in [
        (json!({"labels": {"a": "b"}}), 200, ""),
        (json!({"managedFields": [{"operation": "x"}]}), 200, ""),
        (
            json!({"labels": {"-x": "b"}}),
            422,
            "Scale.autoscaling \"d\" is invalid: metadata.labels: Invalid value: \"-x\": ",
        ),
        (
            json!({"generation": -1}),
            422,
            "Scale.autoscaling \"d\" is invalid: metadata.generation: Invalid value: -1: must be greater than or equal to 0",
        ),
        (
            json!({"namespace": "kube-system"}),
            400,
            "the namespace of the provided object does not match the namespace sent on the request",
        ),
    ] {
        let patch = json!({"metadata": metadata, "spec": {"replicas": 2}});
        let (got, body) = server.patch(&path, MERGE_PATCH, &patch).await;
        assert_eq!(got, code, "{patch}: {body}");
        assert!(code == 200 || message(&body).starts_with(want), "{patch}: {body}");
    }
    let (_, deployment) = server.get(&format!("{DEPLOYMENTS}/d")).await;
    assert_eq!(deployment["metadata"]["labels"], Value::Null, "they are not stored");
}

#[tokio::test]
async fn an_autoscaler_of_version_2_has_no_annotations_of_version_1() {
    let server = TestServer::start().await;
    let metrics =
        json!([{"type": "Resource", "resource": {"name": "memory", "targetAverageUtilization": 50}}]);
    let annotations = json!({"autoscaling.alpha.kubernetes.io/metrics": metrics.to_string(), "own": "x"});
    let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"});
    let spec = json!({"maxReplicas": 3, "scaleTargetRef": target});
    let object = json!({"metadata": {"name": "h", "annotations": annotations}, "spec": spec});
    for (version, metric) in [("v1", "memory"), ("v2", "cpu")] {
        let path =
            |version| format!("/apis/autoscaling/{version}/namespaces/default/horizontalpodautoscalers");
        let (code, body) = server.send(Method::POST, &path(version), &object).await;
        assert_eq!(code, 201, "{body}");
        let (_, stored) = server.get(&format!("{}/h", path("v2"))).await;
        assert_eq!(stored["metadata"]["annotations"], json!({"own": "x"}), "{version}");
        assert_eq!(stored["spec"]["metrics"][0]["resource"]["name"], metric, "{version}");
        let (code, body) = server.send(Method::DELETE, &format!("{}/h", path("v2")), &Value::Null).await;
        assert_eq!(code, 200, "{body}");
    }
}

#[tokio::test]
async fn a_definition_has_stored_versions_and_no_empty_webhook() {
    let server = TestServer::start().await;
    let schema = json!({"openAPIV3Schema": {"type": "object"}});
    let object = json!({
        "metadata": {"name": "things.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced", "names": {"plural": "things", "kind": "Thing"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": schema}],
            "conversion": {"strategy": "None", "webhook": {}},
        },
        "status": {"storedVersions": null},
    });
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let (code, created) = server.send(Method::POST, path, &object).await;
    assert_eq!(code, 201, "{created}");
    assert_eq!(created["spec"]["conversion"], json!({"strategy": "None"}), "{created}");
    assert_eq!(created["status"]["storedVersions"], json!(["v1"]), "{created}");
    let path = format!("{path}/things.example.com");
    for stored in [json!(null), json!([])] {
        let patch = json!({"status": {"storedVersions": stored}});
        let (code, updated) = server.patch(&format!("{path}/status"), MERGE_PATCH, &patch).await;
        assert_eq!((code, &updated["status"]["storedVersions"]), (200, &json!(["v1"])), "{updated}");
    }
    let (_, mut whole) = server.get(&path).await;
    whole["status"]["storedVersions"] = Value::Null;
    let (code, updated) = server.send(Method::PUT, &format!("{path}/status"), &whole).await;
    assert_eq!((code, &updated["status"]["storedVersions"]), (200, &json!(["v1"])), "{updated}");
}

/// The strategy of a Service's status inherits that a write may create the object.
#[tokio::test]
async fn an_apply_to_the_status_of_a_service_creates_it() {
    const APPLY: &str = "application/apply-patch+yaml";
    let server = TestServer::start().await;
    let apply = async |plural: &str, kind: &str, api_version: &str, name: &str, spec: Value| {
        let group = if api_version == "v1" { "/api".to_owned() } else { "/apis".to_owned() };
        let path = format!("{group}/{api_version}/namespaces/default/{plural}/{name}/status?fieldManager=m");
        let object =
            json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": name}, "spec": spec});
        server.patch(&path, APPLY, &object).await
    };
    let (code, body) = apply("services", "Service", "v1", "a", json!({"ports": [{"port": 80}]})).await;
    assert_eq!((code, &body["metadata"]["managedFields"]), (201, &Value::Null), "{body}");
    let (code, body) = apply("services", "Service", "v1", "b", json!({})).await;
    assert_eq!((code, message(&body)), (422, "Service \"b\" is invalid: spec.ports: Required value"));
    let (code, body) = apply("deployments", "Deployment", "apps/v1", "a", json!({})).await;
    assert_eq!((code, message(&body)), (404, "deployments.apps \"a\" not found"));
}
