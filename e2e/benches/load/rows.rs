//! Rows: what is asked of a server, one thing after the other.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use bytes::Bytes;
use coracle_e2e::cluster;
use coracle_e2e::http::Endpoint;
use serde_json::{Value, json};

use crate::drive::{Figure, Request, drive};
use crate::watching::watching;

pub const IN_FLIGHT: usize = 32;
const LISTED: usize = 5000;
/// The minimum number of objects of the row `delete`.
const MIN_DELETED: usize = 2000;

pub type Row = (&'static str, Figure);

/// The rows that have been measured of a server.
struct Rows<'a> {
    measured: Vec<Row>,
    /// The ids of the server's processes.
    processes: &'a [u32],
}

impl Rows<'_> {
    /// Measures a row.
    async fn push(&mut self, name: &'static str, row: impl Future<Output = Result<Figure>>) -> Result<()> {
        let before = self.processor_time();
        let figure = row.await?;
        let used = self.processor_time().zip(before).map(|(after, before)| after - before);
        let processor_us = used.map(|used| used.as_secs_f64() * 1e6 / figure.requests as f64);
        self.measured.push((name, Figure { processor_us, ..figure }));
        Ok(())
    }

    /// Returns the processor time of the processes; None if no process is known.
    fn processor_time(&self) -> Option<Duration> {
        let times = self.processes.iter().map(|id| cluster::processor_time(*id).ok());
        times.sum::<Option<Duration>>().filter(|_| !self.processes.is_empty())
    }
}

/// Builds the ConfigMap of 1 KB that is read and written.
pub fn config_map(name: &str, value: char) -> Bytes {
    let filler = value.to_string().repeat(900);
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"k": filler}})
        .to_string()
        .into()
}

/// Measures GETs of one path.
pub async fn get(endpoint: &Endpoint, path: &str) -> Result<Figure> {
    drive(endpoint, IN_FLIGHT, |_| Some(Request::new("GET", path.to_owned()))).await
}

/// Creates a namespace.
pub async fn namespace(endpoint: &Endpoint) -> Result<String> {
    let mut connection = endpoint.connect().await?;
    let namespace = format!("load-{}", uuid::Uuid::new_v4().simple());
    let body = json!({"metadata": {"name": namespace}}).to_string();
    Request::new("POST", "/api/v1/namespaces".into()).body(body.into()).send(&mut connection).await?;
    Ok(namespace)
}

/// Measures creates alone.
pub async fn create(endpoint: &Endpoint) -> Result<Figure> {
    let maps = format!("/api/v1/namespaces/{}/configmaps", namespace(endpoint).await?);
    let create = |i| Request::new("POST", maps.clone()).body(config_map(&format!("c{i}"), 'x'));
    drive(endpoint, IN_FLIGHT, |i| Some(create(i))).await
}

/// Measures all rows, in a namespace of their own.
///
/// - `processes`: the ids of the server's processes.
pub async fn load(endpoint: &Endpoint, processes: &[u32]) -> Result<Vec<Row>> {
    let namespace = namespace(endpoint).await?;
    let mut rows = Rows { measured: Vec::new(), processes };
    config_maps(endpoint, &namespace, &mut rows).await?;
    skip_refused(custom_resources(endpoint, &namespace, &mut rows).await);
    Ok(rows.measured)
}

/// Skips a row that the server does not support; the other rows are still measured.
fn skip_refused(measured: Result<()>) {
    if let Err(error) = measured {
        eprintln!("left out: {error}");
    }
}

async fn config_maps(endpoint: &Endpoint, namespace: &str, rows: &mut Rows<'_>) -> Result<()> {
    let maps = format!("/api/v1/namespaces/{namespace}/configmaps");
    let of = |i: usize| format!("{maps}/c{}", i % LISTED);
    let create = |i: usize| Request::new("POST", maps.clone()).body(config_map(&format!("c{i}"), 'x'));

    let created = AtomicUsize::new(0);
    let counted = |i: usize| {
        created.fetch_max(i + 1, Ordering::Relaxed);
        Some(create(i))
    };
    rows.push("create", drive(endpoint, IN_FLIGHT, counted)).await?;
    // The other rows need at least this number of objects, however long that takes.
    let filled = created;
    while filled.load(Ordering::Relaxed) < LISTED + MIN_DELETED {
        let from = filled.load(Ordering::Relaxed);
        let missing = |i: usize| {
            (from + i < LISTED + MIN_DELETED).then(|| {
                filled.fetch_add(1, Ordering::Relaxed);
                create(from + i)
            })
        };
        drive(endpoint, IN_FLIGHT, missing).await?;
    }
    let there = filled.load(Ordering::Relaxed);
    rows.push("get", drive(endpoint, IN_FLIGHT, |i| Some(Request::new("GET", of(i))))).await?;
    let update = |i: usize| {
        let value = if (i / LISTED).is_multiple_of(2) { 'y' } else { 'z' };
        Some(Request::new("PUT", of(i)).body(config_map(&format!("c{}", i % LISTED), value)))
    };
    rows.push("update", drive(endpoint, IN_FLIGHT, update)).await?;
    let patch = |i: usize| {
        let patch = json!({"metadata": {"labels": {"round": i.to_string()}}}).to_string();
        Some(Request::patch("application/strategic-merge-patch+json", of(i), patch))
    };
    rows.push("strategic merge patch", drive(endpoint, IN_FLIGHT, patch)).await?;
    let apply = |i: usize| {
        let name = format!("c{}", i % LISTED);
        let object = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": name, "annotations": {"round": i.to_string()}},
        });
        let path = format!("{maps}/{name}?fieldManager=load");
        Some(Request::patch("application/apply-patch+yaml", path, object.to_string()))
    };
    skip_refused(rows.push("server-side apply", drive(endpoint, IN_FLIGHT, apply)).await);
    rows.push("watch: 100 x 500 events", watching(endpoint, namespace, 100, 500)).await?;
    let deleted = AtomicUsize::new(0);
    let delete = |i: usize| {
        (i < there).then(|| {
            deleted.fetch_add(1, Ordering::Relaxed);
            Request::new("DELETE", format!("{maps}/c{i}"))
        })
    };
    rows.push("delete", drive(endpoint, IN_FLIGHT, |i| delete(LISTED + i))).await?;
    // Objects that were not deleted in time would count in the lists and in the resident memory.
    loop {
        let next = LISTED + deleted.load(Ordering::Relaxed);
        if next >= there {
            break;
        }
        drive(endpoint, IN_FLIGHT, |i| delete(next + i)).await?;
    }
    let list = |_| Some(Request::new("GET", maps.clone()));
    rows.push("list of all (4 in flight)", drive(endpoint, 4, list)).await?;
    let page = |_| Some(Request::new("GET", format!("{maps}?limit=500")));
    rows.push("page of 500 (4 in flight)", drive(endpoint, 4, page)).await?;
    Ok(())
}

/// Measures objects of the size of the ConfigMaps: of a plain schema, and of one with rules.
async fn custom_resources(endpoint: &Endpoint, namespace: &str, rows: &mut Rows<'_>) -> Result<()> {
    let rules = json!([
        {"rule": "self.replicas <= 10 && self.replicas >= 0"},
        {"rule": "size(self.filler) > 0 && !self.filler.startsWith('no')"},
    ]);
    for (rules, create_row, patch_row) in [
        (json!([]), "custom resource: create", "custom resource: merge patch"),
        (rules, "with two CEL rules: create", "with two CEL rules: merge patch"),
    ] {
        let path = define(endpoint, namespace, rules).await?;
        let object = |i: usize, value: char| {
            let filler = value.to_string().repeat(850);
            json!({
                "apiVersion": path.api_version, "kind": "Load", "metadata": {"name": format!("c{i}")},
                "spec": {"filler": filler, "replicas": 3, "items": [{"name": "a", "value": 1}]},
            })
            .to_string()
        };
        let created = AtomicUsize::new(0);
        let create = |i: usize| {
            created.fetch_max(i + 1, Ordering::Relaxed);
            Some(Request::new("POST", path.collection.clone()).body(object(i, 'x').into()))
        };
        rows.push(create_row, drive(endpoint, IN_FLIGHT, create)).await?;
        // The last ones that were begun may not have been sent.
        let there = created.load(Ordering::Relaxed).saturating_sub(IN_FLIGHT).max(1);
        // A PUT would need the resourceVersion, unlike a ConfigMap's.
        let patch = |i: usize| {
            let value = if (i / there).is_multiple_of(2) { 'y' } else { 'z' };
            let patch = json!({"spec": {"filler": value.to_string().repeat(850)}}).to_string();
            let of = format!("{}/c{}", path.collection, i % there);
            Some(Request::patch("application/merge-patch+json", of, patch))
        };
        rows.push(patch_row, drive(endpoint, IN_FLIGHT, patch)).await?;
    }
    Ok(())
}

struct Defined {
    api_version: String,
    /// The path of the objects.
    collection: String,
}

/// Creates a definition in a group of its own, and waits until its objects are served.
async fn define(endpoint: &Endpoint, namespace: &str, rules: Value) -> Result<Defined> {
    const DEADLINE: Duration = Duration::from_secs(30);
    let mut connection = endpoint.connect().await?;
    let group = format!("g{}.example.com", uuid::Uuid::new_v4().simple());
    let item = json!({
        "type": "object", "properties": {"name": {"type": "string"}, "value": {"type": "integer"}},
    });
    let mut spec = json!({
        "type": "object",
        "properties": {
            "filler": {"type": "string", "maxLength": 2000}, "replicas": {"type": "integer", "minimum": 0},
            "items": {"type": "array", "items": item},
        },
    });
    if rules.as_array().is_some_and(|rules| !rules.is_empty()) {
        spec["x-kubernetes-validations"] = rules;
    }
    let schema = json!({"type": "object", "properties": {"spec": spec}});
    let definition = json!({
        "metadata": {"name": format!("loads.{group}")},
        "spec": {
            "group": group, "scope": "Namespaced",
            "names": {"plural": "loads", "singular": "load", "kind": "Load"},
            "versions": [
                {"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}},
            ],
        },
    });
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions".to_owned();
    Request::new("POST", path).body(definition.to_string().into()).send(&mut connection).await?;
    let api_version = format!("{group}/v1");
    let collection = format!("/apis/{api_version}/namespaces/{namespace}/loads");
    let began = Instant::now();
    while connection.call("GET", &collection, &[], None).await?.status != 200 {
        ensure!(began.elapsed() < DEADLINE, "{api_version} is not served");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    Ok(Defined { api_version, collection })
}
