//! Streams: the start of requests on one HTTP/2 connection.
//!
//! A client can send a hundred requests in one packet, whose tasks would be queued in the runtime
//! before those of others. So only a few of a connection are in that queue to start; when one has
//! been polled once, the next follows at its end. This does not limit the number of requests in
//! progress. A stream that the client resets keeps waiting, though it no longer counts for the
//! connection: a connection with too many waiting streams is closed, as by Go's server.

use std::collections::VecDeque;
use std::pin::pin;
use std::sync::Arc;

use futures::future::BoxFuture;
use hyper::rt::Executor;
use parking_lot::{Mutex, MutexGuard};
use tokio::runtime::Handle;
use tokio::sync::Notify;

use super::transfers::cuttable;

/// The largest number of streams of a connection that are in the runtime's queue and were never
/// polled: enough for all threads.
const MAX_STARTING: usize = 8;
/// The largest number of requests in progress on one connection: upstream's limit since rapid
/// resets (CVE-2023-44487).
pub const MAX_CONCURRENT_STREAMS: u32 = 100;
/// The largest number of waiting streams of a connection: Go's `4 * maxConcurrentStreams`. Without
/// resets there are fewer than those in progress.
const MAX_WAITING: usize = 4 * MAX_CONCURRENT_STREAMS as usize;

/// Spawns the streams of one connection, each so that it can be cut off without its connection.
#[derive(Clone)]
pub struct Streams {
    queue: Arc<Mutex<Queue>>,
    /// Notified when the connection must be closed.
    close: Arc<Notify>,
}

#[derive(Default)]
struct Queue {
    /// The number of streams that were spawned and not polled yet.
    starting: usize,
    /// The other streams. As long as there are any, some are starting.
    waiting: VecDeque<BoxFuture<'static, ()>>,
}

impl Streams {
    /// Creates the streams of a connection, which is closed when `close` is notified.
    pub fn new(close: Arc<Notify>) -> Streams {
        Streams { queue: Arc::default(), close }
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock()
    }
}

impl<F> Executor<F> for Streams
where
    F: Future<Output: Send> + Send + 'static,
{
    fn execute(&self, stream: F) {
        let mut queue = self.queue();
        if queue.waiting.len() >= MAX_WAITING {
            return self.close.notify_one();
        }
        let permit = StartPermit(self.clone());
        let task = async move {
            let mut stream = pin!(cuttable(Arc::default(), stream));
            let begun = futures::poll!(&mut stream);
            drop(permit);
            if begun.is_pending() {
                stream.await;
            }
        };
        if queue.starting < MAX_STARTING {
            queue.starting += 1;
            drop(queue);
            tokio::spawn(task);
        } else {
            queue.waiting.push_back(Box::pin(task));
        }
    }
}

/// The permit of a stream to start, which is passed to the next one when it is dropped.
struct StartPermit(Streams);

impl Drop for StartPermit {
    fn drop(&mut self) {
        let next = {
            let mut queue = self.0.queue();
            let next = queue.waiting.pop_front();
            if next.is_none() {
                queue.starting -= 1;
            }
            next
        };
        if let Some(next) = next {
            // After the end of the runtime all of them are dropped, by each other.
            Handle::try_current().ok().map(|runtime| runtime.spawn(next));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use futures::FutureExt;

    /// Waits until `begun` reaches a number.
    async fn until(begun: &AtomicUsize, many: usize) {
        while begun.load(Ordering::SeqCst) < many {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn other_tasks_run_between_the_streams_of_a_packet() {
        const MANY: usize = 100;
        let (streams, begun) = (Streams::new(Arc::default()), Arc::new(AtomicUsize::new(0)));
        for _ in 0..MANY {
            let begun = begun.clone();
            // Each of them waits once it has started.
            streams.execute(async move {
                begun.fetch_add(1, Ordering::SeqCst);
                pending::<()>().await
            });
        }
        let seen = begun.clone();
        let other = tokio::spawn(async move { seen.load(Ordering::SeqCst) });
        assert_eq!(other.await.expect("no panic"), MAX_STARTING);
        until(&begun, MANY).await;
    }

    #[tokio::test]
    async fn a_stream_that_panics_passes_its_permit_on() {
        let (streams, begun) = (Streams::new(Arc::default()), Arc::new(AtomicUsize::new(0)));
        for i in 0..2 * MAX_STARTING {
            let begun = begun.clone();
            streams.execute(async move {
                begun.fetch_add(1, Ordering::SeqCst);
                assert!(i >= MAX_STARTING, "this one panics");
            });
        }
        until(&begun, 2 * MAX_STARTING).await;
        tokio::task::yield_now().await;
        assert_eq!(streams.queue().starting, 0);
    }

    #[tokio::test]
    async fn a_connection_with_too_many_waiting_streams_is_closed() {
        let close = Arc::new(Notify::new());
        let streams = Streams::new(close.clone());
        let execute_many = |many: usize| (0..many).for_each(|_| streams.execute(pending::<()>()));
        execute_many(MAX_STARTING + MAX_WAITING);
        assert_eq!(close.notified().now_or_never(), None);
        execute_many(1000);
        assert_eq!(streams.queue().waiting.len(), MAX_WAITING, "what is more is dropped");
        assert_eq!(close.notified().now_or_never(), Some(()));
        // The waiting streams continue to be processed.
        while streams.queue().starting > 0 {
            tokio::task::yield_now().await;
        }
        assert!(streams.queue().waiting.is_empty());
    }

    #[test]
    fn nothing_is_left_of_a_runtime_that_ends() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        let held = Arc::new(());
        let streams = runtime.block_on(async {
            let streams = Streams::new(Arc::default());
            for _ in 0..2 * MAX_STARTING {
                let held = held.clone();
                streams.execute(pending::<()>().map(|()| drop(held)));
            }
            streams
        });
        drop(runtime);
        assert_eq!(Arc::strong_count(&held), 1);
        assert_eq!(Arc::strong_count(&streams.queue), 1);
    }

    #[tokio::test]
    async fn a_stream_that_has_begun_goes_on() {
        let (streams, go, done) =
            (Streams::new(Arc::default()), Arc::new(Notify::new()), Arc::new(Notify::new()));
        let (gone, end) = (go.clone(), done.clone());
        streams.execute(async move {
            gone.notified().await;
            end.notify_one();
        });
        streams.execute(ready(()));
        go.notify_one();
        done.notified().await;
    }
}
