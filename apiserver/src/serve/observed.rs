//! A connection with an observer of its reads and flushes.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Observes a connection.
pub trait Observer {
    /// Returns `Ready` if the connection may be read now. Otherwise it wakes the task once the
    /// connection may be read.
    fn poll_may_read(&mut self, _context: &mut Context<'_>) -> Poll<()> {
        Poll::Ready(())
    }

    /// Handles bytes that were read.
    ///
    /// # Errors
    /// An error ends the connection.
    fn read(&mut self, _bytes: &[u8]) -> io::Result<()> {
        Ok(())
    }

    /// Handles a read that found no bytes.
    fn waits(&mut self) {}

    /// Handles the moment when everything written has left the process.
    fn flushed(&mut self) {}
}

/// A connection with its observer.
pub struct Observed<S, O> {
    stream: S,
    observer: O,
}

impl<S, O: Observer> Observed<S, O> {
    /// Creates a connection with an observer.
    pub fn new(stream: S, observer: O) -> Observed<S, O> {
        Observed { stream, observer }
    }
}

impl<S: AsyncRead + Unpin, O: Observer + Unpin> AsyncRead for Observed<S, O> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        ready!(self.observer.poll_may_read(context));
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.stream).poll_read(context, buffer);
        if polled.is_pending() {
            self.observer.waits();
        }
        ready!(polled)?;
        Poll::Ready(self.observer.read(&buffer.filled()[before..]))
    }
}

impl<S: AsyncWrite + Unpin, O: Observer + Unpin> AsyncWrite for Observed<S, O> {
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
        self.observer.flushed();
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
