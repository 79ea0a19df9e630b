//! Watches and logs over WebSockets, as the informers of Java clients and browsers open them.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use bytes::Bytes;
use coracle_e2e::http::{Connection, Endpoint};
use coracle_e2e::json_client::JsonClient;
use coracle_e2e::{Cluster, cluster};
use futures::{Stream, StreamExt};
use serde_json::{Value, json};
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::{self, Message};

const DEADLINE: Duration = Duration::from_secs(30);
const MAPS: &str = "/api/v1/namespaces/default/configmaps";

async fn start() -> Result<Cluster> {
    cluster().flag("--nodes", "0").flag("--controllers", "").start().await
}

async fn call(connection: &mut Connection, method: &str, path: &str, body: Option<Value>) -> Result<()> {
    let body = body.map(|body| Bytes::from(body.to_string()));
    let response = connection.call(method, path, &[], body).await?;
    ensure!(response.status < 300, "{method} {path}: {}", String::from_utf8_lossy(&response.body));
    Ok(())
}

/// Returns the next message.
async fn next(socket: &mut (impl Stream<Item = tungstenite::Result<Message>> + Unpin)) -> Result<Message> {
    timeout(DEADLINE, socket.next()).await.context("no message")?.context("the end")?.context("an error")
}

/// Returns the type of the next event, and the name of its object.
async fn next_event(
    socket: &mut (impl Stream<Item = tungstenite::Result<Message>> + Unpin),
) -> Result<(String, String)> {
    let Message::Text(text) = next(socket).await? else { bail!("no text") };
    ensure!(text.ends_with("}\n") && text.matches('\n').count() == 1, "one document: {text}");
    let event: Value = serde_json::from_str(&text)?;
    let part = |pointer| event.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
    Ok((part("/type"), part("/object/metadata/name")))
}

#[tokio::test]
async fn each_event_is_a_text_message_and_the_end_a_normal_close() -> Result<()> {
    let cluster = start().await?;
    let endpoint = cluster.endpoint().await?;
    let mut connection = endpoint.connect().await?;
    call(&mut connection, "POST", MAPS, Some(json!({"metadata": {"name": "before"}}))).await?;
    let path = format!(
        "{MAPS}?watch=1&allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan"
    );
    let mut socket = endpoint.websocket(&path, &[]).await?;
    let event = |kind: &str, name: &str| (kind.to_owned(), name.to_owned());
    let mut initial = Vec::new();
    while initial.last().is_none_or(|(kind, _)| kind != "BOOKMARK") {
        initial.push(next_event(&mut socket).await?);
    }
    ensure!(initial.contains(&event("ADDED", "before")), "{initial:?}");
    let labels = json!({"metadata": {"name": "a", "labels": {"x": "1"}}});
    call(&mut connection, "POST", MAPS, Some(json!({"metadata": {"name": "a"}}))).await?;
    assert_eq!(next_event(&mut socket).await?, event("ADDED", "a"));
    call(&mut connection, "PUT", &format!("{MAPS}/a"), Some(labels)).await?;
    assert_eq!(next_event(&mut socket).await?, event("MODIFIED", "a"));
    call(&mut connection, "DELETE", &format!("{MAPS}/a"), None).await?;
    assert_eq!(next_event(&mut socket).await?, event("DELETED", "a"));
    let mut socket = endpoint.websocket(&format!("{path}&timeoutSeconds=1"), &[]).await?;
    let end = loop {
        match next(&mut socket).await? {
            Message::Text(_) => {}
            other => break other,
        }
    };
    assert_eq!(end, Message::Close(Some(CloseFrame { code: CloseCode::Normal, reason: "".into() })));
    Ok(())
}

#[tokio::test]
async fn binary_messages_carry_protobuf() -> Result<()> {
    let cluster = start().await?;
    let endpoint = cluster.endpoint().await?;
    let mut connection = endpoint.connect().await?;
    call(&mut connection, "POST", MAPS, Some(json!({"metadata": {"name": "a"}}))).await?;
    let accept = ("Accept", "application/vnd.kubernetes.protobuf;stream=watch");
    let path = format!("{MAPS}?watch=1&fieldSelector=metadata.name%3Da");
    let mut socket = endpoint.websocket(&path, &[accept]).await?;
    let Message::Binary(event) = next(&mut socket).await? else { bail!("no binary message") };
    // Field 1, of five bytes: the type of the event.
    ensure!(event.starts_with(b"\x0a\x05ADDED"), "{event:?}");
    socket.close(None).await?;
    Ok(())
}

#[tokio::test]
async fn a_request_rejected_before_the_handshake_gets_an_http_response() -> Result<()> {
    let cluster = start().await?;
    let endpoint = cluster.endpoint().await?;
    let unknown = Endpoint::with_token(&cluster.config().await?, "nobody")?;
    let watch = format!("{MAPS}?watch=1");
    let bad = format!("{MAPS}?watch=1&fieldSelector=x%3Dy");
    let no_origin = ("Origin", "null");
    for (case, endpoint, path, header, want) in [
        ("no such resource", &endpoint, "/api/v1/nonsense?watch=1", None, 404),
        ("a bad selector", &endpoint, bad.as_str(), None, 400),
        ("nobody's token", &unknown, watch.as_str(), None, 401),
        ("no origin", &endpoint, watch.as_str(), Some(no_origin), 403),
        ("no watch", &endpoint, MAPS, None, 200),
    ] {
        let Err(error) = endpoint.websocket(path, header.as_slice()).await else { bail!("{case}: accepted") };
        let Some(tungstenite::Error::Http(response)) = error.downcast_ref() else {
            bail!("{case}: {error:?}")
        };
        assert_eq!(response.status().as_u16(), want, "{case}");
    }
    Ok(())
}

#[tokio::test]
async fn a_sub_protocol_carries_the_token() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let file = directory.path().join("tokens.csv");
    std::fs::write(&file, "secret,alice,u1,\"system:masters\"\n")?;
    let cluster = cluster()
        .flag("--nodes", "0")
        .flag("--controllers", "")
        .flag("--token-auth-file", file)
        .start()
        .await?;
    let mut config = cluster.config().await?;
    config.auth_info = kube::config::AuthInfo::default();
    let endpoint = Endpoint::new(&config)?;
    let protocol =
        |token: &str| format!("base64url.bearer.authorization.k8s.io.{}", URL_SAFE_NO_PAD.encode(token));
    let name = "Sec-WebSocket-Protocol";
    let path = format!("{MAPS}?watch=1");
    let mut socket = endpoint.websocket(&path, &[(name, "chosen"), (name, &protocol("secret"))]).await?;
    socket.close(None).await?;
    let refused = endpoint.websocket(&path, &[(name, "chosen"), (name, &protocol("guessed"))]).await;
    let error = refused.err().context("a guessed token is accepted")?;
    let Some(tungstenite::Error::Http(response)) = error.downcast_ref() else { bail!("{error:?}") };
    assert_eq!(response.status().as_u16(), 401);
    Ok(())
}

/// Returns the resident memory of a process, in bytes.
fn resident(id: u32) -> Result<u64> {
    let status = std::fs::read_to_string(Path::new("/proc").join(id.to_string()).join("status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS")?;
    let kilobytes: u64 = line.trim().trim_end_matches("kB").trim().parse()?;
    Ok(kilobytes << 10)
}

#[tokio::test]
async fn stalled_clients_take_bounded_memory() -> Result<()> {
    const STALLED: usize = 20;
    const EVENTS: usize = 60;
    let cluster = start().await?;
    let endpoint = cluster.endpoint().await?;
    let mut connection = endpoint.connect().await?;
    let large = |n: usize| {
        let text = format!("{n:07}").repeat(50_000);
        Some(json!({"metadata": {"name": "large"}, "data": {"text": text}}))
    };
    call(&mut connection, "POST", MAPS, large(0)).await?;
    let path = format!("{MAPS}?watch=1&fieldSelector=metadata.name%3Dlarge");
    // The history alone takes this memory, without any client.
    for n in 1..EVENTS {
        call(&mut connection, "PUT", &format!("{MAPS}/large"), large(n)).await?;
    }
    let id = cluster.id().context("it runs")?;
    let before = resident(id)?;
    let mut stalled = Vec::new();
    for _ in 0..STALLED {
        stalled.push(endpoint.websocket(&path, &[]).await?);
    }
    for n in EVENTS..2 * EVENTS {
        call(&mut connection, "PUT", &format!("{MAPS}/large"), large(n)).await?;
    }
    let grown = resident(id)?.saturating_sub(before);
    // Sent and not read, this would be more than 400 MB.
    ensure!(grown < 100 << 20, "{} MB more for {STALLED} clients", grown >> 20);
    // Another client is served meanwhile.
    let mut socket = endpoint.websocket(&path, &[]).await?;
    assert_eq!(next_event(&mut socket).await?, ("ADDED".to_owned(), "large".to_owned()));
    Ok(())
}

const PODS: &str = "/api/v1/namespaces/default/pods";

/// Starts a control plane with a running pod `p`, of one container.
async fn start_pod(annotations: Value, command: &[&str]) -> Result<(Cluster, Endpoint)> {
    let cluster = cluster().with_service_account().start().await?;
    let endpoint = cluster.endpoint().await?;
    let mut client = JsonClient::new(&endpoint).await?;
    let container = json!({"name": "c", "image": "i", "command": command});
    let metadata = json!({"name": "p", "annotations": annotations});
    client.create(PODS, json!({"metadata": metadata, "spec": {"containers": [container]}})).await?;
    client.until(&format!("{PODS}/p"), |pod| pod["status"]["phase"] == "Running").await?;
    Ok((cluster, endpoint))
}

/// Covers upstream's "should support retrieving logs from the container over websockets".
#[tokio::test]
async fn a_log_is_sent_in_messages() -> Result<()> {
    let (_cluster, endpoint) = start_pod(json!({}), &["sh", "-c", "echo hello; sleep 3600"]).await?;
    let path = format!("{PODS}/p/log?container=c");
    for (follow, protocol) in [(false, ""), (true, "binary.k8s.io"), (false, "base64.binary.k8s.io")] {
        let headers = [("Sec-WebSocket-Protocol", protocol)];
        let headers = if protocol.is_empty() { &[][..] } else { &headers[..] };
        let mut socket = endpoint.websocket(&format!("{path}&follow={follow}"), headers).await?;
        let wanted: [Message; 2] = ["", "hello\n"].map(|text| match protocol {
            "base64.binary.k8s.io" => Message::text(STANDARD.encode(text)),
            _ => Message::Binary(text.into()),
        });
        for want in wanted {
            assert_eq!(next(&mut socket).await?, want, "{protocol}");
        }
        if !follow {
            let end = CloseFrame { code: CloseCode::Normal, reason: "".into() };
            assert_eq!(next(&mut socket).await?, Message::Close(Some(end)));
        }
    }
    let refused = endpoint.websocket(&path, &[("Sec-WebSocket-Protocol", "v4.channel.k8s.io")]).await;
    let refused = refused.err().context("an unknown sub-protocol")?;
    let refused = refused.downcast_ref::<tungstenite::Error>().context("no refusal")?;
    assert!(matches!(refused, tungstenite::Error::Http(response) if response.status() == 403), "{refused}");
    Ok(())
}

/// A browser accepts gzip with each request; messages are never compressed.
#[tokio::test]
async fn a_long_log_is_sent_as_it_is() -> Result<()> {
    let text = "a line of the log\n".repeat(12_000);
    let (_cluster, endpoint) = start_pod(json!({"sim.coracle.dev/log": text}), &[]).await?;
    let headers = [("Accept-Encoding", "gzip"), ("Sec-WebSocket-Protocol", "binary.k8s.io")];
    let mut socket = endpoint.websocket(&format!("{PODS}/p/log"), &headers).await?;
    let mut received = Vec::new();
    loop {
        match next(&mut socket).await? {
            Message::Binary(piece) => {
                ensure!(piece.len() <= 2048, "{} bytes", piece.len());
                received.extend_from_slice(&piece);
            }
            Message::Close(_) => break,
            message => bail!("unexpected: {message}"),
        }
    }
    ensure!(received == text.as_bytes(), "{} of {} bytes", received.len(), text.len());
    Ok(())
}

/// A log is as long as its time stamps make it: each of these is 7 MB.
#[tokio::test]
async fn logs_that_nobody_reads_take_bounded_memory() -> Result<()> {
    const STALLED: usize = 60;
    let text = "\n".repeat(240_000);
    let (cluster, endpoint) = start_pod(json!({"sim.coracle.dev/log": text}), &[]).await?;
    let id = cluster.id().context("it runs")?;
    let path = format!("{PODS}/p/log?timestamps=true");
    let before = resident(id)?;
    let mut stalled = Vec::new();
    for _ in 0..STALLED {
        let mut socket = endpoint.websocket(&path, &[]).await?;
        assert_eq!(next(&mut socket).await?, Message::Binary(Bytes::new()));
        stalled.push(socket);
    }
    // The longest stalled clients are cut off until the others hold no more than the limit, long
    // before each of them would be for having stalled.
    timeout(Duration::from_secs(20), async {
        while resident(id)?.saturating_sub(before) > 150 << 20 {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        anyhow::Ok(())
    })
    .await
    .context("their logs are still in memory")?
}
