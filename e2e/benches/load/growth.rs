//! The cost of writes, reads and restarts as the numbers of objects and watchers grow.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use coracle_e2e::http::Endpoint;
use coracle_e2e::{Cluster, cluster};
use futures::future::try_join_all;
use http_body_util::{BodyExt, Empty};
use hyper::client::conn::http2::{SendRequest, handshake};
use hyper::header;
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::json;
use tempfile::TempDir;

use crate::drive::{Figure, Request, drive};
use crate::plot::{Line, plot};
use crate::rows::{IN_FLIGHT, config_map, namespace};
use crate::watching::watching;

const OBJECTS: [usize; 5] = [1_000, 3_000, 10_000, 30_000, 100_000];
/// The numbers of watchers, and of the events that each receives.
const WATCHERS: [(usize, usize); 4] = [(1, 2_000), (10, 1_000), (100, 500), (1_000, 100)];
const PODS: usize = 100_000;
const QUIET_WATCHERS: usize = 10_000;
/// Watches over one connection of HTTP/2.
const STREAMS: usize = 100;
const STALLED_WATCHERS: usize = 400;
/// The number of rounds of changes until the history has reached its limit.
const FILLING: usize = 6;

/// Measures requests, the memory, the disk and a restart, with a growing number of ConfigMaps.
pub async fn objects() -> Result<()> {
    let directory = TempDir::new()?;
    let start = || cluster().data_dir(directory.path()).start();
    let mut cluster = start().await?;
    let maps = format!("/api/v1/namespaces/{}/configmaps", namespace(&cluster.endpoint().await?).await?);
    println!(
        "\n| ConfigMaps | create/s | p99 ms | update/s | p99 ms | get/s | p99 ms | page of 500, ms | list, ms | \
         resident MB | disk MB | restart ms |"
    );
    println!("|{}", " ---: |".repeat(12));
    let mut lines = [("create", vec![]), ("update", vec![]), ("get", vec![])];
    let mut latencies = lines.clone();
    let mut there = 0;
    for count in OBJECTS {
        let endpoint = cluster.endpoint().await?;
        let mut figures = [Figure::default(); 3];
        while there < count {
            (figures[0], there) = fill(&endpoint, &maps, there, count, |i| config_map(&name(i), 'x')).await?;
        }
        let path = |i: usize| format!("{maps}/{}", name(i.wrapping_mul(7919) % count));
        let update = |i: usize| {
            let at = i.wrapping_mul(7919) % count;
            let value = if (i / count).is_multiple_of(2) { 'y' } else { 'z' };
            Some(Request::new("PUT", path(i)).body(config_map(&name(at), value)))
        };
        figures[1] = drive(&endpoint, IN_FLIGHT, update).await?;
        figures[2] = drive(&endpoint, IN_FLIGHT, |i| Some(Request::new("GET", path(i)))).await?;
        let page = median(&endpoint, &format!("{maps}?limit=500")).await?;
        let list = median(&endpoint, &maps).await?;
        let resident = cluster.resident()?;
        ensure!(cluster.stop().await?.success(), "no clean stop");
        let began = Instant::now();
        cluster = start().await?;
        let restart = began.elapsed();
        print!("| {count} |");
        for (i, figure) in figures.iter().enumerate() {
            print!(" {:.0} | {:.2} |", figure.per_second, figure.p99_ms);
            lines[i].1.push((count as f64, figure.per_second));
            latencies[i].1.push((count as f64, figure.p99_ms));
        }
        let disk = disk_usage(directory.path())?;
        println!(
            " {:.1} | {:.1} | {resident:.0} | {disk:.0} | {:.0} |",
            millis(page),
            millis(list),
            millis(restart)
        );
    }
    deleted(&cluster, &maps, there, directory.path()).await?;
    plot_both("objects", "ConfigMaps", &lines, &latencies)
}

/// Measures the space that is freed by the deletion of all objects.
async fn deleted(cluster: &Cluster, maps: &str, there: usize, directory: &Path) -> Result<()> {
    /// Longer than the history is kept.
    const PATIENCE: Duration = Duration::from_secs(400);
    let endpoint = cluster.endpoint().await?;
    let next = AtomicUsize::new(0);
    while next.load(Ordering::Relaxed) < there {
        let from = next.load(Ordering::Relaxed);
        let delete = |i: usize| {
            (from + i < there).then(|| {
                next.fetch_add(1, Ordering::Relaxed);
                Request::new("DELETE", format!("{maps}/{}", name(from + i)))
            })
        };
        drive(&endpoint, IN_FLIGHT, delete).await?;
    }
    let (full, began) = (disk_usage(directory)?, Instant::now());
    let mut disk = full;
    while began.elapsed() < PATIENCE && disk > full / 10.0 {
        tokio::time::sleep(Duration::from_secs(5)).await;
        disk = disk_usage(directory)?;
    }
    println!(
        "\nAll {there} deleted: {full:.0} MB on disk, {disk:.0} MB after {:.0} s; {:.0} MB resident.",
        began.elapsed().as_secs_f64(),
        cluster.resident()?
    );
    Ok(())
}

/// Measures lists and watches of many pods, without controllers.
pub async fn pods() -> Result<()> {
    let cluster = cluster().durable().flag("--controllers", "").flag("--nodes", "0");
    let cluster = cluster.flag("--disable-admission-plugins", "ServiceAccount").start().await?;
    let endpoint = cluster.endpoint().await?;
    let pods = format!("/api/v1/namespaces/{}/pods", namespace(&endpoint).await?);
    let pod = |i: usize| {
        let labels = json!({"app": format!("app-{}", i / 100)});
        let container = json!({"name": "c", "image": "nginx:1.29", "ports": [{"containerPort": 80}]});
        let pod = json!({
            "metadata": {"name": name(i), "labels": labels}, "spec": {"containers": [container]},
        });
        Bytes::from(pod.to_string())
    };
    let mut there = 0;
    while there < PODS {
        (_, there) = fill(&endpoint, &pods, there, PODS, pod).await?;
    }
    let resident = cluster.resident()?;
    let (took, bytes) = read(&endpoint, &pods).await?;
    let path = format!(
        "{pods}?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan\
                        &allowWatchBookmarks=true&timeoutSeconds=5"
    );
    let (_, watched) = read(&endpoint, &path).await?;
    println!("\n| {PODS} pods | |\n| --- | ---: |");
    println!("| listed | {:.2} s, {:.0} MB |", took.as_secs_f64(), bytes as f64 / 1e6);
    println!("| watched from the beginning | {:.0} MB of events |", watched as f64 / 1e6);
    println!("| resident, before | {resident:.0} MB |");
    println!("| resident, afterwards | {:.0} MB |", cluster.resident()?);
    Ok(())
}

/// Measures the events of a growing number of watchers.
pub async fn watchers() -> Result<()> {
    println!("\n| watchers | events/s | p99 ms |\n| ---: | ---: | ---: |");
    let (mut events, mut latencies) = (vec![], vec![]);
    for (watchers, count) in WATCHERS {
        let cluster = cluster().durable().start().await?;
        let endpoint = cluster.endpoint().await?;
        let figure = watching(&endpoint, &namespace(&endpoint).await?, watchers, count).await?;
        println!("| {watchers} | {:.0} | {:.2} |", figure.per_second, figure.p99_ms);
        events.push((watchers as f64, figure.per_second));
        latencies.push((watchers as f64, figure.p99_ms));
    }
    plot_both("watchers", "watchers", &[("events", events)], &[("events", latencies)])
}

/// Measures the memory of watchers whose clients do not read.
pub async fn stalled_watchers() -> Result<()> {
    let cluster = cluster().durable().start().await?;
    let endpoint = cluster.endpoint().await?;
    let namespace = namespace(&endpoint).await?;
    let maps = format!("/api/v1/namespaces/{namespace}/configmaps");
    let churn = async || {
        let mut there = 0;
        while there < 5_000 {
            let object = |i| config_map(&name(i), 'x');
            (_, there) = fill(&endpoint, &maps, there, 5_000, object).await?;
        }
        for i in 0..3 {
            let update = |at: usize| {
                let body = config_map(&name(at), ['a', 'b', 'c'][i]);
                (at < 5_000).then(|| Request::new("PUT", format!("{maps}/{}", name(at))).body(body))
            };
            drive(&endpoint, IN_FLIGHT, update).await?;
        }
        let delete = |at: usize| (at < 5_000).then(|| Request::new("DELETE", format!("{maps}/{}", name(at))));
        drive(&endpoint, IN_FLIGHT, delete).await?;
        anyhow::Ok(cluster.resident()?)
    };
    let mut before = 0.0;
    for _ in 0..FILLING {
        before = churn().await?;
    }
    let mut stalled = Vec::new();
    for _ in 0..STALLED_WATCHERS {
        let mut connection = endpoint.connect().await?;
        let response = connection.open("GET", &format!("{maps}?watch=1"), &[], None).await?;
        stalled.push((connection, response));
    }
    let after = churn().await?;
    let each = (after - before) * 1024.0 / STALLED_WATCHERS as f64;
    println!("| stalled during 25,000 events of 1 KB, each | {each:.0} KB |");
    drop(stalled);
    Ok(())
}

/// Measures the memory of watchers without events.
pub async fn quiet_watchers() -> Result<()> {
    let cluster = cluster().durable().start().await?;
    let endpoint = cluster.endpoint().await?;
    let namespace = namespace(&endpoint).await?;
    let before = cluster.resident()?;
    let mut quiet = Vec::new();
    for _ in 0..QUIET_WATCHERS / STREAMS {
        quiet.push(http2_watches(&endpoint, &namespace).await?);
    }
    println!("| {QUIET_WATCHERS} quiet ones | {:.0} MB |", cluster.resident()? - before);
    Ok(())
}

type Watches = (SendRequest<Empty<Bytes>>, Vec<hyper::body::Incoming>);

/// Starts watches over one connection.
async fn http2_watches(endpoint: &Endpoint, namespace: &str) -> Result<Watches> {
    let io = TokioIo::new(endpoint.tls(b"h2").await?);
    let (sender, connection) = handshake(TokioExecutor::new(), io).await?;
    tokio::spawn(connection);
    let open = (0..STREAMS).map(|_| {
        let mut sender = sender.clone();
        async move {
            let uri = format!("https://127.0.0.1/api/v1/namespaces/{namespace}/secrets?watch=1");
            let mut request = hyper::Request::get(uri).body(Empty::new())?;
            if let Some(token) = endpoint.authorization() {
                request.headers_mut().insert(header::AUTHORIZATION, token.clone());
            }
            let response = sender.send_request(request).await?;
            ensure!(response.status() == 200, "a watch is answered with {}", response.status());
            Ok(response.into_body())
        }
    });
    let bodies = try_join_all(open).await?;
    Ok((sender, bodies))
}

/// Creates objects from one number on, up to another or for the duration of a row; returns the
/// number to continue from.
async fn fill(
    endpoint: &Endpoint,
    path: &str,
    from: usize,
    to: usize,
    object: impl Fn(usize) -> Bytes + Sync,
) -> Result<(Figure, usize)> {
    let made = AtomicUsize::new(from);
    let create = |i: usize| {
        (from + i < to).then(|| {
            made.fetch_max(from + i + 1, Ordering::Relaxed);
            Request::new("POST", path.to_owned()).body(object(from + i))
        })
    };
    let figure = drive(endpoint, IN_FLIGHT, create).await?;
    Ok((figure, made.into_inner()))
}

/// Reads a response whole; returns how long that took and its bytes.
async fn read(endpoint: &Endpoint, path: &str) -> Result<(Duration, usize)> {
    let mut connection = endpoint.connect().await?;
    let began = Instant::now();
    let mut body = connection.open("GET", path, &[], None).await?.into_body();
    let mut bytes = 0;
    while let Some(frame) = body.frame().await {
        bytes += frame?.into_data().map_or(0, |data| data.len());
    }
    Ok((began.elapsed(), bytes))
}

/// Returns the median duration of five reads.
async fn median(endpoint: &Endpoint, path: &str) -> Result<Duration> {
    let mut times = Vec::new();
    for _ in 0..5 {
        times.push(read(endpoint, path).await?.0);
    }
    times.sort();
    times.get(2).copied().context("no times")
}

/// Returns the size of the files below a directory on disk, in megabytes.
fn disk_usage(directory: &Path) -> Result<f64> {
    use std::os::unix::fs::MetadataExt;
    let mut blocks = 0;
    let mut pending = vec![directory.to_owned()];
    while let Some(directory) = pending.pop() {
        for entry in std::fs::read_dir(directory)? {
            let entry = entry?;
            match entry.metadata() {
                Ok(metadata) if metadata.is_dir() => pending.push(entry.path()),
                Ok(metadata) => blocks += metadata.blocks(),
                // Files of the store come and go.
                Err(_) => {}
            }
        }
    }
    Ok(blocks as f64 * 512.0 / 1e6)
}

fn name(i: usize) -> String {
    format!("c{i}")
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// Draws throughput and latency as two plots.
fn plot_both(name: &str, of: &str, throughput: &[Line], latency: &[Line]) -> Result<()> {
    let Some(directory) = std::env::var_os("PLOTS") else { return Ok(()) };
    let directory = Path::new(&directory);
    plot(&directory.join(format!("{name}-throughput.svg")), of, "a second", throughput)?;
    plot(&directory.join(format!("{name}-latency.svg")), of, "p99, ms", latency)
}
