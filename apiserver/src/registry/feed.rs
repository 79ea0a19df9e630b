//! The informer of the authorizer: what it decides by is stored like anything else, and it must know it before the next
//! request.
//!
//! Nobody is notified when an RBAC object changes; whoever is about to ask the authorizer first brings it up to date. That
//! costs a comparison of revisions when nothing was written since. Where history no longer reaches back to what was seen
//! last, deletions may be among what is missing, so everything is read anew and replaces all that was known.

use std::sync::{Arc, Mutex, PoisonError};

use coracle_storage::{Revision, Snapshot, Store, Watcher};

use super::{ObjectIndex, Stored, parse, read::split_name};
use crate::access::authorize::Authorizer;
use crate::names::GroupResource;
use crate::resource_info::ResourceTable;

/// Keeps an [`Authorizer`] up to date.
pub(super) struct RbacInformer {
    authorizer: Arc<Authorizer>,
    state: Mutex<State>,
}

struct State {
    seen: Revision,
    sources: Vec<Source>,
}

/// One resource that the authorizer decides by.
struct Source {
    resource: GroupResource,
    bucket: Arc<str>,
    /// None until the first pull, and after history was lost.
    watcher: Option<Watcher<ObjectIndex>>,
}

/// All has to be read anew.
struct HistoryLost;

impl RbacInformer {
    pub fn new(table: &ResourceTable, authorizer: &Arc<Authorizer>) -> RbacInformer {
        let watched = table.iter().filter(|info| Authorizer::watches(&info.group_resource));
        let sources = watched.map(|info| Source {
            resource: info.group_resource.clone(),
            bucket: info.storage.bucket.clone(),
            watcher: None,
        });
        let state = State { seen: Revision::ZERO, sources: sources.collect() };
        RbacInformer { authorizer: authorizer.clone(), state: Mutex::new(state) }
    }

    /// Lets the authorizer know all that was written before the call.
    pub fn pull(&self, store: &Store<ObjectIndex>) {
        let newest = store.revision();
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.seen >= newest && newest > Revision::ZERO {
            return;
        }
        if state.sources.iter_mut().any(|source| source.pull(&self.authorizer).is_err()) {
            state.read_all(store, &self.authorizer);
        }
        state.seen = newest;
    }
}

impl State {
    /// Replaces all that the authorizer knows, by one snapshot of all resources.
    fn read_all(&mut self, store: &Store<ObjectIndex>, authorizer: &Authorizer) {
        let snapshot = store.snapshot();
        authorizer.replace(self.sources.iter().flat_map(|source| source.objects(&snapshot)));
        for source in &mut self.sources {
            // Where this fails, history was lost again already, and the next pull begins anew.
            source.watcher = store.watch(&source.bucket, snapshot.revision()).ok();
        }
    }
}

impl Source {
    fn objects<'a>(
        &'a self,
        snapshot: &Snapshot<ObjectIndex>,
    ) -> impl Iterator<Item = (&'a GroupResource, serde_json::Value)> {
        let bucket = snapshot.bucket(&self.bucket);
        let objects: Vec<_> = bucket.iter().cloned().collect();
        objects.into_iter().filter_map(|object| Some((&self.resource, parse(&object).ok()?)))
    }

    /// # Errors
    /// [`HistoryLost`] if not all changes since the last pull are known any more, or there was none.
    fn pull(&mut self, authorizer: &Authorizer) -> Result<(), HistoryLost> {
        let watcher = self.watcher.as_mut().ok_or(HistoryLost)?;
        loop {
            let events = watcher.try_next().map_err(|_| HistoryLost)?;
            if events.is_empty() {
                return Ok(());
            }
            for event in events {
                match (&event.after, &event.before) {
                    (Some(object), _) => upsert(&self.resource, object, authorizer),
                    (None, Some(deleted)) => {
                        let (namespace, name) = split_name(deleted);
                        authorizer.remove(&self.resource, namespace, name);
                    }
                    (None, None) => {}
                }
            }
        }
    }
}

/// An object that cannot be read grants nothing.
fn upsert(resource: &GroupResource, object: &Stored, authorizer: &Authorizer) {
    match parse(object) {
        Ok(value) => authorizer.upsert(resource, &value),
        Err(_) => {
            let (namespace, name) = split_name(object);
            authorizer.remove(resource, namespace, name);
        }
    }
}

#[cfg(test)]
mod tests {
    use coracle_storage::log::EphemeralLog;
    use coracle_storage::{Expect, History, Key, Options};
    use serde_json::{Value, json};

    use super::super::write::stored_bytes;
    use super::*;
    use crate::access::UserInfo;
    use crate::access::authorize::{Mode, RequestAttributes, ResourceTarget, Target};
    use crate::access::rbac::GROUP;
    use crate::resource_info::SharedResourceTable;

    /// A store that remembers next to nothing, and who may get pods in it.
    struct World {
        table: ResourceTable,
        store: Store<ObjectIndex>,
        authorizer: Arc<Authorizer>,
        informer: RbacInformer,
    }

    impl World {
        fn new(history: History) -> World {
            let table = coracle_resources::built_in();
            let options = Options { history, ..Options::default() };
            let store = Store::open(
                Box::new(EphemeralLog::new()),
                ObjectIndex::new(SharedResourceTable::new(coracle_resources::built_in())),
                options,
            )
            .expect("an empty store");
            let authorizer = Arc::new(Authorizer::new(Mode::Rbac));
            let informer = RbacInformer::new(&table, &authorizer);
            World { table, store, authorizer, informer }
        }

        /// Writes or deletes an object of the namespace `ns`.
        async fn write(&self, resource: &str, name: &str, content: Option<Value>) {
            let info = self.table.find(GROUP, "v1", resource).expect(resource);
            let key = Key::new(info.storage.bucket.clone(), info.storage_name("ns", name));
            match content {
                Some(mut object) => {
                    object["metadata"] = json!({"namespace": "ns", "name": name});
                    let bytes = stored_bytes(info, object);
                    self.store.put(key, Expect::Any, bytes).await.map(drop).expect(name);
                }
                None => self.store.delete(key, Expect::Any).await.map(drop).expect(name),
            }
        }

        fn who_may(&self) -> Vec<&'static str> {
            self.informer.pull(&self.store);
            let target = ResourceTarget { resource: "pods", namespace: "ns", ..ResourceTarget::default() };
            let request = RequestAttributes { verb: "get", target: Target::Resource(target) };
            let may = |name: &&str| self.authorizer.check(&UserInfo::new(name, &[]), &request).is_ok();
            ["alice", "bob", "carol"].into_iter().filter(may).collect()
        }
    }

    fn role() -> Value {
        json!({"rules": [{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}]})
    }

    fn binding(name: &str, padding: usize) -> Value {
        json!({"subjects": [{"kind": "User", "name": name}, {"kind": "User", "name": "x".repeat(padding)}],
               "roleRef": {"apiGroup": GROUP, "kind": "Role", "name": "r"}})
    }

    #[tokio::test]
    async fn revoked_rights_end_whatever_history_still_knows() {
        let default = History::default();
        for (case, history) in [
            ("all of it", default),
            ("few bytes", History { bytes: 10_000, ..default }),
            ("few events", History { events: 3, ..default }),
            ("nothing", History { events: 0, ..default }),
        ] {
            let world = World::new(history);
            world.write("roles", "r", Some(role())).await;
            world.write("rolebindings", "a", Some(binding("alice", 0))).await;
            world.write("rolebindings", "b", Some(binding("bob", 0))).await;
            assert_eq!(world.who_may(), ["alice", "bob"], "{case}");
            // More than is remembered happens before the next pull.
            world.write("rolebindings", "a", None).await;
            world.write("rolebindings", "c", Some(binding("carol", 0))).await;
            for _ in 0..20 {
                world.write("rolebindings", "d", Some(binding("dan", 2000))).await;
            }
            assert_eq!(world.who_may(), ["bob", "carol"], "{case}");
            world.write("roles", "r", None).await;
            for _ in 0..20 {
                world.write("roles", "other", Some(role())).await;
            }
            assert_eq!(world.who_may(), [""; 0], "{case}");
            world.write("roles", "r", Some(role())).await;
            assert_eq!(world.who_may(), ["bob", "carol"], "{case}");
        }
    }
}
