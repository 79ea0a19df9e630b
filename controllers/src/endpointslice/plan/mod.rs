//! The decision: the slices of a Service from its pods and their nodes.
//!
//! Source: `k8s.io/endpointslice` (`Reconciler`).

use std::collections::BTreeMap;
use std::sync::Arc;

use coracle_object_meta::{controller_ref, is_controlled_by};
use k8s_openapi::api::core::v1::{Node, Pod, Service};
use k8s_openapi::api::discovery::v1::{EndpointPort, EndpointSlice};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::MANAGER;
use super::endpoint::{AddressType, endpoint, ports};
use super::hints::TrafficDistribution;
use super::placement::{MAX_ENDPOINTS, Placement, place};
use super::topology::{self, Hinter};
use crate::service_endpoints::HEADLESS;
use crate::service_endpoints::endpoint_set::{EndpointSet, identity};
use crate::service_endpoints::gauges::Counts;
use crate::service_endpoints::pods::is_endpoint;
use crate::service_endpoints::selection::is_headless;
use crate::service_endpoints::slices::{MANAGED_BY, PortKey, SERVICE_NAME, SliceChanges, port_key};

/// The state that the plan for a Service is based on.
pub struct Observed<'a, N> {
    pub service: &'a Service,
    /// The pods that it selects.
    pub pods: &'a [Arc<Pod>],
    /// The slices of the Service that are not terminating.
    pub slices: Vec<Arc<EndpointSlice>>,
    /// Returns the node with a name.
    pub node: N,
}

/// The changes to make, and their counts for the metrics.
#[derive(Default)]
pub struct Plan {
    /// The changes of each type of addresses.
    pub changes: Vec<SliceChanges>,
    /// The errors that require another reconciliation of the Service.
    pub errors: Vec<String>,
    pub added: usize,
    pub removed: usize,
    pub counts: Counts,
}

/// Plans the slices of a Service.
///
/// - `hinter`: sets the hints of slices, if the Service requests them by its annotation
pub fn plan<N>(observed: Observed<'_, N>, hinter: &mut Hinter<'_>) -> Plan
where
    N: Fn(&str) -> Option<Arc<Node>>,
{
    let Observed { service, pods, slices, node } = observed;
    let types = AddressType::of(service);
    let mut plan = Plan::default();
    let is_supported = |slice: &EndpointSlice| types.iter().any(|kind| kind.name() == slice.address_type);
    let (slices, unsupported): (Vec<_>, Vec<_>) = slices.into_iter().partition(|slice| is_supported(slice));
    for kind in types {
        let slices = slices.iter().filter(|slice| slice.address_type == kind.name()).cloned().collect();
        plan_type(service, pods, slices, &node, kind, hinter, &mut plan);
    }
    if !unsupported.is_empty() {
        plan.changes.push(SliceChanges { delete: unsupported, ..SliceChanges::default() });
    }
    plan
}

fn plan_type(
    service: &Service,
    pods: &[Arc<Pod>],
    slices: Vec<Arc<EndpointSlice>>,
    node: &impl Fn(&str) -> Option<Arc<Node>>,
    kind: AddressType,
    hinter: &mut Hinter<'_>,
    plan: &mut Plan,
) {
    let count = slices.len();
    let (owned, mut delete): (Vec<_>, Vec<_>) =
        slices.into_iter().partition(|slice| is_controlled_by(&slice.metadata, service));
    let mut existing: BTreeMap<PortKey, Vec<Arc<EndpointSlice>>> = BTreeMap::new();
    for slice in owned {
        let key = port_key(slice.ports.as_deref().unwrap_or_default());
        existing.entry(key).or_default().push(slice);
    }
    let (mut create, mut update, mut unchanged) = (Vec::new(), Vec::new(), Vec::new());
    let mut counts = Counts::default();
    for (key, (ports, desired)) in desired_endpoints(service, pods, node, kind, &mut plan.errors) {
        let endpoints = desired.len();
        let of_ports = existing.remove(&key).unwrap_or_default();
        let new = || new_slice(service, kind, ports.clone());
        let placed: Placement = place(desired, of_ports, new, |slice| changed_labels(slice, service));
        counts.endpoints += endpoints;
        counts.desired_slices += endpoints.div_ceil(MAX_ENDPOINTS);
        plan.added += placed.added;
        plan.removed += placed.removed;
        create.extend(placed.create);
        update.extend(placed.update);
        delete.extend(placed.delete);
        unchanged.extend(placed.unchanged);
    }
    // The ports of these slices are no longer desired.
    delete.extend(existing.into_values().flatten());
    if delete.len() == count && create.is_empty() {
        let placeholder = new_slice(service, kind, Vec::new());
        match delete.as_slice() {
            [only] if is_placeholder(only, &placeholder) => unchanged.append(&mut delete),
            _ => create.push(placeholder),
        }
        counts.desired_slices = counts.desired_slices.max(1);
    }
    counts.slices = create.len() + update.len() + unchanged.len();
    add_hints(service, kind, (&mut create, &mut update, unchanged), hinter);
    plan.counts.endpoints += counts.endpoints;
    plan.counts.slices += counts.slices;
    plan.counts.desired_slices += counts.desired_slices;
    let mut changes = SliceChanges { create, update, delete };
    changes.reuse_names(|slice| is_controlled_by(&slice.metadata, service));
    plan.changes.push(changes);
}

/// Returns the endpoints, grouped by their ports. It leaves out a pod whose node is not known,
/// unless the Service publishes addresses that are not ready.
fn desired_endpoints(
    service: &Service,
    pods: &[Arc<Pod>],
    node: &impl Fn(&str) -> Option<Arc<Node>>,
    kind: AddressType,
    errors: &mut Vec<String>,
) -> BTreeMap<PortKey, (Vec<EndpointPort>, EndpointSet)> {
    let mut desired: BTreeMap<PortKey, (Vec<EndpointPort>, EndpointSet)> = BTreeMap::new();
    let spec = service.spec.as_ref();
    let publishes_all = spec.is_some_and(|spec| spec.publish_not_ready_addresses == Some(true));
    for pod in pods.iter().filter(|pod| is_endpoint(pod, true)) {
        let ports = ports(pod, service);
        let (_, endpoints) = desired.entry(port_key(&ports)).or_insert_with(|| (ports, EndpointSet::new()));
        let name = coracle_kinds::pods::node(pod).unwrap_or_default();
        let node = node(name);
        if node.is_none() && !publishes_all {
            errors.push(format!(
                "skipping Pod {} for Service {}/{}: Node {name} Not Found",
                pod.metadata.name.as_deref().unwrap_or_default(),
                service.metadata.namespace.as_deref().unwrap_or_default(),
                service.metadata.name.as_deref().unwrap_or_default(),
            ));
            continue;
        }
        if let Some(endpoint) = endpoint(pod, node.as_deref(), service, kind) {
            endpoints.insert(identity(&endpoint), endpoint);
        }
    }
    desired
}

fn add_hints(
    service: &Service,
    kind: AddressType,
    (create, update, unchanged): (&mut Vec<EndpointSlice>, &mut Vec<EndpointSlice>, Vec<Arc<EndpointSlice>>),
    hinter: &mut Hinter<'_>,
) {
    if topology::is_enabled(service) {
        hinter.add_hints(service, kind, (create, update, unchanged));
        return;
    }
    hinter.remove(service, kind);
    let distribution = TrafficDistribution::of(service);
    let differing = unchanged.into_iter().filter(|slice| distribution.differs(slice));
    update.extend(differing.map(Arc::unwrap_or_clone));
    for slice in create.iter_mut().chain(update) {
        distribution.apply(slice);
    }
}

fn new_slice(service: &Service, kind: AddressType, ports: Vec<EndpointPort>) -> EndpointSlice {
    let name = service.metadata.name.clone().unwrap_or_default();
    EndpointSlice {
        metadata: ObjectMeta {
            generate_name: Some(format!("{name}-")),
            namespace: service.metadata.namespace.clone(),
            labels: Some(labels(service)),
            owner_references: Some(vec![controller_ref(service)]),
            ..ObjectMeta::default()
        },
        address_type: kind.name().to_owned(),
        endpoints: None,
        ports: Some(ports).filter(|ports| !ports.is_empty()),
    }
}

fn is_reserved(key: &str) -> bool {
    matches!(key, SERVICE_NAME | MANAGED_BY | HEADLESS)
}

/// Returns the labels of a Service's slices.
fn labels(service: &Service) -> BTreeMap<String, String> {
    let mut labels = own_labels(&service.metadata);
    if is_headless(service) {
        labels.insert(HEADLESS.to_owned(), String::new());
    }
    labels.insert(SERVICE_NAME.to_owned(), service.metadata.name.clone().unwrap_or_default());
    labels.insert(MANAGED_BY.to_owned(), MANAGER.to_owned());
    labels
}

fn own_labels(meta: &ObjectMeta) -> BTreeMap<String, String> {
    let labels = meta.labels.iter().flatten().filter(|(key, _)| !is_reserved(key));
    labels.map(|(key, value)| (key.clone(), value.clone())).collect()
}

/// Returns the labels that a slice should have, or `None` if its labels are those of the Service.
/// Reserved labels are not compared.
fn changed_labels(slice: &EndpointSlice, service: &Service) -> Option<BTreeMap<String, String>> {
    (own_labels(&slice.metadata) != own_labels(&service.metadata)).then(|| labels(service))
}

fn is_placeholder(slice: &EndpointSlice, placeholder: &EndpointSlice) -> bool {
    let has_none = |slice: &EndpointSlice| {
        slice.endpoints.as_ref().is_none_or(Vec::is_empty) && slice.ports.as_ref().is_none_or(Vec::is_empty)
    };
    has_none(slice)
        && slice.metadata.labels == placeholder.metadata.labels
        && slice.metadata.owner_references == placeholder.metadata.owner_references
}

#[cfg(test)]
mod tests;
