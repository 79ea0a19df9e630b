//! Background: work that takes long, run where it keeps no other request waiting.
#![expect(clippy::disallowed_methods, reason = "the wait for a seat protects the server")]

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::{Arc, LazyLock};
use std::task::{Context, Poll, Waker, ready};
use std::thread;
use std::time::Duration;

use coracle_cel::{Limits, Meter};
use futures::FutureExt;
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::Semaphore;
use tokio::time::Instant;
use tracing::Span;

use crate::access::UserInfo;
use crate::flow_control::{QueueLimits, QueueSet};
use crate::{Error, Result};

/// The nice value of the threads that work in the background. Threads of other processes compete
/// with ours as before where the system schedules by sessions or groups, as desktops and containers
/// do.
const NICE: i32 = 10;
/// The size of a thread's stack, as for the threads of the runtime.
const STACK_BYTES: usize = 2 << 20;

/// Runs a future that takes long to poll. Each poll acquires one of `permits`, releases it at its
/// end, and runs on a new thread of a lower priority than the threads that serve requests. On a
/// single-threaded runtime the future is polled as any other.
pub async fn in_background<F: Future<Output: Send> + Send>(permits: &Arc<Semaphore>, work: F) -> F::Output {
    let runtime = Handle::try_current().ok().filter(|h| h.runtime_flavor() == RuntimeFlavor::MultiThread);
    let mut work = pin!(work);
    let mut waiting = None;
    poll_fn(|context| {
        let permit = waiting.get_or_insert_with(|| permits.clone().acquire_owned().boxed());
        // Nobody closes the semaphore; without a permit the work would go on all the same.
        let _permit = ready!(permit.poll_unpin(context));
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
            // Of this thread alone. Where it is not allowed, the work competes with everybody's, as
            // all work did.
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

/// The number of requests that evaluate expressions in the background at once, half of them of one
/// user, and that may wait. Only one works at a time.
pub const EVALUATION_LIMITS: QueueLimits = QueueLimits { seats: 2, waiting_per_flow: 300, waiting: 4000 };
/// The longest that a request waits to evaluate its expressions.
const EVALUATION_WAIT: Duration = Duration::from_secs(15);

/// The permit for the writes that this server makes itself, such as the status of a definition.
static INTERNAL_PERMIT: LazyLock<Arc<Semaphore>> = LazyLock::new(|| Arc::new(Semaphore::new(1)));

tokio::task_local! {
    /// The place where the request that the task executes evaluates expressions that take long.
    static EVALUATOR: Evaluator;
}

/// The place where the expressions of a request are evaluated if that takes long.
#[derive(Clone)]
pub struct Evaluator {
    /// Seats by user, so that the expressions of one delay only his own requests.
    pub seats: Arc<QueueSet>,
    /// The permits for polls in the background.
    pub permits: Arc<Semaphore>,
    /// The user of the request.
    pub user: Arc<UserInfo>,
    /// Whether the request is executed in the background already.
    pub is_background: bool,
}

impl Evaluator {
    /// Runs the work for a request, in which [`evaluate`] finds this.
    pub fn scope<F: Future>(self, work: F) -> impl Future<Output = F::Output> {
        EVALUATOR.scope(self, work)
    }
}

/// Evaluates expressions. They begin where the request is executed; if they turn out to take long,
/// they are evaluated again in the background. The second time they have all that a request may
/// use.
///
/// # Errors
/// 429 if there is no permit in time.
pub async fn evaluate<T: Send>(evaluate: impl Fn(&Meter) -> T + Send + Sync) -> Result<T> {
    let evaluator = EVALUATOR.try_with(Evaluator::clone).ok();
    if evaluator.as_ref().is_some_and(|evaluator| evaluator.is_background) {
        return Ok(evaluate(&Meter::new(Limits::REQUEST)));
    }
    if let Some(value) = evaluate_briefly(&evaluate) {
        return Ok(value);
    }
    let Some(Evaluator { seats, permits, user, .. }) = evaluator else {
        return Ok(in_background(&INTERNAL_PERMIT, async { evaluate(&Meter::new(Limits::REQUEST)) }).await);
    };
    let seat = seats.acquire(&user.name, Instant::now() + EVALUATION_WAIT).await;
    let _seat = seat.map_err(|_| Error::too_many_requests())?;
    Ok(in_background(&permits, async { evaluate(&Meter::new(Limits::REQUEST)) }).await)
}

fn evaluate_briefly<T>(evaluate: impl Fn(&Meter) -> T) -> Option<T> {
    let meter = Meter::new(Limits::BRIEF);
    let value = evaluate(&meter);
    (!meter.is_exceeded()).then_some(value)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Instant as StdInstant;

    use super::*;

    fn one_permit() -> Arc<Semaphore> {
        Arc::new(Semaphore::new(1))
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn others_run_meanwhile() {
        let done = Arc::new(AtomicBool::new(false));
        let seen = done.clone();
        let work = tokio::spawn(async move {
            let work = async move {
                let deadline = StdInstant::now() + Duration::from_secs(30);
                while !seen.load(Ordering::SeqCst) && StdInstant::now() < deadline {
                    thread::sleep(Duration::from_millis(1));
                }
                seen.load(Ordering::SeqCst)
            };
            in_background(&one_permit(), work).await
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
        assert_eq!(in_background(&one_permit(), work).await, ((before + NICE).min(19), before));
        assert_eq!(nice(), before);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn a_panic_is_that_of_the_task() {
        let task = tokio::spawn(async {
            in_background(&one_permit(), async { panic!("on purpose") }).await;
        });
        let panic = task.await.expect_err("a panic").into_panic();
        assert_eq!(panic.downcast_ref::<&str>(), Some(&"on purpose"));
    }

    #[tokio::test]
    async fn one_thread_does_it_itself() {
        assert_eq!(in_background(&one_permit(), async { 1 }).await, 1);
    }

    #[tokio::test]
    async fn a_future_that_waits_holds_no_permit() {
        let permits = one_permit();
        let (send, receive) = tokio::sync::oneshot::channel();
        let first = in_background(&permits, receive);
        let second = in_background(&permits, async { send.send(1) });
        let (first, second) = tokio::join!(first, second);
        assert_eq!((first, second), (Ok(1), Ok(())));
    }

    fn is_background() -> bool {
        thread::current().name() == Some("background")
    }

    fn evaluator(is_background: bool) -> Evaluator {
        let user = Arc::new(UserInfo::new("alice", &[]));
        Evaluator { seats: QueueSet::with(EVALUATION_LIMITS), permits: one_permit(), user, is_background }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn only_long_evaluations_are_in_the_background() {
        let work = |steps: u64| {
            evaluator(false).scope(evaluate(move |meter| (meter.count(steps).is_ok(), is_background())))
        };
        assert_eq!(work(10).await.ok(), Some((true, false)));
        assert_eq!(work(Limits::BRIEF.steps + 1).await.ok(), Some((true, true)));
        assert_eq!(work(Limits::REQUEST.steps + 1).await.ok(), Some((false, true)), "but not without limits");
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn a_request_in_the_background_evaluates_with_its_own_permit() {
        let large = evaluator(true);
        let permits = large.permits.clone();
        let work = large.scope(evaluate(|meter| meter.count(Limits::BRIEF.steps + 1).is_ok()));
        assert_eq!(in_background(&permits, work).await.ok(), Some(true));
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn one_user_evaluates_one_thing_at_a_time() {
        let one = evaluator(false);
        let seat = one.seats.acquire("alice", Instant::now()).await.expect("the only seat of a user");
        let long = |evaluator: Evaluator| {
            evaluator.scope(evaluate(|meter| meter.count(Limits::BRIEF.steps + 1).is_ok()))
        };
        let bob = Evaluator { user: Arc::new(UserInfo::new("bob", &[])), ..one.clone() };
        let waiting = tokio::spawn(long(one));
        assert_eq!(long(bob).await.ok(), Some(true), "another user has a seat of his own");
        assert!(!waiting.is_finished());
        drop(seat);
        assert_eq!(waiting.await.expect("no panic").ok(), Some(true));
    }
}
