//! Flush control: a stream over HTTP/1.1 passes on the next piece when the previous ones have left
//! the process.
//!
//! hyper buffers as much of a body as the head of a request may have, and TLS buffers more: that
//! would be hundreds of kilobytes for each watch whose client does not read. (HTTP/2 has windows
//! for this.)

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use futures::task::AtomicWaker;

use super::observed::Observer;

/// The number of bytes since the last flush from which a body waits for the next one.
const MAX_UNFLUSHED: usize = 8 << 10;

/// The bytes passed on since the last flush of a connection.
#[derive(Default)]
pub struct Flushes {
    unflushed: AtomicUsize,
    /// The waker of the body that waits.
    waker: AtomicWaker,
}

impl Flushes {
    /// Counts bytes that a body has passed on.
    pub fn handed_out(&self, bytes: usize) {
        self.unflushed.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Waits until little is unflushed.
    pub fn poll_room(&self, context: &mut Context<'_>) -> Poll<()> {
        let has_room = || self.unflushed.load(Ordering::Relaxed) < MAX_UNFLUSHED;
        if has_room() {
            return Poll::Ready(());
        }
        self.waker.register(context.waker());
        if has_room() { Poll::Ready(()) } else { Poll::Pending }
    }
}

/// A flush covers all bytes passed on before it, since they were written to the connection.
impl Observer for Arc<Flushes> {
    fn flushed(&mut self) {
        if self.unflushed.swap(0, Ordering::Relaxed) > 0 {
            self.waker.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use futures::FutureExt;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, BufWriter};

    use super::super::observed::Observed;
    use super::*;

    fn has_room(flushes: &Flushes) -> bool {
        poll_fn(|context| flushes.poll_room(context)).now_or_never().is_some()
    }

    #[tokio::test]
    async fn a_body_waits_for_a_flush() {
        let (near, mut far) = tokio::io::duplex(1 << 10);
        let flushes = Arc::new(Flushes::default());
        // The writer represents the buffer of TLS.
        let mut connection = Observed::new(BufWriter::with_capacity(1 << 20, near), flushes.clone());
        let piece = vec![b'x'; MAX_UNFLUSHED - 1];
        flushes.handed_out(piece.len());
        connection.write_all(&piece).await.expect("a buffer takes it");
        assert!(has_room(&flushes), "there is little");
        flushes.handed_out(1);
        connection.write_all(b"y").await.expect("a buffer takes it");
        assert!(!has_room(&flushes));
        assert!(connection.flush().now_or_never().is_none(), "nobody reads");
        let waiting = tokio::spawn(async move { poll_fn(|context| flushes.poll_room(context)).await });
        tokio::task::yield_now().await;
        let mut read = vec![0; MAX_UNFLUSHED];
        let (flushed, arrived) = tokio::join!(connection.flush(), far.read_exact(&mut read));
        assert!(flushed.is_ok() && arrived.is_ok());
        waiting.await.expect("it is woken");
    }
}
