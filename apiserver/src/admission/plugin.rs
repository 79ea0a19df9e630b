//! The traits of admission plugins.

use futures::future::BoxFuture;

use super::AdmissionAttributes;
use crate::Result;
use crate::cluster::Cluster;

/// A plugin that decides without waiting, from the request and the state of this process.
///
/// Source: `k8s.io/apiserver/pkg/admission`, `MutationInterface` and `ValidationInterface`.
pub trait AdmissionPlugin: Send + Sync {
    /// Admits the request; it may change the object.
    ///
    /// # Errors
    /// The response to a request that is rejected.
    fn admit(&self, attributes: &mut AdmissionAttributes<'_>, cluster: &dyn Cluster) -> Result<()> {
        let _ = (attributes, cluster);
        Ok(())
    }

    /// Validates the request, once the object is final and valid.
    ///
    /// # Errors
    /// The response to a request that is rejected.
    fn validate(&self, attributes: &AdmissionAttributes<'_>, cluster: &dyn Cluster) -> Result<()> {
        let _ = (attributes, cluster);
        Ok(())
    }
}

/// A plugin that waits: for another object, or for the response of a webhook. No lock is held
/// meanwhile, so other requests continue.
pub trait AsyncAdmissionPlugin: Send + Sync {
    /// Returns `true` if the plugin must be called for the request.
    fn handles(&self, attributes: &AdmissionAttributes<'_>, cluster: &dyn Cluster) -> bool;

    /// Runs the first pass, like [`AdmissionPlugin::admit`].
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

    /// Runs the second pass, like [`AdmissionPlugin::validate`].
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
