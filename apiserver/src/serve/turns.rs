//! Turns: a connection reads a few kilobytes, and then lets others have their turn.
//!
//! The bytes of a client are worked on as long as there is more of it, in one poll of the connection's task. Small frames without a request,
//! such as the pings and settings of HTTP/2 or the empty records of TLS, are so cheap to send that a poll would work on hundreds of
//! thousands of them: tokio counts reads, and not what is in them.

use std::io;
use std::io::IoSlice;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// A turn ends with the read that makes it so many bytes. A buffer of hyper takes as many at once, unless a frame needs more.
const TURN: usize = 8 << 10;

/// A connection whose reads end with a turn while there is more to read.
pub struct Turns<S> {
    stream: S,
    /// The bytes that were read in this turn.
    read: usize,
}

impl<S> Turns<S> {
    /// Ends the turns of a connection.
    pub fn new(stream: S) -> Turns<S> {
        Turns { stream, read: 0 }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Turns<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.read >= TURN {
            self.read = 0;
            // The task is queued behind all others.
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        let filled = buffer.filled().len();
        let polled = Pin::new(&mut self.stream).poll_read(context, buffer);
        if polled.is_pending() {
            self.read = 0;
        }
        ready!(polled)?;
        self.read += buffer.filled().len() - filled;
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Turns<S> {
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
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;
    use tokio::io::AsyncReadExt;

    use super::*;

    #[tokio::test]
    async fn a_connection_with_more_to_read_ends_its_turn() {
        let mut connection = Turns::new(tokio::io::repeat(b'x'));
        let mut buffer = [0; 1 << 10];
        for _ in 0..3 {
            let mut read = 0;
            while let Some(now) = connection.read(&mut buffer).now_or_never() {
                read += now.expect("it repeats");
                assert!(read <= TURN, "it reads on");
            }
            assert_eq!(read, TURN);
        }
        // A reader that waits for its next turn is woken.
        let mut read = 0;
        while read < 10 * TURN {
            read += connection.read(&mut buffer).await.expect("it repeats");
        }
    }

    #[tokio::test]
    async fn a_connection_that_waits_begins_a_new_turn() {
        let (near, mut far) = tokio::io::duplex(TURN);
        let mut connection = Turns::new(near);
        let mut buffer = vec![0; TURN];
        for _ in 0..3 {
            tokio::io::AsyncWriteExt::write_all(&mut far, &vec![0; TURN - 1]).await.expect("taken");
            assert_eq!(connection.read(&mut buffer).now_or_never().map(Result::ok), Some(Some(TURN - 1)));
            assert!(connection.read(&mut buffer).now_or_never().is_none(), "nothing is left");
        }
    }
}
