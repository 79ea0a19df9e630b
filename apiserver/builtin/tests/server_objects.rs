//! The server's own objects, which are restored while it runs, through a whole server.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use coracle_apimachinery::allocation::SERVICE_CIDR;
use coracle_apiserver_testing::{MERGE_PATCH, TestServer};
use coracle_builtin::start::{ServerObjects, ServerObjectsConfig, publish_authentication, publish_endpoints};
use http::Method;
use serde_json::{Value, json};

const FLOW_SCHEMAS: &str = "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas";
const LEVELS: &str = "/apis/flowcontrol.apiserver.k8s.io/v1/prioritylevelconfigurations";
const AUTOUPDATE: &str = "apf.kubernetes.io/autoupdate-spec";
const ADDRESS: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 7));

/// Starts a server with the objects about itself, and takes up what keeps them.
async fn start() -> (TestServer, ServerObjects) {
    let server = TestServer::start().await;
    let registry = server.api.registry().clone();
    publish_endpoints(&registry, Some(ADDRESS), 6443).await.expect("Endpoints");
    publish_authentication(&registry, "client CA", "proxy CA").await.expect("a ConfigMap");
    let objects = ServerObjects::new(ServerObjectsConfig {
        registry,
        advertised: Some(ADDRESS),
        port: 6443,
        service_cidr: SERVICE_CIDR,
        client_ca: "client CA".to_owned(),
        front_proxy_ca: "proxy CA".to_owned(),
        is_selected: Arc::new(|_| false),
    });
    (server, objects)
}

async fn restore(objects: &mut ServerObjects) {
    objects.restore().await.expect("restored");
}

async fn revision(server: &TestServer) -> String {
    let (_, list) = server.get("/api/v1/namespaces").await;
    list["metadata"]["resourceVersion"].as_str().expect("a revision").to_owned()
}

#[tokio::test]
async fn deleted_objects_are_created_anew() {
    let (server, mut objects) = start().await;
    for path in [
        "/api/v1/namespaces/default/services/kubernetes",
        "/api/v1/namespaces/default/endpoints/kubernetes",
        "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/kubernetes",
        "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication",
        &format!("{FLOW_SCHEMAS}/exempt"),
        &format!("{FLOW_SCHEMAS}/global-default"),
        &format!("{LEVELS}/catch-all"),
        &format!("{LEVELS}/workload-low"),
    ] {
        let (code, before) = server.get(path).await;
        assert_eq!(code, 200, "{before}");
        let (code, deleted) = server.send(Method::DELETE, path, &json!({})).await;
        assert_eq!(code, 200, "{deleted}");
        assert_eq!(server.get(path).await.0, 404, "{path}");
        restore(&mut objects).await;
        let (code, after) = server.get(path).await;
        assert_eq!(code, 200, "{path}");
        for member in ["spec", "data", "subsets", "endpoints", "ports"] {
            assert_eq!(after.get(member), before.get(member), "{path} {member}");
        }
        assert_ne!(after["metadata"]["uid"], before["metadata"]["uid"], "{path}");
    }
    let (code, address) = server.get("/apis/networking.k8s.io/v1/ipaddresses/10.0.0.1").await;
    assert_eq!(code, 200, "that of the Service: {address}");
}

#[tokio::test]
async fn nothing_is_written_while_all_is_as_it_should_be() {
    let (server, mut objects) = start().await;
    // Something else changes in the same resources.
    let map = json!({"metadata": {"name": "other"}});
    assert_eq!(server.send(Method::POST, "/api/v1/namespaces/default/configmaps", &map).await.0, 201);
    let service = json!({"metadata": {"name": "other"}, "spec": {"ports": [{"port": 80}]}});
    assert_eq!(server.send(Method::POST, "/api/v1/namespaces/default/services", &service).await.0, 201);
    let before = revision(&server).await;
    for _ in 0..3 {
        restore(&mut objects).await;
    }
    assert_eq!(revision(&server).await, before);
}

#[tokio::test]
async fn changed_objects_of_flow_control_are_restored_and_foreign_ones_deleted() {
    let (server, mut objects) = start().await;
    let shares = |count: u64| json!({"spec": {"limited": {"nominalConcurrencyShares": count}}});
    let path = format!("{LEVELS}/workload-high");
    assert_eq!(server.patch(&path, MERGE_PATCH, &shares(7)).await.0, 200);
    let unmarked =
        json!({"metadata": {"annotations": {AUTOUPDATE: null}}, "spec": {"matchingPrecedence": 124}});
    let kept = format!("{FLOW_SCHEMAS}/service-accounts");
    assert_eq!(server.patch(&kept, MERGE_PATCH, &unmarked).await.0, 200);
    let stale = json!({
        "metadata": {"name": "stale", "annotations": {AUTOUPDATE: "true"}},
        "spec": {"type": "Limited", "limited": {"limitResponse": {"type": "Reject"}}},
    });
    assert_eq!(server.send(Method::POST, LEVELS, &stale).await.0, 201);
    let own = json!({"metadata": {"name": "own"}, "spec": stale["spec"]});
    assert_eq!(server.send(Method::POST, LEVELS, &own).await.0, 201);

    restore(&mut objects).await;

    let (_, level) = server.get(&path).await;
    assert_eq!(level["spec"]["limited"]["nominalConcurrencyShares"], 40, "{level}");
    let (_, schema) = server.get(&kept).await;
    assert_eq!(schema["spec"]["matchingPrecedence"], 124, "{schema}");
    assert_eq!(schema["metadata"]["annotations"][AUTOUPDATE], "false", "{schema}");
    assert_eq!(server.get(&format!("{LEVELS}/stale")).await.0, 404);
    assert_eq!(server.get(&format!("{LEVELS}/own")).await.0, 200);
}

#[tokio::test]
async fn the_service_is_not_created_while_another_one_has_its_address() {
    let (server, mut objects) = start().await;
    let kubernetes = "/api/v1/namespaces/default/services/kubernetes";
    assert_eq!(server.send(Method::DELETE, kubernetes, &Value::Null).await.0, 200);
    let spec = json!({"clusterIP": "10.0.0.1", "ports": [{"port": 80}]});
    let service = json!({"metadata": {"name": "other"}, "spec": spec});
    let services = "/api/v1/namespaces/default/services";
    let (code, created) = server.send(Method::POST, services, &service).await;
    assert_eq!(code, 201, "{created}");
    // Everything else is restored.
    let others = [
        format!("{FLOW_SCHEMAS}/probes"),
        "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication".to_owned(),
    ];
    for other in &others {
        assert_eq!(server.send(Method::DELETE, other, &Value::Null).await.0, 200, "{other}");
    }
    let error = objects.restore().await.expect_err("the address is taken").to_string();
    assert!(error.contains("10.0.0.1"), "{error}");
    assert_eq!(server.get(kubernetes).await.0, 404);
    for other in &others {
        assert_eq!(server.get(other).await.0, 200, "{other}");
    }
    assert_eq!(server.send(Method::DELETE, &format!("{services}/other"), &Value::Null).await.0, 200);
    restore(&mut objects).await;
    assert_eq!(server.get(kubernetes).await.0, 200);
}
