//! What a plugin is, and what it may look up.

use futures::future::BoxFuture;
use serde_json::Value;

use super::AdmissionAttributes;
use crate::Result;
use crate::names::GroupResource;

/// Where a namespace is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NamespacePhase {
    Active,
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

/// What plugins may look up: the objects as they are now, in their storage version's form.
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

/// A plugin that decides at once, from the request and what the process knows.
pub trait AdmissionPlugin: Send + Sync {
    /// kube-apiserver's name of the plugin.
    fn name(&self) -> &'static str;

    /// May change the object, or reject the request.
    ///
    /// # Errors
    /// The response to a request that is rejected.
    fn admit(&self, attributes: &mut AdmissionAttributes<'_>, cluster: &dyn Cluster) -> Result<()> {
        let _ = (attributes, cluster);
        Ok(())
    }

    /// May reject the request, when the object is final and valid.
    ///
    /// # Errors
    /// The response to a request that is rejected.
    fn validate(&self, attributes: &AdmissionAttributes<'_>, cluster: &dyn Cluster) -> Result<()> {
        let _ = (attributes, cluster);
        Ok(())
    }
}

/// A plugin that waits for others: for another object, or for what a webhook answers. Nothing is locked meanwhile, and nobody
/// else's request waits with it.
pub trait AsyncAdmissionPlugin: Send + Sync {
    /// kube-apiserver's name of the plugin.
    fn name(&self) -> &'static str;

    /// Whether the plugin looks at the request at all. Those that it does not handle cost nothing more.
    fn handles(&self, attributes: &AdmissionAttributes<'_>) -> bool;

    /// As [`AdmissionPlugin::admit`].
    ///
    /// # Errors
    /// The response to a request that is rejected.
    fn admit<'a>(
        &'a self,
        attributes: &'a mut AdmissionAttributes<'_>,
        cluster: &'a dyn Cluster,
    ) -> BoxFuture<'a, Result<()>> {
        let _ = (attributes, cluster);
        Box::pin(async { Ok(()) })
    }

    /// As [`AdmissionPlugin::validate`].
    ///
    /// # Errors
    /// The response to a request that is rejected.
    fn validate<'a>(
        &'a self,
        attributes: &'a AdmissionAttributes<'_>,
        cluster: &'a dyn Cluster,
    ) -> BoxFuture<'a, Result<()>> {
        let _ = (attributes, cluster);
        Box::pin(async { Ok(()) })
    }
}
