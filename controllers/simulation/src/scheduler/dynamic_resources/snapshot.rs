//! The devices of the cluster in one scheduling cycle.

use std::cell::Cell;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use coracle_controller_runtime::cache::NamespacedName;
use coracle_device_allocation::{AllocatedState, Allocator, DeviceClasses, Inventory, SelectorCache};
use coracle_seed::Seed;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::{DeviceClass, DeviceRequest, ResourceClaim, ResourceSlice};
use k8s_openapi::jiff::Timestamp;

use super::extended::{ExtendedResources, classes_by_resource};
use super::pod_devices::{DeviceBinding, PodDevices};
use super::{allocation_of, claims_of, is_extended_claim};
use crate::scheduler::pod_info::uid;
use crate::scheduler::requests::PodRequests;

/// The number of steps that the search for the devices of one pod may do, about half a second.
const STEPS_OF_POD: u64 = 5_000_000;
/// The number of steps after which no further search is begun in a cycle, so that pods without
/// devices do not wait for many of them.
const STEPS_OF_CYCLE: u64 = 10_000_000;

/// All claims, slices and classes, with the devices that are allocated already.
pub struct DeviceSnapshot {
    claims: HashMap<NamespacedName, Arc<ResourceClaim>>,
    inventory: Inventory,
    pub(super) classes: DeviceClasses,
    /// The classes of extended resources.
    pub(super) by_resource: BTreeMap<String, Arc<DeviceClass>>,
    allocated: AllocatedState,
    /// The uids of the claims that got an allocation in this cycle.
    in_flight: HashSet<String>,
    selectors: Arc<SelectorCache>,
    pub(super) seed: Option<Seed>,
    now: Timestamp,
    steps: Cell<u64>,
}

impl Default for DeviceSnapshot {
    fn default() -> DeviceSnapshot {
        DeviceSnapshot::new(Vec::new(), Vec::new(), Vec::new(), Timestamp::UNIX_EPOCH)
    }
}

impl DeviceSnapshot {
    pub fn new(
        claims: Vec<Arc<ResourceClaim>>,
        slices: Vec<Arc<ResourceSlice>>,
        classes: Vec<Arc<DeviceClass>>,
        now: Timestamp,
    ) -> DeviceSnapshot {
        let mut allocated = AllocatedState::default();
        claims.iter().filter_map(|claim| allocation_of(claim)).for_each(|found| allocated.add(found));
        let by_resource = classes_by_resource(&classes);
        let named = |class: Arc<DeviceClass>| (class.metadata.name.clone().unwrap_or_default(), class);
        DeviceSnapshot {
            claims: claims.into_iter().map(|claim| (NamespacedName::of(claim.as_ref()), claim)).collect(),
            inventory: Inventory::new(slices),
            classes: classes.into_iter().map(named).collect(),
            by_resource,
            allocated,
            in_flight: HashSet::new(),
            selectors: Arc::default(),
            seed: None,
            now,
            steps: Cell::new(STEPS_OF_CYCLE),
        }
    }

    /// Returns the snapshot with compiled selectors of earlier cycles.
    pub fn with_selectors(self, selectors: Arc<SelectorCache>) -> DeviceSnapshot {
        DeviceSnapshot { selectors, ..self }
    }

    /// Returns the snapshot with the seed that ids of shares follow from.
    pub fn with_seed(self, seed: Option<Seed>) -> DeviceSnapshot {
        DeviceSnapshot { seed, ..self }
    }

    /// Returns the time of the snapshot.
    pub fn now(&self) -> Timestamp {
        self.now
    }

    /// Returns `true` if the searches of this cycle have taken so long that no other one begins.
    pub fn is_exhausted(&self) -> bool {
        self.steps.get() < STEPS_OF_POD
    }

    pub(super) fn allocator(&self) -> Allocator<'_> {
        Allocator {
            inventory: &self.inventory,
            classes: &self.classes,
            allocated: &self.allocated,
            selectors: &self.selectors,
        }
    }

    /// Counts the steps of a search.
    pub(super) fn count_steps(&self, steps: u64) {
        self.steps.set(self.steps.get().saturating_sub(steps));
    }

    /// Returns the claims of a pod, as far as they can be checked without a node.
    ///
    /// # Errors
    /// The reason why the pod fits no node.
    pub fn devices_of(&self, pod: &Pod, requests: &PodRequests) -> Result<PodDevices<'_>, String> {
        let claims = claims_of(pod, |name| self.claims.get(name).cloned())?;
        for claim in claims.iter().filter(|claim| allocation_of(claim).is_none()) {
            let name = NamespacedName::of(claim.as_ref());
            if claim.metadata.uid.as_ref().is_some_and(|uid| self.in_flight.contains(uid)) {
                return Err(format!("resource claim {name} is in the process of being allocated"));
            }
            let devices = claim.spec.devices.iter();
            for request in devices.flat_map(|devices| devices.requests.iter().flatten()) {
                self.check_classes(&name, request)?;
            }
        }
        let extended = ExtendedResources::of(pod, requests, self, || self.extended_claim_of(pod));
        Ok(PodDevices::new(self, pod, claims, extended, STEPS_OF_POD))
    }

    fn check_classes(&self, claim: &NamespacedName, request: &DeviceRequest) -> Result<(), String> {
        let name = &request.name;
        let exact = request.exactly.iter().map(|exactly| (name.clone(), &exactly.device_class_name));
        let alternatives = request.first_available.iter().flatten();
        let alternatives = alternatives
            .map(|alternative| (format!("{name}/{}", alternative.name), &alternative.device_class_name));
        let mut all = exact.chain(alternatives).peekable();
        if all.peek().is_none() {
            return Err(format!("resource claim {claim}, request {name}: unknown request type"));
        }
        match all.find(|(_, class)| !self.classes.contains_key(*class)) {
            Some((request, class)) => Err(format!("request {request}: device class {class} does not exist")),
            None => Ok(()),
        }
    }

    /// Returns the claim that an earlier cycle made for the extended resources of a pod.
    fn extended_claim_of(&self, pod: &Pod) -> Option<Arc<ResourceClaim>> {
        let is_owner = |claim: &ResourceClaim| {
            let owners = claim.metadata.owner_references.iter().flatten();
            owners.into_iter().any(|owner| owner.controller == Some(true) && owner.uid == uid(pod))
        };
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        let mut claims = self.claims.iter().filter(|(name, _)| name.namespace == namespace);
        claims.find(|(_, claim)| is_extended_claim(claim) && is_owner(claim)).map(|(_, claim)| claim.clone())
    }

    /// Takes the devices of a binding, so that no other pod gets them.
    pub fn reserve(&mut self, binding: &DeviceBinding) {
        for claim in &binding.claims {
            if let Some(allocation) = &claim.allocation {
                self.allocated.add(allocation);
                self.in_flight.extend(claim.claim.metadata.uid.clone());
            }
        }
        if let Some(extended) = &binding.extended {
            self.allocated.add(&extended.allocation);
        }
    }
}
