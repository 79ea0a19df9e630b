//! The reservation of what a write uses in the quotas of its namespace.

use serde_json::Value;

use super::AdmissionAttributes;
use crate::Result;
use crate::names::GroupResource;

/// Reserves what writes use in the quotas of their namespace. It has to see the object after all
/// plugins, and the changed quotas are committed together with the object: the registry does both,
/// under a lock for each namespace.
pub trait QuotaReserver: Send + Sync {
    /// Returns the resource of the quotas.
    fn resource(&self) -> &GroupResource;

    /// Reserves what a write uses. Returns for each quota, in order, its new version, or None if it
    /// does not change; an empty list if the resource is not subject to quotas.
    ///
    /// # Errors
    /// The response to a write that is beyond a quota.
    fn reserve(&self, attributes: &AdmissionAttributes<'_>, quotas: &[Value]) -> Result<Vec<Option<Value>>>;
}
