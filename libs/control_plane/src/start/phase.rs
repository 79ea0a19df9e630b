//! Phases: the started parts of a control plane, and the one way in which they end.

use coracle_storage::StoreError;
use futures::future::{BoxFuture, FutureExt};
use tokio::runtime::Handle;
use tokio::task::JoinSet;

/// A part of a control plane that was started and can stop itself.
pub trait Phase: Send + Sync + 'static {
    /// Ends the work that writes to the store, without waiting for it.
    ///
    /// It precedes [`stop`](Self::stop) where that may never run: a runtime that is shutting down
    /// runs no further tasks.
    fn abort(&mut self) {}

    /// Stops the part. Nothing of it runs afterwards.
    ///
    /// # Errors
    /// The store could not be closed.
    fn stop(self: Box<Self>) -> BoxFuture<'static, Result<(), StoreError>>;
}

/// Tasks that are aborted.
impl Phase for JoinSet<()> {
    fn abort(&mut self) {
        self.abort_all();
    }

    fn stop(mut self: Box<Self>) -> BoxFuture<'static, Result<(), StoreError>> {
        async move {
            self.shutdown().await;
            Ok(())
        }
        .boxed()
    }
}

/// The phases that were started, in order. Dropping them stops them in the background, as long as
/// the runtime exists.
pub struct Started {
    phases: Vec<Box<dyn Phase>>,
    runtime: Handle,
}

impl Started {
    /// Creates an empty list of phases, on the current runtime.
    pub fn none() -> Started {
        Started { phases: Vec::new(), runtime: Handle::current() }
    }

    /// Adds a phase, which is stopped before those that were started earlier.
    pub fn push(&mut self, phase: impl Phase) {
        self.phases.push(Box::new(phase));
    }

    /// Stops all phases, the last one first, in the background: dropping the returned future
    /// changes nothing.
    ///
    /// # Errors
    /// The store could not be closed; everything else is stopped nevertheless.
    pub async fn stop(&mut self) -> Result<(), StoreError> {
        self.stop_and_drop(()).await
    }

    /// Stops the phases, and drops `rest` on the same threads, since that of a control plane has
    /// much memory to free.
    ///
    /// # Errors
    /// The errors of [`stop`](Self::stop).
    pub async fn stop_and_drop(&mut self, rest: impl Send + 'static) -> Result<(), StoreError> {
        let phases = std::mem::take(&mut self.phases);
        let stop = async move {
            let outcome = stop_in_reverse(phases).await;
            drop(rest);
            outcome
        };
        match self.runtime.spawn(stop).await {
            Ok(outcome) => outcome,
            Err(error) => match error.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                // The runtime has ended, and the phases with it.
                Err(_) => Err(StoreError::Closed),
            },
        }
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        if self.phases.is_empty() {
            return;
        }
        let mut phases = std::mem::take(&mut self.phases);
        phases.iter_mut().rev().for_each(|phase| phase.abort());
        // A phase logs what it cannot stop.
        self.runtime.spawn(stop_in_reverse(phases));
    }
}

async fn stop_in_reverse(mut phases: Vec<Box<dyn Phase>>) -> Result<(), StoreError> {
    let mut outcome = Ok(());
    while let Some(phase) = phases.pop() {
        outcome = outcome.and(phase.stop().await);
    }
    outcome
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use futures::future::FutureExt;
    use parking_lot::Mutex;
    use tokio::sync::Notify;

    use super::*;

    #[derive(Clone, Default)]
    struct Steps(Arc<Mutex<Vec<String>>>);

    impl Steps {
        fn add(&self, step: String) {
            self.0.lock().push(step);
        }

        fn assert(&self, want: &[&str]) {
            assert_eq!(*self.0.lock(), want);
        }
    }

    /// A phase that records its end, waits for a permit, and may fail.
    struct Recorded {
        name: &'static str,
        steps: Steps,
        permit: Arc<Notify>,
        fails: bool,
    }

    impl Phase for Recorded {
        fn abort(&mut self) {
            self.steps.add(format!("abort {}", self.name));
        }

        fn stop(self: Box<Self>) -> BoxFuture<'static, Result<(), StoreError>> {
            async move {
                self.permit.notified().await;
                self.steps.add(format!("stop {}", self.name));
                if self.fails { Err(StoreError::Closed) } else { Ok(()) }
            }
            .boxed()
        }
    }

    /// Starts the phases `store`, `server` and `controllers`, of which some fail to stop. Each
    /// waits for a permit to stop.
    fn started(failing: &[&str]) -> (Started, Steps, Arc<Notify>) {
        let (mut started, steps, permit) = (Started::none(), Steps::default(), Arc::new(Notify::new()));
        for name in ["store", "server", "controllers"] {
            let fails = failing.contains(&name);
            started.push(Recorded { name, steps: steps.clone(), permit: permit.clone(), fails });
        }
        (started, steps, permit)
    }

    async fn permit_all(permit: &Notify) {
        for _ in 0..3 {
            permit.notify_one();
            for _ in 0..10 {
                tokio::task::yield_now().await;
            }
        }
    }

    #[tokio::test]
    async fn phases_are_stopped_in_reverse_order() {
        let (mut started, steps, permit) = started(&[]);
        let (outcome, ()) = tokio::join!(started.stop(), permit_all(&permit));
        assert!(outcome.is_ok());
        steps.assert(&["stop controllers", "stop server", "stop store"]);
        drop(started);
        steps.assert(&["stop controllers", "stop server", "stop store"]);
    }

    #[tokio::test]
    async fn a_phase_that_fails_to_stop_keeps_no_other_one_running() {
        let (mut started, steps, permit) = started(&["server"]);
        let (outcome, ()) = tokio::join!(started.stop(), permit_all(&permit));
        assert!(matches!(outcome, Err(StoreError::Closed)));
        steps.assert(&["stop controllers", "stop server", "stop store"]);
    }

    #[tokio::test]
    async fn dropped_phases_are_aborted_at_once_and_stopped_in_the_background() {
        let (started, steps, permit) = started(&[]);
        drop(started);
        let aborted = ["abort controllers", "abort server", "abort store"];
        steps.assert(&aborted);
        permit_all(&permit).await;
        steps.assert(&[&aborted[..], &["stop controllers", "stop server", "stop store"]].concat());
    }

    #[tokio::test]
    async fn a_canceled_shutdown_continues_in_the_background() {
        let (mut started, steps, permit) = started(&[]);
        permit.notify_one();
        assert!(started.stop().now_or_never().is_none(), "the server has no permit");
        drop(started);
        permit_all(&permit).await;
        steps.assert(&["stop controllers", "stop server", "stop store"]);
    }

    #[test]
    fn phases_are_dropped_with_a_runtime_that_has_ended() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let (started, steps, _) = runtime.block_on(async { started(&[]) });
        drop(runtime);
        drop(started);
        steps.assert(&["abort controllers", "abort server", "abort store"]);
    }
}
