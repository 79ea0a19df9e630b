//! What many writers take at once from a common stock.

use std::collections::BTreeSet;

use futures::future::join_all;

use super::*;
use crate::audit::AuditContext;
use crate::resource_info::Part;

const TASKS: usize = 64;

/// Runs a future for each number in a task of its own.
async fn at_once<F>(count: usize, one: impl Fn(usize) -> F) -> Vec<F::Output>
where
    F: Future<Output: Send> + Send + 'static,
{
    let tasks: Vec<_> = (0..count).map(|i| tokio::spawn(one(i))).collect();
    join_all(tasks).await.into_iter().map(|done| done.expect("no panic")).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn no_address_and_no_port_is_given_twice() {
    let server = Arc::new(Server::start().await);
    let created = at_once(TASKS * 3, |i| {
        let server = server.clone();
        async move {
            // Some ask for the same port, and some for the same address.
            let port = if i % 8 == 0 { json!({"port": 80, "nodePort": 30000 + i / 16}) } else { json!({"port": 80}) };
            let mut spec = json!({"type": "NodePort", "ports": [port], "selector": {"a": "b"}});
            if i % 8 == 1 {
                spec["clusterIP"] = format!("10.0.0.{}", 200 + i / 16).into();
            }
            let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": format!("s{i}")}, "spec": spec});
            let created = server.create("v1", "services", &service).await.map(drop);
            if i % 3 == 0 && created.is_ok() {
                let patch = json!({"spec": {
                    "type": "LoadBalancer", "externalTrafficPolicy": "Local",
                    "ports": [{"name": "a", "port": 80}, {"name": "b", "port": 81}],
                }});
                let (name, patch) = (format!("s{i}"), patch.to_string());
                let patched = server.patch("v1", "services", &name, MERGE_PATCH, patch.as_bytes()).await;
                patched.expect("patched");
            }
            created.map_err(|error| error.code())
        }
    })
    .await;
    assert!(created.iter().all(|result| matches!(result, Ok(()) | Err(422))), "{created:?}");
    assert!(created.iter().filter(|result| result.is_ok()).count() > TASKS * 2, "{created:?}");

    let (mut addresses, mut ports, mut held) = (BTreeSet::new(), BTreeSet::new(), 0);
    for stored in server.registry.store.snapshot().bucket("services").iter() {
        let service = parse(stored).expect("readable");
        let address = service["spec"]["clusterIP"].as_str().expect("an address").to_owned();
        assert!(addresses.insert(address), "given twice: {service}");
        for port in coracle_resources::core::service::allocation::held_node_ports(&service) {
            assert!(ports.insert(port), "given twice: {service}");
            held += 1;
        }
    }
    assert!(held > TASKS * 2);
    let stored = server.registry.store.snapshot().bucket("ipaddresses.networking.k8s.io");
    let stored: BTreeSet<String> = stored.iter().map(|object| object.key.name().to_string()).collect();
    assert_eq!(stored, addresses, "an IPAddress for each, and no other");
    let reserved = server.registry.reserved.lock().expect("not poisoned");
    assert!(reserved.is_empty(), "nothing stays reserved");
}

/// A client that goes away in the middle of its write leaves nothing reserved, and what it was given is not given again
/// before the store has answered.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn writers_that_are_cut_off_leave_no_port_given_twice() {
    let server = Arc::new(Server::start().await);
    at_once(TASKS * 2, |i| {
        let server = server.clone();
        async move {
            let service = json!({
                "apiVersion": "v1", "kind": "Service", "metadata": {"name": format!("s{i}")},
                "spec": {"type": "NodePort", "ports": [{"port": 80}]},
            });
            let create = server.create("v1", "services", &service);
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
                let _ = create.await;
            }
        }
    })
    .await;
    let deadline = tokio::time::Instant::now() + Duration::from_secs(10);
    while !server.registry.reserved.lock().expect("not poisoned").is_empty() {
        assert!(tokio::time::Instant::now() < deadline, "reserved for ever");
        tokio::task::yield_now().await;
    }
    let mut ports = BTreeSet::new();
    for stored in server.registry.store.snapshot().bucket("services").iter() {
        let service = parse(stored).expect("readable");
        for port in coracle_resources::core::service::allocation::held_node_ports(&service) {
            assert!(ports.insert(port), "given twice: {service}");
        }
    }
}

/// Writes to one object that are overtaken take turns, so that each is made a few times and not once for every other one.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn many_writes_to_one_object_are_no_work_of_their_square() {
    const MOST_AT_ONCE: usize = 128;
    let server = Arc::new(Server::start().await);
    let config_map =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"n": "0"}});
    server.create("v1", "configmaps", &config_map).await.expect("created");
    let edits = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let codes = at_once(MOST_AT_ONCE, |_| {
        let (server, edits) = (server.clone(), edits.clone());
        async move {
            let target = server.target("v1", "configmaps", "c");
            let (warnings, options) = (Warnings::default(), Server::options());
            let caller = Caller {
                user: &server.user,
                user_agent: "test",
                warnings: &warnings,
                audit: &AuditContext::default(),
            };
            let writing = write::Writing {
                target: &target,
                part: Part::Main,
                caller,
                options: OperationOptions::Write(&options),
                is_collection: false,
                projection: None,
                field_manager: None,
            };
            let changed = server.registry.modify(writing, None, |current, _| {
                edits.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                // Long enough that others start meanwhile.
                std::thread::sleep(Duration::from_millis(1));
                let count: usize =
                    current["data"]["n"].as_str().and_then(|n| n.parse().ok()).expect("a number");
                let mut new = current.clone();
                new["data"]["n"] = (count + 1).to_string().into();
                Ok(new)
            });
            changed.await.map(drop).map_err(|error| error.code())
        }
    })
    .await;
    assert!(codes.iter().all(Result::is_ok), "{codes:?}");
    let stored = parse(&server.stored("v1", "configmaps", "c").expect("there")).expect("readable");
    assert_eq!(stored["data"]["n"], MOST_AT_ONCE.to_string(), "none was lost");
    let edits = edits.load(std::sync::atomic::Ordering::Relaxed);
    assert!(edits <= 4 * MOST_AT_ONCE, "{edits} attempts for {MOST_AT_ONCE} writes");
}
