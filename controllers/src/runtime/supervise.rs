//! Controllers fail alone: one that panics is counted and started again, later each time.

use std::collections::BTreeMap;
use std::future::Future;
use std::time::Duration;

use tokio::sync::watch;

use super::Context;

const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(300);

/// Which of the controllers that were started know all they need.
#[derive(Clone, Debug, Default)]
pub struct Readiness(watch::Sender<BTreeMap<&'static str, bool>>);

impl Readiness {
    pub fn expect(&self, name: &'static str) {
        self.set(name, false);
    }

    pub fn ready(&self, name: &'static str) {
        self.set(name, true);
    }

    /// The names of those that are not ready.
    pub fn missing(&self) -> Vec<&'static str> {
        self.0.borrow().iter().filter(|(_, ready)| !**ready).map(|(name, _)| *name).collect()
    }

    /// Waits until all are ready that are expected.
    pub async fn complete(&self) {
        // The sender is ours: it does not go away.
        let _ = self.0.subscribe().wait_for(|states| states.values().all(|ready| *ready)).await;
    }

    fn set(&self, name: &'static str, ready: bool) {
        self.0.send_modify(|states| {
            states.insert(name, ready);
        });
    }
}

/// Runs what `start` makes, again after each panic, until the future is dropped or the work ends by itself.
pub async fn supervise<F>(name: &'static str, context: &Context, start: impl Fn() -> F)
where
    F: Future<Output = ()> + Send + 'static,
{
    let mut pause = FIRST_PAUSE;
    loop {
        let begun = context.clock.now();
        // A task of its own, so that a panic ends here; dropping the set ends the task.
        let mut task = tokio::task::JoinSet::new();
        task.spawn(start());
        match task.join_next().await {
            Some(Err(error)) if error.is_panic() => {}
            _ => return,
        }
        context.metrics.panics.with_label_values(&[name]).inc();
        let lived = context.clock.now().duration_since(begun);
        if Duration::try_from(lived).unwrap_or_default() > LONGEST_PAUSE {
            pause = FIRST_PAUSE;
        }
        tracing::error!(controller = name, ?pause, "panicked, and will be started again");
        context.clock.sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}
