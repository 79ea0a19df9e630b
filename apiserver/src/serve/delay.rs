//! Delayed connections: what the server sends reaches the client a given time later, as over a
//! longer line.
//!
//! A suite of tests may rely on the time that a response of kube-apiserver takes: the informers of
//! the program under test see an object before the next request of the test arrives. The bytes of a
//! connection are delayed, and so responses and events of watches alike, in their order.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep_until};

/// The bytes that wait on a connection, at most: a client that does not read stops its writers.
const MAX_HELD: usize = 256 << 10;
/// The bytes of a burst within this time are delivered together, so that many small writes are few
/// pieces.
const BURST: Duration = Duration::from_micros(100);

/// A connection that delivers writes after a delay. What is written is delivered while the
/// connection is read, written or flushed: a server always does one of them. A flush does not wait
/// for the delay.
pub struct Delayed<S> {
    stream: S,
    /// The delay line; None delivers each write at once.
    line: Option<Line>,
}

/// The bytes that wait for delivery.
struct Line {
    delay: Duration,
    /// In the order of their times.
    pieces: VecDeque<Piece>,
    /// The bytes in all pieces.
    held: usize,
    /// Whether delivered bytes must be flushed.
    is_unflushed: bool,
    timer: Pin<Box<Sleep>>,
}

struct Piece {
    due: Instant,
    bytes: BytesMut,
}

impl<S> Delayed<S> {
    /// Delays the writes of a connection; a delay of zero does not.
    pub fn new(stream: S, delay: Duration) -> Delayed<S> {
        let line = (!delay.is_zero()).then(|| Line {
            delay,
            pieces: VecDeque::new(),
            held: 0,
            is_unflushed: false,
            timer: Box::pin(sleep_until(Instant::now())),
        });
        Delayed { stream, line }
    }
}

impl Line {
    /// Takes as many of the bytes as may wait.
    fn push(&mut self, bytes: &[u8], now: Instant) -> usize {
        let taken = bytes.len().min(MAX_HELD - self.held);
        let due = now + self.delay;
        let bytes = &bytes[..taken];
        match self.pieces.back_mut().filter(|last| due < last.due + BURST) {
            Some(last) => last.bytes.extend_from_slice(bytes),
            None => self.pieces.push_back(Piece { due, bytes: BytesMut::from(bytes) }),
        }
        self.held += taken;
        taken
    }

    /// Writes what is due. Ready when nothing waits, and all of it is flushed.
    fn poll_deliver<S: AsyncWrite + Unpin>(
        &mut self,
        stream: &mut S,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        while let Some(piece) = self.pieces.front_mut() {
            if Instant::now() < piece.due {
                let due = piece.due;
                ready!(self.poll_flush(stream, context))?;
                if self.timer.deadline() != due {
                    self.timer.as_mut().reset(due);
                }
                ready!(self.timer.as_mut().poll(context));
                continue;
            }
            let written = ready!(Pin::new(&mut *stream).poll_write(context, &piece.bytes))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.is_unflushed = true;
            self.held -= written;
            piece.bytes.advance(written);
            if piece.bytes.is_empty() {
                self.pieces.pop_front();
            }
        }
        self.poll_flush(stream, context)
    }

    fn poll_flush<S: AsyncWrite + Unpin>(
        &mut self,
        stream: &mut S,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        if self.is_unflushed {
            ready!(Pin::new(stream).poll_flush(context))?;
            self.is_unflushed = false;
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> Delayed<S> {
    /// Delivers the bytes that are due, and arranges a wakeup for the others.
    fn deliver(&mut self, context: &mut Context<'_>) -> io::Result<()> {
        let Some(line) = &mut self.line else { return Ok(()) };
        match line.poll_deliver(&mut self.stream, context) {
            Poll::Ready(delivered) => delivered,
            Poll::Pending => Ok(()),
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Delayed<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.deliver(context)?;
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Delayed<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.deliver(context)?;
        match &mut self.line {
            None => Pin::new(&mut self.stream).poll_write(context, bytes),
            // The delivery wakes the task.
            Some(line) if line.held >= MAX_HELD => Poll::Pending,
            Some(line) => Poll::Ready(Ok(line.push(bytes, Instant::now()))),
        }
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match &self.line {
            None => Pin::new(&mut self.stream).poll_write_vectored(context, slices),
            Some(_) => {
                let first = slices.iter().find(|slice| !slice.is_empty());
                self.poll_write(context, first.map_or(&[], |slice| slice))
            }
        }
    }

    fn is_write_vectored(&self) -> bool {
        self.line.is_none() && self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &self.line {
            None => Pin::new(&mut self.stream).poll_flush(context),
            Some(_) => Poll::Ready(self.deliver(context)),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Delayed { stream, line } = &mut *self;
        if let Some(line) = line {
            ready!(line.poll_deliver(stream, context))?;
        }
        Pin::new(stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};

    use super::*;

    const DELAY: Duration = Duration::from_millis(20);

    /// Reads the connection for ever, as a server does.
    async fn drive(mut connection: Delayed<DuplexStream>) {
        let _ = tokio::io::copy(&mut connection, &mut tokio::io::sink()).await;
    }

    #[tokio::test(start_paused = true)]
    async fn writes_arrive_after_the_delay_in_their_order() {
        let (near, mut far) = duplex(1 << 10);
        let mut connection = Delayed::new(near, DELAY);
        let began = Instant::now();
        connection.write_all(b"one").await.expect("taken");
        connection.flush().await.expect("no wait");
        assert_eq!(began.elapsed(), Duration::ZERO, "neither waits for the delay");
        tokio::time::advance(DELAY / 2).await;
        connection.write_all(b"two").await.expect("taken");
        connection.flush().await.expect("no wait");
        tokio::spawn(drive(connection));
        for (want, after) in [(b"one", DELAY), (b"two", DELAY * 3 / 2)] {
            let mut read = [0; 3];
            far.read_exact(&mut read).await.expect("it arrives");
            assert_eq!(&read, want);
            // Timers count milliseconds.
            let took = began.elapsed();
            assert!((after..=after + Duration::from_millis(1)).contains(&took), "{took:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_does_not_read_stops_its_writers() {
        let (near, mut far) = duplex(1 << 10);
        let mut connection = Delayed::new(near, DELAY);
        let bytes: Vec<u8> = (0..MAX_HELD + (1 << 10)).map(|at| (at % 251) as u8).collect();
        let mut written = 0;
        for _ in 0..3 {
            while let Some(now) = connection.write(&bytes[written..]).now_or_never() {
                written += now.expect("taken");
                assert!(written <= bytes.len(), "more than the line holds");
                if written == bytes.len() {
                    break;
                }
            }
            // The client's side takes its kilobyte, and no more.
            tokio::time::sleep(2 * DELAY).await;
        }
        assert_eq!(written, bytes.len());
        assert!(connection.write(b"x").now_or_never().is_none());
        let reader = tokio::spawn(async move {
            let mut read = vec![0; written];
            far.read_exact(&mut read).await.expect("all of it");
            read
        });
        assert_eq!(connection.write(b"x").await.expect("there is room again"), 1);
        let (arrived, ()) = tokio::join!(reader, drive(connection));
        assert!(arrived.expect("no panic") == bytes, "in order");
    }

    #[tokio::test(start_paused = true)]
    async fn the_end_of_a_connection_comes_after_all_bytes() {
        let (near, mut far) = duplex(1 << 10);
        let mut connection = Delayed::new(near, DELAY);
        connection.write_all(b"the last words").await.expect("taken");
        connection.shutdown().await.expect("an end");
        let mut read = String::new();
        far.read_to_string(&mut read).await.expect("text");
        assert_eq!(read, "the last words");
    }

    #[tokio::test]
    async fn without_a_delay_writes_are_passed_on() {
        let (near, mut far) = duplex(1 << 10);
        let mut connection = Delayed::new(near, Duration::ZERO);
        connection.write_all(b"now").await.expect("taken");
        let mut read = [0; 3];
        far.read_exact(&mut read).now_or_never().expect("at once").expect("it arrives");
        assert_eq!(&read, b"now");
    }

    #[test]
    fn many_small_writes_are_few_pieces() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
        let _guard = runtime.enter();
        let Some(mut line) = Delayed::new((), DELAY).line else { panic!("no line") };
        let began = Instant::now();
        for micros in 0..1000 {
            assert_eq!(line.push(b"x", began + Duration::from_micros(micros)), 1);
        }
        assert_eq!((line.pieces.len(), line.held), (10, 1000));
    }
}
