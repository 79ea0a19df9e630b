//! Clients that send control frames which ask for replies, and read none of these: the server stops
//! reading.

use anyhow::{Context, Result, bail, ensure};
use bytes::Bytes;
use coracle_e2e::attacks::control_frames::{
    HTTP2_PING, HTTP2_SETTINGS, http2_connection, send_until_blocked, websocket_ping,
};
use coracle_e2e::wait::DEADLINE;
use coracle_e2e::{Cluster, cluster};
use futures::StreamExt;
use serde_json::{Value, json};
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::Message;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
/// The maximum number of bytes that a client sends.
const MAX_SENT: usize = 96 << 20;
/// The memory that they may take, in megabytes.
const MAX_GROWTH: f64 = 30.0;

async fn start() -> Result<Cluster> {
    cluster().flag("--nodes", "0").flag("--controllers", "-*").start().await
}

#[tokio::test]
async fn replies_to_pings_on_a_websocket_do_not_pile_up() -> Result<()> {
    let cluster = start().await?;
    let endpoint = cluster.endpoint().await?;
    let path = format!("{MAPS}?watch=1&fieldSelector=metadata.name%3Dafter");
    let mut socket = endpoint.websocket(&path, &[]).await?;
    cluster.reset_most_resident()?;
    let before = cluster.resident()?;
    let sent = send_until_blocked(socket.get_mut(), &websocket_ping(), MAX_SENT).await?;
    let grown = cluster.most_resident()? - before;
    ensure!(grown < MAX_GROWTH, "{grown:.0} MB more after {sent} bytes");
    ensure!(sent < MAX_SENT, "the server took all of it");

    // The watch goes on when the client reads, whatever the size of the event.
    let mut connection = endpoint.connect().await?;
    let text = "x".repeat(900_000);
    let object = json!({"metadata": {"name": "after"}, "data": {"text": text}});
    let made = connection.call("POST", MAPS, &[], Some(Bytes::from(object.to_string()))).await?;
    ensure!(made.status == 201, "{made:?}");
    let event = async {
        loop {
            match socket.next().await.context("the end")?? {
                Message::Pong(_) => {}
                Message::Text(text) => return Ok(serde_json::from_str::<Value>(&text)?),
                other => bail!("{other:?}"),
            }
        }
    };
    let event = timeout(DEADLINE, event).await.context("no event")??;
    ensure!(event["type"] == "ADDED" && event["object"]["data"]["text"] == text.as_str());
    Ok(())
}

#[tokio::test]
async fn replies_to_frames_of_http2_do_not_pile_up() -> Result<()> {
    let cluster = start().await?;
    let endpoint = cluster.endpoint().await?;
    for frame in [HTTP2_PING, HTTP2_SETTINGS] {
        cluster.reset_most_resident()?;
        let before = cluster.resident()?;
        let mut stream = http2_connection(&endpoint).await?;
        let sent = send_until_blocked(&mut stream, frame, MAX_SENT).await.unwrap_or_default();
        let grown = cluster.most_resident()? - before;
        ensure!(grown < MAX_GROWTH, "{grown:.0} MB more after {sent} bytes of {frame:?}");
        ensure!(sent < MAX_SENT, "the server took all of it");
        ensure!(endpoint.connect().await?.call("GET", "/readyz", &[], None).await?.status == 200);
    }
    Ok(())
}
