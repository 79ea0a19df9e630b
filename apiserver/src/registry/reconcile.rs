//! Reconciliation: what is kept in accordance with stored objects is looked at again whenever they change.

use std::sync::Arc;

use coracle_clock::Delay;
use futures::future::BoxFuture;

use super::Registry;

/// Keeps something in accordance with the objects of a bucket.
pub trait Reconcile: Send + 'static {
    /// Does what the objects, as they are now, make necessary. Returns when to do so again should none of them change, if at all.
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
            loop {
                let revision = self.store.revision();
                let delay = reconciler.reconcile().await;
                // What it changed itself is seen here too. Where history does not reach back so far, everything is read anyway.
                let Ok(mut changes) = self.store.watch(&bucket, revision) else { continue };
                match delay {
                    Some(delay) => _ = self.clock.timeout(delay, changes.next()).await,
                    None => _ = changes.next().await,
                }
            }
        })
    }
}
