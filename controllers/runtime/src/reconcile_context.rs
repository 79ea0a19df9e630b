//! The tracking of a controller's own writes.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use kube::Client;

use super::cache::{self, Cache, Cached, NamespacedName, Write};
use super::clock::Clock;

/// One reconciliation of a key. Records its writes, of which any number may be under way at a time; the key is not reconciled
/// again before the caches have observed them.
pub struct ReconcileContext {
    client: Client,
    writes: Mutex<Vec<OwnWrite>>,
}

type GroupResource = (Cow<'static, str>, Cow<'static, str>);

/// The kind of what was written, and the end of the wait for it.
type OwnWrite = (GroupResource, BoxFuture<'static, ()>);

impl ReconcileContext {
    /// A reconciliation that has written nothing yet.
    pub fn new(client: Client) -> ReconcileContext {
        ReconcileContext { client, writes: Mutex::default() }
    }

    /// The client of what is recorded.
    pub(super) fn client(&self) -> &Client {
        &self.client
    }

    /// Records the response to a create, an update or a patch that was not sent by [`ReconcileContext::api`].
    pub fn record_write<T: Cached>(&self, cache: &Arc<Cache<T>>, written: &T) {
        self.record_revision(cache, cache::revision(written));
    }

    /// Records the revision of what was created or changed.
    pub fn record_revision<T: Cached>(&self, cache: &Arc<Cache<T>>, revision: u64) {
        self.record(cache, Write::Revision(revision));
    }

    /// Records a successful delete.
    pub fn record_delete<T: Cached>(&self, cache: &Arc<Cache<T>>, object: &T) {
        let uid = object.meta().uid.clone().unwrap_or_default();
        self.record(cache, Write::Deleted(NamespacedName::of(object), uid));
    }

    fn record<T: Cached>(&self, cache: &Arc<Cache<T>>, write: Write) {
        let observed = cache.indexer().wait_until_observed(write).boxed();
        // No code that can panic runs under the lock.
        let mut writes = self.writes.lock().unwrap_or_else(PoisonError::into_inner);
        writes.push(((T::group(&()), T::plural(&())), observed));
    }

    /// Waits until all writes are observed, and returns the resources for which that took a while. A broken watch delays the key
    /// for a bounded time only.
    pub(super) async fn wait_until_observed(self, clock: &Clock) -> BTreeSet<GroupResource> {
        const LONGEST: Duration = Duration::from_secs(10);
        let writes = self.writes.into_inner().unwrap_or_else(PoisonError::into_inner).into_iter();
        let pending = writes.filter_map(|(resource, mut write)| {
            (&mut write).now_or_never().is_none().then_some((resource, write))
        });
        let (late, pending): (_, Vec<_>) = pending.unzip();
        // One after the other, so that an event wakes one of them, not all.
        let all = async {
            for write in pending {
                write.await;
            }
        };
        tokio::select! {
            () = all => {}
            () = clock.sleep(LONGEST) => tracing::debug!("own writes were not observed in time"),
        }
        late
    }
}
