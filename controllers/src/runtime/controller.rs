//! What a controller is, and the loop that it runs in.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use futures::future::{BoxFuture, join_all};
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use super::clock::Clock;
use super::queue::{Key, Queue};
use super::{Context, Error, Sources, Turn};

/// client-go's default.
pub(super) const LONGEST_RETRY: Duration = Duration::from_secs(1000);

/// When to look at a key again, if nothing happens before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    Change,
    After(Duration),
}

/// A controller of one queue.
pub trait Controller: Sized + Send + Sync + 'static {
    /// Its name in kube-controller-manager.
    const NAME: &'static str;
    /// Its queue's name in the metrics.
    const QUEUE: &'static str;
    /// How many keys are worked on at the same time.
    const WORKERS: usize = 5;
    /// How long a key waits at most after a failure.
    const LONGEST_RETRY: Duration = LONGEST_RETRY;
    type Key: Key;

    /// Says which keys to look at when something changes.
    fn sources(&self, sources: &mut Sources<Self::Key>);

    /// Brings what belongs to a key closer to what it should be. It is called for keys that have gone as well.
    fn reconcile(&self, key: &Self::Key, turn: &Turn) -> impl Future<Output = Result<Next, Error>> + Send;

    /// A key that came up again had to wait for a cache to see what was written to objects of this group and resource.
    fn held_back(&self, _group: &str, _resource: &str) {}
}

/// Runs a controller until the future is dropped. `ready` is called once all its sources are known.
///
/// # Panics
/// If the controller does; [`super::supervise`] starts it again.
pub async fn run<C: Controller, S>(context: Context<S>, controller: C, ready: impl FnOnce()) {
    let queue = Queue::new(context.clock.clone(), context.metrics.queue(C::QUEUE), C::LONGEST_RETRY);
    let mut sources = Sources::new(queue.clone());
    controller.sources(&mut sources);
    let mut tasks = sources.synced().await;
    ready();
    let controller = Arc::new(controller);
    for _ in 0..C::WORKERS {
        let (controller, queue, clock) = (controller.clone(), queue.clone(), context.clock.clone());
        tasks.spawn(async move {
            loop {
                work(controller.as_ref(), &queue, &clock).await;
            }
        });
    }
    until_one_panics(tasks).await;
}

/// Makes a controller and runs it, and tells when it knows all it needs.
pub type Part<S> = fn(Context<S>, oneshot::Sender<()>) -> BoxFuture<'static, ()>;

/// Runs parts until the future is dropped. `ready` is called once all of them know all they need.
///
/// # Panics
/// If one of them does.
pub async fn together<S: Clone>(context: Context<S>, parts: &[Part<S>], ready: impl FnOnce()) {
    let start = |part: &Part<S>| {
        let (told, synced) = oneshot::channel();
        (part(context.clone(), told), synced)
    };
    let (running, synced): (Vec<_>, Vec<_>) = parts.iter().map(start).unzip();
    let all_synced = async {
        join_all(synced).await;
        ready();
    };
    futures::join!(join_all(running), all_synced);
}

async fn work<C: Controller>(controller: &C, queue: &Queue<C::Key>, clock: &Clock) {
    let key = queue.next().await;
    let mut turn = Turn::default();
    let outcome = controller.reconcile(&key, &mut turn).await;
    let late = turn.settle(clock).await;
    if queue.is_wanted(&key) {
        late.iter().for_each(|(group, resource)| controller.held_back(group, resource));
    }
    match outcome {
        Ok(next) => {
            queue.forget(&key);
            if let Next::After(delay) = next {
                queue.add_after(key.clone(), delay);
            }
        }
        Err(error) => {
            tracing::info!(controller = C::NAME, %key, %error, "will try again");
            queue.retry(key.clone());
        }
    }
    queue.done(&key);
}

/// Waits for tasks that have no end of their own.
///
/// # Panics
/// As soon as one of them did.
pub async fn until_one_panics(mut tasks: JoinSet<()>) {
    while let Some(ended) = tasks.join_next().await {
        if let Err(error) = ended
            && let Ok(panic) = error.try_into_panic()
        {
            std::panic::resume_unwind(panic);
        }
    }
    std::future::pending().await
}
