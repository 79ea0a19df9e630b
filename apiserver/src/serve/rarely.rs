//! Rarely: what is waited for beside something that happens all the time.

use futures::stream::FuturesUnordered;

/// A future that is polled when it is woken itself, and not each time its task is: then it costs next to nothing, whatever it
/// takes to poll it. Use it with `select_next_some`, which can be dropped and called again.
pub fn rarely<F: Future>(work: F) -> FuturesUnordered<F> {
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
    async fn it_is_polled_when_it_is_woken() {
        let polls = Arc::new(AtomicUsize::new(0));
        let (send, mut receive) = oneshot::channel::<()>();
        let counted = polls.clone();
        let mut waiting = rarely(poll_fn(move |context| {
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
