//! The workers of a queue.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::Notify;
use tokio::task::{JoinError, JoinSet};

use super::current::inherited;
use super::queue::{Key, Queue};

/// The workers of one queue.
#[derive(Default)]
struct Workers {
    /// The number of those that wait for a key.
    waiting: AtomicUsize,
    /// Notified when none of them waits any more.
    are_busy: Notify,
}

/// Processes the keys of a queue, at most so many at once, for ever. One worker waits at first;
/// another one begins when none is left that waits, so that a queue with little to do takes little
/// memory.
///
/// - `process`: has to call [`Queue::done`]
///
/// # Panics
/// If `process` does.
pub async fn work<K, F>(queue: Queue<K>, most: usize, process: impl Fn(K) -> F + Clone + Send + 'static)
where
    K: Key,
    F: Future<Output = ()> + Send + 'static,
{
    let workers = Arc::new(Workers::default());
    let mut tasks = JoinSet::new();
    loop {
        if tasks.len() < most && workers.waiting.load(Ordering::SeqCst) == 0 {
            workers.waiting.fetch_add(1, Ordering::SeqCst);
            let (queue, workers, process) = (queue.clone(), workers.clone(), process.clone());
            tasks.spawn(inherited(async move {
                loop {
                    let key = queue.next().await;
                    if workers.waiting.fetch_sub(1, Ordering::SeqCst) == 1 {
                        workers.are_busy.notify_one();
                    }
                    process(key).await;
                    workers.waiting.fetch_add(1, Ordering::SeqCst);
                }
            }));
        }
        tokio::select! {
            () = workers.are_busy.notified() => {}
            ended = tasks.join_next() => match ended.and_then(Result::err).map(JoinError::try_into_panic) {
                Some(Ok(panic)) => std::panic::resume_unwind(panic),
                // The runtime ends, and this with it.
                _ => std::future::pending().await,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use coracle_clock::Clock;
    use prometheus::Registry;
    use tokio::sync::Semaphore;

    use super::*;
    use crate::metrics::Metrics;
    use crate::queue::{FIRST_RETRY, MAX_RETRY};

    /// Verifies that the tasks of a runtime are canceled one by one when it ends, so that they
    /// observe the end of their workers.
    #[test]
    fn workers_end_with_their_runtime() {
        for _ in 0..50 {
            let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
            for _ in 0..20 {
                let metrics = Metrics::new(Registry::new()).queue("test");
                let queue = Queue::<String>::new(Clock::system(), metrics, [FIRST_RETRY, MAX_RETRY]);
                runtime.spawn(work(queue, 2, |_| std::future::pending()));
            }
            // It waits until no task is polled any more.
            drop(runtime);
        }
    }

    #[tokio::test]
    async fn workers_begin_as_they_are_needed() {
        const MAX_WORKERS: usize = 3;
        let metrics = Metrics::new(Registry::new()).queue("test");
        let queue = Queue::<String>::new(Clock::system(), metrics, [FIRST_RETRY, MAX_RETRY]);
        let (may_end, begun) = (Arc::new(Semaphore::new(0)), Arc::new(AtomicUsize::new(0)));
        let process = {
            let (queue, may_end, begun) = (queue.clone(), may_end.clone(), begun.clone());
            move |key: String| {
                let (queue, may_end, begun) = (queue.clone(), may_end.clone(), begun.clone());
                async move {
                    begun.fetch_add(1, Ordering::SeqCst);
                    may_end.acquire().await.unwrap().forget();
                    queue.done(&key);
                }
            }
        };
        let working = tokio::spawn(work(queue.clone(), MAX_WORKERS, process));
        let until = async |count: usize| {
            while begun.load(Ordering::SeqCst) < count {
                tokio::task::yield_now().await;
            }
        };
        for (round, count) in [(0, MAX_WORKERS), (1, MAX_WORKERS + 1), (2, MAX_WORKERS + 2)] {
            if round == 0 {
                (0..MAX_WORKERS + 2).for_each(|key| queue.add(key.to_string()));
            } else {
                may_end.add_permits(1);
            }
            until(count).await;
            for _ in 0..100 {
                tokio::task::yield_now().await;
            }
            assert_eq!(begun.load(Ordering::SeqCst), count, "at most {MAX_WORKERS} at once");
        }
        working.abort();
    }
}
