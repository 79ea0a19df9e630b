//! Watches and logs over a WebSocket: one message for each event, or for each piece of a log.
//!
//! A request that asks for a WebSocket is handled as any other, up to its response: a rejection is
//! sent over plain HTTP. [`switch_protocols`] then turns the response into the handshake and keeps
//! the stream of events, and [`detach`], called at the socket, sends that stream once the
//! connection is upgraded. The stream is pulled only when the socket has accepted the previous
//! events, and is cut off like any other whose client does not read.
//!
//! Source: RFC 6455; `endpoints/handlers/watch.go` (`HandleWS`) over `golang.org/x/net/websocket`:
//! JSON events are text messages, protobuf ones binary; an Origin is required, at most one
//! sub-protocol is selected, messages from the client are discarded, and the end of the watch is a
//! close with status 1000. Logs: `k8s.io/apimachinery/pkg/util/httpstream/wsstream` (`Reader`):
//! one of its sub-protocols is selected, no Origin is required, and an empty message comes first.
//!
//! The buffers of a connection are bounded: an event larger than [`MAX_BUFFERED`] is written
//! without copying, and nothing is read from the client while written data, such as the reply to a
//! ping, waits for the socket.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::{Buf, Bytes, BytesMut};
use coracle_streaming::accept_key;
use futures::{SinkExt, StreamExt};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Response, StatusCode, Uri, header};
use http_body_util::BodyExt;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::time::timeout;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::frame::FrameHeader;
use tokio_tungstenite::tungstenite::protocol::frame::coding::{CloseCode, Data, OpCode};
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Role, WebSocketConfig};
use tokio_tungstenite::tungstenite::{self, Message, Utf8Bytes};

use super::body::Body;
use super::deadline::REQUEST_TIMEOUT;
use super::respond;
use super::transfers::{Transfers, cuttable};
use crate::access::websocket_token::{is_websocket, protocols};

/// The largest message that a client may send. All of them are discarded.
const MAX_MESSAGE: usize = 64 << 10;
/// The sizes of the buffers for reading from the socket and for writing to it, in bytes.
const BUFFERS: [usize; 2] = [4 << 10, 16 << 10];
/// The largest event that is gathered with others.
const MAX_BUFFERED: usize = 16 << 10;
/// The largest size of the write buffer: data that need not be written yet, an event, and the reply
/// to a ping.
const MAX_WRITE_BUFFER: usize = BUFFERS[1] + MAX_BUFFERED + (1 << 10);
/// Timeout for the client to confirm the close of the connection.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

/// The sub-protocol of binary pieces of a log, which is also the default.
const BINARY: &str = "binary.k8s.io";
/// The sub-protocol of pieces of a log that are text in base64.
const BASE64: &str = "base64.binary.k8s.io";
/// The largest piece of a log, in bytes.
const MAX_PIECE: usize = 2048;

/// An extension of a response whose body has no events, and is sent in pieces to a client that asks
/// for a WebSocket.
#[derive(Clone, Copy, Debug)]
pub struct ByteStream;

/// The delimiters of the events of a stream, and the type of their messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Framing {
    /// One JSON document per line: text messages, which include the line feed.
    Lines,
    /// Four bytes of length before each: binary messages.
    LengthDelimited,
    /// Bytes without delimiters: binary messages.
    Binary,
    /// Bytes without delimiters: text messages in base64.
    Base64,
}

/// An extension of a response with status 101, whose body is sent over the upgraded connection.
#[derive(Clone)]
struct Detached {
    upgrade: OnUpgrade,
    framing: Framing,
}

/// Accepts the handshake of a watch, or of a request for a [`ByteStream`], that asks for a
/// WebSocket. Any other response, and one to a request that cannot be upgraded (HTTP/2, in
/// process), is returned unchanged.
pub fn switch_protocols(request: &Parts, is_watch: bool, response: Response<Body>) -> Response<Body> {
    let is_stream = response.extensions().get::<ByteStream>().is_some();
    let is_possible = (is_watch || is_stream) && response.status() == StatusCode::OK;
    if !is_possible || !is_websocket(&request.headers) {
        return response;
    }
    let Some(upgrade) = request.extensions.get::<OnUpgrade>().cloned() else { return response };
    let select = if is_watch { protocol_of_watch } else { protocol_of_log };
    let (protocol, handshake) = match handshake(&request.headers, select) {
        Ok(accepted) => accepted,
        Err((code, text)) => return respond::plain(code, "text/plain; charset=utf-8", text.into()),
    };
    let json = response.headers().get(header::CONTENT_TYPE).is_some_and(|kind| kind == "application/json");
    let framing = match (is_watch, json) {
        (true, true) => Framing::Lines,
        (true, false) => Framing::LengthDelimited,
        (false, _) if protocol == Some(BASE64) => Framing::Base64,
        (false, _) => Framing::Binary,
    };
    let mut switched = Response::new(response.into_body());
    *switched.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    *switched.headers_mut() = handshake;
    switched.extensions_mut().insert(Detached { upgrade, framing });
    switched
}

/// The status and the text of a refused handshake.
type Refusal = (u16, &'static str);

fn text(headers: &HeaderMap, name: header::HeaderName) -> &str {
    headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or("")
}

/// Returns the sub-protocol of a watch, if the client offers one.
fn protocol_of_watch(headers: &HeaderMap) -> Result<Option<&str>, Refusal> {
    let origin: Option<Uri> = text(headers, header::ORIGIN).parse().ok();
    if !origin.is_some_and(|origin| origin.scheme().is_some() || origin.path().starts_with('/')) {
        return Err((403, ""));
    }
    match protocols(headers)[..] {
        [] => Ok(None),
        [protocol] => Ok(Some(protocol)),
        _ => Err((400, "")),
    }
}

/// Returns the first sub-protocol that the client offers and a log can have.
fn protocol_of_log(headers: &HeaderMap) -> Result<Option<&str>, Refusal> {
    let offered = protocols(headers);
    let first = offered.iter().copied().find(|protocol| [BINARY, BASE64].contains(protocol));
    if first.is_none() && !offered.is_empty() {
        return Err((403, ""));
    }
    Ok(first)
}

/// Returns the selected sub-protocol, and the headers that accept a handshake.
fn handshake(
    headers: &HeaderMap,
    select: fn(&HeaderMap) -> Result<Option<&str>, Refusal>,
) -> Result<(Option<&str>, HeaderMap), Refusal> {
    let key = text(headers, header::SEC_WEBSOCKET_KEY);
    if key.is_empty() {
        return Err((400, "mismatch challenge/response"));
    }
    if text(headers, header::SEC_WEBSOCKET_VERSION) != "13" {
        return Err((400, "missing or bad WebSocket Version"));
    }
    let protocol = select(headers)?;
    let mut answer = HeaderMap::new();
    answer.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
    answer.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
    answer.insert(header::SEC_WEBSOCKET_ACCEPT, accept_key(key.as_bytes()));
    if let Some(protocol) = protocol.and_then(|protocol| HeaderValue::from_str(protocol).ok()) {
        answer.insert(header::SEC_WEBSOCKET_PROTOCOL, protocol);
    }
    Ok((protocol, answer))
}

/// Takes the body off a response made by [`switch_protocols`], to be sent when the connection is
/// upgraded. Everything that the body keeps (the user's share, the connection's place) stays
/// occupied until then.
pub fn detach(mut response: Response<Body>, transfers: &Arc<Transfers>) -> Response<Body> {
    let Some(Detached { upgrade, framing }) = response.extensions_mut().remove() else { return response };
    let body = std::mem::replace(response.body_mut(), Body::empty());
    let transfers = transfers.clone();
    tokio::spawn(async move {
        let sent = cuttable(Arc::default(), async {
            match upgrade.await {
                Ok(upgraded) => {
                    // A large event is one message, and so one chunk.
                    let body = match framing {
                        Framing::Lines | Framing::LengthDelimited => body.in_whole_chunks(),
                        Framing::Binary | Framing::Base64 => body,
                    };
                    let body = body.on_socket(&transfers, REQUEST_TIMEOUT);
                    send(TokioIo::new(upgraded), body, framing).await;
                }
                Err(error) => tracing::debug!(%error, "the upgrade to a WebSocket failed"),
            }
        });
        if sent.await.is_none() {
            tracing::debug!("WebSocket closed: the client does not read");
        }
    });
    response
}

/// Sends the events of a stream until it ends or the client closes.
async fn send(io: impl AsyncRead + AsyncWrite + Unpin, mut body: Body, framing: Framing) {
    let config = WebSocketConfig::default()
        .read_buffer_size(BUFFERS[0])
        .write_buffer_size(BUFFERS[1])
        .max_write_buffer_size(MAX_WRITE_BUFFER)
        .max_message_size(Some(MAX_MESSAGE))
        .max_frame_size(Some(MAX_MESSAGE));
    let mut socket = WebSocketStream::from_raw_socket(io, Role::Server, Some(config)).await;
    let mut events = Events { framing, pending: BytesMut::new() };
    if let Some(first) = framing.first_message()
        && socket.send(first).await.is_err()
    {
        return;
    }
    loop {
        tokio::select! {
            frame = body.frame() => {
                let Some(Ok(frame)) = frame else { break };
                let Ok(chunk) = frame.into_data() else { continue };
                for message in events.split(chunk) {
                    let Some(message) = message else { return };
                    if feed(&mut socket, message).await.is_err() {
                        return;
                    }
                }
                if socket.flush().await.is_err() {
                    return;
                }
            }
            received = socket.next() => match received {
                Some(Ok(message)) if message.is_close() => break,
                // The reply to a ping is sent before anything else is read: otherwise the replies
                // to a client that only sends would accumulate. Each takes a call of the system,
                // so that others have their turn after it.
                Some(Ok(message)) if message.is_ping() => {
                    if socket.flush().await.is_err() {
                        return;
                    }
                    tokio::task::yield_now().await;
                }
                Some(Ok(_)) => {}
                Some(Err(_)) | None => return,
            },
        }
    }
    let end = CloseFrame { code: CloseCode::Normal, reason: Utf8Bytes::default() };
    let closed = async {
        // After a close by the client this fails, and the following reads send the reply.
        let _ = socket.close(Some(end)).await;
        while let Some(Ok(_)) = socket.next().await {}
    };
    // A client that does not confirm the close is left alone.
    let _ = timeout(CLOSE_TIMEOUT, closed).await;
}

/// Sends a message, which need not be flushed. A large one is not copied, so that it takes no
/// memory for a client that does not read.
async fn feed<S>(socket: &mut WebSocketStream<S>, message: Message) -> tungstenite::Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    if message.len() <= MAX_BUFFERED {
        return socket.feed(message).await;
    }
    // Buffered data is written first.
    socket.flush().await?;
    let opcode = OpCode::Data(if message.is_text() { Data::Text } else { Data::Binary });
    let payload = message.into_data();
    let mut header = Vec::new();
    FrameHeader { opcode, ..FrameHeader::default() }.format(payload.len() as u64, &mut header)?;
    let io = socket.get_mut();
    io.write_all(&header).await?;
    io.write_all(&payload).await?;
    Ok(())
}

/// Cuts a stream into its events.
struct Events {
    framing: Framing,
    /// The beginning of an incomplete event.
    pending: BytesMut,
}

impl Events {
    /// Returns the messages that are complete with this chunk. None stands for a message that
    /// cannot be sent, which ends the stream. A chunk of whole events, as nearly all are, is not
    /// copied.
    fn split(&mut self, chunk: Bytes) -> Vec<Option<Message>> {
        let mut bytes = if self.pending.is_empty() {
            chunk
        } else {
            self.pending.extend_from_slice(&chunk);
            if self.framing.first_length(&self.pending).is_none() {
                return Vec::new();
            }
            std::mem::take(&mut self.pending).freeze()
        };
        let mut messages = Vec::new();
        while let Some(length) = self.framing.first_length(&bytes) {
            messages.push(self.framing.message(bytes.split_to(length)));
        }
        self.pending.extend_from_slice(&bytes);
        messages
    }
}

impl Framing {
    /// Returns the length of the first event, if it is complete.
    fn first_length(self, bytes: &[u8]) -> Option<usize> {
        match self {
            Framing::Lines => bytes.iter().position(|byte| *byte == b'\n').map(|end| end + 1),
            Framing::LengthDelimited => {
                let length = u32::from_be_bytes(*bytes.first_chunk::<LENGTH>()?);
                let length = LENGTH.checked_add(usize::try_from(length).ok()?)?;
                (bytes.len() >= length).then_some(length)
            }
            Framing::Binary | Framing::Base64 => (!bytes.is_empty()).then_some(bytes.len().min(MAX_PIECE)),
        }
    }

    /// Returns the message before the first event: an empty one, by which the client of a log that
    /// is still empty sees that it is connected.
    fn first_message(self) -> Option<Message> {
        match self {
            Framing::Lines | Framing::LengthDelimited => None,
            Framing::Binary | Framing::Base64 => self.message(Bytes::new()),
        }
    }

    fn message(self, mut event: Bytes) -> Option<Message> {
        match self {
            Framing::Lines => Utf8Bytes::try_from(event).ok().map(Message::Text),
            Framing::LengthDelimited => {
                event.advance(LENGTH);
                Some(Message::Binary(event))
            }
            Framing::Binary => Some(Message::Binary(event)),
            Framing::Base64 => Some(Message::text(STANDARD.encode(event))),
        }
    }
}

/// The size of the length prefix of an event, in bytes.
const LENGTH: usize = 4;

#[cfg(test)]
mod tests {
    use std::io;
    use std::pin::Pin;
    use std::task::{Context, Poll};

    use super::*;
    use futures::stream;
    use tokio::io::{AsyncReadExt, DuplexStream, ReadBuf};
    use tokio::task::JoinHandle;

    fn request(changes: &[(header::HeaderName, Option<&str>)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            (header::UPGRADE, "websocket"),
            (header::CONNECTION, "Upgrade"),
            (header::SEC_WEBSOCKET_KEY, "dGhlIHNhbXBsZSBub25jZQ=="),
            (header::SEC_WEBSOCKET_VERSION, "13"),
            (header::ORIGIN, "https://127.0.0.1:6443"),
        ] {
            headers.insert(name, HeaderValue::from_static(value));
        }
        for (name, value) in changes {
            headers.remove(name);
            if let Some(value) = value {
                headers.insert(name, value.parse().expect("a header value"));
            }
        }
        headers
    }

    #[test]
    fn handshakes_are_accepted_and_refused_as_the_real_server_does() {
        for (case, change, want) in [
            ("accepted", vec![], Ok("")),
            ("with a protocol", vec![(header::SEC_WEBSOCKET_PROTOCOL, Some("p"))], Ok("p")),
            ("two protocols", vec![(header::SEC_WEBSOCKET_PROTOCOL, Some("p, q"))], Err((400, ""))),
            ("no origin", vec![(header::ORIGIN, None)], Err((403, ""))),
            ("the origin of a file", vec![(header::ORIGIN, Some("null"))], Err((403, ""))),
            ("no key", vec![(header::SEC_WEBSOCKET_KEY, None)], Err((400, "mismatch challenge/response"))),
            (
                "an old version",
                vec![(header::SEC_WEBSOCKET_VERSION, Some("8"))],
                Err((400, "missing or bad WebSocket Version")),
            ),
        ] {
            let answer = handshake(&request(&change), protocol_of_watch).map(|(_, headers)| {
                // The example of RFC 6455.
                assert_eq!(headers[header::SEC_WEBSOCKET_ACCEPT], "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
                let protocol = headers.get(header::SEC_WEBSOCKET_PROTOCOL);
                protocol.map(|value| value.to_str().unwrap_or("?").to_owned()).unwrap_or_default()
            });
            assert_eq!(answer.as_ref().map(String::as_str).map_err(|error| *error), want, "{case}");
        }
    }

    #[test]
    fn events_are_found_wherever_chunks_end() {
        let text = |text: &str| Message::Text(text.to_owned().into());
        let binary = |bytes: &'static [u8]| Message::Binary(Bytes::from_static(bytes));
        for (framing, stream, want) in [
            (Framing::Lines, &b"{\"a\":1}\n{}\n{"[..], vec![text("{\"a\":1}\n"), text("{}\n")]),
            (
                Framing::LengthDelimited,
                &b"\0\0\0\x02ab\0\0\0\0\0\0\0\x05abc"[..],
                vec![binary(b"ab"), binary(b"")],
            ),
        ] {
            for size in 1..=stream.len() {
                let mut events = Events { framing, pending: BytesMut::new() };
                let messages =
                    stream.chunks(size).flat_map(|chunk| events.split(Bytes::copy_from_slice(chunk)));
                let messages: Vec<Message> = messages.map(|message| message.expect("text")).collect();
                assert_eq!(messages, want, "in chunks of {size}");
            }
        }
    }

    #[test]
    fn a_log_has_the_first_of_its_sub_protocols_that_the_client_offers() {
        for (offered, want) in [
            (None, Ok(None)),
            (Some("base64.binary.k8s.io"), Ok(Some(BASE64))),
            (Some("other, binary.k8s.io, base64.binary.k8s.io"), Ok(Some(BINARY))),
            (Some("other"), Err((403, ""))),
        ] {
            let headers = request(&[(header::ORIGIN, None), (header::SEC_WEBSOCKET_PROTOCOL, offered)]);
            let accepted = handshake(&headers, protocol_of_log).map(|(protocol, _)| protocol);
            assert_eq!(accepted, want, "{offered:?}");
        }
    }

    #[tokio::test]
    async fn a_log_is_sent_in_pieces_after_an_empty_message() {
        let log = "x".repeat(MAX_PIECE + 1);
        let binary = |text: &str| Message::Binary(text.to_owned().into());
        let base64 = |text: &str| Message::text(STANDARD.encode(text));
        for (framing, want) in [
            (Framing::Binary, [binary(""), binary(&log[1..]), binary("x")]),
            (Framing::Base64, [base64(""), base64(&log[1..]), base64("x")]),
        ] {
            let (server, client) = tokio::io::duplex(1 << 16);
            let body = Body::stream(stream::iter([Bytes::from(log.clone())]));
            tokio::spawn(send(server, body, framing));
            let client: Client = WebSocketStream::from_raw_socket(client, Role::Client, None).await;
            let received: Vec<Message> = client.take(3).map(|message| message.expect("open")).collect().await;
            assert_eq!(received, want);
        }
    }

    type Client = WebSocketStream<DuplexStream>;

    async fn serve(body: Body, buffer: usize) -> (Client, JoinHandle<()>) {
        let (server, client) = tokio::io::duplex(buffer);
        let info = tokio::spawn(send(server, body, Framing::Lines));
        (WebSocketStream::from_raw_socket(client, Role::Client, None).await, info)
    }

    #[tokio::test]
    async fn the_end_of_a_watch_is_a_normal_close() {
        let body = Body::stream(stream::iter([Bytes::from_static(b"{}\n{}\n")]));
        let (mut client, info) = serve(body, 1 << 16).await;
        let mut received = Vec::new();
        while let Some(Ok(message)) = client.next().await {
            received.push(message);
        }
        let close = CloseFrame { code: CloseCode::Normal, reason: Utf8Bytes::default() };
        assert_eq!(received, [Message::text("{}\n"), Message::text("{}\n"), Message::Close(Some(close))]);
        info.await.expect("no panic");
    }

    #[tokio::test]
    async fn what_the_client_sends_is_discarded_until_it_closes() {
        let kept = Arc::new(());
        let body = Body::stream(stream::pending()).release_when_sent(kept.clone());
        let (mut client, info) = serve(body, 1 << 16).await;
        client.send(Message::text("ignored")).await.expect("sent");
        client.send(Message::Ping(Bytes::from_static(b"?"))).await.expect("sent");
        assert_eq!(
            client.next().await.expect("open").expect("a pong"),
            Message::Pong(Bytes::from_static(b"?"))
        );
        client.close(None).await.expect("sent");
        assert!(client.next().await.is_none_or(|message| message.is_ok_and(|message| message.is_close())));
        while client.next().await.is_some() {}
        info.await.expect("no panic");
        assert_eq!(Arc::strong_count(&kept), 1, "the watch is over");
    }

    #[tokio::test]
    async fn a_message_that_is_too_large_ends_the_watch() {
        let (mut client, info) = serve(Body::stream(stream::pending()), 1 << 20).await;
        client.send(Message::text("x".repeat(MAX_MESSAGE + 1))).await.expect("sent");
        info.await.expect("no panic");
    }

    #[tokio::test]
    async fn events_are_pulled_only_as_the_client_reads() {
        use std::sync::atomic::{AtomicUsize, Ordering};
        let pulled = Arc::new(AtomicUsize::new(0));
        let count = pulled.clone();
        let line = Bytes::from(format!("\"{}\"\n", "x".repeat(8 << 10)));
        let lines = stream::repeat_with(move || {
            count.fetch_add(1, Ordering::Relaxed);
            line.clone()
        });
        let (mut client, info) = serve(Body::stream(lines), 32 << 10).await;
        client.next().await.expect("open").expect("an event");
        for _ in 0..1000 {
            tokio::task::yield_now().await;
        }
        assert!(pulled.load(Ordering::Relaxed) < 20, "{pulled:?} of 8 KiB each");
        info.abort();
    }

    #[tokio::test]
    async fn an_event_of_any_size_is_one_frame() {
        for size in [1, 200, MAX_BUFFERED - 3, MAX_BUFFERED - 2, 70_000, 1 << 20] {
            let line = format!("\"{}\"\n", "x".repeat(size));
            let body = Body::stream(stream::iter([Bytes::from(format!("{{}}\n{line}{{}}\n"))]));
            let (server, mut client) = tokio::io::duplex(1 << 10);
            let info = tokio::spawn(send(server, body, Framing::Lines));
            for want in ["{}\n", &line, "{}\n"] {
                let (first, short) = (client.read_u8().await, client.read_u8().await);
                assert_eq!(first.expect("a frame"), 0x81, "a text, and the end of it");
                let length = match short.expect("its length") {
                    126 => client.read_u16().await.map(u64::from),
                    127 => client.read_u64().await,
                    short => Ok(u64::from(short)),
                };
                let mut text = vec![0; usize::try_from(length.expect("its length")).expect("small")];
                client.read_exact(&mut text).await.expect("its text");
                assert!(text == want.as_bytes(), "{} of {} bytes", text.len(), want.len());
            }
            drop(client);
            info.await.expect("no panic");
        }
    }

    /// A socket that counts the bytes read from it, and never accepts writes.
    struct Unread<'a> {
        pings: &'a [u8],
        read: Arc<std::sync::atomic::AtomicUsize>,
    }

    impl AsyncRead for Unread<'_> {
        fn poll_read(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
            buffer: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            let length = self.pings.len().min(buffer.remaining());
            let (now, later) = self.pings.split_at(length);
            buffer.put_slice(now);
            self.pings = later;
            self.read.fetch_add(length, std::sync::atomic::Ordering::Relaxed);
            if length > 0 { Poll::Ready(Ok(())) } else { Poll::Pending }
        }
    }

    impl AsyncWrite for Unread<'_> {
        fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, _: &[u8]) -> Poll<io::Result<usize>> {
            Poll::Pending
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Pending
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Pending
        }
    }

    /// Returns pings of the largest size, masked with zeros.
    fn pings(count: usize) -> Vec<u8> {
        [&[0x89, 0x80 | 125, 0, 0, 0, 0][..], &[b'p'; 125]].concat().repeat(count)
    }

    #[tokio::test]
    async fn others_have_their_turn_after_each_ping() {
        use futures::FutureExt;
        const PINGS: usize = 20;
        const PONG: usize = 127;
        let (server, mut client) = tokio::io::duplex(64 << 10);
        client.write_all(&pings(PINGS)).await.expect("taken");
        let mut sent = Box::pin(send(server, Body::stream(stream::pending()), Framing::Lines));
        let mut pongs = [0; PINGS * PONG];
        let mut received = 0;
        for _ in 0..3 * PINGS {
            assert_eq!((&mut sent).now_or_never(), None, "the connection stays");
            let now = client.read(&mut pongs[received..]).now_or_never();
            let now = now.map_or(0, |read| read.expect("it is open"));
            assert!(now <= PONG, "{now} bytes of replies in one turn");
            received += now;
            if received == pongs.len() {
                return;
            }
        }
        panic!("{received} bytes of replies");
    }

    #[tokio::test]
    async fn nothing_is_read_while_the_reply_to_a_ping_waits() {
        use futures::FutureExt;
        let (pings, read) = (pings(10_000), Arc::default());
        let io = Unread { pings: &pings, read: Arc::clone(&read) };
        let mut sent = Box::pin(send(io, Body::stream(stream::pending()), Framing::Lines));
        for _ in 0..1000 {
            assert_eq!((&mut sent).now_or_never(), None, "the connection stays");
        }
        let read = read.load(std::sync::atomic::Ordering::Relaxed);
        assert!(read > 0 && read <= 2 * BUFFERS[0], "{read} bytes were read");
    }
}
