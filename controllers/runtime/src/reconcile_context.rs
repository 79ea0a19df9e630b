//! The tracking of a controller's own writes.
#![expect(
    clippy::disallowed_methods,
    reason = "a watch that is broken must not stop a controller, whatever the clock"
)]

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use kube::Client;
use parking_lot::Mutex;
use tokio::time;

use super::cache::{self, Cache, Cached, Indexer, NamespacedName, Write};

/// One reconciliation of a key. Records its writes, of which any number may be under way at a time;
/// the key is not reconciled again before the caches have observed them.
pub struct ReconcileContext {
    /// The client of what is recorded.
    client: Client,
    writes: Mutex<Vec<OwnWrite>>,
}

type GroupResource = (Cow<'static, str>, Cow<'static, str>);

/// A request, or why it could not be built.
pub(super) type BuiltRequest = Result<http::Request<Vec<u8>>, kube::core::request::Error>;

/// The kind of what was written, and the end of the wait for it.
type OwnWrite = (GroupResource, BoxFuture<'static, ()>);

impl ReconcileContext {
    /// Creates the context of a reconciliation that has written nothing yet.
    pub fn new(client: Client) -> ReconcileContext {
        ReconcileContext { client, writes: Mutex::default() }
    }

    /// Sends a request, and returns the text of the answer. Boxed, so that it is compiled here, and
    /// not once for each kind that is written.
    pub(super) fn send(&self, request: BuiltRequest) -> BoxFuture<'_, kube::Result<String>> {
        async move { self.client.request_text(request.map_err(kube::Error::BuildRequest)?).await }.boxed()
    }

    /// Makes the key wait for an object that was found on the server and not in the cache, as for a
    /// write of its own.
    pub fn await_observed<K: Cached>(&self, cache: &Arc<Cache<K>>, found: &K) {
        self.record_revision::<K>(cache.indexer(), cache::revision(found));
    }

    /// Records the revision of what was created or changed.
    pub(super) fn record_revision<K: Cached>(&self, indexer: &Arc<Indexer>, revision: u64) {
        self.record::<K>(indexer, Write::Revision(revision));
    }

    /// Records a successful delete.
    pub(super) fn record_delete<K: Cached>(&self, indexer: &Arc<Indexer>, object: &K) {
        let uid = object.meta().uid.clone().unwrap_or_default();
        self.record::<K>(indexer, Write::Deleted(NamespacedName::of(object), uid));
    }

    fn record<K: Cached>(&self, indexer: &Arc<Indexer>, write: Write) {
        let observed = indexer.clone().wait_until_observed(write).boxed();
        self.writes.lock().push(((K::group(&()), K::plural(&())), observed));
    }

    /// Waits until all writes are observed, and returns the resources for which that took a while.
    /// A broken watch delays the key for a bounded time only.
    pub(super) async fn wait_until_observed(self) -> BTreeSet<GroupResource> {
        const MAX_WAIT: Duration = Duration::from_secs(10);
        let writes = self.writes.into_inner().into_iter();
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
        if time::timeout(MAX_WAIT, all).await.is_err() {
            tracing::debug!("own writes were not observed in time");
        }
        late
    }
}
