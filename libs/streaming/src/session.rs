//! A session: named streams over one connection, whatever carries them.

use std::future::Future;
use std::pin::pin;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::mpsc;

/// The chunks of a stream that wait to be read.
const QUEUED_CHUNKS: usize = 8;
/// The frames of all streams that wait to be written.
const QUEUED_FRAMES: usize = 16;
/// The streams that wait to be accepted.
const QUEUED_STREAMS: usize = 16;
/// The longest chunk that is written at once, in bytes.
const LONGEST_CHUNK: usize = 32 << 10;
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
pub struct Receiver(mpsc::Receiver<Bytes>);

impl Receiver {
    /// The incoming half, and where its chunks are put.
    pub(crate) fn new() -> (mpsc::Sender<Bytes>, Receiver) {
        let (sender, receiver) = mpsc::channel(QUEUED_CHUNKS);
        (sender, Receiver(receiver))
    }

    /// The next bytes; None at the end of the stream.
    pub async fn next(&mut self) -> Option<Bytes> {
        self.0.recv().await
    }
}

/// The outgoing half of a stream.
#[derive(Clone, Debug)]
pub struct Sender {
    stream: u32,
    frames: mpsc::Sender<Outgoing>,
}

impl Sender {
    /// Sends bytes, once there is a place for them.
    ///
    /// # Errors
    /// The client closed the connection.
    pub async fn send(&self, mut data: Bytes) -> Result<(), Closed> {
        while !data.is_empty() {
            let chunk = data.split_to(data.len().min(LONGEST_CHUNK));
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
    /// The value of a header; "" without one.
    pub fn header(&self, name: &str) -> &str {
        self.headers.iter().find(|(known, _)| known == name).map_or("", |(_, value)| value)
    }
}

/// The streams of a connection as they are opened.
pub(crate) struct Session {
    opened: mpsc::Receiver<Stream>,
}

impl Session {
    /// The next stream; None once the client closed the connection.
    pub async fn accept(&mut self) -> Option<Stream> {
        self.opened.recv().await
    }
}

/// The ends of a session that a transport drives.
pub(crate) struct Driver {
    /// Where new streams are announced.
    opened: mpsc::Sender<Stream>,
    /// Weak, so that the last frame is known to be the last.
    frames: mpsc::WeakSender<Outgoing>,
}

impl Driver {
    /// Opens a stream, and returns where its chunks are put.
    pub async fn open(&self, id: u32, headers: Vec<(String, String)>) -> Result<mpsc::Sender<Bytes>, Closed> {
        let (chunks, receiver) = Receiver::new();
        let frames = self.frames.upgrade().ok_or(Closed)?;
        let stream = Stream { id, headers, receiver, sender: Sender { stream: id, frames } };
        self.opened.send(stream).await.map_err(|_| Closed)?;
        Ok(chunks)
    }

    /// Sends a frame of the connection itself.
    pub async fn send(&self, frame: Outgoing) -> Result<(), Closed> {
        self.frames.upgrade().ok_or(Closed)?.send(frame).await.map_err(|_| Closed)
    }
}

/// Runs a session until its handler has returned and all is written, or the peer closes the connection.
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
    let mut read = pin!(read(Driver { opened, frames: frames.downgrade() }));
    let mut write = pin!(write(queue));
    let handled = async move {
        // The handler's streams keep the queue open; so does this until the first of them is there.
        handle(Session { opened: accepted }).await;
        drop(frames);
    };
    let mut handled = pin!(handled);
    tokio::select! {
        // There is no client left that anything could be done for.
        () = &mut read => return,
        () = &mut write => return,
        () = &mut handled => {}
    }
    let is_written = tokio::select! {
        () = &mut read => return,
        written = within(FLUSH_TIMEOUT, write) => written,
    };
    if is_written {
        // What a peer still sends is read: closing a socket with unread data discards what is on its way to the peer.
        within(CLOSE_TIMEOUT, read).await;
    }
}

/// Whether a future is done within a time.
#[expect(clippy::disallowed_methods, reason = "protects the server from clients that neither read nor close")]
pub(crate) async fn within(limit: Duration, future: impl Future<Output = ()>) -> bool {
    tokio::time::timeout(limit, future).await.is_ok()
}
