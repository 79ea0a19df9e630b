//! Devices of pods with ResourceClaims, and of pods with extended resources of a DeviceClass
//! (kube-scheduler's plugin DynamicResources). `coracle-device-allocation` chooses the devices.
//!
//! 1. A pod waits without a condition until all its claims exist ([`DynamicResources::claims_of`]).
//! 2. Claims that are allocated restrict the nodes; for the others devices are allocated on each
//!    node that passes the other filters ([`PodDevices`]).
//! 3. The allocation of the chosen node is reserved in the snapshot, so that later pods of the
//!    cycle do not get the same devices ([`DeviceSnapshot::reserve`]).
//! 4. Before the pod is bound, the allocation and the reservation are written to its claims
//!    (`claim_writes`). Devices may have conditions that the pod has to wait for (`readiness`).
//! 5. If no node fits because a claim is allocated elsewhere, an unused claim is deallocated.

mod claim_writes;
mod extended;
mod pod_devices;
mod readiness;
mod snapshot;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use coracle_controller_runtime::cache::{Cache, NamespacedName};
use coracle_device_allocation::SelectorCache;
use coracle_object_meta::{annotation, is_controlled_by};
use coracle_seed::Seed;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::{
    AllocationResult, DeviceClass, DeviceRequestAllocationResult, ResourceClaim,
    ResourceClaimConsumerReference, ResourceSlice,
};
use k8s_openapi::jiff::Timestamp;

use super::cluster_events::Effect;
use crate::settings::Context;

pub use extended::{ExtendedClaim, is_extended};
pub use pod_devices::{Cleanup, DeviceBinding, NOTHING_TO_DEALLOCATE, PodDevices};
pub use readiness::Readiness;
pub use snapshot::DeviceSnapshot;

/// The finalizer of allocated claims.
const FINALIZER: &str = "resource.kubernetes.io/delete-protection";
/// The annotation of a claim that the scheduler made for the extended resources of a pod.
const EXTENDED_CLAIM: &str = "resource.kubernetes.io/extended-resource-claim";

/// The caches of claims, slices and classes.
pub struct DynamicResources {
    pub claims: Arc<Cache<ResourceClaim>>,
    pub slices: Arc<Cache<ResourceSlice>>,
    pub classes: Arc<Cache<DeviceClass>>,
    selectors: Arc<SelectorCache>,
    seed: Option<Seed>,
}

impl DynamicResources {
    pub fn new(context: &Context) -> DynamicResources {
        DynamicResources {
            claims: context.cache(),
            slices: context.cache(),
            classes: context.cache(),
            selectors: Arc::default(),
            seed: context.settings.seed,
        }
    }

    /// Returns the state of all claims and devices at this time.
    pub fn snapshot(&self, now: Timestamp) -> DeviceSnapshot {
        let (claims, slices, classes) = (self.claims.all(), self.slices.all(), self.classes.all());
        let snapshot = DeviceSnapshot::new(claims, slices, classes, now);
        snapshot.with_selectors(self.selectors.clone()).with_seed(self.seed)
    }

    /// Returns the state of the devices of a pod with reserved claims.
    pub fn readiness(&self, pod: &Pod, now: Timestamp) -> Readiness {
        let claims = match self.claims_of(pod) {
            Ok(claims) => claims,
            Err(error) => return Readiness::Failed(error),
        };
        let states = claims.iter().cloned().chain(self.extended_claim_of(pod));
        let mut states = states.map(|claim| Readiness::of_bound(&claim, pod, now));
        states.find(|state| *state != Readiness::Ready).unwrap_or(Readiness::Ready)
    }

    /// Returns the time at which the devices that a pod waits for time out. It is after `now`.
    pub fn deadline(&self, pod: &Pod, now: Timestamp) -> Option<Timestamp> {
        let claims = self.claims_of(pod).ok()?.into_iter().chain(self.extended_claim_of(pod));
        claims.filter_map(|claim| readiness::pending_deadline(&claim, now)).min()
    }

    /// Returns the claims that a pod names or that were generated for it. A claim that is
    /// intentionally not generated does not count.
    ///
    /// # Errors
    /// The reason why the pod cannot be scheduled yet.
    pub fn claims_of(&self, pod: &Pod) -> Result<Vec<Arc<ResourceClaim>>, String> {
        claims_of(pod, |name| self.claims.get(name))
    }

    /// Returns the claim for the extended resources of a pod.
    pub fn extended_claim_of(&self, pod: &Pod) -> Option<Arc<ResourceClaim>> {
        let name = pod.status.as_ref()?.extended_resource_claim_status.as_ref()?;
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        self.claims.get(&NamespacedName::new(namespace, &name.resource_claim_name))
    }
}

/// Returns `true` if a pod may need devices: it has ResourceClaims or extended resources.
pub fn may_need_devices(pod: &Pod) -> bool {
    let Some(spec) = &pod.spec else { return false };
    let containers = spec.containers.iter().chain(spec.init_containers.iter().flatten());
    let requests = containers.filter_map(|container| container.resources.as_ref()?.requests.as_ref());
    spec.resource_claims.as_ref().is_some_and(|claims| !claims.is_empty())
        || requests.flatten().any(|(name, _)| is_extended(name))
}

/// Returns the effect of a change of a claim on the pods that need devices.
pub fn effect_of_claim(old: Option<&ResourceClaim>, new: Option<&ResourceClaim>) -> Effect {
    let is_allocated =
        |claim: Option<&ResourceClaim>| claim.is_some_and(|claim| allocation_of(claim).is_some());
    let is_deleted = |claim: &ResourceClaim| claim.metadata.deletion_timestamp.is_some();
    match (old, new) {
        (old, None) => {
            // Its pod waits for the deletion of a claim for extended resources.
            if is_allocated(old) || old.is_some_and(is_extended_claim) {
                Effect::Devices
            } else {
                Effect::None
            }
        }
        (None, Some(_)) => Effect::Devices,
        // Finalizers and labels have no effect.
        (Some(old), Some(new)) => match old.status == new.status && is_deleted(old) == is_deleted(new) {
            true => Effect::None,
            false => Effect::Devices,
        },
    }
}

fn claims_of(
    pod: &Pod,
    claim: impl Fn(&NamespacedName) -> Option<Arc<ResourceClaim>>,
) -> Result<Vec<Arc<ResourceClaim>>, String> {
    let of_pod = NamespacedName::of(pod);
    let mut claims = Vec::new();
    for entry in pod.spec.iter().flat_map(|spec| spec.resource_claims.iter().flatten()) {
        let is_generated = entry.resource_claim_name.is_none();
        let name = match &entry.resource_claim_name {
            Some(name) => name,
            None => {
                let statuses =
                    pod.status.iter().flat_map(|status| status.resource_claim_statuses.iter().flatten());
                let mut statuses = statuses.filter(|status| status.name == entry.name);
                match statuses.next() {
                    None => return Err(format!("pod \"{of_pod}\": ResourceClaim not created yet")),
                    Some(status) => match &status.resource_claim_name {
                        None => continue,
                        Some(name) => name,
                    },
                }
            }
        };
        let name = NamespacedName::new(&of_pod.namespace, name);
        let Some(claim) = claim(&name) else {
            return Err(format!("could not find ResourceClaim {:?}", name.to_string()));
        };
        if claim.metadata.deletion_timestamp.is_some() {
            return Err(format!("resourceclaim {:?} is being deleted", name.name));
        }
        if is_generated && !is_controlled_by(&claim.metadata, pod) {
            return Err(format!("ResourceClaim {name} was not created for Pod {of_pod} (Pod is not owner)"));
        }
        claims.push(claim);
    }
    Ok(claims)
}

/// Returns `true` if the scheduler made a claim for the extended resources of some pod.
fn is_extended_claim(claim: &ResourceClaim) -> bool {
    annotation(&claim.metadata, EXTENDED_CLAIM) == Some("true")
}

/// Returns the allocation of a claim.
fn allocation_of(claim: &ResourceClaim) -> Option<&AllocationResult> {
    claim.status.as_ref()?.allocation.as_ref()
}

/// Iterates over the devices of an allocation.
fn results(allocation: &AllocationResult) -> impl Iterator<Item = &DeviceRequestAllocationResult> {
    allocation.devices.iter().flat_map(|devices| devices.results.iter().flatten())
}

/// Returns the consumers that a claim is reserved for.
fn reserved_for(claim: &ResourceClaim) -> &[ResourceClaimConsumerReference] {
    let reserved = claim.status.as_ref().and_then(|status| status.reserved_for.as_deref());
    reserved.unwrap_or_default()
}

/// Returns `true` if a claim is reserved for a pod.
fn is_reserved_for(claim: &ResourceClaim, pod: &Pod) -> bool {
    reserved_for(claim).iter().any(|consumer| Some(&consumer.uid) == pod.metadata.uid.as_ref())
}
