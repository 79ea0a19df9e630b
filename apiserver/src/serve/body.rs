//! The body of a response: sent at once, in chunks as the connection accepts them, or as a stream.

use std::any::Any;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use futures::stream::{self, BoxStream};
use futures::{Stream, StreamExt};
use http_body::{Frame, SizeHint};
use tokio::sync::{Semaphore, watch};

use super::connections::Active;
use super::flushes::Flushes;
use super::transfers::{Transfer, Transfers};
use crate::background::in_background;

/// The largest size of a piece that is passed to a socket, in bytes, so that little is buffered for
/// a client that does not read.
const PIECE: usize = 64 << 10;
/// The same for a stream that waits for flushes, since a client that does not read may keep it open
/// for long.
const FLUSHED_PIECE: usize = 8 << 10;

/// The body of a response.
pub struct Body {
    content: Content,
    /// The transfer, if the body is sent on a socket.
    transfer: Option<Transfer>,
    /// The flushes of the connection, if the next piece waits for them.
    flushes: Option<Arc<Flushes>>,
    /// Whether the chunks of a stream are sent without splitting, regardless of their size.
    whole_chunks: bool,
    /// The connection is active until the client has all of it.
    active: Option<Active>,
    /// Resources that are released once the client has received all of it.
    held: Vec<Box<dyn Any + Send>>,
}

enum Content {
    Full(Bytes),
    /// Chunks made on demand; `size` is their total before any compression.
    Chunks {
        size: usize,
        chunks: Box<dyn Iterator<Item = Bytes> + Send>,
        /// Whether making a chunk costs more than copying it.
        is_expensive: bool,
    },
    Stream {
        chunks: BoxStream<'static, Bytes>,
        /// The memory it holds initially, in bytes.
        size: usize,
        /// The rest of the last chunk.
        rest: Bytes,
        /// Whether the last chunk is owned, that is, not shared with another response such as a
        /// watch.
        is_own: bool,
    },
    /// A panic ended it.
    Failed,
}

/// The error of a body that ends early because it could not be completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the response could not be completed")]
pub struct Incomplete;

impl From<Bytes> for Body {
    fn from(bytes: Bytes) -> Body {
        Body::of(Content::Full(bytes))
    }
}

impl Content {
    /// Creates a stream.
    ///
    /// - `size`: the memory it holds initially, in bytes.
    fn of_stream(chunks: BoxStream<'static, Bytes>, size: usize) -> Content {
        Content::Stream { chunks, size, rest: Bytes::new(), is_own: false }
    }
}

impl Body {
    /// Returns an empty body.
    pub fn empty() -> Body {
        Bytes::new().into()
    }

    /// Creates a body whose chunks are made on demand, of `size` bytes in total.
    ///
    /// - `is_expensive`: whether making a chunk costs more than copying, so that it must not be
    ///   done on the threads that serve connections.
    pub fn chunks(
        size: usize,
        chunks: impl Iterator<Item = Bytes> + Send + 'static,
        is_expensive: bool,
    ) -> Body {
        Body::of(Content::Chunks { size, chunks: Box::new(chunks), is_expensive })
    }

    /// Creates a streamed body.
    pub fn stream(chunks: impl Stream<Item = Bytes> + Send + 'static) -> Body {
        Body::of(Content::of_stream(chunks.boxed(), 0))
    }

    /// Ends a stream when the server closes, as watches end, so that its client does not take it for
    /// broken off.
    ///
    /// - `closing`: turns true when the server closes
    pub fn until_closed(mut self, mut closing: watch::Receiver<bool>) -> Body {
        if let Content::Stream { chunks, .. } = &mut self.content {
            let open = std::mem::replace(chunks, stream::empty().boxed());
            let closed = async move { drop(closing.wait_for(|closing| *closing).await) };
            *chunks = open.take_until(closed).boxed();
        }
        self
    }

    /// Sets the memory that a stream holds initially, in bytes.
    pub fn with_initial_memory(mut self, bytes: usize) -> Body {
        if let Content::Stream { size, .. } = &mut self.content {
            *size = bytes;
        }
        self
    }

    /// Keeps a value until the client has received all of the body.
    pub fn release_when_sent(mut self, held: impl Any + Send) -> Body {
        self.held.push(Box::new(held));
        self
    }

    /// Keeps its connection active until the client has received all of the body.
    pub fn on_connection(self, active: Active) -> Body {
        Body { active: Some(active), ..self }
    }

    fn of(content: Content) -> Body {
        Body { content, transfer: None, flushes: None, whole_chunks: false, active: None, held: Vec::new() }
    }

    /// Returns the bytes of the body; None if they are not all in memory.
    pub fn whole(&self) -> Option<&Bytes> {
        match &self.content {
            Content::Full(bytes) => Some(bytes),
            _ => None,
        }
    }

    /// Returns whether the body is sent in one piece, so that nothing of it remains.
    pub fn is_one_piece(&self) -> bool {
        self.whole().is_some_and(|bytes| bytes.len() <= PIECE)
    }

    /// Returns the size in bytes, before any compression; 0 for a stream.
    pub fn size(&self) -> usize {
        match &self.content {
            Content::Full(bytes) => bytes.len(),
            Content::Chunks { size, .. } => *size,
            Content::Stream { .. } | Content::Failed => 0,
        }
    }

    /// Replaces the chunks of a body, if it is not a stream and has `least` bytes or more. `change`
    /// gets the size and the remaining chunks, and returns the new ones, which count as expensive.
    pub fn map_chunks<I>(
        self,
        least: usize,
        change: impl FnOnce(Box<dyn Iterator<Item = Bytes> + Send>) -> I,
    ) -> (Body, bool)
    where
        I: Iterator<Item = Bytes> + Send + 'static,
    {
        if self.size() < least {
            return (self, false);
        }
        let (size, chunks) = match self.content {
            Content::Full(bytes) => {
                let size = bytes.len();
                (size, Box::new(pieces(bytes)) as Box<dyn Iterator<Item = Bytes> + Send>)
            }
            Content::Chunks { size, chunks, .. } => (size, chunks),
            content @ (Content::Stream { .. } | Content::Failed) => return (Body { content, ..self }, false),
        };
        let content = Content::Chunks { size, chunks: Box::new(change(chunks)), is_expensive: true };
        (Body { content, ..self }, true)
    }

    /// Calls `inspect` for each chunk of a chunked body.
    pub fn inspect_chunks(self, inspect: impl FnMut(&Bytes) + Send + 'static) -> Body {
        let content = match self.content {
            Content::Chunks { size, chunks, is_expensive } => {
                Content::Chunks { size, chunks: Box::new(chunks.inspect(inspect)), is_expensive }
            }
            content => content,
        };
        Body { content, ..self }
    }

    /// Makes expensive chunks in the background, one at a time for each permit of `renderers`.
    pub fn rendered_in_background(mut self, renderers: &Arc<Semaphore>) -> Body {
        if let Content::Chunks { size, chunks, is_expensive: true } = self.content {
            let chunks = stream::unfold((chunks, renderers.clone()), async |(mut chunks, renderers)| {
                let chunk = in_background(&renderers, async { chunks.next() }).await;
                chunk.map(|chunk| (chunk, (chunks, renderers)))
            });
            self.content = Content::of_stream(chunks.boxed(), size);
        }
        self
    }

    /// Prepares the body for a socket, on which transfers are cut off if the client does not read.
    ///
    /// - `lasts`: the longest duration of a transfer other than a watch.
    pub fn on_socket(mut self, transfers: &Arc<Transfers>, lasts: Duration) -> Body {
        let (held_bytes, deadline) = match &self.content {
            Content::Stream { size, .. } => (*size, None),
            _ => (self.size(), std::time::Instant::now().checked_add(lasts)),
        };
        self.transfer = transfers.begin(held_bytes, deadline);
        self
    }

    /// Passes on the chunks of a stream whole, for a connection that writes each of them without
    /// copying and requests the next one after that.
    pub fn in_whole_chunks(self) -> Body {
        Body { whole_chunks: true, ..self }
    }

    /// Makes a stream wait for the flushes of its connection (HTTP/1.1).
    pub fn flushed_by(mut self, flushes: &Arc<Flushes>) -> Body {
        if matches!(self.content, Content::Stream { .. }) {
            self.flushes = Some(flushes.clone());
        }
        self
    }

    fn poll_content(&mut self, context: &mut Context<'_>) -> Poll<Option<Bytes>> {
        let most = match (&self.flushes, &self.transfer) {
            _ if self.whole_chunks => usize::MAX,
            (Some(_), _) => FLUSHED_PIECE,
            (None, Some(_)) => PIECE,
            (None, None) => usize::MAX,
        };
        match &mut self.content {
            Content::Full(bytes) if bytes.is_empty() => Poll::Ready(None),
            Content::Full(bytes) => Poll::Ready(Some(bytes.split_to(bytes.len().min(most)))),
            Content::Chunks { chunks, .. } => Poll::Ready(chunks.next()),
            Content::Stream { chunks, rest, is_own, .. } => {
                if rest.is_empty() {
                    let Some(chunk) = ready!(chunks.as_mut().poll_next(context)) else {
                        return Poll::Ready(None);
                    };
                    *is_own = chunk.is_unique();
                    *rest = chunk;
                }
                let left = if self.whole_chunks { rest.len() } else { rest.len().saturating_sub(most) };
                if let Some(transfer) = &self.transfer {
                    transfer.holds_chunk(if *is_own { left } else { 0 });
                }
                let piece = rest.split_to(rest.len().min(most));
                Poll::Ready(Some(piece))
            }
            Content::Failed => Poll::Ready(None),
        }
    }
}

/// Splits bytes into pieces that can be processed one after the other.
fn pieces(mut bytes: Bytes) -> impl Iterator<Item = Bytes> + Send {
    std::iter::from_fn(move || {
        let length = bytes.len().min(PIECE);
        (length > 0).then(|| bytes.split_to(length))
    })
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = Incomplete;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Incomplete>>> {
        let body = self.get_mut();
        if let Some(flushes) = &body.flushes {
            ready!(flushes.poll_room(context));
        }
        // A panic here would take down a connection with all that is on it.
        let polled = std::panic::catch_unwind(AssertUnwindSafe(|| body.poll_content(context)));
        let polled = polled.unwrap_or_else(|_| {
            tracing::error!("writing a response panicked");
            body.content = Content::Failed;
            body.held.clear();
            drop(body.active.take());
            Poll::Ready(None)
        });
        if let Some(transfer) = &body.transfer {
            match &polled {
                Poll::Ready(Some(chunk)) => transfer.chunk_sent(chunk.len()),
                Poll::Ready(None) | Poll::Pending => transfer.waits(),
            }
        }
        if let (Some(flushes), Poll::Ready(Some(chunk))) = (&body.flushes, &polled) {
            flushes.handed_out(chunk.len());
        }
        match (polled, &body.content) {
            (Poll::Ready(None), Content::Failed) => Poll::Ready(Some(Err(Incomplete))),
            (polled, _) => polled.map(|chunk| chunk.map(|chunk| Ok(Frame::data(chunk)))),
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(&self.content, Content::Full(bytes) if bytes.is_empty())
    }

    fn size_hint(&self) -> SizeHint {
        match &self.content {
            Content::Full(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Content::Chunks { .. } | Content::Stream { .. } | Content::Failed => SizeHint::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;
    use std::sync::Arc;

    async fn frames(mut body: Body) -> Vec<Result<Vec<u8>, Incomplete>> {
        use http_body_util::BodyExt;
        let mut frames = Vec::new();
        while let Some(frame) = body.frame().await {
            let failed = frame.is_err();
            frames.push(frame.map(|frame| frame.into_data().unwrap_or_default().to_vec()));
            if failed {
                break;
            }
        }
        frames
    }

    #[tokio::test]
    async fn a_stream_over_http1_waits_for_its_pieces_to_leave() {
        use crate::serve::observed::Observed;
        use crate::serve::transfers::cuttable;
        use http_body_util::BodyExt;
        use tokio::io::AsyncWriteExt;

        let (transfers, flushes) = (Arc::default(), Arc::<Flushes>::default());
        let mut connection = Observed::new(tokio::io::sink(), flushes.clone());
        let stream = stream::iter([Bytes::from(vec![b'x'; 2 * FLUSHED_PIECE + 1])]);
        let read = async {
            let mut body = Body::stream(stream)
                .on_socket(&transfers, Duration::ZERO)
                .flushed_by(&flushes)
                .boxed_unsync();
            let mut sizes = Vec::new();
            for _ in 0..10 {
                match body.frame().now_or_never() {
                    Some(Some(frame)) => {
                        sizes.push(frame.map_or(0, |frame| frame.data_ref().map_or(0, Bytes::len)))
                    }
                    Some(None) => return sizes,
                    None => {
                        sizes.push(0);
                        connection.flush().await.expect("a sink");
                    }
                }
            }
            panic!("it does not end: {sizes:?}");
        };
        let sizes = cuttable(Arc::default(), read).await;
        assert_eq!(sizes, Some(vec![FLUSHED_PIECE, 0, FLUSHED_PIECE, 0, 1]), "0: waits for a flush");
    }

    #[tokio::test]
    async fn a_panic_ends_the_body_and_nothing_else() {
        let kept = Arc::new(());
        let mut left = 2;
        let chunks = std::iter::from_fn(move || {
            left -= 1;
            if left == 0 { panic!("on purpose") } else { Some(Bytes::from_static(b"x")) }
        });
        let body = Body::chunks(3, chunks, false).release_when_sent(kept.clone());
        assert_eq!(frames(body).await, [Ok(b"x".to_vec()), Err(Incomplete)]);
        assert_eq!(Arc::strong_count(&kept), 1);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn expensive_chunks_are_made_one_at_a_time() {
        let renderers = Arc::new(Semaphore::new(1));
        let at_once = Arc::new(std::sync::atomic::AtomicUsize::new(0));
        let bodies = (0..4).map(|_| {
            let at_once = at_once.clone();
            let chunks = (0..10u8).map(move |i| {
                use std::sync::atomic::Ordering;
                assert_eq!(at_once.fetch_add(1, Ordering::SeqCst), 0);
                std::thread::yield_now();
                at_once.fetch_sub(1, Ordering::SeqCst);
                Bytes::from(vec![i])
            });
            tokio::spawn(frames(Body::chunks(10, chunks, true).rendered_in_background(&renderers)))
        });
        for body in bodies.collect::<Vec<_>>() {
            let got = body.await.expect("no panic");
            assert_eq!(got, (0..10u8).map(|i| Ok(vec![i])).collect::<Vec<_>>());
        }
    }
}
