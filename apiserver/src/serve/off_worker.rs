//! Off worker: work that takes long, run where it keeps no other request waiting.

use std::future::{Future, poll_fn};
use std::pin::pin;

use tokio::runtime::{Handle, RuntimeFlavor};

/// Runs a future whose steps take long. Before each, the runtime hands the other tasks of this thread to another one; the operating
/// system then shares the processors between them. On a runtime of one thread there is no other one, and it runs as any future does.
pub async fn off_worker<F: Future>(work: F) -> F::Output {
    let others = Handle::try_current().is_ok_and(|h| h.runtime_flavor() == RuntimeFlavor::MultiThread);
    let mut work = pin!(work);
    poll_fn(|context| match others {
        true => tokio::task::block_in_place(|| work.as_mut().poll(context)),
        false => work.as_mut().poll(context),
    })
    .await
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::{Duration, Instant};

    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn others_run_meanwhile() {
        let done = Arc::new(AtomicBool::new(false));
        let seen = done.clone();
        let work = tokio::spawn(off_worker(async move {
            let deadline = Instant::now() + Duration::from_secs(30);
            while !seen.load(Ordering::SeqCst) && Instant::now() < deadline {
                std::thread::sleep(Duration::from_millis(1));
            }
            seen.load(Ordering::SeqCst)
        }));
        let other = tokio::spawn(async move { done.store(true, Ordering::SeqCst) });
        assert!(work.await.expect("no panic"), "the other task ran");
        other.await.expect("no panic");
    }

    #[tokio::test]
    async fn one_thread_does_it_itself() {
        assert_eq!(off_worker(async { 1 }).await, 1);
    }
}
