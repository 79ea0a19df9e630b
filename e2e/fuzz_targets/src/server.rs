//! One server for all inputs, in memory, with a few built-in and custom objects. Nothing writes to
//! it, so that inputs do not depend on earlier ones.

use std::sync::LazyLock;

use bytes::Bytes;
use coracle_apimachinery::resource_info::{CustomKind, CustomVersion};
use coracle_apiserver::registry::Registry;
use coracle_apiserver::serve::{Api, Body};
use coracle_apiserver_testing::TestServer;
use http::{Request, Response};
use http_body_util::Full;
use serde_json::{Value, json};
use tokio::runtime::{Builder, Runtime};
use tower::ServiceExt;

/// A server, called in the process by an administrator.
pub struct Server {
    pub runtime: Runtime,
    pub api: Api,
}

/// Returns the server, which is started by the first call.
pub fn server() -> &'static Server {
    static SERVER: LazyLock<Server> = LazyLock::new(Server::start);
    &SERVER
}

impl Server {
    fn start() -> Server {
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime");
        let api = runtime.block_on(TestServer::with(widgets(), |_| {})).api;
        let server = Server { runtime, api };
        for (path, object) in objects() {
            let request = Request::post(path).header("content-type", "application/json");
            let request = request.body(object.to_string().into()).expect("a request");
            let response = server.runtime.block_on(server.call(request));
            assert_eq!(response.status().as_u16(), 201, "{path}");
        }
        server
    }

    /// Sends a request and returns the response.
    pub async fn call(&self, request: Request<Bytes>) -> Response<Body> {
        self.api.clone().oneshot(request.map(Full::new)).await.expect("infallible")
    }

    pub fn registry(&self) -> &Registry {
        self.api.registry()
    }
}

/// Returns a custom kind with defaults, a status, columns and selectable fields.
fn widgets() -> Vec<coracle_apimachinery::resource_info::ResourceInfo> {
    let schema = json!({"type": "object", "properties": {
        "spec": {"type": "object", "properties": {
            "size": {"type": "integer", "minimum": 0},
            "color": {"type": "string", "default": "blue", "enum": ["blue", "red"]},
            "ports": {
                "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["port"],
                "items": {"type": "object", "properties": {"port": {"type": "integer"}, "name": {"type": "string"}}},
            },
            "loose": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
        }},
        "status": {"type": "object", "properties": {"ready": {"type": "boolean"}}},
    }});
    let kind = CustomKind::new("example.com", "Widget", "widgets", true);
    let version = CustomVersion {
        schema,
        status: true,
        columns: Some(json!([{"name": "Color", "type": "string", "jsonPath": ".spec.color"}])),
        selectable_fields: vec![".spec.color".to_owned()],
        ..CustomVersion::new("v1")
    };
    kind.resources(vec![version.stored()]).expect("a structural schema")
}

/// Returns the objects that this server has in addition to those of every server.
fn objects() -> Vec<(&'static str, Value)> {
    let named = |api_version: &str, kind: &str, name: &str, mut rest: Value| {
        rest["apiVersion"] = api_version.into();
        rest["kind"] = kind.into();
        rest["metadata"] = json!({"name": name, "labels": {"app": name, "tier": "db"}});
        rest
    };
    let template = json!({
        "metadata": {"labels": {"app": "a"}}, "spec": {"containers": [{"name": "c", "image": "i"}]},
    });
    let deployment =
        json!({"spec": {"replicas": 2, "selector": {"matchLabels": {"app": "a"}}, "template": template}});
    let service = json!({"spec": {"selector": {"app": "a"}, "ports": [{"port": 80}]}});
    let mut objects = vec![
        ("/api/v1/namespaces", named("v1", "Namespace", "other", json!({}))),
        ("/api/v1/namespaces/default/serviceaccounts", named("v1", "ServiceAccount", "default", json!({}))),
        ("/api/v1/namespaces/default/pods", named("v1", "Pod", "a", json!({"spec": template["spec"]}))),
        ("/apis/apps/v1/namespaces/default/deployments", named("apps/v1", "Deployment", "a", deployment)),
        ("/api/v1/namespaces/default/services", named("v1", "Service", "a", service)),
        (
            "/apis/example.com/v1/namespaces/default/widgets",
            named("example.com/v1", "Widget", "a", json!({"spec": {"size": 1, "ports": [{"port": 1}]}})),
        ),
    ];
    for (path, names) in [
        ("/api/v1/namespaces/default/configmaps", &["a", "b", "b.c", "b-c", "c"][..]),
        ("/api/v1/namespaces/other/configmaps", &["a", "b", "z"]),
        ("/api/v1/namespaces/kube-system/configmaps", &["a"]),
    ] {
        objects.extend(
            names.iter().map(|name| (path, named("v1", "ConfigMap", name, json!({"data": {"k": "v"}})))),
        );
    }
    objects
}
