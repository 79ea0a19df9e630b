//! Turns: a connection reads a few kilobytes, and then lets others have their turn.
//!
//! The bytes of a client are worked on as long as there is more of it, in one poll of the
//! connection's task. Small frames without a request, such as the pings and settings of HTTP/2 or
//! the empty records of TLS, are so cheap to send that a poll would work on hundreds of thousands
//! of them: tokio counts reads, and not what is in them.

use std::io;
use std::task::{Context, Poll};

use super::observed::Observer;

/// A turn ends with the read that makes it so many bytes. A buffer of hyper takes as many at once,
/// unless a frame needs more.
const TURN: usize = 8 << 10;

/// Ends the reads of a connection with a turn while there is more to read.
#[derive(Default)]
pub struct Turns {
    /// The bytes that were read in this turn.
    read: usize,
}

impl Observer for Turns {
    fn poll_may_read(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if self.read < TURN {
            return Poll::Ready(());
        }
        self.read = 0;
        // The task is queued behind all others.
        context.waker().wake_by_ref();
        Poll::Pending
    }

    fn read(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.read += bytes.len();
        Ok(())
    }

    fn waits(&mut self) {
        self.read = 0;
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;
    use tokio::io::AsyncReadExt;

    use super::super::observed::Observed;
    use super::*;

    #[tokio::test]
    async fn a_connection_with_more_to_read_ends_its_turn() {
        let mut connection = Observed::new(tokio::io::repeat(b'x'), Turns::default());
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
        let mut connection = Observed::new(near, Turns::default());
        let mut buffer = vec![0; TURN];
        for _ in 0..3 {
            tokio::io::AsyncWriteExt::write_all(&mut far, &vec![0; TURN - 1]).await.expect("taken");
            assert_eq!(connection.read(&mut buffer).now_or_never().map(Result::ok), Some(Some(TURN - 1)));
            assert!(connection.read(&mut buffer).now_or_never().is_none(), "nothing is left");
        }
    }
}
