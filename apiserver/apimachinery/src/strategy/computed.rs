//! Resources that are not stored but computed from others at each read.

use serde_json::Value;

use crate::cluster::Cluster;
use crate::object_meta::ObjectMeta;
use crate::{Error, Result};

/// The source of a read-only resource: ComponentStatuses, and the metrics of metrics-server.
pub trait Computed: Send + Sync {
    /// Returns the objects of a namespace, or with `""` those of all namespaces, ordered by
    /// namespace and name.
    ///
    /// - `now`: in RFC 3339, whole seconds
    ///
    /// # Errors
    /// The errors of reading the underlying objects.
    fn list(&self, cluster: &dyn Cluster, namespace: &str, now: &str) -> Result<Vec<Value>>;

    /// Returns one object; None if it does not exist.
    ///
    /// # Errors
    /// As of [`Computed::list`].
    fn get(&self, cluster: &dyn Cluster, namespace: &str, name: &str, now: &str) -> Result<Option<Value>> {
        let objects = self.list(cluster, namespace, now)?;
        Ok(objects.into_iter().find(|object| object.name() == name))
    }

    /// Returns the error for an object that does not exist. The servers name the resource
    /// differently in it.
    fn not_found(&self, namespace: &str, name: &str) -> Error;
}
