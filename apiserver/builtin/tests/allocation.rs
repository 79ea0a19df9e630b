//! Addresses and node ports of Services, of many writers at once, through a whole server.
#![expect(clippy::disallowed_methods, reason = "a test waits and measures")]

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use coracle_apiserver_testing::{MERGE_PATCH, TestServer};
use futures::future::join_all;
use http::Method;
use serde_json::{Value, json};

const SERVICES: &str = "/api/v1/namespaces/default/services";
const TASKS: usize = 64;

/// Runs a future for each number in a task of its own.
async fn at_once<F>(count: usize, one: impl Fn(usize) -> F) -> Vec<F::Output>
where
    F: Future<Output: Send> + Send + 'static,
{
    let tasks: Vec<_> = (0..count).map(|i| tokio::spawn(one(i))).collect();
    join_all(tasks).await.into_iter().map(|done| done.expect("no panic")).collect()
}

async fn items(server: &TestServer, path: &str) -> Vec<Value> {
    let (code, list) = server.get(path).await;
    assert_eq!(code, 200, "{list}");
    list["items"].as_array().expect("a list").clone()
}

/// Returns the node ports of all Services, and checks that each is allocated once.
fn node_ports(services: &[Value]) -> BTreeSet<i64> {
    let mut ports = BTreeSet::new();
    for service in services {
        for port in coracle_resources::core::service::allocation::held_node_ports(service) {
            assert!(ports.insert(port), "given twice: {service}");
        }
    }
    ports
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn no_address_and_no_port_is_given_twice() {
    let server = Arc::new(TestServer::start().await);
    let codes = at_once(TASKS * 3, |i| {
        let server = server.clone();
        async move {
            // Some ask for the same port, and some for the same address.
            let port = if i % 8 == 0 {
                json!({"port": 80, "nodePort": 30000 + i / 16})
            } else {
                json!({"port": 80})
            };
            let mut spec = json!({"type": "NodePort", "ports": [port], "selector": {"a": "b"}});
            if i % 8 == 1 {
                spec["clusterIP"] = format!("10.0.0.{}", 200 + i / 16).into();
            }
            let service = json!({"metadata": {"name": format!("s{i}")}, "spec": spec});
            let (code, _) = server.send(Method::POST, SERVICES, &service).await;
            if i % 3 == 0 && code == 201 {
                let patch = json!({"spec": {
                    "type": "LoadBalancer", "externalTrafficPolicy": "Local",
                    "ports": [{"name": "a", "port": 80}, {"name": "b", "port": 81}],
                }});
                let (code, answer) = server.patch(&format!("{SERVICES}/s{i}"), MERGE_PATCH, &patch).await;
                assert_eq!(code, 200, "{answer}");
            }
            code
        }
    })
    .await;
    assert!(codes.iter().all(|code| matches!(code, 201 | 422)), "{codes:?}");
    assert!(codes.iter().filter(|code| **code == 201).count() > TASKS * 2, "{codes:?}");

    let services = items(&server, SERVICES).await;
    let mut addresses = BTreeSet::new();
    for service in &services {
        let address = service["spec"]["clusterIP"].as_str().expect("an address").to_owned();
        assert!(addresses.insert(address), "given twice: {service}");
    }
    assert!(node_ports(&services).len() > TASKS * 2);
    let stored = items(&server, "/apis/networking.k8s.io/v1/ipaddresses").await;
    let stored: BTreeSet<String> =
        stored.iter().filter_map(|item| item["metadata"]["name"].as_str().map(str::to_owned)).collect();
    assert_eq!(stored, addresses, "an IPAddress for each, and no other");
    assert!(server.allocator.is_idle(), "nothing stays reserved");
}

/// Checks that a client that disconnects in the middle of its write leaves nothing reserved, and
/// that its port is not allocated again before the store has answered.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn writers_that_are_cut_off_leave_no_port_given_twice() {
    let server = Arc::new(TestServer::start().await);
    at_once(TASKS * 2, |i| {
        let server = server.clone();
        async move {
            let service = json!({
                "metadata": {"name": format!("s{i}")}, "spec": {"type": "NodePort", "ports": [{"port": 80}]},
            });
            let create = server.send(Method::POST, SERVICES, &service);
            let mut create = std::pin::pin!(create);
            if i % 3 == 0 {
                // Polled a few times, then dropped.
                for _ in 0..i % 5 {
                    if futures::poll!(create.as_mut()).is_ready() {
                        break;
                    }
                    tokio::task::yield_now().await;
                }
            } else {
                create.await;
            }
        }
    })
    .await;
    let deadline = tokio::time::Instant::now() + Duration::from_secs(10);
    while !server.allocator.is_idle() {
        assert!(tokio::time::Instant::now() < deadline, "reserved for ever");
        tokio::task::yield_now().await;
    }
    node_ports(&items(&server, SERVICES).await);
}

#[tokio::test]
async fn deleting_a_service_releases_only_its_own_address() {
    let server = TestServer::start().await;
    let service = |name: &str| json!({"metadata": {"name": name}, "spec": {"ports": [{"port": 80}]}});
    let (code, first) = server.send(Method::POST, SERVICES, &service("first")).await;
    assert_eq!(code, 201);
    let address = first["spec"]["clusterIP"].as_str().expect("an address");
    let mut thief = service("thief");
    thief["spec"]["clusterIP"] = address.into();
    thief["spec"]["clusterIPs"] = json!([address]);
    let path = format!("{SERVICES}/thief");
    let (code, _) = server.send(Method::PUT, &format!("{path}/status"), &thief).await;
    assert_eq!(code, 201, "the real server stores it too");
    assert_eq!(server.send(Method::DELETE, &path, &Value::Null).await.0, 200);
    let (code, _) = server.get(&format!("/apis/networking.k8s.io/v1/ipaddresses/{address}")).await;
    assert_eq!(code, 200, "it is still taken");
}
