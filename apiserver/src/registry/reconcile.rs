//! Reconciliation: what is kept in accordance with stored objects is looked at again whenever they
//! change.

use std::sync::Arc;

use coracle_clock::{AWAITED_RETRIES, Class, Delay};
use coracle_storage::Event;
use futures::future::{BoxFuture, OptionFuture};

use super::{ObjectIndex, Registry};
use crate::timers::RETRY_BACKOFF;

/// Keeps something in accordance with the objects of a bucket.
pub trait Reconcile: Send + 'static {
    /// Reconciles the objects in their current state. Returns the delay until the next run should
    /// none of them change; None for no further run.
    fn reconcile(&mut self) -> impl Future<Output = Option<Delay>> + Send;
}

impl Registry {
    /// Reconciles now and after each change in a bucket, until the future is dropped.
    pub fn run_reconciler(
        self: Arc<Self>,
        bucket: Arc<str>,
        mut reconciler: impl Reconcile,
    ) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            let mut retries: u32 = 0;
            loop {
                let Ok(mut changes) = self.store.watch(&bucket, self.store.revision()) else { continue };
                let mut due = None;
                // Where history does not reach back to the last change, the watch begins anew.
                loop {
                    // Skips the changes up to now, which `reconcile` sees anyway; changes made by
                    // the reconciler itself come later.
                    let now = self.store.revision();
                    let is_behind =
                        |last: Option<&Arc<Event<ObjectIndex>>>| last.is_some_and(|last| last.revision < now);
                    while changes.try_next().is_ok_and(|events| is_behind(events.last())) {}
                    let delay = reconciler.reconcile().await;
                    let is_retry = delay.is_some_and(|delay| delay.timer.class == Class::Pacing);
                    retries = if is_retry { retries.saturating_add(1) } else { 0 };
                    let delay = match delay {
                        Some(Delay { delay, .. }) if retries > AWAITED_RETRIES => {
                            Some(RETRY_BACKOFF.after(delay))
                        }
                        delay => delay,
                    };
                    let wait = delay.map(|delay| self.clock.sleep(delay));
                    drop(due.take());
                    let changed = tokio::select! {
                        changed = changes.next() => changed,
                        Some(work) = OptionFuture::from(wait) => {
                            due = Some(work);
                            continue;
                        }
                    };
                    if changed.is_err() {
                        break;
                    }
                }
            }
        })
    }
}
