//! Flushes: a stream over HTTP/1.1 hands out the next piece when the last ones have left the process.
//!
//! hyper buffers as much of a body as the head of a request may have, and TLS buffers more: for each watch that nobody reads that
//! would be hundreds of kilobytes. (HTTP/2 has windows for this.)

use std::io;
use std::io::IoSlice;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};

use futures::task::AtomicWaker;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// A body that was handed out so far without a flush waits for one.
const MOST_UNFLUSHED: usize = 8 << 10;

/// What was handed out since a connection was flushed.
#[derive(Default)]
pub struct Flushes {
    unflushed: AtomicUsize,
    /// Of the body that waits.
    waker: AtomicWaker,
}

impl Flushes {
    /// A body handed out so many bytes.
    pub fn handed_out(&self, bytes: usize) {
        self.unflushed.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Waits until there is little that is not flushed.
    pub fn poll_room(&self, context: &mut Context<'_>) -> Poll<()> {
        let has_room = || self.unflushed.load(Ordering::Relaxed) < MOST_UNFLUSHED;
        if has_room() {
            return Poll::Ready(());
        }
        self.waker.register(context.waker());
        if has_room() { Poll::Ready(()) } else { Poll::Pending }
    }

    fn flushed(&self) {
        if self.unflushed.swap(0, Ordering::Relaxed) > 0 {
            self.waker.wake();
        }
    }
}

/// A connection that reports when it was flushed: all that was handed out was written to it before, or it would not be flushed.
pub struct Flushing<S> {
    stream: S,
    flushes: Arc<Flushes>,
}

impl<S> Flushing<S> {
    /// Reports the flushes of a connection.
    pub fn new(stream: S, flushes: Arc<Flushes>) -> Flushing<S> {
        Flushing { stream, flushes }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Flushing<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Flushing<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(Pin::new(&mut self.stream).poll_flush(context))?;
        self.flushes.flushed();
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use futures::FutureExt;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, BufWriter};

    use super::*;

    fn has_room(flushes: &Flushes) -> bool {
        poll_fn(|context| flushes.poll_room(context)).now_or_never().is_some()
    }

    #[tokio::test]
    async fn a_body_waits_for_a_flush() {
        let (near, mut far) = tokio::io::duplex(1 << 10);
        let flushes = Arc::new(Flushes::default());
        // The writer stands for what TLS buffers.
        let mut connection = Flushing::new(BufWriter::with_capacity(1 << 20, near), flushes.clone());
        let piece = vec![b'x'; MOST_UNFLUSHED - 1];
        flushes.handed_out(piece.len());
        connection.write_all(&piece).await.expect("a buffer takes it");
        assert!(has_room(&flushes), "there is little");
        flushes.handed_out(1);
        connection.write_all(b"y").await.expect("a buffer takes it");
        assert!(!has_room(&flushes));
        assert!(connection.flush().now_or_never().is_none(), "nobody reads");
        let waiting = tokio::spawn(async move { poll_fn(|context| flushes.poll_room(context)).await });
        tokio::task::yield_now().await;
        let mut read = vec![0; MOST_UNFLUSHED];
        let (flushed, arrived) = tokio::join!(connection.flush(), far.read_exact(&mut read));
        assert!(flushed.is_ok() && arrived.is_ok());
        waiting.await.expect("it is woken");
    }
}
