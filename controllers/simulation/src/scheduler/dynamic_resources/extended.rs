//! Extended resources that a node has as devices of a class: the scheduler makes a claim for them.
//!
//! Source: `extendeddynamicresources.go` of kube-scheduler's plugin.

use std::collections::BTreeMap;
use std::sync::Arc;

use coracle_kinds::resources::{amount, is_sidecar};
use coracle_object_meta::set_annotation;
use coracle_pod_resources::names::{self, DEVICE_CLASS};
use coracle_quantity::Quantity;
use k8s_openapi::api::core::v1::{Container, ContainerExtendedResourceRequest, Pod};
use k8s_openapi::api::resource::v1::{
    AllocationResult, DeviceClaim, DeviceClass, DeviceRequest, ExactDeviceRequest, ResourceClaim,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;

use super::EXTENDED_CLAIM;
use super::snapshot::DeviceSnapshot;
use crate::scheduler::node_info::NodeInfo;
use crate::scheduler::requests::PodRequests;

/// The extended resources that a pod requests, of which a class provides at least one.
pub struct ExtendedResources {
    pod: Pod,
    /// The resources, and the class of each that has one.
    resources: BTreeMap<String, Option<Arc<DeviceClass>>>,
    /// The claim of an earlier cycle, which was not completed.
    stale: Option<Arc<ResourceClaim>>,
}

/// The claim for the extended resources of a pod on a node.
#[derive(Clone, Debug)]
pub struct ExtendedClaim {
    /// The claim, which does not exist yet.
    pub claim: ResourceClaim,
    pub allocation: AllocationResult,
    /// The requests of the claim that the containers use.
    pub mappings: Vec<ContainerExtendedResourceRequest>,
}

/// Returns `true` if a resource may be provided by a class.
pub fn is_extended(name: &str) -> bool {
    name.starts_with(DEVICE_CLASS) || names::is_extended(name)
}

/// Returns the class of each extended resource. Of several classes for one resource the newest
/// counts, or that with the first name.
pub(super) fn classes_by_resource(classes: &[Arc<DeviceClass>]) -> BTreeMap<String, Arc<DeviceClass>> {
    let mut sorted: Vec<&Arc<DeviceClass>> = classes.iter().collect();
    sorted.sort_by(|one, other| {
        let created = |class: &DeviceClass| class.metadata.creation_timestamp.as_ref().map(|time| time.0);
        created(one).cmp(&created(other)).then_with(|| other.metadata.name.cmp(&one.metadata.name))
    });
    let mut by_resource = BTreeMap::new();
    for class in sorted {
        let name = class.metadata.name.as_deref().unwrap_or_default();
        by_resource.insert(format!("{DEVICE_CLASS}{name}"), class.clone());
        by_resource.extend(class.spec.extended_resource_name.clone().map(|name| (name, class.clone())));
    }
    by_resource
}

impl ExtendedResources {
    /// Returns the extended resources of a pod; None if no class provides one of them.
    ///
    /// - `find`: returns the claim that an earlier cycle made
    pub(super) fn of(
        pod: &Pod,
        requests: &PodRequests,
        snapshot: &DeviceSnapshot,
        find: impl FnOnce() -> Option<Arc<ResourceClaim>>,
    ) -> Option<ExtendedResources> {
        let requested = requests.all.iter().filter(|(name, wanted)| !wanted.is_zero() && is_extended(name));
        let resources: BTreeMap<_, _> =
            requested.map(|(name, _)| (name.clone(), snapshot.by_resource.get(name).cloned())).collect();
        resources.values().any(Option::is_some).then(|| ExtendedResources {
            pod: pod.clone(),
            resources,
            stale: find(),
        })
    }

    /// Returns `true` if a class provides a resource.
    pub(super) fn has(&self, resource: &str) -> bool {
        self.resources.get(resource).is_some_and(Option::is_some)
    }

    /// Returns the claim of an earlier cycle.
    pub(super) fn stale_claim(&self) -> Option<&Arc<ResourceClaim>> {
        self.stale.as_ref()
    }

    /// Returns the claim for a node; None if the node has all resources itself. The allocation is
    /// empty.
    ///
    /// # Errors
    /// The reason why the pod does not fit the node.
    pub(super) fn claim_on(&self, info: &NodeInfo) -> Result<Option<ExtendedClaim>, String> {
        if self.stale.is_some() {
            return Err("cannot schedule extended resource claim".to_owned());
        }
        let mut as_devices = Vec::new();
        for (name, class) in &self.resources {
            match class {
                Some(class) if amount(&info.allocatable, name).is_zero() => as_devices.push((name, class)),
                _ if !info.allocatable.contains_key(name) => return Err("cannot fit resource".to_owned()),
                _ => {}
            }
        }
        if as_devices.is_empty() {
            return Ok(None);
        }
        let (mut requests, mut mappings) = (Vec::new(), Vec::new());
        let nothing = Vec::new();
        let spec = self.pod.spec.as_ref();
        let init = spec.and_then(|spec| spec.init_containers.as_ref()).unwrap_or(&nothing);
        let main = spec.map_or(&nothing, |spec| &spec.containers);
        let containers: Vec<&Container> = init.iter().chain(main).collect();
        for (resource, class) in as_devices {
            let class = class.metadata.name.as_deref().unwrap_or_default();
            add_requests(&containers, init.len(), resource, class, &mut requests, &mut mappings);
        }
        requests.sort_by(|one: &DeviceRequest, other| one.name.cmp(&other.name));
        let claim = claim(&self.pod, requests);
        Ok(Some(ExtendedClaim { claim, allocation: AllocationResult::default(), mappings }))
    }
}

/// Builds the claim of a pod.
fn claim(pod: &Pod, requests: Vec<DeviceRequest>) -> ResourceClaim {
    let mut claim = ResourceClaim::default();
    let name = pod.metadata.name.clone().unwrap_or_default();
    claim.metadata.namespace.clone_from(&pod.metadata.namespace);
    claim.metadata.generate_name = Some(format!("{name}-extended-resources-"));
    claim.metadata.owner_references = Some(vec![OwnerReference {
        api_version: "v1".to_owned(),
        kind: "Pod".to_owned(),
        name,
        uid: pod.metadata.uid.clone().unwrap_or_default(),
        controller: Some(true),
        block_owner_deletion: None,
    }]);
    set_annotation(&mut claim.metadata, EXTENDED_CLAIM, "true");
    claim.spec.devices = Some(DeviceClaim { requests: Some(requests), ..DeviceClaim::default() });
    claim
}

/// Adds the requests for a resource of all containers. Init containers that end before the others
/// start use the devices of these, and share one more request.
fn add_requests(
    containers: &[&Container],
    init: usize,
    resource: &str,
    class: &str,
    requests: &mut Vec<DeviceRequest>,
    mappings: &mut Vec<ContainerExtendedResourceRequest>,
) {
    let is_short_lived = |index: usize, container: &Container| index < init && !is_sidecar(container);
    let mut long_lived: Vec<Option<DeviceRequest>> = vec![None; containers.len()];
    for ((index, container), slot) in containers.iter().enumerate().zip(&mut long_lived) {
        if !is_short_lived(index, container) {
            let (request, used) = container_request(index, container, resource, class, &[]);
            *slot = request;
            mappings.extend(used);
        }
    }
    let mut largest: Option<DeviceRequest> = None;
    let (mut names, mut used_by_init) = (Vec::new(), Vec::new());
    for (index, container) in containers.iter().enumerate() {
        if !is_short_lived(index, container) {
            continue;
        }
        let reusable = long_lived.get(index..).unwrap_or_default();
        let (request, used) = container_request(index, container, resource, class, reusable);
        if let Some(request) = request {
            names.push(request.name.clone());
            if largest.as_ref().is_none_or(|largest| count(largest) < count(&request)) {
                largest = Some(request);
            }
        }
        used_by_init.extend(used);
    }
    if let Some(largest) = &largest {
        for mapping in used_by_init.iter_mut().filter(|mapping| names.contains(&mapping.request_name)) {
            mapping.request_name.clone_from(&largest.name);
        }
    }
    requests.extend(largest);
    requests.extend(long_lived.into_iter().flatten());
    mappings.extend(used_by_init);
}

fn count(request: &DeviceRequest) -> i64 {
    request.exactly.as_ref().and_then(|exactly| exactly.count).unwrap_or(0)
}

/// Returns the request of a container for a resource, and the requests that it uses.
///
/// - `reusable`: the requests of later containers, which it uses before its own
fn container_request(
    index: usize,
    container: &Container,
    resource: &str,
    class: &str,
    reusable: &[Option<DeviceRequest>],
) -> (Option<DeviceRequest>, Vec<ContainerExtendedResourceRequest>) {
    let mut used = Vec::new();
    let requested = container.resources.as_ref().and_then(|resources| resources.requests.as_ref());
    let all = requested.into_iter().flatten();
    let Some((position, (_, text))) = all.enumerate().find(|(_, (name, _))| *name == resource) else {
        return (None, used);
    };
    let wanted: Quantity = text.0.parse().unwrap_or(Quantity::from_int(0));
    if !wanted.is_positive() || !wanted.is_whole() {
        return (None, used);
    }
    let mapping = |request: &str| ContainerExtendedResourceRequest {
        container_name: container.name.clone(),
        request_name: request.to_owned(),
        resource_name: resource.to_owned(),
    };
    let mut sum: i64 = 0;
    for request in reusable.iter().flatten() {
        // Each count is an int64, and their sum may be none.
        sum = sum.saturating_add(count(request));
        used.push(mapping(&request.name));
        if sum >= wanted.value() {
            return (None, used);
        }
    }
    let name = format!("container-{index}-request-{position}");
    used.push(mapping(&name));
    let exactly = ExactDeviceRequest {
        device_class_name: class.to_owned(),
        allocation_mode: Some("ExactCount".to_owned()),
        count: Some(wanted.value().saturating_sub(sum)),
        ..ExactDeviceRequest::default()
    };
    (Some(DeviceRequest { name, exactly: Some(exactly), first_available: None }), used)
}
