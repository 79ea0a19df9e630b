//! The store of a cache: its objects by name and by the keys of indexes, and the subscribers to
//! their changes.

use std::any::TypeId;
use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use coracle_clock::{Activity, Work};
use coracle_object_meta::NamespacedName;
use futures::channel::mpsc::{UnboundedReceiver, UnboundedSender, unbounded};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::watch as signal;

use super::change::Change;
use super::follow::Event;
use super::object::Object;

/// The objects, indexes and subscribers of a cache, independent of the kind.
#[derive(Default)]
pub struct Indexer {
    state: Mutex<State>,
    /// The progress of the watch; changes with every event.
    progress: signal::Sender<Progress>,
    /// A change is work until its subscriber has followed it.
    activity: Activity,
}

/// A change that is sent to a subscriber, which drops the work once it has processed the change.
pub(crate) type Sent = (Change<dyn Object>, Work);

/// A write of a controller's own, to be seen before it decides again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Write {
    /// Created or changed; the response had this revision.
    Revision(u64),
    /// The object of this name and uid is deleted, or terminating.
    Deleted(NamespacedName, String),
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Progress {
    synced: bool,
    revision: u64,
}

/// The names of all existing objects, as reported by a restarted watch. They arrive in the order of
/// names, so a revision among them does not imply that lower ones were observed before all of them
/// have arrived.
pub(super) type Relist = BTreeSet<NamespacedName>;

#[derive(Default)]
struct State {
    objects: BTreeMap<NamespacedName, Arc<dyn Object>>,
    /// The revision up to which these are all objects and all of their changes; None while they are
    /// listed.
    complete: Option<u64>,
    indexes: HashMap<TypeId, Indexed>,
    /// The channels of the subscribers. They are unbounded and allocate nothing while they are
    /// empty: each control plane has a hundred of them.
    subscribers: Vec<UnboundedSender<Sent>>,
}

/// The keys under which an index has an object.
pub(super) type IndexKeys = fn(&dyn Object) -> Vec<NamespacedName>;

struct Indexed {
    keys: IndexKeys,
    objects: HashMap<NamespacedName, BTreeMap<NamespacedName, Arc<dyn Object>>>,
}

impl Indexed {
    fn add(&mut self, name: &NamespacedName, object: &Arc<dyn Object>, keys: Vec<NamespacedName>) {
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

impl Indexer {
    /// Returns an indexer without objects.
    pub fn new(activity: Activity) -> Indexer {
        Indexer { activity, ..Indexer::default() }
    }

    /// Returns the object with this name.
    pub(super) fn get(&self, name: &NamespacedName) -> Option<Arc<dyn Object>> {
        self.state().objects.get(name).cloned()
    }

    /// Passes all objects to a visitor, in the order of namespaces and names.
    pub(super) fn for_each(&self, mut visit: impl FnMut(&Arc<dyn Object>)) {
        self.state().objects.values().for_each(&mut visit);
    }

    /// Passes the objects of a namespace to a visitor, in the order of names, until that returns
    /// false.
    pub(super) fn for_each_in(&self, namespace: &str, mut visit: impl FnMut(&Arc<dyn Object>) -> bool) {
        let first = NamespacedName::new(namespace, "");
        for (name, object) in self.state().objects.range(first..) {
            if name.namespace != namespace || !visit(object) {
                return;
            }
        }
    }

    /// Returns the objects that an index has under a key, ordered by namespace and name.
    pub(super) fn by(&self, index: TypeId, keys: IndexKeys, key: &NamespacedName) -> Vec<Arc<dyn Object>> {
        let mut state = self.state();
        let State { objects, indexes, .. } = &mut *state;
        let index = indexes.entry(index).or_insert_with(|| {
            let mut index = Indexed { keys, objects: HashMap::new() };
            objects.iter().for_each(|(name, object)| index.add(name, object, keys(object.as_ref())));
            index
        });
        index.objects.get(key).into_iter().flat_map(BTreeMap::values).cloned().collect()
    }

    /// Waits until everything that existed at the start was seen.
    pub async fn synced(self: Arc<Indexer>) {
        self.wait_for(|progress| progress.synced).await;
    }

    #[cfg(test)]
    pub(super) fn is_synced(&self) -> bool {
        self.progress.borrow().synced
    }

    /// Marks the cache as synced with its present objects.
    pub(super) fn set_synced(&self) {
        self.progress.send_modify(|progress| progress.synced = true);
    }

    /// Waits until a write can be seen here.
    pub async fn wait_until_observed(self: Arc<Indexer>, write: Write) {
        self.wait_for(|progress| match &write {
            Write::Revision(revision) => progress.revision >= *revision,
            Write::Deleted(name, uid) => self.get(name).is_none_or(|object| {
                let meta = object.metadata();
                meta.deletion_timestamp.is_some() || meta.uid.as_deref() != Some(uid)
            }),
        })
        .await;
    }

    /// Subscribes to the objects: the receiver gets all present ones, and then each change.
    pub fn subscribe(&self) -> UnboundedReceiver<Sent> {
        let (sender, receiver) = unbounded();
        let mut state = self.state();
        for object in state.objects.values() {
            // The receiver is alive: it is returned below.
            let _ = sender
                .unbounded_send((Change { old: None, new: Some(object.clone()) }, self.activity.begin()));
        }
        state.subscribers.push(sender);
        receiver
    }

    /// Applies an event of a watch.
    pub(super) fn handle(&self, event: Event<Arc<dyn Object>>, relist: &mut Option<Relist>) {
        match event {
            // A relist that was cut short implies nothing about the objects that it did not list.
            Event::Init => {
                self.state().complete = None;
                *relist = Some(Relist::default());
            }
            Event::InitApply(object) => {
                if let Some(names) = relist {
                    names.insert(NamespacedName::of_meta(object.metadata()));
                }
                self.insert(object, None);
            }
            Event::InitDone(revision) => {
                let Some(names) = relist.take() else { return };
                self.keep(&names);
                self.complete(revision);
                self.progress.send_modify(|progress| progress.synced = true);
            }
            Event::Apply(object) => self.apply(object),
            Event::Delete(object) => self.remove(object.metadata()),
            Event::Bookmark(revision) => self.complete(revision),
        }
    }

    /// Returns all objects, and the revision up to which they are complete; `None` while that is
    /// not known.
    pub(super) fn complete_objects(&self) -> Option<(Vec<Arc<dyn Object>>, u64)> {
        let state = self.state();
        Some((state.objects.values().cloned().collect(), state.complete?))
    }

    fn complete(&self, revision: u64) {
        self.state().complete = Some(revision);
        self.advance(revision);
    }

    pub(super) fn apply(&self, object: Arc<dyn Object>) {
        let revision = revision(object.metadata());
        self.insert(object, Some(revision));
        self.advance(revision);
    }

    /// Inserts or updates an object.
    fn insert(&self, new: Arc<dyn Object>, complete: Option<u64>) {
        let name = NamespacedName::of_meta(new.metadata());
        let mut state = self.state();
        state.complete = complete;
        // The deletion of another object of the name may have been lost with history.
        if state.objects.get(&name).is_some_and(|old| old.metadata().uid != new.metadata().uid) {
            state.remove(&name, &self.activity);
        }
        // Keys are computed before any change: the functions of indexes may panic.
        let old = state.objects.get(&name).cloned();
        let moves: Vec<_> = state
            .indexes
            .iter()
            .map(|(id, index)| {
                let before = old.as_deref().map(index.keys).unwrap_or_default();
                (*id, before, (index.keys)(new.as_ref()))
            })
            .collect();
        state.objects.insert(name.clone(), new.clone());
        for (id, before, after) in moves {
            if let Some(index) = state.indexes.get_mut(&id) {
                index.remove(&name, before);
                index.add(&name, &new, after);
            }
        }
        // A restarted watch also reports objects that have not changed.
        let version = |object: &Arc<dyn Object>| object.metadata().resource_version.clone();
        let known = old.as_ref().is_some_and(|old| version(old) == version(&new));
        if !known {
            state.notify(&Change { old, new: Some(new) }, &self.activity);
        }
    }

    pub(super) fn remove(&self, meta: &ObjectMeta) {
        let revision = revision(meta);
        let mut state = self.state();
        state.complete = Some(revision);
        state.remove(&NamespacedName::of_meta(meta), &self.activity);
        drop(state);
        self.advance(revision);
    }

    /// Removes the objects that a restarted watch did not report.
    pub(super) fn keep(&self, names: &BTreeSet<NamespacedName>) {
        let mut state = self.state();
        let gone: Vec<_> = state.objects.keys().filter(|name| !names.contains(name)).cloned().collect();
        gone.iter().for_each(|name| state.remove(name, &self.activity));
    }

    fn advance(&self, revision: u64) {
        self.progress.send_modify(|progress| progress.revision = progress.revision.max(revision));
    }

    async fn wait_for(&self, condition: impl FnMut(&Progress) -> bool) {
        // The sender is a field of `self`, so that it is not dropped.
        let _ = self.progress.subscribe().wait_for(condition).await;
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // The only code under the lock that can panic, an index's function, does so before any
        // change.
        self.state.lock()
    }
}

impl State {
    fn remove(&mut self, name: &NamespacedName, activity: &Activity) {
        if let Some(old) = self.objects.get(name).cloned() {
            let keys: Vec<_> =
                self.indexes.iter().map(|(id, index)| (*id, (index.keys)(old.as_ref()))).collect();
            self.objects.remove(name);
            for (id, keys) in keys {
                if let Some(index) = self.indexes.get_mut(&id) {
                    index.remove(name, keys);
                }
            }
            self.notify(&Change { old: Some(old), new: None }, activity);
        }
    }

    fn notify(&mut self, change: &Change<dyn Object>, activity: &Activity) {
        self.subscribers
            .retain(|subscriber| subscriber.unbounded_send((change.clone(), activity.begin())).is_ok());
    }
}

/// Returns the revision of an object. Revisions of one kind can be compared (KEP-5504).
pub(super) fn revision(meta: &ObjectMeta) -> u64 {
    meta.resource_version.as_deref().and_then(|text| text.parse().ok()).unwrap_or(0)
}
