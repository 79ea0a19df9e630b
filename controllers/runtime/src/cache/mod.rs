//! A cache of all objects of one kind, kept up to date by a watch and shared by all controllers.
//!
//! Invariants:
//! - Neither an event nor an object returned by [`Cache::get`] is older than the event before it.
//! - Every change reaches every subscriber, in order; objects that existed before the subscription
//!   come first, as additions.
//! - A panic costs only time: the watch is restarted ([`super::supervise`]), and reports the missed
//!   changes.
//! - Field managers are dropped before an object is stored: no controller uses them, and they are
//!   half the bytes.
//! - An object that cannot be decoded is an error, never absent.
//!
//! A cache lags behind the server. A controller waits for its own writes by
//! [`RecordedApi`](crate::RecordedApi). A decision that must not be based on an old state (dropping
//! a finalizer, reclaiming a volume) has to read the object from the server.

mod change;
mod follow;
mod indexer;
mod object;
mod reflector;
mod shared;
mod times;
mod watched;

use std::any::{Any, TypeId};
use std::marker::PhantomData;
use std::sync::Arc;

use kube::Resource;

pub use change::{Change, Changes};
pub use coracle_object_meta::NamespacedName;
pub use follow::{Event, follow};
pub use indexer::Write;
pub(super) use indexer::{Indexer, Sent};
pub use object::Cached;
pub(super) use object::{Decode, Object, decode};
pub use reflector::ListScope;
pub(super) use reflector::run;
pub use shared::CachedObjects;
pub use watched::{Followed, Identified};

/// All objects of a kind, as far as its watch has reported them (client-go: informer and indexer).
pub struct Cache<K> {
    indexer: Arc<Indexer>,
    kind: PhantomData<fn() -> K>,
}

/// An index of objects, which finds an object under each of its keys.
pub trait Index<K>: 'static {
    /// Returns the keys of an object.
    fn keys(object: &K) -> Vec<NamespacedName>;
}

impl<K: Cached> Cache<K> {
    /// Returns a typed cache over an indexer of its kind.
    pub(super) fn of(indexer: Arc<Indexer>) -> Cache<K> {
        Cache { indexer, kind: PhantomData }
    }

    /// Creates a synced cache with fixed objects and no watch, for tests of code that reads caches.
    pub fn with(objects: impl IntoIterator<Item = K>) -> Cache<K> {
        let cache = Cache::of(Arc::default());
        objects.into_iter().for_each(|object| cache.observe(object));
        cache.indexer.set_synced();
        cache
    }

    /// Applies an object as a watch does.
    pub fn observe(&self, object: K) {
        self.indexer.apply(object::erase(object));
    }

    /// Returns the untyped store of the cache.
    pub(super) fn indexer(&self) -> &Arc<Indexer> {
        &self.indexer
    }

    /// Returns the object with this name.
    pub fn get(&self, name: &NamespacedName) -> Option<Arc<K>> {
        self.indexer.get(name).and_then(object::downcast)
    }

    /// Returns all objects, ordered by namespace and name.
    pub fn all(&self) -> Vec<Arc<K>> {
        let mut objects = Vec::new();
        self.indexer.for_each(|object| objects.extend(object::downcast(object.clone())));
        objects
    }

    /// Returns the objects of a namespace, ordered by name.
    pub fn in_namespace(&self, namespace: &str) -> Vec<Arc<K>> {
        let mut objects = Vec::new();
        self.indexer.for_each_in(namespace, |object| {
            objects.extend(object::downcast(object.clone()));
            true
        });
        objects
    }

    /// Returns whether a namespace contains any object.
    pub fn any_in(&self, namespace: &str) -> bool {
        let mut any = false;
        self.indexer.for_each_in(namespace, |_| {
            any = true;
            false
        });
        any
    }

    /// Returns the objects that an index has under a key, ordered by namespace and name. An index
    /// is maintained from its first use on.
    pub fn by<I: Index<K>>(&self, key: &NamespacedName) -> Vec<Arc<K>> {
        let keys = |object: &dyn Object| {
            let object: &dyn Any = object;
            object.downcast_ref().map(I::keys).unwrap_or_default()
        };
        let found = self.indexer.by(TypeId::of::<I>(), keys, key);
        found.into_iter().filter_map(object::downcast).collect()
    }

    /// Waits until everything that existed at the start was seen.
    pub async fn synced(&self) {
        self.indexer.clone().synced().await;
    }

    /// Returns `true` if everything that existed at the start was observed.
    #[cfg(test)]
    pub fn is_synced(&self) -> bool {
        self.indexer.is_synced()
    }

    /// Subscribes to the objects: the receiver gets all present ones, and then each change. It must
    /// keep up, since changes are kept until it takes them.
    pub fn subscribe(&self) -> Changes<K> {
        Changes::of(self.indexer.subscribe())
    }
}

/// Returns the revision of an object. Revisions of one kind can be compared (KEP-5504).
pub fn revision(object: &impl Resource) -> u64 {
    indexer::revision(object.meta())
}

#[cfg(test)]
mod tests;
