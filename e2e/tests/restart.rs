//! The data directory: after a stop and after a crash, everything is as before.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use coracle_e2e::cluster::Termination;
use coracle_e2e::http::{Connection, Endpoint};
use coracle_e2e::{Cluster, cluster};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::time::timeout;

const DEADLINE: Duration = Duration::from_secs(30);
const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";

async fn start(data: &Path) -> Result<Cluster> {
    // Without controllers, whose writes would interfere.
    cluster().data_dir(data).flag("--durability", "sync").flag("--controllers", "").start().await
}

/// Sends a request, with an object or without; returns the object in the response.
async fn send(to: &mut Connection, method: &str, path: &str, object: Option<Value>) -> Result<Value> {
    let body = object.map(|object| Bytes::from(object.to_string()));
    let response = to.call(method, path, &[], body).await?;
    let text = String::from_utf8_lossy(&response.body);
    ensure!((200..300).contains(&response.status), "{method} {path}: {} {text}", response.status);
    Ok(serde_json::from_str(&text)?)
}

fn revision(object: &Value) -> Result<u64> {
    let revision = object.pointer("/metadata/resourceVersion").and_then(Value::as_str);
    Ok(revision.with_context(|| format!("no resourceVersion: {object}"))?.parse()?)
}

fn config_map(name: &str, text: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"text": text}})
}

/// Creates, updates and deletes objects. Returns a revision in the middle of these changes, and the
/// number of changes after it.
async fn write(to: &mut Connection) -> Result<(u64, usize)> {
    for name in ["kept", "changed", "deleted"] {
        send(to, "POST", CONFIG_MAPS, Some(config_map(name, "old"))).await?;
    }
    let middle = revision(&send(to, "GET", CONFIG_MAPS, None).await?)?;
    send(to, "PUT", &format!("{CONFIG_MAPS}/changed"), Some(config_map("changed", "new"))).await?;
    send(to, "DELETE", &format!("{CONFIG_MAPS}/deleted"), None).await?;
    send(to, "POST", CONFIG_MAPS, Some(config_map("created", "new"))).await?;
    Ok((middle, 3))
}

/// The observations of a client after these changes.
#[derive(Debug, PartialEq)]
struct Observation {
    objects: BTreeMap<String, Value>,
    at_the_revision: Value,
    since_the_revision: Vec<String>,
}

async fn observe(endpoint: &Endpoint, middle: u64, changes: usize) -> Result<Observation> {
    let mut connection = endpoint.connect().await?;
    let mut objects = BTreeMap::new();
    for name in ["kept", "changed", "created"] {
        let path = format!("{CONFIG_MAPS}/{name}");
        let object = send(&mut connection, "GET", &path, None).await?;
        objects.insert(path, object);
    }
    let exact = format!("{CONFIG_MAPS}?resourceVersion={middle}&resourceVersionMatch=Exact");
    let at_the_revision = send(&mut connection, "GET", &exact, None).await?;
    let since_the_revision = watch(connection, middle, changes).await?;
    Ok(Observation { objects, at_the_revision, since_the_revision })
}

/// Returns the next `count` events after a revision.
async fn watch(mut connection: Connection, after: u64, count: usize) -> Result<Vec<String>> {
    let path = format!("{CONFIG_MAPS}?watch=true&resourceVersion={after}");
    let mut body = connection.open("GET", &path, &[], None).await?.into_body();
    let mut text = Vec::new();
    while text.iter().filter(|byte| **byte == b'\n').count() < count {
        let frame =
            timeout(DEADLINE, body.frame()).await.context("no event")?.context("the watch ended")??;
        text.extend_from_slice(frame.data_ref().context("trailers")?);
    }
    Ok(String::from_utf8(text)?.lines().take(count).map(str::to_owned).collect())
}

#[tokio::test(flavor = "multi_thread")]
async fn history_survives() -> Result<()> {
    let data = TempDir::new()?;
    let cluster = start(data.path()).await?;
    let (middle, changes) = write(&mut cluster.endpoint().await?.connect().await?).await?;
    let before = observe(&cluster.endpoint().await?, middle, changes).await?;
    let mut names: Vec<_> = before.at_the_revision["items"].as_array().context("no list")?.iter().collect();
    names.retain(|item| item["data"]["text"] == "old");
    assert_eq!(names.len(), 3, "{before:?}");
    assert_eq!(before.since_the_revision.len(), changes, "{before:?}");

    let mut newest = middle + changes as u64;
    let mut cluster = cluster;
    for (round, end) in
        [Termination::Stop, Termination::Crash, Termination::Crash, Termination::Stop].into_iter().enumerate()
    {
        end.apply(cluster).await?;
        cluster = start(data.path()).await?;
        let endpoint = cluster.endpoint().await?;
        assert_eq!(observe(&endpoint, middle, changes).await?, before, "after a {end:?}");
        let mut connection = endpoint.connect().await?;
        let object = config_map(&format!("after-{round}"), "later");
        let written = revision(&send(&mut connection, "POST", CONFIG_MAPS, Some(object)).await?)?;
        assert!(written > newest, "after a {end:?}: {written} is not above {newest}");
        newest = written;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn credentials_survive() -> Result<()> {
    const ACCOUNTS: &str = "/api/v1/namespaces/default/serviceaccounts";
    const REVIEWS: &str = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
    let data = TempDir::new()?;
    let mut cluster = start(data.path()).await?;
    let certificate = cluster.config().await?;
    let mut connection = cluster.endpoint().await?.connect().await?;
    send(&mut connection, "POST", ACCOUNTS, Some(json!({"metadata": {"name": "builder"}}))).await?;
    let request = json!({"spec": {"expirationSeconds": 3600}});
    let token = send(&mut connection, "POST", &format!("{ACCOUNTS}/builder/token"), Some(request)).await?;
    let token = token.pointer("/status/token").and_then(Value::as_str).context("no token")?;

    for end in [Termination::Stop, Termination::Crash] {
        end.apply(cluster).await?;
        cluster = start(data.path()).await?;
        // The address differs, but both sides still trust the same authority.
        let mut certificate = certificate.clone();
        certificate.cluster_url = cluster.config().await?.cluster_url;
        for (endpoint, user) in [
            (Endpoint::new(&certificate)?, "coracle-admin"),
            (Endpoint::with_token(&certificate, token)?, "system:serviceaccount:default:builder"),
        ] {
            let mut connection = endpoint.connect().await?;
            let review = send(&mut connection, "POST", REVIEWS, Some(json!({}))).await?;
            let who = review.pointer("/status/userInfo/username").and_then(Value::as_str);
            assert_eq!(who, Some(user), "after a {end:?}");
        }
    }
    Ok(())
}
