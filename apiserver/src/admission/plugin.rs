//! What a plugin is.

use futures::future::BoxFuture;

use super::AdmissionAttributes;
use crate::Result;
use crate::cluster::Cluster;

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
