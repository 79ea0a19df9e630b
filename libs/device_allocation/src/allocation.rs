//! The result of a search: devices, configuration and nodes of a claim.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{NodeSelector, NodeSelectorRequirement, NodeSelectorTerm};
use k8s_openapi::api::resource::v1::{
    AllocationResult, DeviceAllocationConfiguration, DeviceAllocationResult, DeviceRequestAllocationResult,
    ResourceClaim,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use crate::error::AllocationError;
use crate::pools::has_nodes_of_devices;
use crate::search::{Alternative, Candidate, ClaimState, DeviceResult, RequestState, Search};

/// Returns a new uid for an allocation of a device to a request of a claim.
pub(crate) type ShareId<'f> = &'f mut dyn FnMut(&ResourceClaim, &str) -> String;

/// Returns the allocation of a claim after a successful search.
pub(crate) fn allocation(
    claim: &ResourceClaim,
    state: &ClaimState<'_>,
    search: &Search<'_, '_>,
    share_id: ShareId<'_>,
) -> Result<AllocationResult, AllocationError> {
    let chosen =
        || state.results.iter().filter_map(|result| Some((result, search.candidates.get(result.candidate)?)));
    let results: Vec<_> =
        chosen().map(|(result, candidate)| device_result(claim, result, candidate, share_id)).collect();
    let config = configuration(claim, state);
    Ok(AllocationResult {
        allocation_timestamp: None,
        devices: Some(DeviceAllocationResult {
            config: (!config.is_empty()).then_some(config),
            results: (!results.is_empty()).then_some(results),
        }),
        node_selector: nodes_of(state, chosen().map(|(_, candidate)| candidate), search)?,
    })
}

/// Checks that the nodes of the devices can be written to the allocation of a claim.
pub(crate) fn check_nodes(state: &ClaimState<'_>, search: &Search<'_, '_>) -> Result<(), AllocationError> {
    let chosen = state.results.iter().filter_map(|result| search.candidates.get(result.candidate));
    nodes_of(state, chosen, search).map(drop)
}

fn nodes_of<'a>(
    state: &ClaimState<'_>,
    chosen: impl Iterator<Item = &'a Candidate<'a, 'a>>,
    search: &Search<'_, '_>,
) -> Result<Option<NodeSelector>, AllocationError> {
    node_selector(chosen, search.node_name()).map_err(|error| {
        AllocationError::Fatal(format!("create NodeSelector for claim {}: {error}", state.name))
    })
}

fn device_result(
    claim: &ResourceClaim,
    result: &DeviceResult<'_>,
    candidate: &Candidate<'_, '_>,
    share_id: ShareId<'_>,
) -> DeviceRequestAllocationResult {
    let spec = &candidate.slice.spec;
    let consumed = result.share.as_ref().filter(|share| !share.is_empty());
    let text =
        |(name, amount): (&String, &coracle_quantity::Quantity)| (name.clone(), Quantity(amount.to_string()));
    DeviceRequestAllocationResult {
        request: result.request.reference(),
        driver: spec.driver.clone(),
        pool: spec.pool.name.clone(),
        device: candidate.device.name.clone(),
        admin_access: result.request.has_admin_access().then_some(true),
        tolerations: result.request.tolerations().cloned(),
        binding_conditions: candidate.device.binding_conditions.clone(),
        binding_failure_conditions: candidate.device.binding_failure_conditions.clone(),
        share_id: result.share.is_some().then(|| share_id(claim, &result.request.reference())),
        consumed_capacity: consumed.map(|share| share.iter().map(text).collect()),
    }
}

/// Returns the configuration of the classes, each once, and that of the claim.
fn configuration(claim: &ResourceClaim, state: &ClaimState<'_>) -> Vec<DeviceAllocationConfiguration> {
    let mut all: Vec<DeviceAllocationConfiguration> = Vec::new();
    let chosen: Vec<&Alternative<'_>> = state.requests.iter().filter_map(RequestState::chosen).collect();
    let mut classes: Vec<&str> = Vec::new();
    for alternative in &chosen {
        let class = alternative.request.class();
        if classes.contains(&class) {
            continue;
        }
        classes.push(class);
        let requests = chosen.iter().filter(|other| other.request.class() == class);
        let requests: Vec<String> = requests.map(|other| other.request.reference()).collect();
        all.extend(alternative.class.spec.config.iter().flatten().map(|config| {
            DeviceAllocationConfiguration {
                opaque: config.opaque.clone(),
                requests: Some(requests.clone()),
                source: "FromClass".to_owned(),
            }
        }));
    }
    let devices = claim.spec.devices.iter();
    for config in devices.flat_map(|devices| devices.config.iter().flatten()) {
        let requests = config.requests.as_deref().unwrap_or_default();
        let is_named = |alternative: &&Alternative<'_>| {
            let (request, _) = alternative.request.names();
            requests.iter().any(|name| *name == request || *name == alternative.request.reference())
        };
        // It is repeated for each request that it names, as by kube-scheduler.
        let count = if requests.is_empty() { 1 } else { chosen.iter().copied().filter(is_named).count() };
        all.extend(std::iter::repeat_n(config, count).map(|config| DeviceAllocationConfiguration {
            opaque: config.opaque.clone(),
            requests: config.requests.clone(),
            source: "FromClaim".to_owned(),
        }));
    }
    all
}

/// Returns the selector of the nodes on which all devices are available; None if they are on all.
fn node_selector<'a>(
    devices: impl Iterator<Item = &'a Candidate<'a, 'a>>,
    node: &str,
) -> Result<Option<NodeSelector>, String> {
    let mut term = NodeSelectorTerm::default();
    for Candidate { device, slice, .. } in devices {
        let (name, selector) = match has_nodes_of_devices(slice) {
            true => (&device.node_name, &device.node_selector),
            false => (&slice.spec.node_name, &slice.spec.node_selector),
        };
        if name.is_some() || device.binds_to_node == Some(true) {
            let name = NodeSelectorRequirement {
                key: "metadata.name".to_owned(),
                operator: "In".to_owned(),
                values: Some(vec![node.to_owned()]),
            };
            return Ok(Some(of_term(NodeSelectorTerm {
                match_fields: Some(vec![name]),
                match_expressions: None,
            })));
        }
        let terms = selector.iter().flat_map(|selector| &selector.node_selector_terms);
        match terms.clone().count() {
            0 | 1 => {}
            count => return Err(format!("unsupported ResourceSlice.NodeSelector with {count} terms")),
        }
        for more in terms {
            add_new(&mut term.match_fields, more.match_fields.as_deref());
            add_new(&mut term.match_expressions, more.match_expressions.as_deref());
        }
    }
    let is_empty = term.match_fields.is_none() && term.match_expressions.is_none();
    Ok((!is_empty).then(|| of_term(term)))
}

fn of_term(term: NodeSelectorTerm) -> NodeSelector {
    NodeSelector { node_selector_terms: vec![term] }
}

/// Adds the requirements that are not present, whatever the order of their values.
fn add_new(all: &mut Option<Vec<NodeSelectorRequirement>>, more: Option<&[NodeSelectorRequirement]>) {
    let values = |requirement: &NodeSelectorRequirement| -> BTreeSet<String> {
        requirement.values.iter().flatten().cloned().collect()
    };
    for new in more.unwrap_or_default() {
        let all = all.get_or_insert_with(Vec::new);
        let is_new = |known: &NodeSelectorRequirement| {
            known.key != new.key || known.operator != new.operator || values(known) != values(new)
        };
        if all.iter().all(is_new) {
            all.push(new.clone());
        }
    }
}
