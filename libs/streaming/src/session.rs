//! A session: named streams over one connection, whatever carries them.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt;
use tokio::sync::mpsc;

/// The chunks of a stream that wait to be read.
const QUEUED_CHUNKS: usize = 8;
/// The frames of all streams that wait to be written.
const QUEUED_FRAMES: usize = 16;
/// The streams that wait to be accepted.
const QUEUED_STREAMS: usize = 16;
/// The longest chunk that is queued, in bytes.
pub(crate) const MAX_CHUNK_LENGTH: usize = 16 << 10;
/// The time for which one side may take nothing of what the other one has sent.
const STALL_TIMEOUT: Duration = Duration::from_secs(5 * 60);
/// The time that the peer has to take what was written at the end, and to close its side.
pub(crate) const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

/// The time that the peer has to take what is written once the session is over.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(30);

/// The name of the header with the purpose of a stream.
pub(crate) const STREAM_TYPE: &str = "streamtype";

/// The peer has closed the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the client closed the connection")]
pub struct Closed;

/// The incoming half of a stream.
#[derive(Debug)]
pub struct Receiver {
    chunks: mpsc::Receiver<Bytes>,
    is_reset: Arc<AtomicBool>,
}

impl Receiver {
    /// Returns the next bytes; None at the end of the stream.
    pub async fn next(&mut self) -> Option<Bytes> {
        self.chunks.recv().await
    }

    /// Returns `true` if the client ended the stream in both directions.
    pub fn is_reset(&self) -> bool {
        self.is_reset.load(Ordering::Relaxed)
    }
}

/// The end of a stream at which the chunks of the client are put.
#[derive(Debug)]
pub(crate) struct Incoming {
    chunks: mpsc::Sender<Bytes>,
    is_reset: Arc<AtomicBool>,
}

impl Incoming {
    /// Puts bytes into the queue of a stream. A handler that stopped reading is not an error.
    ///
    /// # Errors
    /// The handler has not read for a long time, so that nothing else of the client can be read
    /// either.
    pub async fn put(&self, mut data: Bytes) -> Result<(), Stalled> {
        while !data.is_empty() {
            let chunk = data.split_to(data.len().min(MAX_CHUNK_LENGTH));
            if within(STALL_TIMEOUT, self.chunks.send(chunk)).await.ok_or(Stalled)?.is_err() {
                break;
            }
        }
        Ok(())
    }

    /// Returns `true` if the handler does not read any more.
    pub fn is_closed(&self) -> bool {
        self.chunks.is_closed()
    }

    /// Ends the stream in both directions.
    pub fn reset(self) {
        self.is_reset.store(true, Ordering::Relaxed);
    }
}

/// One side has taken nothing for a long time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("nothing was taken for {} s", STALL_TIMEOUT.as_secs())]
pub(crate) struct Stalled;

/// The outgoing half of a stream.
#[derive(Clone, Debug)]
pub struct Sender {
    stream: u32,
    frames: mpsc::Sender<Outgoing>,
    is_reset: Arc<AtomicBool>,
}

impl Sender {
    /// Sends bytes, once there is a place for them.
    ///
    /// # Errors
    /// The client closed the connection or the stream.
    pub async fn send(&self, mut data: Bytes) -> Result<(), Closed> {
        while !data.is_empty() {
            if self.is_reset.load(Ordering::Relaxed) {
                return Err(Closed);
            }
            let chunk = data.split_to(data.len().min(MAX_CHUNK_LENGTH));
            self.frames.send(Outgoing::Data(self.stream, chunk)).await.map_err(|_| Closed)?;
        }
        Ok(())
    }

    /// Ends the stream in this direction.
    ///
    /// # Errors
    /// The client closed the connection.
    pub async fn finish(self) -> Result<(), Closed> {
        self.frames.send(Outgoing::End(self.stream)).await.map_err(|_| Closed)
    }
}

/// A frame to the peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outgoing {
    /// Bytes of a stream.
    Data(u32, Bytes),
    /// The end of a stream.
    End(u32),
    /// The acceptance of a stream that the peer opened.
    Accept(u32),
    /// The refusal of a stream that the peer opened.
    Refuse(u32),
    /// The echo of a ping.
    Pong(u32),
}

/// A stream that has a name.
#[derive(Debug)]
pub(crate) struct Stream {
    pub id: u32,
    /// Names in lower case, and values.
    pub headers: Vec<(String, String)>,
    pub receiver: Receiver,
    pub sender: Sender,
}

impl Stream {
    /// Returns the value of a header; "" if it is absent.
    pub fn header(&self, name: &str) -> &str {
        self.headers.iter().find(|(known, _)| known == name).map_or("", |(_, value)| value)
    }
}

/// The streams of a connection as they are opened.
pub(crate) struct Session {
    opened: mpsc::Receiver<Stream>,
}

impl Session {
    /// Returns the next stream; None once the client closed the connection.
    pub async fn accept(&mut self) -> Option<Stream> {
        self.opened.recv().await
    }
}

/// The ends of a session that a transport drives.
pub(crate) struct Driver {
    /// Announces new streams.
    opened: mpsc::Sender<Stream>,
    /// Weak, so that the last frame is known to be the last.
    frames: mpsc::WeakSender<Outgoing>,
}

impl Driver {
    /// Opens a stream, and returns the end at which its chunks are put.
    ///
    /// # Errors
    /// The session is over.
    pub async fn open(&self, id: u32, headers: Vec<(String, String)>) -> Result<Incoming, Closed> {
        let (sender, chunks) = mpsc::channel(QUEUED_CHUNKS);
        let is_reset = Arc::<AtomicBool>::default();
        let frames = self.frames.upgrade().ok_or(Closed)?;
        let stream = Stream {
            id,
            headers,
            receiver: Receiver { chunks, is_reset: is_reset.clone() },
            sender: Sender { stream: id, frames, is_reset: is_reset.clone() },
        };
        self.opened.send(stream).await.map_err(|_| Closed)?;
        Ok(Incoming { chunks: sender, is_reset })
    }

    /// Sends a frame of the connection itself. It is left out once the session is over.
    pub async fn send(&self, frame: Outgoing) {
        if let Some(frames) = self.frames.upgrade() {
            // A writer that has failed ends the session.
            let _ = frames.send(frame).await;
        }
    }
}

/// Runs a session until its handler has returned and all is written, or the peer closes the
/// connection.
///
/// - `read`: reads the connection to its end
/// - `write`: writes frames until there are no more, and then the end of the connection
/// - `handle`: handles the streams
pub(crate) async fn run<R, W, H>(
    read: impl FnOnce(Driver) -> R,
    write: impl FnOnce(mpsc::Receiver<Outgoing>) -> W,
    handle: impl FnOnce(Session) -> H,
) where
    R: Future<Output = ()>,
    W: Future<Output = ()>,
    H: Future<Output = ()>,
{
    let (frames, queue) = mpsc::channel(QUEUED_FRAMES);
    let (opened, accepted) = mpsc::channel(QUEUED_STREAMS);
    // Fused, since the others are polled on after one has ended.
    let mut read = pin!(read(Driver { opened, frames: frames.downgrade() }).fuse());
    let mut write = pin!(write(queue).fuse());
    let handled = async move {
        // The handler's streams keep the queue open; so does this until the first of them is there.
        handle(Session { opened: accepted }).await;
        drop(frames);
    };
    let mut handled = pin!(handled);
    let is_handled = tokio::select! {
        () = &mut read => false,
        // The client takes nothing any more.
        () = &mut write => false,
        () = &mut handled => true,
    };
    if !is_handled {
        // Frames that the client sent before it disconnected are handled.
        let handled = async {
            tokio::select! {
                () = handled => {}
                // One of them has ended already, so both together never do.
                _ = async { tokio::join!(read, write) } => {}
            }
        };
        within(CLOSE_TIMEOUT, handled).await;
        return;
    }
    let is_written = tokio::select! {
        () = &mut read => return,
        written = within(FLUSH_TIMEOUT, write) => written.is_some(),
    };
    if is_written {
        // Further data of the peer is read: closing a socket with unread data discards data on its
        // way to the peer.
        within(CLOSE_TIMEOUT, read).await;
    }
}

/// Returns the output of a write to the client, which may take as long as the client reads.
///
/// # Errors
/// The client has read nothing for [`STALL_TIMEOUT`].
pub(crate) async fn unless_stalled<T>(write: impl Future<Output = T>) -> Result<T, Stalled> {
    within(STALL_TIMEOUT, write).await.ok_or(Stalled)
}

/// Returns the output of a future, if it completes within a time limit.
#[expect(clippy::disallowed_methods, reason = "protects the server from clients that neither read nor close")]
pub(crate) async fn within<T>(limit: Duration, future: impl Future<Output = T>) -> Option<T> {
    tokio::time::timeout(limit, future).await.ok()
}
