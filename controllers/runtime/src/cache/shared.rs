//! Objects that caches of different control planes share: those of a fork and of its parent.

use std::any::TypeId;
use std::collections::HashMap;
use std::sync::{Arc, Weak};

use coracle_object_meta::NamespacedName;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use parking_lot::Mutex;

use super::indexer::{Indexer, revision};
use super::object::Object;
use super::reflector::ListScope;

/// The caches of the controllers of a control plane, for those of its forks, which need not read
/// again what they have. Clones share them. It keeps none of them alive.
#[derive(Clone, Default)]
pub struct CachedObjects(Arc<Mutex<ByKind>>);

/// The caches by the type of their objects, and by which of them they have.
type ByKind = HashMap<(TypeId, ListScope), Weak<Indexer>>;

/// The objects of a cache up to a revision, at which another server began with the same objects and
/// their history.
#[derive(Clone)]
pub(crate) struct SharedObjects {
    indexer: Weak<Indexer>,
    revision: u64,
}

impl CachedObjects {
    pub(crate) fn add(&self, kind: (TypeId, ListScope), indexer: &Arc<Indexer>) {
        self.0.lock().insert(kind, Arc::downgrade(indexer));
    }

    pub(crate) fn until(&self, kind: (TypeId, ListScope), revision: u64) -> Option<SharedObjects> {
        let indexer = self.0.lock().get(&kind).cloned()?;
        Some(SharedObjects { indexer, revision })
    }
}

impl SharedObjects {
    /// Returns all objects as of a revision up to which both servers have the same objects; None if
    /// the cache is behind or ahead of it.
    pub(super) fn all(&self) -> Option<(Vec<Arc<dyn Object>>, u64)> {
        let complete = self.indexer.upgrade()?.complete_objects();
        complete.filter(|(_, revision)| (1..=self.revision).contains(revision))
    }

    /// Returns the object of this name and version. After the common revision, the objects of the
    /// two servers differ even at equal revisions.
    pub(super) fn get(&self, meta: &ObjectMeta) -> Option<Arc<dyn Object>> {
        if !(1..=self.revision).contains(&revision(meta)) {
            return None;
        }
        let object = self.indexer.upgrade()?.get(&NamespacedName::of_meta(meta))?;
        (object.metadata().resource_version == meta.resource_version).then_some(object)
    }
}
