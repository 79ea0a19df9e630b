//! Hints in proportion to the CPUs of the zones, for Services with the annotation
//! `service.kubernetes.io/topology-mode: Auto`.
//!
//! Each zone gets a share of the endpoints. An endpoint serves its own zone first; zones with too
//! many endpoints share some with zones that have too few.
//!
//! Source: `k8s.io/endpointslice/topologycache`.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use coracle_controller_runtime::cache::NamespacedName;
use coracle_controller_runtime::events::EventType;
use coracle_kinds::resources::{amount, resource_list};
use coracle_object_meta::annotation;
use k8s_openapi::api::core::v1::{Node, Service};
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointHints, EndpointSlice, ForZone};

use super::endpoint::{AddressType, ZONE, is_ready_endpoint};

const OVERLOAD_THRESHOLD: f64 = 0.2;

/// The number of endpoints that serve each zone.
type ByZone = BTreeMap<String, usize>;

/// The hints that were set, by Service and type of addresses.
pub type PopulatedHints = HashMap<(NamespacedName, AddressType), ByZone>;

/// An event about a Service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HintEvent {
    pub r#type: EventType,
    pub reason: &'static str,
    pub message: String,
}

/// Sets the hints of one Service.
pub struct Hinter<'a> {
    pub nodes: &'a dyn Fn() -> Vec<Arc<Node>>,
    pub populated: &'a mut PopulatedHints,
    pub events: Vec<HintEvent>,
}

struct Allocation {
    minimum: usize,
    maximum: usize,
    desired: f64,
}

/// Returns `true` if an annotation of a Service requests hints by topology.
pub fn is_enabled(service: &Service) -> bool {
    let of = |key: &str| annotation(&service.metadata, key);
    let mode = of("service.kubernetes.io/topology-aware-hints")
        .or_else(|| of("service.kubernetes.io/topology-mode"));
    matches!(mode, Some("Auto" | "auto"))
}

impl Hinter<'_> {
    /// Records that a Service no longer requests hints.
    pub fn remove(&mut self, service: &Service, kind: AddressType) {
        if self.populated.remove(&(NamespacedName::of(service), kind)).is_some() {
            self.disabled("Topology Aware Hints has been disabled", kind);
        }
    }

    /// Sets the hints of the slices that are written, and adds slices whose hints have changed to
    /// the updates.
    pub fn add_hints(
        &mut self,
        service: &Service,
        kind: AddressType,
        (create, update, mut unchanged): (
            &mut Vec<EndpointSlice>,
            &mut Vec<EndpointSlice>,
            Vec<Arc<EndpointSlice>>,
        ),
    ) {
        let key = (NamespacedName::of(service), kind);
        let ready =
            |slice: &EndpointSlice| slice.endpoints.iter().flatten().filter(|e| is_ready_endpoint(e)).count();
        let written: usize = create.iter().chain(update.iter()).map(ready).sum();
        let total = written + unchanged.iter().map(|slice| ready(slice)).sum::<usize>();
        let mut allocated = ByZone::new();
        let outcome = allocations(&(self.nodes)(), total).and_then(|allocations| {
            unchanged.retain(|slice| match hints_by_zone(slice, &allocated, &allocations) {
                Some(hints) => {
                    hints.into_iter().for_each(|(zone, n)| *allocated.entry(zone).or_default() += n);
                    true
                }
                None => {
                    update.push(slice.as_ref().clone());
                    false
                }
            });
            let mut endpoints: Vec<&mut Endpoint> = create
                .iter_mut()
                .chain(update.iter_mut())
                .flat_map(|slice| slice.endpoints.iter_mut().flatten())
                .collect();
            distribute(&mut endpoints, &mut allocated, &allocations)
        });
        match outcome {
            Ok(()) => {
                if self.populated.insert(key, allocated).is_none() {
                    let message =
                        format!("Topology Aware Hints has been enabled, addressType: {}", kind.name());
                    let reason = "TopologyAwareHintsEnabled";
                    self.events.push(HintEvent { r#type: EventType::Normal, reason, message });
                }
            }
            Err(why) => {
                self.populated.remove(&key);
                let has_hints =
                    |slice: &Arc<EndpointSlice>| slice.endpoints.iter().flatten().any(|e| e.hints.is_some());
                update.extend(unchanged.into_iter().filter(has_hints).map(Arc::unwrap_or_clone));
                for slice in create.iter_mut().chain(update) {
                    slice.endpoints.iter_mut().flatten().for_each(|endpoint| endpoint.hints = None);
                }
                self.disabled(&why, kind);
            }
        }
    }

    fn disabled(&mut self, why: &str, kind: AddressType) {
        let message = format!("{why}, addressType: {}", kind.name());
        let reason = "TopologyAwareHintsDisabled";
        self.events.push(HintEvent { r#type: EventType::Warning, reason, message });
    }
}

/// Returns the number of endpoints that each zone should have, or the reason why there are no
/// hints.
fn allocations(nodes: &[Arc<Node>], total: usize) -> Result<BTreeMap<String, Allocation>, String> {
    let ratios = cpu_ratios(nodes)
        .ok_or("Insufficient Node information: allocatable CPU or zone not specified on one or more nodes")?;
    let zones = ratios.len();
    let counted = format!("({total} endpoints, {zones} zones)");
    if zones < 2 {
        return Err("Nodes only ready in one zone".to_owned());
    }
    if zones > total {
        return Err(format!("Insufficient number of endpoints {counted}"));
    }
    let allocation = |ratio: f64| {
        let desired = ratio * total as f64;
        let minimum = (desired / (1.0 + OVERLOAD_THRESHOLD)).ceil();
        Allocation { minimum: minimum as usize, maximum: 0, desired: desired.max(minimum) }
    };
    let mut allocations: BTreeMap<String, Allocation> =
        ratios.into_iter().map(|(zone, ratio)| (zone, allocation(ratio))).collect();
    let minimums: usize = allocations.values().map(|allocation| allocation.minimum).sum();
    let Some(rest) = total.checked_sub(minimums) else {
        return Err(format!(
            "Unable to allocate minimum required endpoints to each zone without exceeding overload threshold {counted}"
        ));
    };
    allocations.values_mut().for_each(|allocation| allocation.maximum = allocation.minimum + rest);
    Ok(allocations)
}

/// Returns each zone's share of the CPUs, or `None` if the zone or the CPUs of a node are not
/// known.
fn cpu_ratios(nodes: &[Arc<Node>]) -> Option<BTreeMap<String, f64>> {
    let label = |node: &Node, key: &str| node.metadata.labels.as_ref()?.get(key).cloned();
    let is_excluded = |node: &Node| {
        ["node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master"]
            .iter()
            .any(|key| label(node, key).is_some())
    };
    let is_ready = |node: &Node| {
        let mut conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
        conditions.any(|condition| condition.type_ == "Ready" && condition.status == "True")
    };
    let mut by_zone: BTreeMap<String, f64> = BTreeMap::new();
    for node in nodes.iter().filter(|node| !is_excluded(node) && is_ready(node)) {
        let zone = label(node, ZONE).filter(|zone| !zone.is_empty())?;
        let allocatable = resource_list(node.status.as_ref()?.allocatable.as_ref());
        let cpu = amount(&allocatable, "cpu").milli_value();
        if cpu <= 0 {
            return None;
        }
        *by_zone.entry(zone).or_default() += cpu as f64;
    }
    let total: f64 = by_zone.values().sum();
    (total > 0.0).then(|| by_zone.into_iter().map(|(zone, cpu)| (zone, cpu / total)).collect())
}

/// Returns the number of endpoints per zone by the hints of a slice, or `None` if the hints are not
/// right and the slice has to be written.
fn hints_by_zone(
    slice: &EndpointSlice,
    allocated: &ByZone,
    allocations: &BTreeMap<String, Allocation>,
) -> Option<ByZone> {
    let mut hints = ByZone::new();
    for endpoint in slice.endpoints.iter().flatten().filter(|endpoint| is_ready_endpoint(endpoint)) {
        let zones = endpoint.hints.as_ref()?.for_zones.as_ref().filter(|zones| !zones.is_empty())?;
        for zone in zones {
            allocations.get(&zone.name)?;
            *hints.entry(zone.name.clone()).or_default() += 1;
        }
    }
    let fits = |(zone, count): (&String, &usize)| {
        let already = allocated.get(zone).copied().unwrap_or(0);
        allocations.get(zone).is_some_and(|allocation| already + count <= allocation.maximum)
    };
    hints.iter().all(fits).then_some(hints)
}

/// Assigns each endpoint to its own zone, and then reassigns endpoints of zones with too many to
/// those with too few.
fn distribute(
    endpoints: &mut [&mut Endpoint],
    allocated: &mut ByZone,
    allocations: &BTreeMap<String, Allocation>,
) -> Result<(), String> {
    for endpoint in endpoints.iter_mut() {
        endpoint.hints = None;
        if !is_ready_endpoint(endpoint) {
            continue;
        }
        let zone = endpoint.zone.clone().filter(|zone| !zone.is_empty());
        let zone = zone.ok_or("One or more endpoints do not have a zone specified")?;
        *allocated.entry(zone.clone()).or_default() += 1;
        endpoint.hints = Some(for_zone(zone));
    }
    let (mut giving, mut receiving) = surplus_and_deficit(allocated, allocations);
    for endpoint in endpoints.iter_mut().filter(|endpoint| is_ready_endpoint(endpoint)) {
        let Some(from) = endpoint.zone.clone() else { continue };
        let Some(left) = giving.get_mut(&from).filter(|left| **left > 0) else { continue };
        let Some((to, missing)) = receiving.iter_mut().find(|(_, missing)| **missing > 0) else { break };
        *left -= 1;
        *missing -= 1;
        if let Some(count) = allocated.get_mut(&from) {
            *count = count.saturating_sub(1);
        }
        *allocated.entry(to.clone()).or_default() += 1;
        endpoint.hints = Some(for_zone(to.clone()));
    }
    if allocated.is_empty() { Err("No hints allocated for zones".to_owned()) } else { Ok(()) }
}

fn for_zone(name: String) -> EndpointHints {
    EndpointHints { for_zones: Some(vec![ForZone { name }]), for_nodes: None }
}

/// Returns the numbers of endpoints that zones have too many, and those that zones lack.
fn surplus_and_deficit(allocated: &ByZone, allocations: &BTreeMap<String, Allocation>) -> (ByZone, ByZone) {
    let (mut surplus, mut deficit) = (Vec::<(f64, &String)>::new(), Vec::<(f64, &String)>::new());
    for (zone, allocation) in allocations {
        let difference = allocated.get(zone).copied().unwrap_or(0) as f64 - allocation.desired;
        if difference > 0.0 {
            surplus.push((difference, zone));
        } else {
            deficit.push((-difference, zone));
        }
    }
    let (mut giving, mut receiving) = (ByZone::new(), ByZone::new());
    loop {
        let by_amount = |a: &(f64, &String), b: &(f64, &String)| b.0.total_cmp(&a.0);
        surplus.sort_by(by_amount);
        deficit.sort_by(by_amount);
        let (Some(most), Some(least)) = (surplus.first_mut(), deficit.first_mut()) else { break };
        if most.0.max(least.0) < 1.0 || most.0.min(least.0) < 0.5 {
            break;
        }
        most.0 -= 1.0;
        least.0 -= 1.0;
        *giving.entry(most.1.clone()).or_default() += 1;
        *receiving.entry(least.1.clone()).or_default() += 1;
    }
    (giving, receiving)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn nodes(zones: &[(&str, &str)]) -> Vec<Arc<Node>> {
        let node = |(zone, cpu): &(&str, &str)| {
            let node = json!({
                "metadata": {"name": zone, "labels": {ZONE: zone}},
                "status": {"allocatable": {"cpu": cpu}, "conditions": [{"type": "Ready", "status": "True"}]},
            });
            Arc::new(serde_json::from_value(node).unwrap())
        };
        zones.iter().map(node).collect()
    }

    fn slice(zones: &str) -> EndpointSlice {
        let endpoint = |zone: char| json!({"addresses": ["1.1.1.1"], "zone": zone.to_string(), "conditions": {"ready": true}});
        let endpoints: Vec<_> = zones.chars().map(endpoint).collect();
        serde_json::from_value(json!({"metadata": {}, "addressType": "IPv4", "endpoints": endpoints}))
            .unwrap()
    }

    fn hinted(slices: &[EndpointSlice]) -> String {
        let endpoints = slices.iter().flat_map(|slice| slice.endpoints.iter().flatten());
        let zone = |endpoint: &Endpoint| {
            let hints = endpoint.hints.as_ref().and_then(|hints| hints.for_zones.as_ref());
            hints.map_or("-".to_owned(), |zones| zones[0].name.clone())
        };
        endpoints.map(zone).collect()
    }

    #[test]
    fn zones_get_endpoints_in_proportion_to_their_cpus() {
        let service: Service = serde_json::from_value(json!({"metadata": {"name": "s"}})).unwrap();
        for (case, zones, endpoints, want, event) in [
            ("each its own", &[("a", "4"), ("b", "4")][..], "abab", "abab", "enabled"),
            ("some are given away", &[("a", "4"), ("b", "4")], "aaaa", "bbaa", "enabled"),
            ("by share", &[("a", "6"), ("b", "2")], "bbbb", "aaab", "enabled"),
            ("one zone", &[("a", "4")], "aa", "--", "Nodes only ready in one zone"),
            (
                "too few",
                &[("a", "4"), ("b", "4"), ("c", "4")],
                "ab",
                "--",
                "Insufficient number of endpoints (2 endpoints, 3 zones)",
            ),
            ("without cpus", &[("a", "4"), ("b", "0")], "ab", "--", "Insufficient Node information"),
            ("no nodes", &[], "ab", "--", "Insufficient Node information"),
        ] {
            let all = nodes(zones);
            let mut populated = PopulatedHints::new();
            let mut hinter = Hinter { nodes: &|| all.clone(), populated: &mut populated, events: Vec::new() };
            let (mut create, mut update) = (vec![slice(endpoints)], Vec::new());
            hinter.add_hints(&service, AddressType::Ipv4, (&mut create, &mut update, Vec::new()));
            assert_eq!(hinted(&create), want, "{case}");
            assert!(hinter.events[0].message.contains(event), "{case}: {:?}", hinter.events);
        }
    }
}
