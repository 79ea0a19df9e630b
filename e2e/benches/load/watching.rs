//! Watching: many watchers of few changes.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use coracle_e2e::http::Endpoint;
use http_body_util::BodyExt;
use serde_json::{Value, json};

use crate::drive::{Figure, Request, figure};

/// Measures the events per second over all watchers of a namespace's Leases, and their latency.
pub async fn watching(
    endpoint: &Endpoint,
    namespace: &str,
    watchers: usize,
    events: usize,
) -> Result<Figure> {
    let leases = format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases");
    let mut connection = endpoint.connect().await?;
    let list: Value =
        serde_json::from_slice(&Request::new("GET", leases.clone()).send(&mut connection).await?)?;
    let revision = list["metadata"]["resourceVersion"].as_str().context("a revision")?.to_owned();
    let path = format!("{leases}?watch=1&resourceVersion={revision}");
    let mut streams = Vec::new();
    for _ in 0..watchers {
        let mut connection = endpoint.connect().await?;
        let response = connection.open("GET", &path, &[], None).await?;
        streams.push((connection, response));
    }
    let began = Instant::now();
    let watchers = streams.into_iter().map(|(connection, response)| {
        tokio::spawn(async move {
            let _connection = connection;
            arrivals(response.into_body(), events).await
        })
    });
    let watchers: Vec<_> = watchers.collect();
    let mut sent = HashMap::new();
    for i in 0..events {
        let name = format!("l{i}");
        let lease = json!({"metadata": {"name": name}, "spec": {}}).to_string();
        sent.insert(name, Instant::now());
        Request::new("POST", leases.clone()).body(lease.into()).send(&mut connection).await?;
    }
    let sent = Arc::new(sent);
    let mut latencies = Vec::new();
    for watcher in watchers {
        let seen = watcher.await??;
        ensure!(seen.len() == events, "a watcher saw {} of {events} events", seen.len());
        for (name, at) in seen {
            latencies.push(at - *sent.get(&name).context("an event of nobody's")?);
        }
    }
    Ok(figure(latencies, began.elapsed()))
}

/// Returns the names of the first events, and their times of arrival.
async fn arrivals(mut body: hyper::body::Incoming, events: usize) -> Result<Vec<(String, Instant)>> {
    let mut seen = Vec::new();
    let mut rest = Vec::new();
    while seen.len() < events {
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

/// Returns the first `"name":"..."` of a frame. Parsing it completely would measure the load
/// generator.
fn name_in(frame: &[u8]) -> Option<String> {
    const KEY: &[u8] = b"\"name\":\"";
    let start = frame.windows(KEY.len()).position(|w| w == KEY)? + KEY.len();
    let length = frame[start..].iter().position(|b| *b == b'"')?;
    String::from_utf8(frame[start..start + length].to_vec()).ok()
}
