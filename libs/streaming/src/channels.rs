//! The channels of a WebSocket: the first byte of a message is the number of the stream that the
//! rest of it belongs to.
//!
//! The channels are agreed upon beforehand. Messages are binary, or text that begins with a digit
//! and continues in base64. Since [version 5](crate::handshake::Version::V5) a message of
//! the channel 255 ends the one that its second byte names.
//!
//! Source: `k8s.io/apimachinery/pkg/util/httpstream/wsstream`; KEP-4006.

use std::collections::HashMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::{BufMut, Bytes, BytesMut};
use futures::{SinkExt, StreamExt};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Role, WebSocketConfig};
use tokio_tungstenite::tungstenite::{Message, Utf8Bytes};

use crate::session::{self, Driver, Outgoing, Session, unless_stalled};

/// The largest message that a client may send, in bytes.
pub(crate) const MAX_MESSAGE_LENGTH: usize = 1 << 20;
/// The number of the channel whose messages end others.
const CLOSE: u8 = 255;

/// The channels of a WebSocket.
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    /// The channels that are opened, and the headers that they would have as streams of SPDY.
    pub channels: Vec<(u8, Vec<(String, String)>)>,
    /// The messages that are sent first.
    pub greeting: Vec<(u8, Bytes)>,
    /// Whether the client can end a channel.
    pub has_close: bool,
    /// Whether messages are text.
    pub base64: bool,
}

/// Creates a WebSocket on a connection after the handshake.
pub(crate) async fn upgraded<IO>(io: IO) -> WebSocketStream<IO>
where
    IO: AsyncRead + AsyncWrite + Unpin,
{
    let config = WebSocketConfig::default()
        .read_buffer_size(16 << 10)
        // Each message is flushed.
        .write_buffer_size(0)
        .max_write_buffer_size(MAX_MESSAGE_LENGTH)
        .max_message_size(Some(MAX_MESSAGE_LENGTH))
        .max_frame_size(Some(MAX_MESSAGE_LENGTH));
    WebSocketStream::from_raw_socket(io, Role::Server, Some(config)).await
}

/// Builds the message that ends a WebSocket.
pub(crate) fn close() -> Message {
    Message::Close(Some(CloseFrame { code: CloseCode::Normal, reason: Utf8Bytes::default() }))
}

/// Serves the channels of a WebSocket until the handler has returned or the client closes.
pub(crate) async fn serve<IO, H>(io: IO, layout: Layout, handle: impl FnOnce(Session) -> H)
where
    IO: AsyncRead + AsyncWrite + Unpin,
    H: Future<Output = ()>,
{
    let Layout { channels, greeting, has_close, base64 } = layout;
    let (mut outgoing, mut incoming) = upgraded(io).await.split();
    let read = async move |driver: Driver| {
        let mut streams = HashMap::new();
        for (channel, headers) in channels {
            let Ok(chunks) = driver.open(channel.into(), headers).await else { return };
            streams.insert(channel, chunks);
        }
        // There will be no other streams.
        drop(driver);
        while let Some(Ok(message)) = incoming.next().await {
            if message.is_close() {
                return;
            }
            let Some((channel, data)) = decode(message, base64) else { continue };
            if channel == CLOSE && has_close {
                data.first().and_then(|channel| streams.remove(channel));
            } else if let Some(stream) = streams.get(&channel)
                && stream.put(data).await.is_err()
            {
                return;
            }
        }
    };
    let write = async move |mut frames: tokio::sync::mpsc::Receiver<Outgoing>| {
        for (channel, data) in greeting {
            if !matches!(unless_stalled(outgoing.send(encode(channel, &data, base64))).await, Ok(Ok(()))) {
                return;
            }
        }
        while let Some(frame) = frames.recv().await {
            let Outgoing::Data(channel, data) = frame else { continue };
            let channel = u8::try_from(channel).unwrap_or(CLOSE);
            if !matches!(unless_stalled(outgoing.send(encode(channel, &data, base64))).await, Ok(Ok(()))) {
                return;
            }
        }
        let _ = outgoing.send(close()).await;
    };
    session::run(read, write, handle).await;
}

/// Decodes a message to its channel and its bytes; None if it has no channel.
fn decode(message: Message, base64: bool) -> Option<(u8, Bytes)> {
    if !message.is_binary() && !message.is_text() {
        return None;
    }
    let mut data = message.into_data();
    let (&first, rest) = data.split_first()?;
    if base64 {
        return Some((first.checked_sub(b'0')?, STANDARD.decode(rest).ok()?.into()));
    }
    Some((first, data.split_off(1)))
}

fn encode(channel: u8, data: &[u8], base64: bool) -> Message {
    if base64 {
        let digit = char::from(b'0'.saturating_add(channel));
        return Message::text(format!("{digit}{}", STANDARD.encode(data)));
    }
    let mut message = BytesMut::with_capacity(data.len() + 1);
    message.put_u8(channel);
    message.put_slice(data);
    Message::Binary(message.freeze())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_name_their_channel() {
        for base64 in [false, true] {
            let message = encode(2, b"hi", base64);
            assert_eq!(message.is_text(), base64);
            assert_eq!(decode(message, base64), Some((2, Bytes::from_static(b"hi"))));
        }
        for (message, base64) in [
            (Message::Binary(Bytes::new()), false),
            (Message::text("!aGk="), true),
            (Message::text("1not base64"), true),
            (Message::Ping(Bytes::from_static(b"\x01x")), false),
        ] {
            assert_eq!(decode(message.clone(), base64), None, "{message:?}");
        }
        assert_eq!(decode(Message::text("\u{1}x"), false), Some((1, Bytes::from_static(b"x"))));
    }
}
