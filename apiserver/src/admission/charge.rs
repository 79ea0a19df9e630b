//! The charging of writes to limits of their namespace.

use serde_json::Value;

use super::AdmissionAttributes;
use crate::Result;
use crate::names::GroupResource;

/// Charges writes to objects of their namespace that limit what is used, which are quotas. It has to see the object after all plugins, and
/// the changed quotas are committed together with the object: the registry does both, under a lock for each namespace.
pub trait Charge: Send + Sync {
    /// The resource of the quotas.
    fn resource(&self) -> &GroupResource;

    /// Charges a write to the quotas of its namespace. Returns for each quota, in order, its new version, or None if it does not
    /// change; an empty list if the resource is not subject to quotas.
    ///
    /// # Errors
    /// The response to a write that is beyond a quota.
    fn charge(&self, attributes: &AdmissionAttributes<'_>, quotas: &[Value]) -> Result<Vec<Option<Value>>>;
}
