//! Control frames that ask for a reply, from clients that read none: pings and settings.

use std::time::Duration;

use anyhow::Result;
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::client::TlsStream;

use super::requests::{config_maps, repeat_concurrently};
use crate::http::Endpoint;

/// The time after which a write that waits shows that the server does not read.
const BLOCKED: Duration = Duration::from_secs(2);

/// Sends pings on watches over WebSockets.
pub async fn websocket_pings(endpoint: Endpoint, connections: usize) {
    let path = format!("{}?watch=1&fieldSelector=metadata.name%3Dnone", config_maps());
    repeat_concurrently(connections, || async {
        let mut socket = endpoint.websocket(&path, &[]).await?;
        send_repeatedly(socket.get_mut(), &websocket_ping()).await
    })
    .await;
}

/// Sends HTTP/2 frames, for which no credentials are needed.
pub async fn http2_frames(endpoint: Endpoint, connections: usize, frame: &[u8]) {
    repeat_concurrently(connections, || async {
        let mut stream = http2_connection(&endpoint).await?;
        send_repeatedly(&mut stream, frame).await
    })
    .await;
}

/// Returns a ping of the largest size, masked with zeros.
pub fn websocket_ping() -> Vec<u8> {
    [&[0x89, 0x80 | 125, 0, 0, 0, 0][..], &[b'p'; 125]].concat()
}

/// A PING frame of HTTP/2.
pub const HTTP2_PING: &[u8] = b"\0\0\x08\x06\0\0\0\0\0pingping";

/// A SETTINGS frame of HTTP/2 without any, which is acknowledged too.
pub const HTTP2_SETTINGS: &[u8] = b"\0\0\0\x04\0\0\0\0\0";

/// Opens an HTTP/2 connection and sends the client's preface.
pub async fn http2_connection(endpoint: &Endpoint) -> Result<TlsStream<TcpStream>> {
    let mut stream = endpoint.tls(b"h2").await?;
    stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await?;
    stream.write_all(HTTP2_SETTINGS).await?;
    Ok(stream)
}

async fn send_repeatedly(stream: &mut (impl AsyncWrite + Unpin), frame: &[u8]) -> Result<()> {
    let frames = frame.repeat((16 << 10) / frame.len());
    loop {
        stream.write_all(&frames).await?;
    }
}

/// Sends frames and reads nothing, until the server does not take any more, or took `most` bytes.
/// Returns how many it took.
pub async fn send_until_blocked(
    stream: &mut (impl AsyncWrite + Unpin),
    frame: &[u8],
    most: usize,
) -> Result<usize> {
    let frames = frame.repeat((16 << 10) / frame.len());
    let mut sent = 0;
    while sent < most {
        // The next write continues in the middle of a frame where the last one ended there.
        match timeout(BLOCKED, stream.write(&frames[sent % frames.len()..])).await {
            Ok(written) => sent += written?,
            Err(_) => break,
        }
    }
    Ok(sent)
}
