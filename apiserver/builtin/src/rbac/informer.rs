//! The informer: an index of the stored roles and bindings.
//!
//! Nothing is read before rules are needed for the first time: administrators need none. From then
//! on each request first brings the index up to date, since no write notifies it. That costs a
//! comparison of revisions when nothing was written since. Where history no longer reaches back to
//! the last event that was read, deletions may be among the missing events, so everything is read
//! anew and replaces the index.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use coracle_apimachinery::resource_info::ResourceTable;
use coracle_apiserver::registry::read::split_name;
use coracle_apiserver::registry::{ObjectIndex, Stored, parse};
use coracle_storage::{Revision, Snapshot, Store, Watcher};
use parking_lot::{Mutex, RwLock, RwLockReadGuard};

use super::index::{Kind, RbacIndex, RbacObject};

/// Keeps an index of the roles and bindings in a store.
pub struct RbacInformer {
    store: Store<ObjectIndex>,
    index: RwLock<RbacIndex>,
    state: Mutex<State>,
    /// Whether the index has been needed, and was read.
    is_read: AtomicBool,
}

struct State {
    /// Whether the index has been needed.
    is_needed: bool,
    seen: Revision,
    sources: Vec<Source>,
}

/// An index of the roles and bindings as of a revision.
pub struct RbacSnapshot {
    index: RbacIndex,
    revision: Revision,
}

/// One of the resources.
struct Source {
    kind: Kind,
    bucket: Arc<str>,
    /// None until the first pull, and after history was lost.
    watcher: Option<Watcher<ObjectIndex>>,
}

/// All has to be read anew.
struct HistoryLost;

impl RbacInformer {
    /// Creates an informer of the roles and bindings in a store.
    pub fn new(store: Store<ObjectIndex>, table: &ResourceTable) -> RbacInformer {
        let source = |kind, bucket: &Arc<str>| Source { kind, bucket: bucket.clone(), watcher: None };
        let sources = table
            .iter()
            .filter_map(|info| Some(source(Kind::of(&info.group_resource)?, &info.storage.bucket)));
        let state = State { is_needed: false, seen: Revision::ZERO, sources: sources.collect() };
        RbacInformer {
            store,
            index: RwLock::default(),
            state: Mutex::new(state),
            is_read: AtomicBool::new(false),
        }
    }

    /// Returns the current index, for a store that continues with the objects and the history of
    /// this one.
    pub fn snapshot(&self) -> RbacSnapshot {
        // They are needed, so that they are kept up from here on.
        drop(self.index());
        let mut state = self.state.lock();
        // No refresh comes between.
        state.take_up(&self.store, &self.index);
        RbacSnapshot { index: self.index.read().clone(), revision: state.seen }
    }

    /// Creates an informer that continues with an index of earlier objects of its store.
    pub fn resume(
        RbacSnapshot { index, revision }: RbacSnapshot,
        store: Store<ObjectIndex>,
        table: &ResourceTable,
    ) -> RbacInformer {
        let mut informer = RbacInformer::new(store, table);
        let state = informer.state.get_mut();
        for source in &mut state.sources {
            // Without a watcher all is read anew.
            source.watcher = informer.store.watch(&source.bucket, revision).ok();
        }
        state.seen = revision;
        state.is_needed = true;
        informer.index = RwLock::new(index);
        *informer.is_read.get_mut() = true;
        informer
    }

    /// Returns the index of all objects that were written before the last
    /// [`refresh`](Self::refresh). At the first call they are read.
    pub fn index(&self) -> RwLockReadGuard<'_, RbacIndex> {
        if !self.is_read.load(Ordering::Acquire) {
            let mut state = self.state.lock();
            // A refresh that came before, and did nothing, saw only what is read now.
            state.is_needed = true;
            state.take_up(&self.store, &self.index);
            self.is_read.store(true, Ordering::Release);
        }
        self.index.read()
    }

    /// Brings the index up to date, if it was needed before.
    pub fn refresh(&self) {
        let mut state = self.state.lock();
        if state.is_needed {
            state.take_up(&self.store, &self.index);
        }
    }
}

impl State {
    /// Takes up what was written so far.
    fn take_up(&mut self, store: &Store<ObjectIndex>, index: &RwLock<RbacIndex>) {
        let newest = store.revision();
        if self.seen >= newest && newest > Revision::ZERO {
            return;
        }
        if self.sources.iter_mut().any(|source| source.pull(index).is_err()) {
            self.read_all(store, index);
        }
        self.seen = newest;
    }

    /// Replaces the whole index, by one snapshot of all resources.
    fn read_all(&mut self, store: &Store<ObjectIndex>, index: &RwLock<RbacIndex>) {
        let snapshot = store.snapshot();
        let mut read = RbacIndex::default();
        self.sources
            .iter()
            .flat_map(|source| source.objects(&snapshot))
            .for_each(|object| read.upsert(object));
        let old = std::mem::replace(&mut *index.write(), read);
        drop(old);
        for source in &mut self.sources {
            // Where this fails, history was lost again already, and the next pull begins anew.
            source.watcher = store.watch(&source.bucket, snapshot.revision()).ok();
        }
    }
}

impl Source {
    fn objects(&self, snapshot: &Snapshot<ObjectIndex>) -> impl Iterator<Item = RbacObject> {
        let bucket = snapshot.bucket(&self.bucket);
        let objects: Vec<_> = bucket.iter().cloned().collect();
        objects.into_iter().filter_map(|object| Some(RbacObject::of(self.kind, &parse(&object).ok()?)))
    }

    /// Applies the changes since the last pull.
    ///
    /// # Errors
    /// [`HistoryLost`] if not all changes since the last pull are known any more, or there was
    /// none.
    fn pull(&mut self, index: &RwLock<RbacIndex>) -> Result<(), HistoryLost> {
        let watcher = self.watcher.as_mut().ok_or(HistoryLost)?;
        loop {
            let events = watcher.try_next().map_err(|_| HistoryLost)?;
            if events.is_empty() {
                return Ok(());
            }
            for event in events {
                match (&event.after, &event.before) {
                    (Some(object), _) => upsert(self.kind, object, index),
                    (None, Some(deleted)) => remove(self.kind, deleted, index),
                    (None, None) => {}
                }
            }
        }
    }
}

/// Inserts or replaces an object. An object that cannot be read grants nothing.
fn upsert(kind: Kind, object: &Stored, index: &RwLock<RbacIndex>) {
    // Parsed before the lock is taken.
    match parse(object).map(|value| RbacObject::of(kind, &value)) {
        Ok(object) => index.write().upsert(object),
        Err(_) => remove(kind, object, index),
    }
}

fn remove(kind: Kind, object: &Stored, index: &RwLock<RbacIndex>) {
    let (namespace, name) = split_name(object);
    index.write().remove(kind, namespace, name);
}

#[cfg(test)]
mod tests {
    use coracle_apiserver::access::UserInfo;
    use coracle_apiserver::access::authorize::{RequestAttributes, ResourceTarget, RuleResolver, Target};
    use coracle_storage::History;
    use serde_json::{Value, json};

    use crate::rbac::index::GROUP;
    use crate::rbac::testing::World;

    /// Writes or deletes an object of the namespace `ns`.
    fn write(world: &World, resource: &str, name: &str, content: Option<Value>) {
        match content {
            Some(mut object) => {
                object["metadata"] = json!({"namespace": "ns", "name": name});
                world.put(resource, object);
            }
            None => world.delete(resource, "ns", name),
        }
    }

    fn who_may(world: &World) -> Vec<&'static str> {
        let target = ResourceTarget { resource: "pods", namespace: "ns", ..ResourceTarget::default() };
        let request = RequestAttributes { verb: "get", target: Target::Resource(target) };
        let may = |name: &&str| world.authorize(&UserInfo::new(name, &[]), &request, false).allowed;
        ["alice", "bob", "carol"].into_iter().filter(may).collect()
    }

    fn role() -> Value {
        json!({"rules": [{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}]})
    }

    fn binding(name: &str, padding: usize) -> Value {
        json!({"subjects": [{"kind": "User", "name": name}, {"kind": "User", "name": "x".repeat(padding)}],
               "roleRef": {"apiGroup": GROUP, "kind": "Role", "name": "r"}})
    }

    /// Verifies that a refresh before the first decision does nothing, and that the decision does
    /// not need it.
    #[test]
    fn roles_are_read_when_they_are_needed() {
        let world = World::default();
        let target = ResourceTarget { resource: "pods", namespace: "ns", ..ResourceTarget::default() };
        let request = RequestAttributes { verb: "get", target: Target::Resource(target) };
        let may = |name: &str| world.rbac().authorize(&UserInfo::new(name, &[]), &request, false).allowed;
        write(&world, "roles", "r", Some(role()));
        write(&world, "rolebindings", "a", Some(binding("alice", 0)));
        world.refreshed();
        write(&world, "rolebindings", "b", Some(binding("bob", 0)));
        assert!(may("alice") && may("bob"), "all is read");
        write(&world, "rolebindings", "c", Some(binding("carol", 0)));
        assert!(!may("carol"), "a decision is of the state at the last refresh");
        world.refreshed();
        assert!(may("carol"));
    }

    #[test]
    fn revoked_rights_end_whatever_history_still_knows() {
        let default = History::default();
        for (case, history) in [
            ("all of it", default),
            ("few bytes", History { bytes: 10_000, ..default }),
            ("few events", History { events: 3, ..default }),
            ("nothing", History { events: 0, ..default }),
        ] {
            let world = World::with(history);
            write(&world, "roles", "r", Some(role()));
            write(&world, "rolebindings", "a", Some(binding("alice", 0)));
            write(&world, "rolebindings", "b", Some(binding("bob", 0)));
            assert_eq!(who_may(&world), ["alice", "bob"], "{case}");
            // More than is remembered happens before the next pull.
            write(&world, "rolebindings", "a", None);
            write(&world, "rolebindings", "c", Some(binding("carol", 0)));
            for _ in 0..20 {
                write(&world, "rolebindings", "d", Some(binding("dan", 2000)));
            }
            assert_eq!(who_may(&world), ["bob", "carol"], "{case}");
            write(&world, "roles", "r", None);
            for _ in 0..20 {
                write(&world, "roles", "other", Some(role()));
            }
            assert_eq!(who_may(&world), [""; 0], "{case}");
            write(&world, "roles", "r", Some(role()));
            assert_eq!(who_may(&world), ["bob", "carol"], "{case}");
        }
    }
}
