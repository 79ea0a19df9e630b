//! Workloads by chance, and the state that they come to.

use anyhow::{Context, Result};
use serde_json::{Value, json};

use crate::json_client::JsonClient;
use crate::random::Rng;
use crate::workloads;

/// Makes some writes that cause work for controllers, in a namespace of the round; the one before
/// may be deleted.
///
/// - `between`: awaited after each write
///
/// # Errors
/// The server is not reached.
pub async fn write_some(
    client: &mut JsonClient,
    random: &mut Rng,
    round: usize,
    between: impl AsyncFn(&mut JsonClient) -> Result<()>,
) -> Result<()> {
    let namespace = format!("n{round}");
    client.create("/api/v1/namespaces", json!({"metadata": {"name": namespace}})).await?;
    between(client).await?;
    let (apps, batch) = (|r: &str| workloads::apps(&namespace, r), |r: &str| workloads::batch(&namespace, r));
    for _ in 0..3 {
        let name = format!("w{}", random.below(1000));
        // A name that is taken is a request like any other.
        let (path, object) = match random.below(6) {
            0 => (apps("deployments"), workloads::replicated(&name, 1 + random.below(4))),
            1 => (batch("jobs"), workloads::job(&name, json!({}))),
            2 => (apps("daemonsets"), workloads::daemon_set(&name)),
            3 => (batch("cronjobs"), workloads::cron_job(&name, "* * * * *", json!({}))),
            4 => {
                let service = json!({"metadata": {"name": name}, "spec": {"selector": {"app": name},
                                     "ports": [{"port": 80}], "type": "LoadBalancer"}});
                (format!("/api/v1/namespaces/{namespace}/services"), service)
            }
            _ => {
                let mut set = workloads::replicated(&name, 2);
                set["spec"]["serviceName"] = json!("s");
                set["spec"]["volumeClaimTemplates"] = json!([{"metadata": {"name": "data"}, "spec": {
                    "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Mi"}}}}]);
                (apps("statefulsets"), set)
            }
        };
        client.send("POST", &path, Some(object)).await?;
        between(client).await?;
    }
    if round > 0 && random.below(2) == 0 {
        client.send("DELETE", &format!("/api/v1/namespaces/n{}", round - 1), None).await?;
    }
    Ok(())
}

/// Returns all objects that were created at a time or later, without their resourceVersions, in
/// order: of each the kind and the object.
///
/// - `since`: an RFC 3339 time
///
/// # Errors
/// The server is not reached, or a response is not a list.
pub async fn objects_since(client: &mut JsonClient, since: &str) -> Result<Vec<(String, Value)>> {
    let mut versions = vec!["/api/v1".to_owned()];
    for group in client.get("/apis").await?["groups"].as_array().context("groups")? {
        let version = group["preferredVersion"]["groupVersion"].as_str().context("a version")?;
        versions.push(format!("/apis/{version}"));
    }
    let mut objects = Vec::new();
    for version in versions {
        for resource in client.get(&version).await?["resources"].as_array().context("resources")? {
            let is_listed =
                resource["verbs"].as_array().is_some_and(|verbs| verbs.iter().any(|verb| verb == "list"));
            let name = resource["name"].as_str().context("a name")?;
            // Core has the same Events.
            if !is_listed || (name == "events" && version != "/api/v1") {
                continue;
            }
            let items = client.list(&format!("{version}/{name}")).await?;
            let is_new = |object: &Value| {
                object["metadata"]["creationTimestamp"].as_str().is_some_and(|created| created >= since)
            };
            objects.extend(items.into_iter().filter(is_new).map(|object| (name.to_owned(), object)));
        }
    }
    objects.iter_mut().for_each(|(_, object)| remove_versions(object));
    let path = |object: &Value| {
        ["namespace", "name"].map(|part| object["metadata"][part].as_str().unwrap_or_default().to_owned())
    };
    objects.sort_by_cached_key(|(resource, object)| (resource.clone(), path(object)));
    Ok(objects)
}

fn remove_versions(value: &mut Value) {
    match value {
        Value::Object(members) => {
            members.remove("resourceVersion");
            members.values_mut().for_each(remove_versions);
        }
        Value::Array(items) => items.iter_mut().for_each(remove_versions),
        _ => {}
    }
}
