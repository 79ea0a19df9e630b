//! The evaluators of kinds with quotas other than object counts: the usage of an object, by the
//! resource names in quotas.

use std::collections::BTreeMap;

use coracle_kinds::storage::BETA_STORAGE_CLASS;
use coracle_pod_resources::quota::resource_claims::DeviceRequest as Alternative;
use coracle_pod_resources::{ResourceList, quota};
use coracle_quantity::Quantity;
use k8s_openapi::api::core::v1::{
    PersistentVolumeClaim, ResourceQuotaSpec, ScopedResourceSelectorRequirement, Service,
};
use k8s_openapi::api::resource::v1::{DeviceRequest, ResourceClaim};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Written;
use k8s_openapi::jiff::Timestamp;

use super::scopes;

pub(super) trait Evaluator {
    /// Returns `true` if a name in a quota limits objects of this kind.
    fn matches(name: &str) -> bool;

    fn usage(&self, now: Timestamp) -> ResourceList;

    /// Returns `true` if the object is in a scope. Objects of most kinds are in none.
    fn is_in(&self, _scope: &ScopedResourceSelectorRequirement) -> bool {
        false
    }
}

/// Returns the usage of an object, restricted to the resources and scopes of a quota.
pub(super) fn scoped_usage<K: Evaluator>(
    spec: &ResourceQuotaSpec,
    object: &K,
    now: Timestamp,
) -> ResourceList {
    let hard = spec.hard.as_ref();
    if !scopes::all(spec, |scope| object.is_in(scope)) {
        return ResourceList::new();
    }
    let mut usage = object.usage(now);
    usage.retain(|name, _| hard.is_some_and(|hard| hard.contains_key(name)));
    usage
}

pub(super) fn none() -> Quantity {
    Quantity::from_int(0)
}

pub(super) fn one() -> Quantity {
    Quantity::from_int(1)
}

/// Converts a resource list of the API. Invalid quantities are left out.
pub(super) fn amounts(list: Option<&BTreeMap<String, Written>>) -> ResourceList {
    let list = list.into_iter().flatten();
    list.filter_map(|(name, amount)| Some((name.clone(), amount.0.parse().ok()?))).collect()
}

impl Evaluator for Service {
    fn matches(name: &str) -> bool {
        quota::services::matches(name)
    }

    fn usage(&self, _now: Timestamp) -> ResourceList {
        let spec = self.spec.as_ref();
        let service_type = spec.and_then(|spec| spec.type_.as_deref()).unwrap_or_default();
        let allocates_node_ports =
            spec.and_then(|spec| spec.allocate_load_balancer_node_ports) != Some(false);
        let ports = spec.and_then(|spec| spec.ports.as_deref()).unwrap_or_default();
        let assigned = ports.iter().filter(|port| port.node_port.unwrap_or(0) != 0).count();
        quota::services::usage(service_type, allocates_node_ports, ports.len(), assigned)
    }
}

impl Evaluator for PersistentVolumeClaim {
    fn matches(name: &str) -> bool {
        quota::persistent_volume_claims::matches(name)
    }

    fn usage(&self, _now: Timestamp) -> ResourceList {
        let storage = |list: Option<&BTreeMap<String, Written>>| amounts(list).remove("storage");
        let spec = self.spec.as_ref();
        let resources = spec.and_then(|spec| spec.resources.as_ref());
        let requested = storage(resources.and_then(|resources| resources.requests.as_ref()));
        let allocated = self.status.as_ref().and_then(|status| status.allocated_resources.as_ref());
        let beta = self.metadata.annotations.as_ref().and_then(|a| a.get(BETA_STORAGE_CLASS));
        let class = beta.or(spec.and_then(|spec| spec.storage_class_name.as_ref()));
        let class = class.map(String::as_str).unwrap_or_default();
        quota::persistent_volume_claims::usage(requested, storage(allocated), class)
    }

    fn is_in(&self, scope: &ScopedResourceSelectorRequirement) -> bool {
        let status = self.status.as_ref();
        let modifying = status.and_then(|status| status.modify_volume_status.as_ref());
        let classes = [
            self.spec.as_ref().and_then(|spec| spec.volume_attributes_class_name.as_deref()),
            status.and_then(|status| status.current_volume_attributes_class_name.as_deref()),
            modifying.and_then(|modifying| modifying.target_volume_attributes_class_name.as_deref()),
        ];
        scope.scope_name == "VolumeAttributesClass" && scopes::selects(scope, &classes)
    }
}

impl Evaluator for ResourceClaim {
    fn matches(name: &str) -> bool {
        quota::resource_claims::matches(name)
    }

    fn usage(&self, _now: Timestamp) -> ResourceList {
        let requests = self.spec.devices.iter().flat_map(|devices| &devices.requests).flatten();
        quota::resource_claims::usage(requests.map(alternatives))
    }
}

fn alternatives(request: &DeviceRequest) -> Vec<Alternative<'_>> {
    let first_available = request.first_available.iter().flatten().map(|request| Alternative {
        device_class: &request.device_class_name,
        allocation_mode: request.allocation_mode.as_deref().unwrap_or_default(),
        count: request.count.unwrap_or(0),
    });
    let alternatives: Vec<Alternative<'_>> = first_available.collect();
    if !alternatives.is_empty() {
        return alternatives;
    }
    let exactly = request.exactly.iter().map(|request| Alternative {
        device_class: &request.device_class_name,
        allocation_mode: request.allocation_mode.as_deref().unwrap_or_default(),
        count: request.count.unwrap_or(0),
    });
    exactly.collect()
}
