//! Supervision of controllers: one that panics is counted and restarted after a growing pause,
//! without affecting others. The same holds for the tasks that all controllers depend on: caches,
//! events, discovery.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use super::timers::RESTART;
use coracle_clock::Clock;
use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::sync::{Mutex, mpsc, watch};

use super::metrics::Metrics;

const FIRST_PAUSE: Duration = Duration::from_secs(1);
const MAX_PAUSE: Duration = Duration::from_secs(300);

/// The started controllers, and whether their caches are synced.
#[derive(Clone, Debug, Default)]
pub struct Readiness(watch::Sender<BTreeMap<&'static str, bool>>);

impl Readiness {
    /// Registers a controller as not ready yet.
    pub fn expect(&self, name: &'static str) {
        self.set(name, false);
    }

    /// Marks a controller as ready.
    pub fn ready(&self, name: &'static str) {
        self.set(name, true);
    }

    /// Returns the names of the controllers that are not ready.
    pub fn missing(&self) -> Vec<&'static str> {
        self.0.borrow().iter().filter(|(_, ready)| !**ready).map(|(name, _)| *name).collect()
    }

    /// Waits until all registered controllers are ready.
    pub async fn complete(&self) {
        // The sender is a field of `self`, so that it is not dropped.
        let _ = self.0.subscribe().wait_for(|states| states.values().all(|ready| *ready)).await;
    }

    fn set(&self, name: &'static str, ready: bool) {
        self.0.send_modify(|states| {
            states.insert(name, ready);
        });
    }
}

/// Restarts tasks after a panic. It does not keep the tasks themselves alive.
#[derive(Clone)]
pub struct Supervisor {
    clock: Clock,
    metrics: Metrics,
}

impl Supervisor {
    /// Creates a supervisor that restarts tasks by this clock.
    ///
    /// - `metrics`: counts the panics
    pub fn new(clock: Clock, metrics: Metrics) -> Supervisor {
        Supervisor { clock, metrics }
    }

    /// Runs the future made by `start`, again after each panic, until it is dropped or the work
    /// ends by itself.
    pub async fn run<F>(&self, name: &str, start: impl Fn() -> F + Send)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        self.run_boxed(name, Box::new(move || start().boxed())).await;
    }

    /// Runs boxed work. The code is shared by all tasks, which have different types.
    async fn run_boxed(&self, name: &str, start: Box<dyn Fn() -> BoxFuture<'static, ()> + Send + '_>) {
        let mut pause = FIRST_PAUSE;
        loop {
            let begun = self.clock.now();
            // A task of its own, so that a panic ends here; dropping the set ends the task.
            let mut task = tokio::task::JoinSet::new();
            task.spawn(start());
            match task.join_next().await {
                Some(Err(error)) if error.is_panic() => {}
                _ => return,
            }
            self.metrics.panics.with_label_values(&[name]).inc();
            let lived = self.clock.now().duration_since(begun);
            if Duration::try_from(lived).unwrap_or_default() > MAX_PAUSE {
                pause = FIRST_PAUSE;
            }
            tracing::error!(task = name, ?pause, "panicked and will be restarted");
            drop(self.clock.sleep(RESTART.after(pause)).of(name.to_owned()).await);
            pause = (pause * 2).min(MAX_PAUSE);
        }
    }

    /// Passes the items of a channel to a handler, one after the other, until the channel is
    /// closed. A panic loses the item just passed and the handler, which is made again.
    pub async fn consume<T, H, F>(
        &self,
        name: &str,
        channel: mpsc::Receiver<T>,
        make: impl Fn() -> H + Clone + Send + 'static,
    ) where
        T: Send + 'static,
        H: FnMut(T) -> F + Send + 'static,
        F: Future<Output = ()> + Send + 'static,
    {
        let channel = Arc::new(Mutex::new(channel));
        self.run(name, move || {
            let (channel, make) = (channel.clone(), make.clone());
            async move {
                // Only the restarted task takes the lock after this.
                let mut channel = channel.lock().await;
                let mut handle = make();
                while let Some(item) = channel.recv().await {
                    handle(item).await;
                }
            }
        })
        .await;
    }
}
