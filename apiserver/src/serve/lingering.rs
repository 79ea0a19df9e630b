//! A socket that ends without a reset.
//!
//! If a socket is closed while bytes of its peer are unread, the kernel answers with a reset, and
//! the peer loses what it has not read yet: the end of a response, or of a watch. Clients send such
//! bytes at any time, such as acknowledgements of HTTP/2. So, like Go's `net/http`, the end is sent
//! first, and what still comes is read and dropped until the peer has ended, too.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

use super::connections::Connection;

/// The time that a peer has to end.
pub const LINGER: Duration = Duration::from_millis(500);

/// The maximum number of bytes that are read and dropped.
const MAX_DROPPED: usize = 64 * 1024;

/// The bytes that are read at a time.
const BUFFER: usize = 4 * 1024;

/// A stream whose shutdown reads to the end of the peer.
pub struct Lingering<S> {
    stream: S,
    linger: Duration,
    connection: Arc<Connection>,
    dropped: usize,
    /// Some: the end is sent.
    deadline: Option<Pin<Box<Sleep>>>,
}

impl<S> Lingering<S> {
    /// Creates a stream that lingers for at most `linger`, if its connection waits for the client
    /// to close.
    pub fn new(stream: S, linger: Duration, connection: Arc<Connection>) -> Lingering<S> {
        Lingering { stream, linger, connection, dropped: 0, deadline: None }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Lingering<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Lingering<S> {
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
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.deadline.is_none() {
            ready!(Pin::new(&mut this.stream).poll_shutdown(context))?;
            // One that lingers already may have a request with an unread body.
            if !this.connection.waits_for_client_close() {
                return Poll::Ready(Ok(()));
            }
        }
        let linger = this.linger;
        let deadline = this.deadline.get_or_insert_with(|| Box::pin(sleep(linger)));
        let mut bytes = [0; BUFFER];
        while this.dropped < MAX_DROPPED {
            let mut buffer = ReadBuf::new(&mut bytes);
            match Pin::new(&mut this.stream).poll_read(context, &mut buffer) {
                Poll::Ready(Ok(())) if !buffer.filled().is_empty() => this.dropped += buffer.filled().len(),
                // It has ended, one way or the other.
                Poll::Ready(_) => break,
                Poll::Pending => return deadline.as_mut().poll(context).map(Ok),
            }
        }
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpStream};
    use tokio::time::{Instant, timeout};

    use super::super::connections::{ConnectionLimits, Connections};
    use super::*;

    const DEADLINE: Duration = Duration::from_secs(10);

    async fn pair(linger: Duration) -> (Lingering<TcpStream>, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a listener");
        let client = TcpStream::connect(listener.local_addr().expect("an address"));
        let (accepted, client) = tokio::join!(listener.accept(), client);
        let connection = Connections::new(ConnectionLimits::for_open_files(0)).admit().expect("room");
        (Lingering::new(accepted.expect("accepted").0, linger, connection), client.expect("connected"))
    }

    #[tokio::test]
    async fn a_peer_whose_bytes_are_unread_loses_nothing() {
        let (mut server, mut client) = pair(DEADLINE).await;
        client.write_all(&[0; 3 * BUFFER]).await.expect("written");
        let serving = tokio::spawn(async move {
            server.write_all(b"all").await?;
            server.shutdown().await
        });
        let mut read = Vec::new();
        client.read_to_end(&mut read).await.expect("no reset");
        assert_eq!(read, b"all");
        drop(client);
        timeout(DEADLINE, serving)
            .await
            .expect("it ends with its peer")
            .expect("no panic")
            .expect("shut down");
    }

    #[tokio::test]
    async fn a_peer_that_does_not_end_is_waited_for_a_while() {
        let (mut server, _client) = pair(Duration::from_millis(20)).await;
        let began = Instant::now();
        timeout(DEADLINE, server.shutdown()).await.expect("it ends").expect("shut down");
        assert!(began.elapsed() >= Duration::from_millis(20));
    }

    #[tokio::test]
    async fn a_peer_of_an_idle_connection_is_not_waited_for() {
        let (mut server, mut client) = pair(DEADLINE).await;
        server.write_all(b"all").await.expect("written");
        server.connection.end_http1();
        timeout(DEADLINE / 2, server.shutdown()).await.expect("at once").expect("shut down");
        drop(server);
        let mut read = Vec::new();
        client.read_to_end(&mut read).await.expect("no reset");
        assert_eq!(read, b"all");
    }

    #[tokio::test]
    async fn a_peer_that_sends_without_end_is_left() {
        let (mut server, mut client) = pair(DEADLINE).await;
        let sending = tokio::spawn(async move { while client.write_all(&[0; BUFFER]).await.is_ok() {} });
        timeout(DEADLINE, server.shutdown()).await.expect("it ends").expect("shut down");
        assert!(server.dropped >= MAX_DROPPED);
        drop(server);
        timeout(DEADLINE, sending).await.expect("the connection is closed").expect("no panic");
    }
}
