//! The objects of the cluster, as those see them who only look them up: admission plugins, authenticators.

#![warn(missing_docs)]

use futures::future::BoxFuture;
use serde_json::Value;

use crate::Result;
use crate::names::GroupResource;

/// Where a namespace is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NamespacePhase {
    /// It takes new objects. Also the phase of a namespace with no phase in its status.
    Active,
    /// It is being deleted, and takes no new objects.
    Terminating,
}

impl NamespacePhase {
    /// The phase in a Namespace's status.
    pub fn of(namespace: &Value) -> NamespacePhase {
        match namespace["status"]["phase"].as_str() {
            Some("Terminating") => NamespacePhase::Terminating,
            _ => NamespacePhase::Active,
        }
    }
}

/// The objects as they are now, in their storage version's form.
pub trait Cluster: Sync {
    /// The object, if there is one.
    ///
    /// # Errors
    /// [`Error::Internal`](crate::Error::Internal) if it is there but cannot be read.
    fn get(&self, resource: &GroupResource, namespace: &str, name: &str) -> Result<Option<Value>>;

    /// All of a kind, in one namespace or (`""`) everywhere.
    ///
    /// # Errors
    /// [`Error::Internal`](crate::Error::Internal) if any cannot be read.
    fn list(&self, resource: &GroupResource, namespace: &str) -> Result<Vec<Value>>;

    /// Whether a namespace exists, and its phase. Called on every write of a namespaced object: implementations that know the
    /// phase without parsing the object should.
    ///
    /// # Errors
    /// As [`Cluster::get`].
    fn namespace(&self, name: &str) -> Result<Option<NamespacePhase>> {
        let namespace = self.get(&GroupResource::new("", "namespaces"), "", name)?;
        Ok(namespace.as_ref().map(NamespacePhase::of))
    }

    /// Waits until an object exists, but not long: a second or two. Whether it came must be looked up.
    fn wait_for<'a>(
        &'a self,
        resource: &'a GroupResource,
        namespace: &'a str,
        name: &'a str,
    ) -> BoxFuture<'a, ()>;
}
