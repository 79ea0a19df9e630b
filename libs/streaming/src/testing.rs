//! Clients of the protocols, for tests.

use std::time::Duration;

use bytes::Bytes;
use futures::{SinkExt, StreamExt};
use http::{HeaderMap, HeaderName, HeaderValue};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::time::timeout;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::Role;

use crate::handshake::{Handshake, Purpose};
use crate::spdy::frame::{self, FLAG_FIN, Header, Kind};
use crate::spdy::headers::{Decoder, Encoder};

/// The time in which anything that is waited for happens.
pub const DEADLINE: Duration = Duration::from_secs(60);

/// Builds the handshake that selects a protocol.
pub fn handshake(purpose: Purpose, protocol: &str) -> Handshake {
    let is_spdy =
        purpose == Purpose::PortForward && protocol == "portforward.k8s.io" || protocol.starts_with("spdy ");
    let (upgrade, name) = match is_spdy {
        true => ("SPDY/3.1", "x-stream-protocol-version"),
        false => ("websocket", "sec-websocket-protocol"),
    };
    let protocol = protocol.trim_start_matches("spdy ");
    let mut headers = HeaderMap::new();
    for (name, value) in [
        ("connection", "Upgrade"),
        ("upgrade", upgrade),
        ("sec-websocket-key", "x"),
        ("sec-websocket-version", "13"),
        (name, protocol),
    ] {
        let value = HeaderValue::from_str(value).expect("a value");
        headers.insert(HeaderName::from_bytes(name.as_bytes()).expect("a name"), value);
    }
    Handshake::negotiate(&headers, purpose).expect("selected")
}

/// The client of a WebSocket.
pub struct WebSocketClient(WebSocketStream<DuplexStream>);

impl WebSocketClient {
    pub async fn new(io: DuplexStream) -> WebSocketClient {
        WebSocketClient(WebSocketStream::from_raw_socket(io, Role::Client, None).await)
    }

    pub async fn send(&mut self, message: Message) {
        self.0.send(message).await.expect("taken");
    }

    /// Sends a message that the server may not take.
    pub async fn try_send(&mut self, message: Message) {
        let _ = timeout(DEADLINE, self.0.send(message)).await.expect("in time");
    }

    /// Returns the bytes of the next message; None at the end.
    pub async fn next(&mut self) -> Option<Bytes> {
        match timeout(DEADLINE, self.0.next()).await.expect("in time")? {
            Ok(Message::Close(_)) | Err(_) => None,
            Ok(message) => Some(message.into_data()),
        }
    }

    /// Returns all messages until the end.
    pub async fn rest(&mut self) -> Vec<Bytes> {
        let mut all = Vec::new();
        while let Some(message) = self.next().await {
            all.push(message);
        }
        all
    }
}

/// A frame as a client of SPDY sees it.
#[derive(Debug, PartialEq, Eq)]
pub enum Received {
    Reply(u32),
    Refused(u32),
    Data(u32, Vec<u8>),
    End(u32),
    Pong(u32),
    GoAway(u32),
}

/// The client of a SPDY connection.
pub struct SpdyClient {
    io: DuplexStream,
    encoder: Encoder,
    decoder: Decoder,
}

impl SpdyClient {
    pub fn new(io: DuplexStream) -> SpdyClient {
        SpdyClient { io, encoder: Encoder::new().expect("a dictionary"), decoder: Decoder::default() }
    }

    pub async fn send(&mut self, bytes: &[u8]) {
        self.io.write_all(bytes).await.expect("taken");
    }

    pub async fn open(&mut self, stream: u32, headers: &[(&str, &str)]) {
        let headers: Vec<(String, String)> =
            headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let block = self.encoder.encode(&headers).expect("encoded");
        self.send(&frame::syn_stream(stream, &block)).await;
    }

    pub async fn data(&mut self, stream: u32, data: &[u8], is_last: bool) {
        self.send(&frame::data(stream, data.len(), if is_last { FLAG_FIN } else { 0 })).await;
        self.send(data).await;
    }

    /// Returns the next frame; None at the end.
    pub async fn next(&mut self) -> Option<Received> {
        timeout(DEADLINE, self.read()).await.expect("in time")
    }

    async fn read(&mut self) -> Option<Received> {
        let mut header = [0; 8];
        self.io.read_exact(&mut header).await.ok()?;
        let header = Header::parse(header).expect("a header");
        let mut payload = vec![0; header.length];
        self.io.read_exact(&mut payload).await.ok()?;
        let number = || frame::stream_id(*payload.first_chunk().expect("a number"));
        Some(match header.kind {
            Kind::Data { stream } if header.flags & FLAG_FIN != 0 => Received::End(stream),
            Kind::Data { stream } => Received::Data(stream, payload),
            Kind::SynReply => {
                self.decoder.decode(&payload[4..]).expect("headers");
                Received::Reply(number())
            }
            Kind::RstStream => Received::Refused(number()),
            Kind::Ping => Received::Pong(number()),
            Kind::GoAway => Received::GoAway(number()),
            other => panic!("{other:?}"),
        })
    }

    /// Returns the bytes of a stream until its end; frames of other streams are skipped.
    pub async fn until_end(&mut self, stream: u32) -> Vec<u8> {
        let mut all = Vec::new();
        while let Some(received) = self.next().await {
            match received {
                Received::Data(of, data) if of == stream => all.extend(data),
                Received::End(of) if of == stream => break,
                _ => {}
            }
        }
        all
    }
}
