//! Load: the throughput of one control plane, and its cost at rest.
//!
//! ```text
//! cargo bench -p coracle-e2e                           a table of figures
//! PEER_KUBECONFIG=FILE cargo bench -p coracle-e2e      the same load on another server, and ratios
//! ```
//!
//! The load generator runs on the same machine and costs about as much as the server, so compare ratios of one run, not
//! figures of two. Objects are ConfigMaps of 1 KB, 32 requests are in flight, and each row takes a few seconds.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use coracle_e2e::cluster;
use coracle_e2e::http::{self, Connection, Endpoint};
use futures::future::try_join_all;
use http_body_util::BodyExt;
use serde_json::{Value, json};

const IN_FLIGHT: usize = 32;
const TIME: Duration = Duration::from_secs(3);
const LISTED: usize = 5000;
const WATCHERS: usize = 100;
const EVENTS: usize = 500;
const STARTS: usize = 10;

/// The measurement of one row.
#[derive(Clone, Copy, Default)]
struct Figure {
    per_second: f64,
    p99_ms: f64,
}

type Row = (&'static str, Figure);

fn main() -> Result<()> {
    // cargo passes `--bench`, which is ignored.
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let (start, idle) = starting().await?;
        println!("exec to serving, empty store   {start:>9.1} ms  (median of {STARTS})");
        println!("resident, idle                 {idle:>9.1} MB");
        let own = cluster().start().await?;
        let figures = load(&own.endpoint().await?).await?;
        println!("resident, after the load       {:>9.1} MB", own.resident()?);
        let peer = match std::env::var_os("PEER_KUBECONFIG") {
            Some(file) => Some(load(&Endpoint::new(&http::config(Path::new(&file)).await?)?).await?),
            None => None,
        };
        table(&figures, peer.as_deref());
        Ok(())
    })
}

fn table(own: &[Row], peer: Option<&[Row]>) {
    println!("\n{:<28}{:>12}{:>10}{:>12}{:>10}{:>8}", "", "a second", "p99 ms", "peer", "p99 ms", "ratio");
    for (i, (name, figure)) in own.iter().enumerate() {
        print!("{name:<28}{:>12.0}{:>10.2}", figure.per_second, figure.p99_ms);
        if let Some((_, theirs)) = peer.and_then(|rows| rows.get(i)) {
            let ratio = figure.per_second / theirs.per_second;
            print!("{:>12.0}{:>10.2}{ratio:>7.1}x", theirs.per_second, theirs.p99_ms);
        }
        println!();
    }
}

/// The milliseconds from exec until the server is ready, and its resident megabytes then.
async fn starting() -> Result<(f64, f64)> {
    // The first start may build the binary.
    drop(cluster().start().await?);
    let mut times = Vec::new();
    let mut idle = 0.0;
    for _ in 0..STARTS {
        let began = Instant::now();
        let cluster = cluster().start().await?;
        times.push(began.elapsed().as_secs_f64() * 1e3);
        idle = cluster.resident()?;
    }
    times.sort_by(f64::total_cmp);
    Ok((times[STARTS / 2], idle))
}

fn config_map(name: &str, value: char) -> Bytes {
    let filler = value.to_string().repeat(900);
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"k": filler}})
        .to_string()
        .into()
}

/// A request of the load.
struct Request {
    method: &'static str,
    path: String,
    content_type: Option<&'static str>,
    body: Option<Bytes>,
}

impl Request {
    fn new(method: &'static str, path: String) -> Request {
        Request { method, path, content_type: None, body: None }
    }

    fn body(self, body: Bytes) -> Request {
        Request { body: Some(body), ..self }
    }

    async fn send(self, connection: &mut Connection) -> Result<Bytes> {
        let headers: &[(&str, Option<&str>)] = &[("content-type", self.content_type)];
        let headers = if self.content_type.is_some() { headers } else { &[] };
        let response = connection.call(self.method, &self.path, headers, self.body).await?;
        ensure!(
            response.status < 300,
            "{} {}: {}",
            self.method,
            self.path,
            String::from_utf8_lossy(&response.body)
        );
        Ok(response.body)
    }
}

/// Sends the requests that `make` returns for 0, 1, 2, ... over `connections` connections, until it returns none or the time is over.
async fn drive(
    endpoint: &Endpoint,
    connections: usize,
    make: impl Fn(usize) -> Option<Request> + Sync,
) -> Result<Figure> {
    let next = AtomicUsize::new(0);
    let mut open = Vec::new();
    for _ in 0..connections {
        open.push(endpoint.connect().await?);
    }
    let began = Instant::now();
    let workers = open.into_iter().map(|mut connection| {
        let (next, make) = (&next, &make);
        async move {
            let mut latencies = Vec::new();
            while began.elapsed() < TIME {
                let Some(request) = make(next.fetch_add(1, Ordering::Relaxed)) else { break };
                let sent = Instant::now();
                request.send(&mut connection).await?;
                latencies.push(sent.elapsed());
            }
            Ok::<_, anyhow::Error>(latencies)
        }
    });
    let latencies = try_join_all(workers).await?.concat();
    Ok(figure(latencies, began.elapsed()))
}

fn figure(mut latencies: Vec<Duration>, took: Duration) -> Figure {
    latencies.sort();
    let p99 = latencies.get(latencies.len() * 99 / 100).copied().unwrap_or_default();
    Figure { per_second: latencies.len() as f64 / took.as_secs_f64(), p99_ms: p99.as_secs_f64() * 1e3 }
}

async fn load(endpoint: &Endpoint) -> Result<Vec<Row>> {
    let mut connection = endpoint.connect().await?;
    let namespace = format!("load-{}", uuid::Uuid::new_v4().simple());
    let body = json!({"metadata": {"name": namespace}}).to_string();
    Request::new("POST", "/api/v1/namespaces".into()).body(body.into()).send(&mut connection).await?;
    let maps = format!("/api/v1/namespaces/{namespace}/configmaps");
    let of = |i: usize| format!("{maps}/c{}", i % LISTED);

    let mut rows = Vec::new();
    let created = AtomicUsize::new(0);
    rows.push((
        "create",
        drive(endpoint, IN_FLIGHT, |i| {
            created.fetch_max(i + 1, Ordering::Relaxed);
            Some(Request::new("POST", maps.clone()).body(config_map(&format!("c{i}"), 'x')))
        })
        .await?,
    ));
    // The other rows need exactly this number of objects.
    let there = created.load(Ordering::Relaxed);
    drive(endpoint, IN_FLIGHT, |i| {
        let i = there + i;
        (i < LISTED).then(|| Request::new("POST", maps.clone()).body(config_map(&format!("c{i}"), 'x')))
    })
    .await?;
    rows.push(("get", drive(endpoint, IN_FLIGHT, |i| Some(Request::new("GET", of(i)))).await?));
    rows.push((
        "update",
        drive(endpoint, IN_FLIGHT, |i| {
            let value = if (i / LISTED).is_multiple_of(2) { 'y' } else { 'z' };
            Some(Request::new("PUT", of(i)).body(config_map(&format!("c{}", i % LISTED), value)))
        })
        .await?,
    ));
    rows.push((
        "strategic merge patch",
        drive(endpoint, IN_FLIGHT, |i| {
            let patch = json!({"metadata": {"labels": {"round": i.to_string()}}}).to_string();
            let request = Request::new("PATCH", of(i)).body(patch.into());
            Some(Request { content_type: Some("application/strategic-merge-patch+json"), ..request })
        })
        .await?,
    ));
    rows.push(("watch: 100 x 500 events", watching(endpoint, &namespace).await?));
    let deleted = AtomicUsize::new(0);
    let delete = |i: usize| {
        (i < there).then(|| {
            deleted.fetch_add(1, Ordering::Relaxed);
            Request::new("DELETE", format!("{maps}/c{i}"))
        })
    };
    rows.push(("delete", drive(endpoint, IN_FLIGHT, |i| delete(LISTED + i)).await?));
    // Objects that were not deleted in time would count in the lists and in the resident memory.
    loop {
        let next = LISTED + deleted.load(Ordering::Relaxed);
        if next >= there {
            break;
        }
        drive(endpoint, IN_FLIGHT, |i| delete(next + i)).await?;
    }
    rows.push((
        "list of all (4 in flight)",
        drive(endpoint, 4, |_| Some(Request::new("GET", maps.clone()))).await?,
    ));
    rows.push((
        "page of 500 (4 in flight)",
        drive(endpoint, 4, |_| Some(Request::new("GET", format!("{maps}?limit=500")))).await?,
    ));
    Ok(rows)
}

/// Many watchers of few changes: events a second over all watchers, and their latency.
async fn watching(endpoint: &Endpoint, namespace: &str) -> Result<Figure> {
    let leases = format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases");
    let mut connection = endpoint.connect().await?;
    let list: Value =
        serde_json::from_slice(&Request::new("GET", leases.clone()).send(&mut connection).await?)?;
    let revision = list["metadata"]["resourceVersion"].as_str().context("a revision")?.to_owned();
    let path = format!("{leases}?watch=1&resourceVersion={revision}");
    let mut streams = Vec::new();
    for _ in 0..WATCHERS {
        let mut connection = endpoint.connect().await?;
        let response = connection.open("GET", &path, &[], None).await?;
        streams.push((connection, response));
    }
    let began = Instant::now();
    let watchers = streams.into_iter().map(|(connection, response)| {
        tokio::spawn(async move {
            let _connection = connection;
            arrivals(response.into_body()).await
        })
    });
    let watchers: Vec<_> = watchers.collect();
    let mut sent = HashMap::new();
    for i in 0..EVENTS {
        let name = format!("l{i}");
        let lease = json!({"metadata": {"name": name}, "spec": {}}).to_string();
        sent.insert(name, Instant::now());
        Request::new("POST", leases.clone()).body(lease.into()).send(&mut connection).await?;
    }
    let sent = Arc::new(sent);
    let mut latencies = Vec::new();
    for watcher in watchers {
        let seen = watcher.await??;
        ensure!(seen.len() == EVENTS, "a watcher saw {} of {EVENTS} events", seen.len());
        for (name, at) in seen {
            latencies.push(at - *sent.get(&name).context("an event of nobody's")?);
        }
    }
    Ok(figure(latencies, began.elapsed()))
}

/// The names of the first events, and their times of arrival.
async fn arrivals(mut body: hyper::body::Incoming) -> Result<Vec<(String, Instant)>> {
    let mut seen = Vec::new();
    let mut rest = Vec::new();
    while seen.len() < EVENTS {
        let frame = body.frame().await.context("the watch ended")??;
        let now = Instant::now();
        rest.extend_from_slice(&frame.into_data().unwrap_or_default());
        while let Some(end) = rest.iter().position(|b| *b == b'\n') {
            let line: Vec<u8> = rest.drain(..=end).collect();
            seen.push((name_in(&line).context("an event without a name")?, now));
        }
    }
    Ok(seen)
}

/// The first `"name":"..."` of a frame. Parsing it completely would measure the load generator.
fn name_in(frame: &[u8]) -> Option<String> {
    const KEY: &[u8] = b"\"name\":\"";
    let start = frame.windows(KEY.len()).position(|w| w == KEY)? + KEY.len();
    let length = frame[start..].iter().position(|b| *b == b'"')?;
    String::from_utf8(frame[start..start + length].to_vec()).ok()
}
