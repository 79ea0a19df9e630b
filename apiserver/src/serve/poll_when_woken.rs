//! Polls a future only when its own waker fires, not on every poll of the surrounding task.

use futures::stream::FuturesUnordered;

/// Wraps a future so that it is polled only when its own waker fires, not on every poll of the
/// task. The cost of its `poll` then does not matter for a task that is woken often.
///
/// Use it with `select_next_some`, which is cancellation-safe.
pub fn poll_when_woken<F: Future>(work: F) -> FuturesUnordered<F> {
    FuturesUnordered::from_iter([work])
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Poll;

    use futures::{FutureExt, StreamExt};
    use tokio::sync::oneshot;

    use super::*;

    #[tokio::test]
    async fn a_future_is_polled_only_when_its_own_waker_fires() {
        let polls = Arc::new(AtomicUsize::new(0));
        let (send, mut receive) = oneshot::channel::<()>();
        let counted = polls.clone();
        let mut waiting = poll_when_woken(poll_fn(move |context| {
            counted.fetch_add(1, Ordering::Relaxed);
            receive.poll_unpin(context).map(drop)
        }));
        for _ in 0..10 {
            assert_eq!(waiting.select_next_some().now_or_never(), None);
        }
        assert_eq!(polls.load(Ordering::Relaxed), 1);
        assert_eq!(send.send(()), Ok(()));
        assert_eq!(waiting.select_next_some().now_or_never(), Some(()));
        assert_eq!(polls.load(Ordering::Relaxed), 2);
        assert!(matches!(futures::poll!(waiting.next()), Poll::Ready(None)), "it is done once");
    }
}
