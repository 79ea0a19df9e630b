//! The configurations of one resource, parsed.
//!
//! Nobody is notified when one changes: whoever is about to use them compares the revision of their
//! last change, which is all that a request costs where nothing was written since. So a
//! configuration takes effect with the write that stores it.

use std::sync::Arc;

use arc_swap::ArcSwapOption;
use serde_json::Value;

use crate::Result;
use crate::cluster::Cluster;
use crate::names::GroupResource;

/// The objects of one resource as something that is read from them.
pub struct Source<T> {
    resource: GroupResource,
    read: fn(&Value) -> Vec<T>,
    cached: ArcSwapOption<Cached<T>>,
}

struct Cached<T> {
    /// The revision of the resource's last change.
    revision: u64,
    parsed: Arc<[T]>,
}

impl<T> Source<T> {
    /// Creates the source of a resource.
    ///
    /// - `read`: what one object has of it, in order. Objects come in the order of their names.
    pub fn new(group: &str, resource: &str, read: fn(&Value) -> Vec<T>) -> Source<T> {
        Source { resource: GroupResource::new(group, resource), read, cached: ArcSwapOption::empty() }
    }

    /// Loads everything that is stored now.
    ///
    /// # Errors
    /// [`Error::Internal`](crate::Error::Internal) if an object cannot be decoded, because it is
    /// unknown what that object forbids.
    pub fn load(&self, cluster: &dyn Cluster) -> Result<Arc<[T]>> {
        // The revision is read before the objects: if they change in between, the next request
        // reads them again.
        let revision = cluster.last_change(&self.resource);
        if let Some(revision) = revision
            && let Some(cached) = &*self.cached.load()
            && cached.revision == revision
        {
            return Ok(cached.parsed.clone());
        }
        let objects = cluster.list(&self.resource, "")?;
        let parsed: Arc<[T]> = objects.iter().flat_map(self.read).collect();
        if let Some(revision) = revision {
            self.cached.store(Some(Arc::new(Cached { revision, parsed: parsed.clone() })));
        }
        Ok(parsed)
    }
}
