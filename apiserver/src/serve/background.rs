//! Background: work that takes long, run where it keeps no other request waiting.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};
use std::thread;

use futures::FutureExt;
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::Semaphore;
use tracing::Span;

/// The nice value of the threads that work in the background. Threads of other processes compete with ours as before where
/// the system schedules by sessions or groups, as desktops and containers do.
const NICE: i32 = 10;
/// As a thread of the runtime has it.
const STACK_BYTES: usize = 2 << 20;

/// Runs a future whose steps take long. Each step takes a turn of `turns`, which the future does not keep while it waits for
/// others, and runs on a thread of its own, of a lower priority than the threads that serve everybody. On a runtime of one
/// thread it runs as any future does.
pub async fn in_background<F: Future<Output: Send> + Send>(turns: &Arc<Semaphore>, work: F) -> F::Output {
    let runtime = Handle::try_current().ok().filter(|h| h.runtime_flavor() == RuntimeFlavor::MultiThread);
    let mut work = pin!(work);
    let mut waiting = None;
    poll_fn(|context| {
        let turn = waiting.get_or_insert_with(|| turns.clone().acquire_owned().boxed());
        // Nobody closes the semaphore; without a turn the work would go on all the same.
        let _turn = ready!(turn.poll_unpin(context));
        waiting = None;
        match &runtime {
            Some(runtime) => {
                tokio::task::block_in_place(|| poll_on_thread(runtime, work.as_mut(), context.waker()))
            }
            None => work.as_mut().poll(context),
        }
    })
    .await
}

/// Polls a future on a new thread of low priority, and waits for that. A panic there goes on here.
fn poll_on_thread<F: Future<Output: Send> + Send>(
    runtime: &Handle,
    mut work: Pin<&mut F>,
    waker: &Waker,
) -> Poll<F::Output> {
    let span = Span::current();
    let polled = thread::scope(|scope| {
        let work = work.as_mut();
        let poll = || {
            // Of this thread alone. Where it is not allowed, the work competes with everybody's, as all work did.
            _ = rustix::process::setpriority_process(None, NICE);
            let _runtime = runtime.enter();
            span.in_scope(|| work.poll(&mut Context::from_waker(waker)))
        };
        let builder = thread::Builder::new().name("background".to_owned()).stack_size(STACK_BYTES);
        builder.spawn_scoped(scope, poll).ok().map(thread::ScopedJoinHandle::join)
    });
    match polled {
        Some(Ok(poll)) => poll,
        Some(Err(panic)) => std::panic::resume_unwind(panic),
        // The system has no thread to spare.
        None => work.poll(&mut Context::from_waker(waker)),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::{Duration, Instant};

    use super::*;

    fn one_turn() -> Arc<Semaphore> {
        Arc::new(Semaphore::new(1))
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn others_run_meanwhile() {
        let done = Arc::new(AtomicBool::new(false));
        let seen = done.clone();
        let work = tokio::spawn(async move {
            let work = async move {
                let deadline = Instant::now() + Duration::from_secs(30);
                while !seen.load(Ordering::SeqCst) && Instant::now() < deadline {
                    thread::sleep(Duration::from_millis(1));
                }
                seen.load(Ordering::SeqCst)
            };
            in_background(&one_turn(), work).await
        });
        let other = tokio::spawn(async move { done.store(true, Ordering::SeqCst) });
        assert!(work.await.expect("no panic"), "the other task ran");
        other.await.expect("no panic");
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn it_runs_at_a_lower_priority_within_the_runtime() {
        fn nice() -> i32 {
            rustix::process::getpriority_process(None).expect("a priority")
        }
        let before = nice();
        let work = async {
            tokio::time::sleep(Duration::from_millis(1)).await;
            let elsewhere = tokio::spawn(async { nice() }).await.expect("no panic");
            (nice(), elsewhere)
        };
        assert_eq!(in_background(&one_turn(), work).await, ((before + NICE).min(19), before));
        assert_eq!(nice(), before);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn a_panic_is_that_of_the_task() {
        let task = tokio::spawn(async {
            in_background(&one_turn(), async { panic!("on purpose") }).await;
        });
        let panic = task.await.expect_err("a panic").into_panic();
        assert_eq!(panic.downcast_ref::<&str>(), Some(&"on purpose"));
    }

    #[tokio::test]
    async fn one_thread_does_it_itself() {
        assert_eq!(in_background(&one_turn(), async { 1 }).await, 1);
    }

    #[tokio::test]
    async fn who_waits_for_others_has_no_turn() {
        let turns = one_turn();
        let (send, receive) = tokio::sync::oneshot::channel();
        let first = in_background(&turns, receive);
        let second = in_background(&turns, async { send.send(1) });
        let (first, second) = tokio::join!(first, second);
        assert_eq!((first, second), (Ok(1), Ok(())));
    }
}
