//! Watches over a WebSocket: one message an event.
//!
//! A watch whose request asks for a WebSocket is handled as any other, up to its response: what is refused is refused over
//! plain HTTP. [`switch_protocols`] then turns the response into the handshake and keeps the stream of events, and
//! [`detach`], called where the socket is, sends that stream once the connection is upgraded. The stream is pulled only
//! when the socket has taken what was pulled before, and is cut off like any other whose client does not read.
//!
//! Source: RFC 6455; `endpoints/handlers/watch.go` (`HandleWS`) over `golang.org/x/net/websocket`: JSON events are text
//! messages, protobuf ones binary; an Origin is required, at most one sub-protocol is selected, what the client sends is
//! discarded, and the end of the watch is a close with status 1000.
//!
//! The buffers of a connection are bounded, whatever the client does: an event larger than [`MAX_FRAME`] is sent in several
//! frames, and nothing is read from the client while something written, such as the reply to a ping, waits for the socket.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::{Buf, Bytes};
use futures::{SinkExt, StreamExt};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Response, StatusCode, Uri, header};
use http_body_util::BodyExt;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use ring::digest;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::timeout;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::frame::Frame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::{CloseCode, Data, OpCode};
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Role, WebSocketConfig};
use tokio_tungstenite::tungstenite::{Message, Utf8Bytes};

use super::body::Body;
use super::deadline::REQUEST_TIMEOUT;
use super::respond;
use super::transfers::{Transfers, cuttable};
use crate::access::websocket_token::{is_websocket, protocols};

/// The largest message that a client may send. All of them are discarded.
const MAX_MESSAGE: usize = 64 << 10;
/// What is read from the socket, and gathered for it, at once.
const BUFFERS: [usize; 2] = [4 << 10, 16 << 10];
/// The largest frame that is sent. A larger event is a message of several frames.
const MAX_FRAME: usize = 32 << 10;
/// The most that waits for the socket: what is gathered, a frame, and the reply to a ping.
const MAX_WRITE_BUFFER: usize = BUFFERS[1] + MAX_FRAME + (1 << 10);
/// How long the client may take to confirm the end of the connection.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);
/// RFC 6455, section 1.3.
const ACCEPT_SUFFIX: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// How the events of a stream are separated, and what messages they become.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Framing {
    /// One JSON document a line: text messages, which keep the line's end.
    Lines,
    /// Four bytes of length before each: binary messages.
    LengthDelimited,
}

/// In the extensions of a response with status 101: its body is to be sent over the upgraded connection.
#[derive(Clone)]
struct Detached {
    upgrade: OnUpgrade,
    framing: Framing,
}

/// Accepts the handshake of a watch that asks for a WebSocket. Any other response, and one to a request on which no upgrade
/// is possible (HTTP/2, in process), is returned as it is.
pub fn switch_protocols(request: &Parts, response: Response<Body>) -> Response<Body> {
    if !is_websocket(&request.headers) || response.status() != StatusCode::OK {
        return response;
    }
    let Some(upgrade) = request.extensions.get::<OnUpgrade>().cloned() else { return response };
    let handshake = match handshake(&request.headers) {
        Ok(handshake) => handshake,
        Err((code, text)) => return respond::plain(code, "text/plain; charset=utf-8", text.into()),
    };
    let json = response.headers().get(header::CONTENT_TYPE).is_some_and(|kind| kind == "application/json");
    let framing = if json { Framing::Lines } else { Framing::LengthDelimited };
    let mut switched = Response::new(response.into_body());
    *switched.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    *switched.headers_mut() = handshake;
    switched.extensions_mut().insert(Detached { upgrade, framing });
    switched
}

/// The headers that accept a handshake, or the status and text that refuse it.
fn handshake(headers: &HeaderMap) -> Result<HeaderMap, (u16, &'static str)> {
    let text = |name| headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok()).unwrap_or("");
    let key = text(header::SEC_WEBSOCKET_KEY);
    if key.is_empty() {
        return Err((400, "mismatch challenge/response"));
    }
    if text(header::SEC_WEBSOCKET_VERSION) != "13" {
        return Err((400, "missing or bad WebSocket Version"));
    }
    let origin: Option<Uri> = text(header::ORIGIN).parse().ok();
    if !origin.is_some_and(|origin| origin.scheme().is_some() || origin.path().starts_with('/')) {
        return Err((403, ""));
    }
    let protocols = protocols(headers);
    if protocols.len() > 1 {
        return Err((400, ""));
    }
    let accept = digest::digest(
        &digest::SHA1_FOR_LEGACY_USE_ONLY,
        [key.as_bytes(), ACCEPT_SUFFIX.as_bytes()].concat().as_slice(),
    );
    let mut answer = HeaderMap::new();
    answer.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
    answer.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
    let accept = HeaderValue::from_str(&STANDARD.encode(accept)).map_err(|_| (500, ""))?;
    answer.insert(header::SEC_WEBSOCKET_ACCEPT, accept);
    if let Some(protocol) = protocols.first().and_then(|protocol| HeaderValue::from_str(protocol).ok()) {
        answer.insert(header::SEC_WEBSOCKET_PROTOCOL, protocol);
    }
    Ok(answer)
}

/// Takes the body off a response made by [`switch_protocols`], to be sent when the connection is upgraded. All that the
/// body keeps (the user's share, the connection's place) stays taken until then.
pub fn detach(mut response: Response<Body>, transfers: &Arc<Transfers>) -> Response<Body> {
    let Some(Detached { upgrade, framing }) = response.extensions_mut().remove() else { return response };
    let body = std::mem::replace(response.body_mut(), Body::empty());
    let transfers = transfers.clone();
    tokio::spawn(async move {
        let sent = cuttable(Arc::default(), async {
            match upgrade.await {
                Ok(upgraded) => {
                    send(TokioIo::new(upgraded), body.on_socket(&transfers, REQUEST_TIMEOUT), framing).await;
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
    let mut events = Events::new(framing);
    loop {
        tokio::select! {
            frame = body.frame() => {
                let Some(Ok(frame)) = frame else { break };
                let Ok(chunk) = frame.into_data() else { continue };
                events.add(chunk);
                while let Some(frame) = events.next_frame() {
                    if socket.feed(Message::Frame(frame)).await.is_err() {
                        return;
                    }
                }
                if socket.flush().await.is_err() {
                    return;
                }
            }
            received = socket.next() => match received {
                Some(Ok(message)) if message.is_close() => break,
                // The reply to a ping is sent before anything else is read, or the replies of a client that only sends would
                // pile up.
                Some(Ok(message)) if message.is_ping() => if socket.flush().await.is_err() {
                    return;
                },
                Some(Ok(_)) => {}
                Some(Err(_)) | None => return,
            },
        }
    }
    let end = CloseFrame { code: CloseCode::Normal, reason: Utf8Bytes::default() };
    let closed = async {
        // After a close of the client's this fails, and what follows sends the reply.
        let _ = socket.close(Some(end)).await;
        while let Some(Ok(_)) = socket.next().await {}
    };
    // A client that does not confirm the close is left alone.
    let _ = timeout(CLOSE_TIMEOUT, closed).await;
}

/// Cuts a stream into events, and these into frames.
struct Events {
    framing: Framing,
    /// What was received and is not in a frame yet.
    pending: Bytes,
    /// Whether frames of the current event were taken already.
    continued: bool,
    /// The bytes that the current event still has, where its length stands before it.
    left: Option<usize>,
}

impl Events {
    fn new(framing: Framing) -> Events {
        Events { framing, pending: Bytes::new(), continued: false, left: None }
    }

    /// Adds the next chunk of the stream, once there is no [`next_frame`](Events::next_frame). A chunk of whole events, which
    /// nearly all are, is not copied.
    fn add(&mut self, chunk: Bytes) {
        if self.pending.is_empty() {
            self.pending = chunk;
        } else {
            self.pending = [&*self.pending, &*chunk].concat().into();
        }
    }

    /// Takes the next frame, unless that needs more of the stream: the rest of an event, or at least as much of it as a frame
    /// may have.
    fn next_frame(&mut self) -> Option<Frame> {
        let end = match self.framing {
            Framing::Lines => {
                let searched = &self.pending[..self.pending.len().min(MAX_FRAME)];
                searched.iter().position(|byte| *byte == b'\n').map(|end| end + 1)
            }
            Framing::LengthDelimited => {
                let left = match self.left {
                    Some(left) => left,
                    None => {
                        let length = u32::from_be_bytes(*self.pending.first_chunk::<LENGTH>()?);
                        self.pending.advance(LENGTH);
                        *self.left.insert(usize::try_from(length).ok()?)
                    }
                };
                (left <= self.pending.len().min(MAX_FRAME)).then_some(left)
            }
        };
        let length = end.or_else(|| (self.pending.len() >= MAX_FRAME).then_some(MAX_FRAME))?;
        let kind = match (std::mem::replace(&mut self.continued, end.is_none()), self.framing) {
            (true, _) => Data::Continue,
            (false, Framing::Lines) => Data::Text,
            (false, Framing::LengthDelimited) => Data::Binary,
        };
        self.left = self.left.map(|left| left - length).filter(|_| end.is_none());
        Some(Frame::message(self.pending.split_to(length), OpCode::Data(kind), end.is_some()))
    }
}

/// The bytes that say how long an event is.
const LENGTH: usize = 4;

#[cfg(test)]
mod tests {
    use std::io;
    use std::pin::Pin;
    use std::task::{Context, Poll};

    use super::*;
    use futures::stream;
    use tokio::io::{DuplexStream, ReadBuf};
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
            let answer = handshake(&request(&change)).map(|headers| {
                // The example of RFC 6455.
                assert_eq!(headers[header::SEC_WEBSOCKET_ACCEPT], "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
                let protocol = headers.get(header::SEC_WEBSOCKET_PROTOCOL);
                protocol.map(|value| value.to_str().unwrap_or("?").to_owned()).unwrap_or_default()
            });
            assert_eq!(answer.as_ref().map(String::as_str).map_err(|error| *error), want, "{case}");
        }
    }

    /// The frames of a stream that comes in chunks of a size: what each is, whether it is the last of its message, its bytes.
    fn frames(framing: Framing, stream: &[u8], size: usize) -> Vec<(OpCode, bool, Vec<u8>)> {
        let mut events = Events::new(framing);
        let mut frames = Vec::new();
        for chunk in stream.chunks(size) {
            events.add(Bytes::copy_from_slice(chunk));
            frames.extend(std::iter::from_fn(|| events.next_frame()));
            assert!(events.pending.len() < MAX_FRAME, "little is kept");
        }
        let parts = |frame: Frame| {
            let header = frame.header().clone();
            (header.opcode, header.is_final, frame.into_payload().to_vec())
        };
        frames.into_iter().map(parts).collect()
    }

    #[test]
    fn events_are_found_wherever_chunks_end() {
        let text = |text: &str| (OpCode::Data(Data::Text), true, text.as_bytes().to_vec());
        let binary = |bytes: &[u8]| (OpCode::Data(Data::Binary), true, bytes.to_vec());
        for (framing, stream, want) in [
            (Framing::Lines, &b"{\"a\":1}\n{}\n{"[..], vec![text("{\"a\":1}\n"), text("{}\n")]),
            (
                Framing::LengthDelimited,
                &b"\0\0\0\x02ab\0\0\0\0\0\0\0\x05abc"[..],
                vec![binary(b"ab"), binary(b"")],
            ),
        ] {
            for size in 1..=stream.len() {
                assert_eq!(frames(framing, stream, size), want, "in chunks of {size}");
            }
        }
    }

    #[test]
    fn a_large_event_is_a_message_of_several_frames() {
        let event = [vec![b'x'; 2 * MAX_FRAME + 10], b"\n".to_vec()].concat();
        let length = u32::try_from(event.len()).expect("small").to_be_bytes();
        for (framing, first, one) in [
            (Framing::Lines, Data::Text, event.clone()),
            (Framing::LengthDelimited, Data::Binary, [&length[..], &event].concat()),
        ] {
            for size in [100, MAX_FRAME, 64 << 10, usize::MAX] {
                let found = frames(framing, &[&one[..], &one].concat(), size.min(2 * one.len()));
                let mut rest = &found[..];
                for _ in 0..2 {
                    let last = rest.iter().position(|(_, is_final, _)| *is_final).expect("an end");
                    let (message, after) = rest.split_at(last + 1);
                    rest = after;
                    assert!(message.len() >= 3 && message.iter().all(|(.., bytes)| bytes.len() <= MAX_FRAME));
                    for (index, (code, ..)) in message.iter().enumerate() {
                        let want = if index == 0 { first } else { Data::Continue };
                        assert_eq!(*code, OpCode::Data(want), "frame {index} in chunks of {size}");
                    }
                    let bytes: Vec<u8> = message.iter().flat_map(|(.., bytes)| bytes.clone()).collect();
                    assert!(bytes == event, "in chunks of {size}");
                }
                assert!(rest.is_empty());
            }
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
        let body = Body::stream(stream::pending()).keep(kept.clone());
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
    async fn a_large_event_arrives_whole() {
        let line = format!("\"{}\"\n", "x".repeat(10 * MAX_FRAME));
        let body = Body::stream(stream::iter([Bytes::from(line.clone()), Bytes::from_static(b"{}\n")]));
        let (mut client, info) = serve(body, 1 << 10).await;
        assert_eq!(client.next().await.expect("open").expect("an event"), Message::text(line));
        assert_eq!(client.next().await.expect("open").expect("an event"), Message::text("{}\n"));
        while client.next().await.is_some() {}
        info.await.expect("no panic");
    }

    /// A socket that counts what is read from it. What is written to it is never taken.
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

    #[tokio::test]
    async fn nothing_is_read_while_the_reply_to_a_ping_waits() {
        use futures::FutureExt;
        // Masked with zeroes, as a client sends it.
        let ping: Vec<u8> = [&[0x89, 0x80 | 125, 0, 0, 0, 0][..], &[b'p'; 125]].concat();
        let (pings, read) = (ping.repeat(10_000), Arc::default());
        let io = Unread { pings: &pings, read: Arc::clone(&read) };
        let mut sent = Box::pin(send(io, Body::stream(stream::pending()), Framing::Lines));
        for _ in 0..1000 {
            assert_eq!((&mut sent).now_or_never(), None, "the connection stays");
        }
        let read = read.load(std::sync::atomic::Ordering::Relaxed);
        assert!(read > 0 && read <= 2 * BUFFERS[0], "{read} bytes were read");
    }
}
