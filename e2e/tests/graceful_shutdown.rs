//! A stop is graceful, and a restart only delays clients.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use bytes::Bytes;
use coracle_e2e::cluster;
use coracle_e2e::http::{Endpoint, HttpResponse};
use coracle_e2e::wait::{DEADLINE, until};
use futures::StreamExt;
use futures::future::try_join_all;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http2::{SendRequest, handshake};
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, ListParams};
use kube::runtime::{WatchStreamExt, watcher};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::{mpsc, watch};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::timeout;

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
/// The name of the last object that is created: a client that observes it has observed all.
const LAST: &str = "last";

fn config_map(name: &str) -> Bytes {
    json!({"metadata": {"name": name}}).to_string().into()
}

async fn call(endpoint: &Endpoint, method: &str, path: &str, body: Option<Bytes>) -> Result<HttpResponse> {
    endpoint.connect().await?.call(method, path, &[], body).await
}

async fn create(endpoint: &Endpoint, name: &str) -> Result<u16> {
    Ok(call(endpoint, "POST", CONFIG_MAPS, Some(config_map(name))).await?.status)
}

/// A connection over HTTP/2, and the task that ends with it.
struct Http2 {
    sender: SendRequest<Full<Bytes>>,
    connection: JoinHandle<hyper::Result<()>>,
}

impl Http2 {
    async fn connect(endpoint: &Endpoint) -> Result<Http2> {
        let io = TokioIo::new(endpoint.tls(b"h2").await?);
        let (sender, connection) = handshake(TokioExecutor::new(), io).await?;
        Ok(Http2 { sender, connection: tokio::spawn(connection) })
    }

    async fn get(&mut self, path: &str) -> Result<Response<Incoming>> {
        let request = Request::get(format!("https://localhost{path}")).body(Full::default())?;
        self.sender.ready().await?;
        Ok(self.sender.send_request(request).await?)
    }

    /// Waits until the connection has ended.
    ///
    /// # Errors
    /// It was broken off.
    async fn ended(self) -> Result<()> {
        drop(self.sender);
        Ok(timeout(DEADLINE, self.connection).await.context("the connection lasts")???)
    }
}

/// Reads a body to its end.
async fn to_end(response: Response<Incoming>) -> Result<Bytes> {
    Ok(timeout(DEADLINE, response.into_body().collect()).await.context("the body lasts")??.to_bytes())
}

/// Waits until the server accepts no connection.
async fn until_refused(endpoint: &Endpoint) -> Result<()> {
    until("connections are refused", async || Ok(endpoint.socket().await.is_err()), |refused| *refused)
        .await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_shuts_down_is_served_but_not_ready_for_a_while() -> Result<()> {
    let cluster = cluster().flag("--controllers", "").flag("--shutdown-delay-duration", "1h").start().await?;
    let endpoint = cluster.endpoint().await?;
    let text = |response: &HttpResponse| String::from_utf8_lossy(&response.body).into_owned();
    let ready = call(&endpoint, "GET", "/readyz?verbose", None).await?;
    assert!(ready.status == 200 && text(&ready).contains("[+]shutdown ok\n"), "{}", text(&ready));
    let mut over_http2 = Http2::connect(&endpoint).await?;
    let mut events = over_http2.get(&format!("{CONFIG_MAPS}?watch=true")).await?.into_body();

    cluster.terminate()?;
    let ready = until(
        "it is not ready",
        async || call(&endpoint, "GET", "/readyz", None).await,
        |response| response.status == 500,
    )
    .await?;
    assert!(text(&ready).contains("[-]shutdown failed: reason withheld\n"), "{}", text(&ready));
    for path in ["/livez", "/healthz"] {
        assert_eq!(call(&endpoint, "GET", path, None).await?.status, 200, "{path}");
    }
    assert_eq!(create(&endpoint, "late").await?, 201);
    loop {
        let frame =
            timeout(DEADLINE, events.frame()).await.context("no event")?.context("the watch ended")??;
        if String::from_utf8_lossy(frame.data_ref().context("no data")?).contains(r#""name":"late""#) {
            break;
        }
    }

    // Another signal ends the wait.
    cluster.terminate()?;
    while let Some(frame) = timeout(DEADLINE, events.frame()).await.context("the watch lasts")? {
        frame.context("the watch was broken off")?;
    }
    over_http2.ended().await?;
    assert!(cluster.exited().await?.success());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_shutdown_delay_ends_by_itself() -> Result<()> {
    let cluster =
        cluster().flag("--controllers", "").flag("--shutdown-delay-duration", "1500ms").start().await?;
    let began = Instant::now();
    assert!(cluster.stop().await?.success());
    assert!(began.elapsed() >= Duration::from_millis(1500), "{:?}", began.elapsed());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_under_way_finish_and_connections_end() -> Result<()> {
    let cluster = cluster().flag("--controllers", "").start().await?;
    let endpoint = cluster.endpoint().await?;
    // A request with an incomplete body.
    let body = config_map("halved");
    let (first, rest) = body.split_at(body.len() / 2);
    let mut halved = endpoint.tls(b"http/1.1").await?;
    let head = format!(
        "POST {CONFIG_MAPS} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    halved.write_all(head.as_bytes()).await?;
    halved.write_all(first).await?;
    halved.flush().await?;
    let mut over_http1 = endpoint.connect().await?;
    let watch = format!("{CONFIG_MAPS}?watch=true");
    let first_watch = over_http1.open("GET", &watch, &[], None).await?;
    let mut over_http2 = Http2::connect(&endpoint).await?;
    let second_watch = over_http2.get(&watch).await?;
    // An idle connection, and one in its handshake: neither delays the stop.
    let idle = Http2::connect(&endpoint).await?;
    let _silent = endpoint.socket().await?;

    cluster.terminate()?;
    until_refused(&endpoint).await?;
    halved.write_all(rest).await?;
    for watch in [first_watch, second_watch] {
        to_end(watch).await.context("a watch was broken off")?;
    }
    let mut response = String::new();
    timeout(DEADLINE, halved.read_to_string(&mut response)).await.context("the connection lasts")??;
    let head = response.split("\r\n\r\n").next().unwrap_or_default().to_lowercase();
    assert!(head.starts_with("http/1.1 201 created"), "{response}");
    assert!(head.contains("\r\nconnection: close"), "{response}");
    idle.ended().await?;
    over_http2.ended().await?;
    assert!(cluster.exited().await?.success());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_end_by_chance_but_no_request_does() -> Result<()> {
    // If no GOAWAY arrives after this number of requests, the chance is not applied: that is wrong
    // once in 10^17 runs.
    const REQUESTS: usize = 2000;
    let cluster = cluster().flag("--controllers", "").flag("--goaway-chance", "0.02").start().await?;
    let endpoint = cluster.endpoint().await?;
    let mut over_http2 = Http2::connect(&endpoint).await?;
    let mut events = over_http2.get(&format!("{CONFIG_MAPS}?watch=true")).await?.into_body();
    let (mut served, mut has_ended) = (0, false);
    while over_http2.sender.ready().await.is_ok() {
        ensure!(served < REQUESTS, "no GOAWAY in {REQUESTS} requests");
        match over_http2.get("/version").await {
            Ok(response) => {
                assert_eq!((response.status().as_u16(), to_end(response).await.is_ok()), (200, true));
                ensure!(!has_ended, "a request was served after the GOAWAY");
            }
            // It arrived too late to be served, so the connection accepts no other either. The
            // client detects that at its next request.
            Err(_) => has_ended = true,
        }
        served += 1;
    }
    println!("a GOAWAY after {served} requests");
    // HTTP/1.1 has no GOAWAY.
    assert_eq!(create(&endpoint, LAST).await?, 201);
    let mut text = Vec::new();
    while !String::from_utf8_lossy(&text).contains(r#""name":"last""#) {
        let frame = timeout(DEADLINE, events.frame()).await.context("no event")?;
        text.extend_from_slice(
            frame.context("the watch ended with the GOAWAY")??.data_ref().context("no data")?,
        );
    }
    drop(events);
    over_http2.ended().await
}

/// A write that was acknowledged.
#[derive(Clone, Debug)]
struct Acknowledged {
    name: String,
    at: Instant,
}

/// Creates objects one after the other until it is stopped. A create with an unknown outcome is
/// repeated.
async fn write(
    writer: usize,
    endpoint: Endpoint,
    stop: watch::Receiver<bool>,
    acknowledged: mpsc::UnboundedSender<Acknowledged>,
) -> Result<()> {
    let mut connection = None;
    let mut number = 0;
    let mut unknown_since: Option<Instant> = None;
    while !*stop.borrow() || unknown_since.is_some() {
        let name = format!("w{writer}-{number}");
        let sent = async {
            let mut sender = match connection.take() {
                Some(sender) => sender,
                None => endpoint.connect().await?,
            };
            let response: HttpResponse =
                sender.call("POST", CONFIG_MAPS, &[], Some(config_map(&name))).await?;
            connection = sender.is_open().then_some(sender);
            Ok::<_, anyhow::Error>(response)
        };
        match sent.await {
            Ok(response) if response.status == 201 || (response.status == 409 && unknown_since.is_some()) => {
                unknown_since = None;
                number += 1;
                acknowledged.send(Acknowledged { name, at: Instant::now() })?;
            }
            Ok(response) => bail!("{name}: {} {}", response.status, String::from_utf8_lossy(&response.body)),
            Err(error) => {
                let since = *unknown_since.get_or_insert_with(Instant::now);
                ensure!(since.elapsed() < DEADLINE, "no server: {error:#}");
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        }
    }
    Ok(())
}

#[derive(Clone, Copy, Debug)]
enum Protocol {
    Http1,
    Http2,
}

/// The observations of watches: the name of each object that was created, and the number of ends of
/// a watch.
#[derive(Debug, Default)]
struct Seen {
    names: Vec<String>,
    ends: usize,
}

/// Opens a watch, as soon as there is a server that is not shutting down.
async fn open(endpoint: &Endpoint, protocol: Protocol, path: &str) -> Result<Response<Incoming>> {
    let began = Instant::now();
    loop {
        let opened = async {
            Ok::<_, anyhow::Error>(match protocol {
                Protocol::Http1 => endpoint.connect().await?.open("GET", path, &[], None).await?,
                Protocol::Http2 => Http2::connect(endpoint).await?.get(path).await?,
            })
        };
        match opened.await {
            Ok(response) if response.status() != 503 => return Ok(response),
            refused => ensure!(began.elapsed() < DEADLINE, "no watch begins: {refused:?}"),
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Watches from a revision on until the last object is created; a watch that ends is continued
/// after the last event.
///
/// # Errors
/// A watch does not end as it should, or revisions do not increase.
async fn follow(endpoint: Endpoint, protocol: Protocol, mut after: u64) -> Result<Seen> {
    let mut seen = Seen::default();
    loop {
        let path = format!("{CONFIG_MAPS}?watch=true&resourceVersion={after}");
        let watch = open(&endpoint, protocol, &path).await?;
        ensure!(watch.status() == 200, "{}", watch.status());
        let (mut body, mut buffer) = (watch.into_body(), Vec::new());
        while let Some(frame) = timeout(DEADLINE, body.frame()).await.context("no event")? {
            buffer
                .extend_from_slice(frame.context("the watch was broken off")?.data_ref().context("no data")?);
            while let Some(end) = buffer.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = buffer.drain(..=end).collect();
                let event: Value = serde_json::from_slice(&line)?;
                ensure!(event["type"] == "ADDED", "{event}");
                let metadata = &event["object"]["metadata"];
                let revision: u64 = metadata["resourceVersion"].as_str().context("no revision")?.parse()?;
                ensure!(revision > after, "{revision} after {after}");
                after = revision;
                let name = metadata["name"].as_str().context("no name")?;
                seen.names.push(name.to_owned());
                if name == LAST {
                    return Ok(seen);
                }
            }
        }
        ensure!(buffer.is_empty(), "half an event: {}", String::from_utf8_lossy(&buffer));
        seen.ends += 1;
    }
}

/// Follows the objects as operators do: with kube-rs's watcher, which lists them once.
async fn follow_as_operator(client: kube::Client) -> Result<Seen> {
    let events = watcher(Api::<ConfigMap>::default_namespaced(client), watcher::Config::default());
    let mut events = std::pin::pin!(events.default_backoff());
    let mut seen = Seen::default();
    while let Some(event) = timeout(DEADLINE, events.next()).await.context("no event")? {
        match event {
            Ok(watcher::Event::Init) => ensure!(seen.names.is_empty(), "it lists again"),
            Ok(watcher::Event::InitDone) => {}
            Ok(watcher::Event::InitApply(object) | watcher::Event::Apply(object)) => {
                let name = object.metadata.name.context("no name")?;
                seen.names.push(name.clone());
                if name == LAST {
                    break;
                }
            }
            Ok(event) => bail!("{event:?}"),
            // The server is not available for a moment.
            Err(watcher::Error::WatchStartFailed(_)) => seen.ends += 1,
            Err(error) => bail!("{error}"),
        }
    }
    Ok(seen)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_loses_nothing_and_repeats_nothing() -> Result<()> {
    const WRITERS: usize = 4;
    /// Writes before the restart, and after it.
    const WRITES: usize = 100;
    let data = TempDir::new()?;
    let start = async |listen: &str| {
        // Without controllers, whose writes would interfere.
        cluster().data_dir(data.path()).listen(listen).flag("--controllers", "").start().await
    };
    let server = start("127.0.0.1:0").await?;
    let endpoint = server.endpoint().await?;
    let config = server.config().await?;
    let listen = config.cluster_url.authority().context("no address")?.to_string();
    let list = call(&endpoint, "GET", CONFIG_MAPS, None).await?;
    let list: Value = serde_json::from_slice(&list.body)?;
    ensure!(list["items"].as_array().is_some_and(Vec::is_empty), "{list}");
    let revision: u64 = list["metadata"]["resourceVersion"].as_str().context("no revision")?.parse()?;

    let watches = [Protocol::Http1, Protocol::Http2]
        .map(|protocol| tokio::spawn(follow(endpoint.clone(), protocol, revision)));
    let operator = tokio::spawn(follow_as_operator(kube::Client::try_from(config)?));
    let (stop, stopped) = watch::channel(false);
    let (sender, mut acknowledgements) = mpsc::unbounded_channel();
    let mut writers: JoinSet<Result<()>> =
        (0..WRITERS).map(|writer| write(writer, endpoint.clone(), stopped.clone(), sender.clone())).collect();
    drop(sender);
    let mut acknowledged: Vec<Acknowledged> = Vec::new();
    let mut collect = async |acknowledged: &mut Vec<Acknowledged>, count: usize| {
        while acknowledged.len() < count {
            let next = timeout(DEADLINE, acknowledgements.recv()).await.context("no write succeeds")?;
            acknowledged.push(next.context("the writers ended")?);
        }
        Ok::<_, anyhow::Error>(())
    };
    collect(&mut acknowledged, WRITES).await?;

    let began = Instant::now();
    ensure!(server.stop().await?.success(), "no clean stop");
    let ended = began.elapsed();
    let server = start(&listen).await?;
    let started = began.elapsed();
    let before = acknowledged.len();
    collect(&mut acknowledged, before + WRITERS * WRITES).await?;
    stop.send_replace(true);
    while let Some(written) = writers.join_next().await {
        written??;
    }
    collect(&mut acknowledged, usize::MAX).await.expect_err("the writers ended");
    assert_eq!(create(&endpoint, LAST).await?, 201);

    let times: Vec<Instant> = acknowledged.iter().map(|write| write.at).collect();
    let gap = times.iter().zip(times.iter().skip(1)).map(|(a, b)| b.duration_since(*a)).max();
    println!(
        "stopped after {ended:?}, ready again after {started:?}; longest time between two writes: {gap:?}"
    );

    let mut written: BTreeSet<String> = acknowledged.into_iter().map(|write| write.name).collect();
    written.insert(LAST.to_owned());
    let api = Api::<ConfigMap>::default_namespaced(server.client().await?);
    let stored = api.list(&ListParams::default()).await?.items;
    let stored: BTreeSet<String> = stored.into_iter().filter_map(|object| object.metadata.name).collect();
    assert_eq!(stored, written, "what was acknowledged is stored, and nothing else");
    for (seen, what) in try_join_all(watches).await?.into_iter().zip(["HTTP/1.1", "HTTP/2"]) {
        assert_seen(seen.context(what)?, &written, what);
    }
    assert_seen(operator.await??, &written, "kube-rs");
    Ok(())
}

/// Asserts that each object was observed once, over several watches, at least one of which ended.
fn assert_seen(seen: Seen, written: &BTreeSet<String>, what: &str) {
    let names: BTreeSet<String> = seen.names.iter().cloned().collect();
    assert_eq!(&names, written, "{what}");
    assert_eq!(seen.names.len(), names.len(), "{what}: an event was seen twice");
    println!("{what}: {} events, {} interruptions", names.len(), seen.ends);
}
