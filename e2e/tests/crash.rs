//! Repeated crashes during writes: with `--durability sync`, no acknowledged write is lost.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use coracle_e2e::http::{Connection, Endpoint};
use coracle_e2e::{Cluster, cluster};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::Notify;
use tokio::task::JoinSet;

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
const ROUNDS: usize = 20;
const WRITERS: usize = 4;
/// The number of writes of each object: one create, then updates.
const WRITES: u64 = 4;

/// An acknowledged write: the object, its number of writes, and the resulting revision.
#[derive(Debug)]
struct Write {
    object: String,
    count: u64,
    revision: u64,
}

/// Counts acknowledged writes, to decide when to crash.
#[derive(Default)]
struct Load {
    acknowledged: AtomicUsize,
    more: Notify,
}

impl Load {
    fn add(&self) {
        self.acknowledged.fetch_add(1, Ordering::Relaxed);
        self.more.notify_one();
    }

    async fn until_acknowledged(&self, count: usize) {
        while self.acknowledged.load(Ordering::Relaxed) < count {
            self.more.notified().await;
        }
    }
}

async fn start(data: &Path) -> Result<Cluster> {
    cluster().data_dir(data).flag("--durability", "sync").flag("--controllers", "").start().await
}

/// Creates and updates objects until the server is killed; returns the acknowledged writes.
async fn write(endpoint: Endpoint, prefix: String, load: Arc<Load>) -> Result<Vec<Write>> {
    let mut connection = endpoint.connect().await?;
    let mut acknowledged = Vec::new();
    for number in 0.. {
        let object = format!("{prefix}-{number}");
        for count in 1..=WRITES {
            let Ok(response) = put(&mut connection, &object, count).await else { return Ok(acknowledged) };
            acknowledged.push(response?);
            load.add();
        }
    }
    Ok(acknowledged)
}

/// Writes an object. The outer error is that of the connection, the inner one a rejection.
async fn put(connection: &mut Connection, object: &str, count: u64) -> Result<Result<Write>> {
    let body = json!({"metadata": {"name": object}, "data": {"count": count.to_string()}}).to_string();
    let (method, path) = match count {
        1 => ("POST", CONFIG_MAPS.to_owned()),
        _ => ("PUT", format!("{CONFIG_MAPS}/{object}")),
    };
    let response = connection.call(method, &path, &[], Some(Bytes::from(body))).await?;
    let text = String::from_utf8_lossy(&response.body).into_owned();
    Ok(match response.status {
        200 | 201 => serde_json::from_str(&text).context("the response").and_then(|written| stored(&written)),
        status => Err(anyhow::anyhow!("{method} {path}: {status} {text}")),
    })
}

fn stored(object: &Value) -> Result<Write> {
    let text = |pointer| object.pointer(pointer).and_then(Value::as_str).with_context(|| object.to_string());
    Ok(Write {
        object: text("/metadata/name")?.to_owned(),
        count: text("/data/count")?.parse()?,
        revision: text("/metadata/resourceVersion")?.parse()?,
    })
}

/// Lists all stored ConfigMaps.
async fn list(endpoint: &Endpoint) -> Result<BTreeMap<String, Write>> {
    let response = endpoint.connect().await?.call("GET", CONFIG_MAPS, &[], None).await?;
    ensure!(response.status == 200, "{response:?}");
    let list: Value = serde_json::from_slice(&response.body)?;
    let items = list["items"].as_array().context("no items")?;
    let objects = items.iter().map(|item| stored(item).map(|write| (write.object.clone(), write)));
    objects.collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn no_acknowledged_write_is_lost() -> Result<()> {
    let data = TempDir::new()?;
    let mut last: BTreeMap<String, Write> = BTreeMap::new();
    let mut newest = 0;
    for round in 0..=ROUNDS {
        let cluster = start(data.path()).await?;
        let endpoint = cluster.endpoint().await?;
        let found = list(&endpoint).await?;
        for (object, acknowledged) in &last {
            let found =
                found.get(object).with_context(|| format!("round {round}: {acknowledged:?} is lost"))?;
            // The interrupted write, which was the next one, may be stored or not.
            let next = found.count == acknowledged.count + 1 && found.revision > acknowledged.revision;
            let same = found.count == acknowledged.count && found.revision == acknowledged.revision;
            assert!(same || next, "round {round}: {acknowledged:?} has become {found:?}");
        }
        newest = found.values().map(|write| write.revision).fold(newest, u64::max);
        if round == ROUNDS {
            break;
        }

        let load = Arc::new(Load::default());
        let mut writers = JoinSet::new();
        for writer in 0..WRITERS {
            writers.spawn(write(endpoint.clone(), format!("round-{round}-writer-{writer}"), load.clone()));
        }
        // At a different point in each round.
        load.until_acknowledged(100 + 7 * round).await;
        cluster.kill().await?;
        let mut revisions = Vec::new();
        for acknowledged in writers.join_all().await {
            let acknowledged = acknowledged?;
            assert!(
                acknowledged.is_sorted_by(|a, b| a.revision < b.revision),
                "round {round}: {acknowledged:?}"
            );
            revisions.extend(acknowledged.iter().map(|write| write.revision));
            last.extend(acknowledged.into_iter().map(|write| (write.object.clone(), write)));
        }
        revisions.sort_unstable();
        assert!(revisions.is_sorted_by(|a, b| a < b), "round {round}: a revision twice");
        assert!(revisions.first() > Some(&newest), "round {round}: {revisions:?} after {newest}");
        newest = revisions.last().copied().context("no writes")?;
    }
    Ok(())
}
