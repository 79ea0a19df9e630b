//! Read access to the stored objects, for admission plugins and authenticators. The counterpart of
//! upstream's listers.

use futures::future::BoxFuture;
use serde_json::Value;

use crate::Result;
use crate::names::GroupResource;

/// `status.phase` of a Namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NamespacePhase {
    /// The namespace accepts new objects. A namespace without a phase in its status is active, too.
    Active,
    /// The namespace is being deleted, and accepts no new objects.
    Terminating,
}

impl NamespacePhase {
    /// Returns the phase in a Namespace's status.
    pub fn of(namespace: &Value) -> NamespacePhase {
        match namespace["status"]["phase"].as_str() {
            Some("Terminating") => NamespacePhase::Terminating,
            _ => NamespacePhase::Active,
        }
    }
}

/// The stored objects in their current state, in the storage version.
pub trait Cluster: Sync {
    /// Returns the object of that name, if it exists.
    ///
    /// # Errors
    /// [`Error::Internal`](crate::Error::Internal) if it exists but cannot be decoded.
    fn get(&self, resource: &GroupResource, namespace: &str, name: &str) -> Result<Option<Value>>;

    /// Returns a label of the object of that name; None if either does not exist. Implementations
    /// that know the labels should not parse the object.
    ///
    /// # Errors
    /// As [`Cluster::get`].
    fn label(
        &self,
        resource: &GroupResource,
        namespace: &str,
        name: &str,
        label: &str,
    ) -> Result<Option<String>> {
        let object = self.get(resource, namespace, name)?;
        Ok(object.and_then(|object| object["metadata"]["labels"][label].as_str().map(str::to_owned)))
    }

    /// Returns all objects of a resource in one namespace, or with `""` in all namespaces.
    ///
    /// # Errors
    /// [`Error::Internal`](crate::Error::Internal) if one of them cannot be decoded.
    fn list(&self, resource: &GroupResource, namespace: &str) -> Result<Vec<Value>>;

    /// Returns the number of objects of a resource in all namespaces. Implementations that know it
    /// without a list should not make one.
    ///
    /// # Errors
    /// As [`Cluster::list`].
    fn count(&self, resource: &GroupResource) -> Result<usize> {
        Ok(self.list(resource, "")?.len())
    }

    /// Lists the objects whose JSON contains `text`; may return others too, so callers must filter.
    /// A prefilter by which implementations avoid parsing.
    ///
    /// # Errors
    /// As [`Cluster::list`].
    fn list_containing(&self, resource: &GroupResource, namespace: &str, text: &str) -> Result<Vec<Value>> {
        let _ = text;
        self.list(resource, namespace)
    }

    /// Returns a revision that changes whenever an object of the resource changes; None if unknown.
    fn last_change(&self, resource: &GroupResource) -> Option<u64> {
        let _ = resource;
        None
    }

    /// Returns the phase of a namespace; None if it does not exist. It is called on every write of
    /// a namespaced object: implementations that know the phase without parsing the object should
    /// override it.
    ///
    /// # Errors
    /// As [`Cluster::get`].
    fn namespace(&self, name: &str) -> Result<Option<NamespacePhase>> {
        let namespace = self.get(&GroupResource::new("", "namespaces"), "", name)?;
        Ok(namespace.as_ref().map(NamespacePhase::of))
    }

    /// Waits until an object exists, for a second or two at most. The caller has to look it up
    /// afterwards.
    fn wait_for<'a>(
        &'a self,
        resource: &'a GroupResource,
        namespace: &'a str,
        name: &'a str,
    ) -> BoxFuture<'a, ()>;
}
