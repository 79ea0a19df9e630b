//! The ports of a pod: each connection to one is a stream of bytes, and one of the error that ends
//! it.
//!
//! Source: `k8s.io/kubelet/pkg/cri/streaming/portforward`.

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncWrite};

use crate::channels::{self, Layout};
use crate::handshake::{Handshake, Transport};
use crate::session::{Receiver, STREAM_TYPE, Sender, Session, Stream};
use crate::{spdy, tunnel};

/// The connections of which only one of two streams is open. The oldest is dropped for another one.
const MAX_PENDING: usize = 1024;
/// The ports that a request may name where they are agreed upon beforehand: channels are numbered
/// by bytes.
const MAX_PORTS: usize = 64;

const DATA: &str = "data";
const ERROR: &str = "error";
const PORT: &str = "port";
const REQUEST_ID: &str = "requestid";

/// A connection to a port of the pod.
#[derive(Debug)]
pub struct Forward {
    /// The port.
    pub port: u16,
    /// The bytes from the client.
    pub receiver: Receiver,
    /// The bytes to the client.
    pub sender: Sender,
    /// Takes the text of an error.
    pub error: Sender,
}

/// The connections of a client to the ports of a pod, as they are made.
pub struct Forwards {
    session: Session,
    /// By the identifier of the connection, in the order in which they began.
    pending: Vec<(String, Stream)>,
}

impl Forwards {
    /// Returns the next connection; None once the client makes no more.
    pub async fn next(&mut self) -> Option<Forward> {
        loop {
            let stream = self.session.accept().await?;
            let Some((id, port)) = identify(&stream) else { continue };
            let is_pair = |(known, other): &(String, Stream)| {
                *known == id && other.header(STREAM_TYPE) != stream.header(STREAM_TYPE)
            };
            let Some(index) = self.pending.iter().position(is_pair) else {
                if self.pending.len() >= MAX_PENDING {
                    self.pending.remove(0);
                }
                self.pending.push((id, stream));
                continue;
            };
            let (_, other) = self.pending.remove(index);
            let (data, error) =
                if stream.header(STREAM_TYPE) == DATA { (stream, other) } else { (other, stream) };
            let (receiver, sender) = (data.receiver, data.sender);
            return Some(Forward { port, receiver, sender, error: error.sender });
        }
    }
}

/// Returns the identifier of the connection of a stream, and the port; None if the stream has no
/// connection.
fn identify(stream: &Stream) -> Option<(String, u16)> {
    let port = stream.header(PORT).parse().ok().filter(|port| *port > 0)?;
    // Old clients name none, and open the two streams of a connection one after the other.
    let first = match stream.header(STREAM_TYPE) {
        ERROR => Some(stream.id),
        DATA => stream.id.checked_sub(2),
        _ => return None,
    };
    match stream.header(REQUEST_ID) {
        "" => Some((format!("stream {}", first?), port)),
        id => Some((id.to_owned(), port)),
    }
}

/// Serves the connections to ports over an upgraded connection, until the handler has returned or
/// the client closes.
///
/// - `ports`: those that the request names, for protocols in which they are agreed upon beforehand
pub async fn serve_forwards<IO, H>(
    io: IO,
    handshake: &Handshake,
    ports: &[u16],
    handle: impl FnOnce(Forwards) -> H,
) where
    IO: AsyncRead + AsyncWrite + Unpin,
    H: Future<Output = ()>,
{
    let handle = |session| handle(Forwards { session, pending: Vec::new() });
    match handshake.transport {
        Transport::Channels { base64 } => channels::serve(io, layout(ports, base64), handle).await,
        Transport::Spdy => spdy::serve(io, handle).await,
        Transport::Tunnel => tunnel::serve(io, |io| spdy::serve(io, handle)).await,
    }
}

/// Returns the layout of two channels per port, both of which begin with the port's number.
fn layout(ports: &[u16], base64: bool) -> Layout {
    let mut layout = Layout { channels: Vec::new(), greeting: Vec::new(), has_close: false, base64 };
    for (channel, port) in (0..).step_by(2).zip(ports.iter().take(MAX_PORTS)) {
        let id = format!("channel {channel}");
        for (channel, name) in [(channel, DATA), (channel + 1, ERROR)] {
            let headers =
                [(STREAM_TYPE, name.to_owned()), (PORT, port.to_string()), (REQUEST_ID, id.clone())];
            let headers = headers.map(|(name, value)| (name.to_owned(), value)).to_vec();
            layout.channels.push((channel, headers));
            layout.greeting.push((channel, Bytes::copy_from_slice(&port.to_le_bytes())));
        }
    }
    layout
}

#[cfg(test)]
mod tests;
