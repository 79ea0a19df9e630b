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
use tokio::time::Instant;

use super::metrics::Metrics;

const FIRST_PAUSE: Duration = Duration::from_secs(1);
const MAX_PAUSE: Duration = Duration::from_secs(300);

/// The started controllers, and whether their caches are synced.
#[derive(Clone, Debug, Default)]
pub struct Readiness(watch::Sender<BTreeMap<&'static str, State>>);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum State {
    ExpectedSince(Instant),
    Synced,
    Ready,
}

impl Readiness {
    /// Registers a controller as not ready yet.
    #[expect(clippy::disallowed_methods, reason = "a start takes its time on the machine")]
    pub fn expect(&self, name: &'static str) {
        self.set(name, State::ExpectedSince(Instant::now()));
    }

    /// Marks the caches of a controller as synced, which has more to do until it is ready.
    pub fn synced(&self, name: &'static str) {
        self.set(name, State::Synced);
    }

    /// Marks a controller as ready, and its caches as synced.
    pub fn ready(&self, name: &'static str) {
        self.set(name, State::Ready);
    }

    /// Returns the names of the controllers whose caches have not been synced for this long.
    pub fn missing_for(&self, age: Duration) -> Vec<&'static str> {
        let is_missing = |state: &State| match state {
            State::ExpectedSince(since) => since.elapsed() >= age,
            State::Synced | State::Ready => false,
        };
        self.0.borrow().iter().filter(|(_, state)| is_missing(state)).map(|(name, _)| *name).collect()
    }

    /// Returns `true` if a controller is ready, or not registered.
    pub fn is_ready(&self, name: &str) -> bool {
        is_ready(&self.0.borrow(), name)
    }

    /// Waits until the caches of all registered controllers are synced.
    pub async fn complete(&self) {
        self.wait_until(|states| states.values().all(|state| *state >= State::Synced)).await;
    }

    /// Waits until a controller is ready. It does not wait for one that is not registered.
    pub async fn of(&self, name: &str) {
        self.wait_until(|states| is_ready(states, name)).await;
    }

    async fn wait_until(&self, is_reached: impl FnMut(&BTreeMap<&'static str, State>) -> bool) {
        // The sender is a field of `self`, so that it is not dropped.
        let _ = self.0.subscribe().wait_for(is_reached).await;
    }

    fn set(&self, name: &'static str, state: State) {
        self.0.send_modify(|states| {
            states.insert(name, state);
        });
    }
}

fn is_ready(states: &BTreeMap<&'static str, State>, name: &str) -> bool {
    states.get(name).is_none_or(|state| *state == State::Ready)
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

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_controller_that_does_not_get_ready_is_missing() {
        const LIMIT: Duration = Duration::from_secs(10);
        let readiness = Readiness::default();
        readiness.expect("a");
        readiness.expect("b");
        readiness.ready("b");
        assert_eq!(readiness.of("a").now_or_never(), None);
        assert_eq!(readiness.complete().now_or_never(), None);
        assert_eq!(readiness.of("b").now_or_never(), Some(()));
        assert_eq!(readiness.of("unknown").now_or_never(), Some(()), "there is nothing to wait for");
        assert_eq!(readiness.missing_for(LIMIT), [""; 0]);
        tokio::time::advance(LIMIT).await;
        assert_eq!(readiness.missing_for(LIMIT), ["a"]);
        readiness.synced("a");
        assert_eq!(readiness.missing_for(LIMIT), [""; 0]);
        assert_eq!(readiness.complete().now_or_never(), Some(()));
        assert_eq!(readiness.of("a").now_or_never(), None, "it has more to do");
        assert!(!readiness.is_ready("a") && readiness.is_ready("b") && readiness.is_ready("unknown"));
        readiness.ready("a");
        assert_eq!(readiness.of("a").now_or_never(), Some(()));
    }
}
