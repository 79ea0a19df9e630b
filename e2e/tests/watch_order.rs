//! The events of several watches of one client come in the order of their revisions.

use anyhow::{Context, Result, ensure};
use coracle_e2e::attacks::control_frames::http2_connection;
use coracle_e2e::cluster;
use coracle_e2e::http::Endpoint;
use coracle_e2e::json_client::JsonClient;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::client::TlsStream;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const WINDOW_UPDATE: u8 = 8;
const END_OF_STREAM_AND_HEADERS: u8 = 1 | 4;

const KINDS: [&str; 3] = ["configmaps", "secrets", "services"];

/// Several watches on a connection of HTTP/2. Its frames are read as they come: a client library
/// would return the events of each watch in an order of its own.
struct Watches {
    stream: TlsStream<TcpStream>,
    /// The rest of the last line, by stream.
    rest: HashMap<u32, Vec<u8>>,
}

impl Watches {
    async fn open(endpoint: &Endpoint, paths: &[String]) -> Result<Watches> {
        let mut stream = http2_connection(endpoint).await?;
        // As much as there may be: the window of the connection, and of each stream.
        let most = 0x7fff_0000_u32.to_be_bytes();
        stream.write_all(&frame(SETTINGS, 0, 0, &[&[0, 4][..], &most].concat())).await?;
        stream.write_all(&frame(WINDOW_UPDATE, 0, 0, &most)).await?;
        for (id, path) in (1..).step_by(2).zip(paths) {
            let authorization = endpoint.authorization().and_then(|value| value.to_str().ok());
            let head = head(path, authorization.unwrap_or_default());
            stream.write_all(&frame(HEADERS, END_OF_STREAM_AND_HEADERS, id, &head)).await?;
        }
        Ok(Watches { stream, rest: HashMap::new() })
    }

    /// Returns the events of the next frame that has any, in their order.
    async fn next(&mut self) -> Result<Vec<Value>> {
        loop {
            let mut head = [0; 9];
            self.stream.read_exact(&mut head).await?;
            let [a, b, c, kind, flags, id @ ..] = head;
            let mut payload = vec![0; u32::from_be_bytes([0, a, b, c]) as usize];
            self.stream.read_exact(&mut payload).await?;
            if kind == SETTINGS && flags == 0 {
                self.stream.write_all(&frame(SETTINGS, 1, 0, &[])).await?;
            }
            ensure!(kind != HEADERS || flags & 1 == 0, "a watch was refused");
            if kind != DATA {
                continue;
            }
            let rest = self.rest.entry(u32::from_be_bytes(id)).or_default();
            rest.extend(payload);
            let whole = rest.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
            let lines: Vec<u8> = rest.drain(..whole).collect();
            let events = serde_json::Deserializer::from_slice(&lines).into_iter();
            let events = events.collect::<Result<Vec<Value>, _>>()?;
            if !events.is_empty() {
                return Ok(events);
            }
        }
    }
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u32).to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// Builds the headers of a GET, each as a literal without a name from the table.
fn head(path: &str, authorization: &str) -> Vec<u8> {
    let headers = [
        (":method", "GET"),
        (":scheme", "https"),
        (":authority", "localhost"),
        (":path", path),
        ("authorization", authorization),
        ("user-agent", "watches"),
    ];
    let literal = |text: &str| {
        let mut length = vec![text.len().min(127) as u8];
        if let Some(mut more) = text.len().checked_sub(127) {
            while more >= 128 {
                length.push(128 | (more % 128) as u8);
                more /= 128;
            }
            length.push(more as u8);
        }
        [length, text.as_bytes().to_vec()].concat()
    };
    headers.iter().flat_map(|(name, value)| [vec![0], literal(name), literal(value)].concat()).collect()
}

fn revision(event: &Value) -> Option<u64> {
    event["object"]["metadata"]["resourceVersion"].as_str()?.parse().ok()
}

/// Updates objects of several kinds one after the other, each before the response to the last one
/// could be seen by a watch that is not quick.
async fn write(mut client: JsonClient, namespace: String, rounds: usize, seed: usize) -> Result<()> {
    for round in 0..rounds {
        for step in 0..4 {
            let kind = KINDS[(seed + round * round + step * (1 + round % 3)) % KINDS.len()];
            let path = format!("/api/v1/namespaces/{namespace}/{kind}/written-{seed}");
            client
                .patch(&path, json!({"metadata": {"annotations": {"round": format!("{round}-{step}")}}}))
                .await?;
        }
        // Watches come to rest in some rounds, and not in others.
        tokio::time::sleep(Duration::from_micros(500 * (round % 5) as u64)).await;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_of_all_watches_of_a_client_come_in_order() -> Result<()> {
    const ROUNDS: usize = 150;
    const WRITERS: usize = 2;
    let directory = tempfile::TempDir::new()?;
    let tokens = directory.path().join("tokens.csv");
    std::fs::write(&tokens, "watcher-token,watcher,1,system:masters\n")?;
    let cluster = cluster().flag("--token-auth-file", tokens).start().await?;
    let endpoint = Endpoint::with_token(&cluster.config().await?, "watcher-token")?;
    let mut client = JsonClient::new(&endpoint).await?;
    let namespace = client.namespace().await?;
    let collection = |kind: &str| format!("/api/v1/namespaces/{namespace}/{kind}");
    let mut first = 0;
    for writer in 0..WRITERS {
        for kind in KINDS {
            let object =
                json!({"metadata": {"name": format!("written-{writer}")}, "spec": {"ports": [{"port": 80}]}});
            let object = match kind {
                "services" => object,
                _ => json!({"metadata": object["metadata"]}),
            };
            let created = client.create(&collection(kind), object).await?;
            first = created["metadata"]["resourceVersion"].as_str().context("a version")?.parse()?;
        }
    }
    let watch = |kind: &str| format!("{}?watch=1&resourceVersion={first}", collection(kind));
    let mut watches = Watches::open(&endpoint, &KINDS.map(watch)).await?;
    let mut writers = Vec::new();
    for seed in 0..WRITERS {
        let client = JsonClient::new(&endpoint).await?;
        writers.push(tokio::spawn(write(client, namespace.clone(), ROUNDS, seed)));
    }
    let (mut last, mut seen, mut inversions) = (first, 0, Vec::new());
    while seen < WRITERS * ROUNDS * 4 {
        for event in timeout(Duration::from_secs(60), watches.next()).await?? {
            let revision = revision(&event).with_context(|| format!("{event}"))?;
            if revision < last {
                inversions.push((last, revision));
            }
            last = last.max(revision);
            seen += 1;
        }
    }
    for writer in writers {
        writer.await??;
    }
    println!("{} of {seen} events came after a later one: {inversions:?}", inversions.len());
    // An event waits a few milliseconds at most for earlier ones; on a busy machine that may be too
    // short.
    ensure!(inversions.len() * 33 <= seen, "{} of {seen}: {inversions:?}", inversions.len());
    Ok(())
}
