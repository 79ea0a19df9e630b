//! The `Controller` trait and its reconcile loop.

use std::future::{Future, poll_fn};
use std::sync::Arc;
use std::time::{Duration, Instant};

use coracle_clock::{Clock, Delay, Timer};
use futures::FutureExt;
use futures::future::{BoxFuture, join_all};
use kube::Client;
use rustix::time::{ClockId, clock_gettime};
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use super::context::Context;
use super::error::Error;
use super::pass::{ObservePasses, Pass};
use super::queue::{FIRST_RETRY, Key, MAX_RETRY, Queue};
use super::reconcile_context::ReconcileContext;
use super::sources::Sources;
use super::workers::work;

/// The time at which a key is reconciled again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Once a source enqueues it.
    AwaitChange,
    /// After this time, if no source enqueues it before.
    Requeue(Delay),
    /// Once a source enqueues it; a delay by this timer, from an earlier reconciliation, is canceled.
    Cancel(&'static Timer),
}

/// A controller of one queue.
pub trait Controller: Sized + Send + Sync + 'static {
    /// The name of the controller in kube-controller-manager.
    const NAME: &'static str;
    /// The name of its queue in the metrics.
    const QUEUE_NAME: &'static str;
    /// The number of keys that are reconciled concurrently.
    const WORKERS: usize = 5;
    /// The backoff after a first error.
    const FIRST_RETRY: Duration = FIRST_RETRY;
    /// The longest backoff after an error.
    const MAX_RETRY: Duration = MAX_RETRY;
    /// The number of consecutive errors after which a key is dropped until a source enqueues it
    /// again.
    const MAX_RETRIES: u32 = u32::MAX;
    /// The pause of a key after a reconciliation, as a multiple of its longest step, so that a key
    /// takes at most a fifth of a processor. An object with many dependents gets an event for each
    /// change of each, and each reconciliation reads all of them. 0 for a controller with one key
    /// for all objects.
    const PAUSE_FACTOR: u32 = 4;
    /// The keys in its queue.
    type Key: Key;

    /// Declares which keys to enqueue when something changes.
    fn sources(&self, sources: &mut Sources<Self::Key>);

    /// Brings the state of a key closer to the desired one. It is called for the keys of deleted
    /// objects as well.
    ///
    /// - `ctx`: records the writes
    ///
    /// # Errors
    /// The key has to be reconciled again.
    fn reconcile(
        &self,
        key: &Self::Key,
        ctx: &ReconcileContext,
    ) -> impl Future<Output = Result<Action, Error>> + Send;

    /// Handles the delay of a key that was enqueued again and had to wait until a cache observed
    /// the controller's write to this resource.
    fn on_stale_cache(&self, _group: &str, _resource: &str) {}
}

/// Runs a controller until the future is dropped. `ready` is called once all caches requested
/// through its context are synced.
///
/// # Panics
/// If the controller does; [`super::supervise`] restarts it.
pub async fn run<C: Controller, S>(context: Context<S>, controller: C, ready: impl FnOnce() + Send) {
    let retries = [C::FIRST_RETRY, C::MAX_RETRY];
    let queue = Queue::new(context.clock.clone(), context.metrics.queue(C::QUEUE_NAME), retries);
    let mut sources = Sources::new(queue.clone());
    controller.sources(&mut sources);
    let client = context.unrecorded.clone();
    let (clock, observer) = (context.clock.clone(), context.observer.clone());
    let reconciler = Reconciler { controller: Arc::new(controller), queue, client, clock, observer };
    context.synced().await;
    ready();
    // The caches end with the last context, which this future owns.
    futures::join!(reconciler.run(C::WORKERS), propagate_panics(sources.into_tasks()));
}

/// A type-erased controller, so that the code of the loop is compiled once for each type of keys
/// instead of for each controller.
trait ErasedController<K>: Send + Sync {
    fn name(&self) -> &'static str;
    fn max_retries(&self) -> u32;
    fn pause_factor(&self) -> u32;
    fn reconcile<'a>(&'a self, key: &'a K, ctx: &'a ReconcileContext)
    -> BoxFuture<'a, Result<Action, Error>>;
    fn on_stale_cache(&self, group: &str, resource: &str);
}

impl<C: Controller> ErasedController<C::Key> for C {
    fn name(&self) -> &'static str {
        C::NAME
    }

    fn max_retries(&self) -> u32 {
        C::MAX_RETRIES
    }

    fn pause_factor(&self) -> u32 {
        C::PAUSE_FACTOR
    }

    fn reconcile<'a>(
        &'a self,
        key: &'a C::Key,
        ctx: &'a ReconcileContext,
    ) -> BoxFuture<'a, Result<Action, Error>> {
        Controller::reconcile(self, key, ctx).boxed()
    }

    fn on_stale_cache(&self, group: &str, resource: &str) {
        Controller::on_stale_cache(self, group, resource);
    }
}

/// Reconciles the keys of a controller's queue.
struct Reconciler<K> {
    controller: Arc<dyn ErasedController<K>>,
    queue: Queue<K>,
    client: Client,
    clock: Clock,
    observer: Option<ObservePasses>,
}

impl<K: Key> Reconciler<K> {
    async fn run(self, workers: usize) {
        let (queue, reconciler) = (self.queue.clone(), Arc::new(self));
        let process = move |key| {
            let reconciler = reconciler.clone();
            async move { reconciler.process(key).await }
        };
        work(queue, workers, process).await;
    }

    #[expect(clippy::disallowed_methods, reason = "the duration of a pass is measured")]
    async fn process(&self, key: K) {
        let Reconciler { controller, queue, client, clock, observer } = self;
        let ctx = ReconcileContext::new(client.clone());
        let begun = observer.as_ref().map(|_| (clock.now(), Instant::now()));
        let (outcome, longest) = measured(controller.reconcile(&key, &ctx)).await;
        if let Some((observer, (started, instant))) = observer.as_ref().zip(begun) {
            let (controller, key, took) = (controller.name(), key.to_string(), instant.elapsed());
            observer(&Pass { controller, key, started, took, outcome: &outcome });
        }
        let late = ctx.wait_until_observed().await;
        if queue.is_dirty(&key) {
            late.iter().for_each(|(group, resource)| controller.on_stale_cache(group, resource));
        }
        match outcome {
            Ok(next) => {
                queue.forget(&key);
                match next {
                    Action::AwaitChange => {}
                    Action::Requeue(delay) => queue.add_after(key.clone(), delay),
                    Action::Cancel(timer) => queue.cancel(&key, timer),
                }
            }
            Err(error) if queue.failures(&key) >= controller.max_retries() => {
                tracing::info!(controller = controller.name(), %key, %error, "dropped after too many errors");
                queue.forget(&key);
            }
            Err(error) => {
                tracing::info!(controller = controller.name(), %key, %error, "requeued after an error");
                queue.retry(key.clone());
            }
        }
        queue.done_and_pause(&key, pause_after(longest, controller.pause_factor()));
    }
}

/// The shortest pause: a shorter one is not worth a timer.
const MIN_PAUSE: Duration = Duration::from_millis(5);
const MAX_PAUSE: Duration = Duration::from_millis(100);

/// Returns the pause of a key after a reconciliation whose longest step took `longest`; see
/// [`Controller::PAUSE_FACTOR`].
fn pause_after(longest: Duration, factor: u32) -> Duration {
    let pause = longest.saturating_mul(factor);
    if pause < MIN_PAUSE { Duration::ZERO } else { pause.min(MAX_PAUSE) }
}

/// Awaits a future, and returns its output and the processor time of its longest step, which lasts
/// from one await to the next. Requests are many short steps; a plan is one.
async fn measured<F: Future + Unpin>(mut work: F) -> (F::Output, Duration) {
    let mut longest = Duration::ZERO;
    let output = poll_fn(|context| {
        let began = processor_time();
        let polled = work.poll_unpin(context);
        longest = longest.max(processor_time().saturating_sub(began));
        polled
    })
    .await;
    (output, longest)
}

/// Returns the processor time of this thread so far. Wall-clock time would include the time taken
/// by other threads and processes.
fn processor_time() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap_or_default()
}

/// Creates and runs a controller; signals the channel when its sources are synced.
pub type Part<S> = fn(Context<S>, oneshot::Sender<()>) -> BoxFuture<'static, ()>;

/// Runs several controllers that are started under one name, until the future is dropped. `ready`
/// is called once all are synced.
///
/// # Panics
/// If one of them does.
pub async fn run_all<S: Clone>(context: Context<S>, parts: &[Part<S>], ready: impl FnOnce()) {
    let start = |part: &Part<S>| {
        let (sender, synced) = oneshot::channel();
        (part(context.clone(), sender), synced)
    };
    let (running, synced): (Vec<_>, Vec<_>) = parts.iter().map(start).unzip();
    let all_synced = async {
        join_all(synced).await;
        ready();
    };
    futures::join!(join_all(running), all_synced);
}

/// Waits for tasks that do not end.
///
/// # Panics
/// As soon as one of them does.
pub async fn propagate_panics(mut tasks: JoinSet<()>) {
    while let Some(ended) = tasks.join_next().await {
        if let Err(error) = ended
            && let Ok(panic) = error.try_into_panic()
        {
            std::panic::resume_unwind(panic);
        }
    }
    std::future::pending().await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_pause_of_a_key_follows_from_its_longest_step() {
        let work = async {
            for millis in [1, 10, 1] {
                tokio::time::sleep(Duration::from_millis(20)).await;
                let began = processor_time();
                while processor_time() - began < Duration::from_millis(millis) {}
                std::thread::sleep(Duration::from_millis(100));
            }
            7
        };
        let (output, longest) = measured(Box::pin(work)).await;
        assert_eq!(output, 7);
        assert!((10..100).contains(&longest.as_millis()), "{longest:?}");
        for (longest, pause) in [(0, 0), (1_200, 0), (1_300, 5_200), (10_000, 40_000), (500_000, 100_000)] {
            assert_eq!(
                pause_after(Duration::from_micros(longest), 4),
                Duration::from_micros(pause),
                "{longest}"
            );
            assert_eq!(pause_after(Duration::from_micros(longest), 0), Duration::ZERO, "{longest}");
        }
    }
}
