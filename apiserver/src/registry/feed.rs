//! Feeding the authorizer: what it decides by is stored like anything else, and it must know it before the next request.
//!
//! Nobody is told when an RBAC object changes; whoever is about to ask the authorizer first lets it catch up. That costs a
//! comparison of revisions when nothing was written since.

use std::sync::{Arc, Mutex, PoisonError};

use coracle_storage::{Revision, Store, Watcher};

use super::served::Table;
use super::{ObjectIndex, parse, read::split_name};
use crate::access::authorize::Authorizer;
use crate::names::GroupResource;

pub(super) struct Feed {
    authorizer: Arc<Authorizer>,
    state: Mutex<State>,
}

struct State {
    seen: Revision,
    sources: Vec<Source>,
}

struct Source {
    resource: GroupResource,
    bucket: Arc<str>,
    /// None until the first pull, and after history was lost: then all is read anew.
    watcher: Option<Watcher<ObjectIndex>>,
}

impl Feed {
    pub fn new(table: &Table, authorizer: &Arc<Authorizer>) -> Feed {
        let watched = table.iter().filter(|served| Authorizer::watches(&served.group_resource));
        let sources = watched.map(|served| Source {
            resource: served.group_resource.clone(),
            bucket: served.bucket.clone(),
            watcher: None,
        });
        let state = State { seen: Revision::ZERO, sources: sources.collect() };
        Feed { authorizer: authorizer.clone(), state: Mutex::new(state) }
    }

    pub fn pull(&self, store: &Store<ObjectIndex>) {
        let newest = store.revision();
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.seen >= newest && newest > Revision::ZERO {
            return;
        }
        for source in &mut state.sources {
            source.pull(store, &self.authorizer);
        }
        state.seen = newest;
    }
}

impl Source {
    fn pull(&mut self, store: &Store<ObjectIndex>, authorizer: &Authorizer) {
        loop {
            let Some(watcher) = &mut self.watcher else { return self.read_all(store, authorizer) };
            let Ok(events) = watcher.try_next() else {
                self.watcher = None;
                continue;
            };
            if events.is_empty() {
                return;
            }
            for event in events {
                match (&event.after, &event.before) {
                    (Some(object), _) => authorizer.upsert(&self.resource, &parse(object)),
                    (None, Some(gone)) => {
                        let (namespace, name) = split_name(gone);
                        authorizer.remove(&self.resource, namespace, name);
                    }
                    (None, None) => {}
                }
            }
        }
    }

    fn read_all(&mut self, store: &Store<ObjectIndex>, authorizer: &Authorizer) {
        let snapshot = store.snapshot();
        for object in snapshot.bucket(&self.bucket).iter() {
            authorizer.upsert(&self.resource, &parse(object));
        }
        self.watcher = store.watch(&self.bucket, snapshot.revision()).ok();
    }
}
