//! Binding conditions: devices that are prepared for a node before a pod may use them there.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::{AllocatedDeviceStatus, DeviceRequestAllocationResult, ResourceClaim};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use k8s_openapi::jiff::{SignedDuration, Timestamp};

use super::{allocation_of, is_reserved_for, results};

/// The time after an allocation in which its devices must become ready.
const BINDING_TIMEOUT: Duration = Duration::from_secs(600);

/// The state of the devices of an allocated claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Readiness {
    /// All conditions are met.
    Ready,
    /// Some condition is missing.
    Pending,
    /// A device has failed, for this reason.
    Failed(String),
}

impl Readiness {
    /// Returns the state of a claim's devices.
    pub fn of(claim: &ResourceClaim, now: Timestamp) -> Readiness {
        let name = claim.metadata.name.as_deref().unwrap_or_default();
        match Readiness::of_conditions(claim, name) {
            Readiness::Pending if deadline(claim).is_some_and(|deadline| deadline <= now) => {
                Readiness::Failed(format!("device binding timeout: claim={name}"))
            }
            readiness => readiness,
        }
    }

    /// Returns the state of a claim that was bound for a pod which waits.
    pub fn of_bound(claim: &ResourceClaim, pod: &Pod, now: Timestamp) -> Readiness {
        let name = claim.metadata.name.as_deref().unwrap_or_default();
        if allocation_of(claim).is_none() {
            return Readiness::Failed(format!("claim {name} got deallocated in the meantime"));
        }
        if !is_reserved_for(claim, pod) {
            return Readiness::Failed(format!("claim {name} lost its reservation in the meantime"));
        }
        Readiness::of(claim, now)
    }

    fn of_conditions(claim: &ResourceClaim, name: &str) -> Readiness {
        let Some(allocation) = allocation_of(claim) else { return Readiness::Pending };
        for result in results(allocation) {
            let conditions = result.binding_conditions.as_deref().unwrap_or_default();
            if conditions.is_empty() {
                continue;
            }
            let Some(status) = status_of(claim, result) else { return Readiness::Pending };
            let failures = result.binding_failure_conditions.iter().flatten();
            let mut failures = failures.filter_map(|name| is_true(status, name));
            if let Some(failure) = failures.next() {
                let Condition { reason, message, .. } = failure;
                return Readiness::Failed(format!(
                    "device binding failed: claim={name}, reason={reason}, message={message:?}"
                ));
            }
            if !conditions.iter().all(|name| is_true(status, name).is_some()) {
                return Readiness::Pending;
            }
        }
        Readiness::Ready
    }
}

/// Returns the time at which a claim that still waits for conditions times out.
pub fn pending_deadline(claim: &ResourceClaim, now: Timestamp) -> Option<Timestamp> {
    (Readiness::of(claim, now) == Readiness::Pending).then(|| deadline(claim)).flatten()
}

/// Returns the time at which a claim that is not ready times out.
fn deadline(claim: &ResourceClaim) -> Option<Timestamp> {
    let allocation = allocation_of(claim)?;
    let has_conditions = results(allocation).any(|result| result.binding_conditions.is_some());
    let since = allocation.allocation_timestamp.as_ref().filter(|_| has_conditions)?;
    since.0.checked_add(SignedDuration::try_from(BINDING_TIMEOUT).ok()?).ok()
}

fn status_of<'a>(
    claim: &'a ResourceClaim,
    result: &DeviceRequestAllocationResult,
) -> Option<&'a AllocatedDeviceStatus> {
    claim.status.as_ref()?.devices.as_ref()?.iter().find(|status| {
        status.device == result.device && status.driver == result.driver && status.pool == result.pool
    })
}

fn is_true<'a>(status: &'a AllocatedDeviceStatus, name: &str) -> Option<&'a Condition> {
    let condition = status.conditions.iter().flatten().find(|condition| condition.type_ == name)?;
    (condition.status == "True").then_some(condition)
}
