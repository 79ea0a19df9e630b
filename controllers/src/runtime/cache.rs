//! A cache of all objects of one kind, kept fresh by a watch and shared by all controllers.
//!
//! Always true here:
//! - Neither an event nor what [`Cache::get`] returns is older than the event before it.
//! - Every change reaches every subscriber, in order; what existed before the subscription comes first, as additions.
//! - A panic costs nothing but time: the watch is restarted ([`super::supervise`]), and reports what was missed.
//! - Field managers are dropped before an object is kept: no controller reasons about them, and they are half the bytes.
//!
//! A cache lags behind the server. A controller waits for its own writes by [`Cache::wait_until_observed`]; what must not be decided on an old
//! state (dropping a finalizer, reclaiming a volume) has to be asked of the server.

mod read;

use std::any::TypeId;
use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt::Debug;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::{StreamExt, pin_mut};
use k8s_openapi::serde::de::DeserializeOwned;
use kube::runtime::watcher::{self, Event};
use kube::runtime::{WatchStreamExt, watcher as watch};
use kube::{Api, Client, Resource};
use tokio::sync::{mpsc, watch as signal};

use read::Read;

pub use coracle_kinds::NamespacedName;

/// What a controller can have a cache of.
pub trait Cached:
    Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync + 'static
{
}

impl<K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync + 'static> Cached for K {}

/// An object before and after.
#[derive(Debug)]
pub struct Change<K> {
    /// None: it is new, at least to the subscriber.
    pub old: Option<Arc<K>>,
    /// None: it was deleted.
    pub new: Option<Arc<K>>,
}

impl<K> Clone for Change<K> {
    fn clone(&self) -> Change<K> {
        Change { old: self.old.clone(), new: self.new.clone() }
    }
}

impl<K> Change<K> {
    /// The object as it is, or was at last.
    pub fn object(&self) -> Option<&Arc<K>> {
        self.new.as_ref().or(self.old.as_ref())
    }

    /// Whether something about the object has changed; also true for additions and deletions.
    pub fn changed<T: PartialEq>(&self, what: impl Fn(&K) -> T) -> bool {
        self.old.as_deref().map(&what) != self.new.as_deref().map(&what)
    }

    /// The states before and after.
    pub fn states(&self) -> impl Iterator<Item = &Arc<K>> {
        self.old.iter().chain(&self.new)
    }
}

impl<K: Resource> Change<K> {
    /// The name of the object.
    pub fn name(&self) -> Option<NamespacedName> {
        self.object().map(|object| NamespacedName::of(object.as_ref()))
    }
}

/// A write of a controller's own, to be seen before it decides again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Write {
    /// Created or changed; the response had this revision.
    Revision(u64),
    /// The object of this name and uid is deleted, or terminating.
    Deleted(NamespacedName, String),
}

/// All objects of a kind, as far as its watch has reported them (client-go: informer and indexer).
pub struct Cache<K> {
    state: Mutex<State<K>>,
    /// How much was seen; changes with every event.
    progress: signal::Sender<Progress>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Progress {
    synced: bool,
    revision: u64,
}

/// All that there is, as a watch that was started again reports it. It comes in the order of names, so that a revision in it
/// does not imply lower ones before all of it was observed.
#[derive(Default)]
struct Relist {
    names: BTreeSet<NamespacedName>,
    revision: u64,
}

struct State<K> {
    objects: BTreeMap<NamespacedName, Arc<K>>,
    indexes: HashMap<TypeId, Indexed<K>>,
    subscribers: Vec<mpsc::UnboundedSender<Change<K>>>,
}

/// An index of objects: each is found under all its keys.
pub trait Index<K>: 'static {
    /// The keys of an object.
    fn keys(object: &K) -> Vec<NamespacedName>;
}

struct Indexed<K> {
    keys: fn(&K) -> Vec<NamespacedName>,
    objects: HashMap<NamespacedName, BTreeMap<NamespacedName, Arc<K>>>,
}

impl<K> Indexed<K> {
    fn add(&mut self, name: &NamespacedName, object: &Arc<K>, keys: Vec<NamespacedName>) {
        for key in keys {
            self.objects.entry(key).or_default().insert(name.clone(), object.clone());
        }
    }

    fn remove(&mut self, name: &NamespacedName, keys: Vec<NamespacedName>) {
        for key in keys {
            if let Entry::Occupied(mut objects) = self.objects.entry(key) {
                objects.get_mut().remove(name);
                if objects.get().is_empty() {
                    objects.remove();
                }
            }
        }
    }
}

impl<K: Cached> Cache<K> {
    pub(super) fn empty() -> Cache<K> {
        let state = State { objects: BTreeMap::new(), indexes: HashMap::new(), subscribers: Vec::new() };
        Cache { state: Mutex::new(state), progress: signal::Sender::default() }
    }

    /// A cache that is synced and holds these objects, for the tests of what reads caches.
    #[cfg(test)]
    pub fn with(objects: impl IntoIterator<Item = K>) -> Cache<K> {
        let cache = Cache::empty();
        objects.into_iter().for_each(|object| cache.apply(object));
        cache.progress.send_modify(|progress| progress.synced = true);
        cache
    }

    /// Applies an object as a watch does.
    #[cfg(test)]
    pub fn observe(&self, object: K) {
        self.apply(object);
    }

    /// The object of that name.
    pub fn get(&self, name: &NamespacedName) -> Option<Arc<K>> {
        self.state().objects.get(name).cloned()
    }

    /// All objects, ordered by namespace and name.
    pub fn all(&self) -> Vec<Arc<K>> {
        self.state().objects.values().cloned().collect()
    }

    /// The objects of a namespace, ordered by name.
    pub fn in_namespace(&self, namespace: &str) -> Vec<Arc<K>> {
        let first = NamespacedName::new(namespace, "");
        let state = self.state();
        let from_here = state.objects.range(first..);
        from_here
            .take_while(|(name, _)| name.namespace == namespace)
            .map(|(_, object)| object.clone())
            .collect()
    }

    /// Whether a namespace holds any object.
    pub fn any_in(&self, namespace: &str) -> bool {
        let first = NamespacedName::new(namespace, "");
        self.state().objects.range(first..).next().is_some_and(|(name, _)| name.namespace == namespace)
    }

    /// The objects that an index has under a key, ordered by namespace and name. An index is maintained from its first use on.
    pub fn by<I: Index<K>>(&self, key: &NamespacedName) -> Vec<Arc<K>> {
        let mut state = self.state();
        let State { objects, indexes, .. } = &mut *state;
        let index = indexes.entry(TypeId::of::<I>()).or_insert_with(|| {
            let mut index = Indexed { keys: I::keys, objects: HashMap::new() };
            objects.iter().for_each(|(name, object)| index.add(name, object, (I::keys)(object)));
            index
        });
        index.objects.get(key).into_iter().flat_map(BTreeMap::values).cloned().collect()
    }

    /// Waits until everything that existed at the start was seen.
    pub async fn synced(&self) {
        self.wait_for(|progress| progress.synced).await;
    }

    /// Whether everything that existed at the start was observed.
    #[cfg(test)]
    pub fn is_synced(&self) -> bool {
        self.progress.borrow().synced
    }

    /// Waits until a write can be seen here.
    pub async fn wait_until_observed(&self, write: &Write) {
        self.wait_for(|progress| match write {
            Write::Revision(revision) => progress.revision >= *revision,
            Write::Deleted(name, uid) => self.get(name).is_none_or(|object| {
                let meta = object.meta();
                meta.deletion_timestamp.is_some() || meta.uid.as_deref() != Some(uid)
            }),
        })
        .await;
    }

    /// All that is, and then each change. The receiver has to keep up: changes are kept until it takes them.
    pub fn subscribe(&self) -> mpsc::UnboundedReceiver<Change<K>> {
        let (sender, receiver) = mpsc::unbounded_channel();
        let mut state = self.state();
        for object in state.objects.values() {
            // The receiver is alive: it is returned below.
            let _ = sender.send(Change { old: None, new: Some(object.clone()) });
        }
        state.subscribers.push(sender);
        receiver
    }

    /// Watches until dropped.
    pub(super) async fn run(&self, client: Client) {
        let config = watcher::Config::default().streaming_lists();
        let stream = watch(Api::<Read<K>>::all_with(client, &()), config).default_backoff();
        pin_mut!(stream);
        let mut relist = None;
        while let Some(event) = stream.next().await {
            match event {
                Ok(event) => self.handle(event, &mut relist),
                Err(error) => {
                    tracing::debug!(kind = %K::kind(&()), %error, "a watch has to be started again")
                }
            }
        }
    }

    fn handle(&self, event: Event<Read<K>>, relist: &mut Option<Relist>) {
        match event {
            // A relist that was cut short says nothing about the objects that it did not list.
            Event::Init => *relist = Some(Relist::default()),
            Event::InitApply(Read(object)) => {
                if let Some(relist) = relist {
                    relist.names.insert(NamespacedName::of(&object));
                    relist.revision = relist.revision.max(revision(&object));
                }
                self.insert(object);
            }
            Event::InitDone => {
                let Some(Relist { names, revision }) = relist.take() else { return };
                self.keep(&names);
                self.progress.send_modify(|progress| {
                    progress.synced = true;
                    progress.revision = progress.revision.max(revision);
                });
            }
            Event::Apply(Read(object)) => self.apply(object),
            Event::Delete(Read(object)) => self.remove(&object),
        }
    }

    fn apply(&self, object: K) {
        let revision = revision(&object);
        self.insert(object);
        self.advance(revision);
    }

    fn insert(&self, mut object: K) {
        object.meta_mut().managed_fields = None;
        let name = NamespacedName::of(&object);
        let new = Arc::new(object);
        let mut state = self.state();
        // The deletion of another object of the name may have been lost with history.
        if state.objects.get(&name).is_some_and(|old| old.meta().uid != new.meta().uid) {
            state.remove(&name);
        }
        // Before anything is changed: these are functions of the indexes' owners, which may panic.
        let old = state.objects.get(&name).cloned();
        let moves: Vec<_> = state
            .indexes
            .iter()
            .map(|(id, index)| (*id, old.as_deref().map(index.keys).unwrap_or_default(), (index.keys)(&new)))
            .collect();
        state.objects.insert(name.clone(), new.clone());
        for (id, before, after) in moves {
            if let Some(index) = state.indexes.get_mut(&id) {
                index.remove(&name, before);
                index.add(&name, &new, after);
            }
        }
        // A watch that was restarted reports what is known already.
        let known =
            old.as_ref().is_some_and(|old| old.meta().resource_version == new.meta().resource_version);
        if !known {
            state.notify(Change { old, new: Some(new) });
        }
    }

    fn remove(&self, object: &K) {
        let name = NamespacedName::of(object);
        self.state().remove(&name);
        self.advance(revision(object));
    }

    /// Removes what a watch that was restarted did not report.
    fn keep(&self, names: &BTreeSet<NamespacedName>) {
        let mut state = self.state();
        let gone: Vec<_> = state.objects.keys().filter(|name| !names.contains(name)).cloned().collect();
        gone.iter().for_each(|name| state.remove(name));
    }

    fn advance(&self, revision: u64) {
        self.progress.send_modify(|progress| progress.revision = progress.revision.max(revision));
    }

    async fn wait_for(&self, condition: impl FnMut(&Progress) -> bool) {
        // The sender is a field of `self`, so that it is not dropped.
        let _ = self.progress.subscribe().wait_for(condition).await;
    }

    fn state(&self) -> MutexGuard<'_, State<K>> {
        // What can panic under the lock, an index's function, does so before anything is changed.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K: Cached> State<K> {
    fn remove(&mut self, name: &NamespacedName) {
        if let Some(old) = self.objects.get(name).cloned() {
            let keys: Vec<_> = self.indexes.iter().map(|(id, index)| (*id, (index.keys)(&old))).collect();
            self.objects.remove(name);
            for (id, keys) in keys {
                if let Some(index) = self.indexes.get_mut(&id) {
                    index.remove(name, keys);
                }
            }
            self.notify(Change { old: Some(old), new: None });
        }
    }

    fn notify(&mut self, change: Change<K>) {
        self.subscribers.retain(|subscriber| subscriber.send(change.clone()).is_ok());
    }
}

/// The revision of an object. Revisions of one kind can be compared (KEP-5504).
pub fn revision(object: &impl Resource) -> u64 {
    object.meta().resource_version.as_deref().and_then(|text| text.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests;
