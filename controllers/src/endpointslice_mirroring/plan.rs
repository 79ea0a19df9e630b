//! The decision: the slices that mirror Endpoints, one for each set of ports and type of addresses.
//!
//! Source: kube-controller-manager's `pkg/controller/endpointslicemirroring`.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use coracle_object_meta::{controller_of, controller_ref};
use k8s_openapi::api::core::v1::{self, EndpointAddress, Endpoints};
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointConditions, EndpointPort, EndpointSlice};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::MANAGER;
use crate::service_endpoints::LAST_CHANGE_TRIGGER_TIME;
use crate::service_endpoints::endpoint_set::{EndpointSet, identity, is_same};
use crate::service_endpoints::gauges::Counts;
use crate::service_endpoints::port_hash;
use crate::service_endpoints::slices::{MANAGED_BY, PortKey, SERVICE_NAME, SliceChanges, port_key};
use crate::service_endpoints::subsets::{Member, pack};

/// The maximum number of addresses that are mirrored of one subset.
pub const MAX_ADDRESSES: usize = 1000;
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// The changes to make, and their counts for the metrics.
#[derive(Default)]
pub struct Plan {
    pub changes: SliceChanges,
    pub totals: Totals,
    pub counts: Counts,
}

/// The number of endpoints that change, and of addresses that are not mirrored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    pub added: usize,
    pub updated: usize,
    pub removed: usize,
    /// The number of addresses that are not mirrored, including invalid ones.
    pub skipped: usize,
    pub invalid: usize,
}

type Key = (String, PortKey);

/// Plans the slices of Endpoints that are to be mirrored.
pub fn plan(endpoints: &Endpoints, slices: Vec<Arc<EndpointSlice>>) -> Plan {
    let mut plan = Plan::default();
    let desired = desired_endpoints(endpoints, &mut plan.totals);
    let mut existing: BTreeMap<Key, Vec<Arc<EndpointSlice>>> = BTreeMap::new();
    for slice in slices {
        let key = (slice.address_type.clone(), port_key(slice.ports.as_deref().unwrap_or_default()));
        existing.entry(key).or_default().push(slice);
    }
    for (key, (ports, desired)) in desired {
        let mut existing = existing.remove(&key).unwrap_or_default().into_iter();
        plan.counts.endpoints += desired.len();
        plan.counts.slices += 1;
        plan.counts.desired_slices += 1;
        let first = existing.next();
        plan.changes.delete.extend(existing);
        let is_unchanged = count_changes(first.as_deref(), &desired, &mut plan.totals)
            && first.as_ref().is_some_and(|slice| has_metadata_of(slice, endpoints));
        if is_unchanged {
            continue;
        }
        let mut slice = new_slice(endpoints, key.0, ports);
        slice.endpoints = Some(desired.into_values().collect());
        match first {
            Some(first) => {
                slice.metadata.generate_name = None;
                slice.metadata.name = first.metadata.name.clone();
                plan.changes.update.push(slice);
            }
            None => plan.changes.create.push(slice),
        }
    }
    plan.changes.delete.extend(existing.into_values().flatten());
    plan.changes.reuse_names(|_| true);
    plan
}

fn desired_endpoints(
    endpoints: &Endpoints,
    totals: &mut Totals,
) -> BTreeMap<Key, (Vec<EndpointPort>, EndpointSet)> {
    let mut desired: BTreeMap<Key, (Vec<EndpointPort>, EndpointSet)> = BTreeMap::new();
    for subset in pack(members(endpoints, totals)) {
        let mut ports: Vec<EndpointPort> = subset.ports.iter().flatten().map(slice_port).collect();
        ports.sort_by_cached_key(port_hash::of_slice);
        let ready = subset.addresses.iter().flatten().map(|address| (address, true));
        let not_ready = subset.not_ready_addresses.iter().flatten().map(|address| (address, false));
        let all: Vec<_> = ready.chain(not_ready).collect();
        totals.skipped += all.len().saturating_sub(MAX_ADDRESSES);
        for (address, is_ready) in all.into_iter().take(MAX_ADDRESSES) {
            let kind = if address.ip.contains(':') { "IPv6" } else { "IPv4" };
            let key = (kind.to_owned(), port_key(&ports));
            let (_, set) = desired.entry(key).or_insert_with(|| (ports.clone(), EndpointSet::new()));
            let endpoint = mirrored(address, is_ready);
            set.insert(identity(&endpoint), endpoint);
        }
    }
    desired
}

/// Returns one member for each valid address and each of its ports, and counts the invalid
/// addresses.
fn members(endpoints: &Endpoints, totals: &mut Totals) -> Vec<Member> {
    let (mut members, mut invalid) = (Vec::new(), BTreeSet::new());
    for subset in endpoints.subsets.iter().flatten() {
        let ports: Vec<Option<v1::EndpointPort>> = match subset.ports.as_deref() {
            None | Some([]) => vec![None],
            Some(ports) => ports.iter().cloned().map(Some).collect(),
        };
        let ready = subset.addresses.iter().flatten().map(|address| (address, true));
        let not_ready = subset.not_ready_addresses.iter().flatten().map(|address| (address, false));
        for (address, is_ready) in ready.chain(not_ready) {
            if address.ip.parse::<IpAddr>().is_err() {
                invalid.insert(address.ip.as_str());
                continue;
            }
            let member = |port| Member { address: address.clone(), is_ready, port };
            members.extend(ports.iter().cloned().map(member));
        }
    }
    totals.invalid = invalid.len();
    totals.skipped = invalid.len();
    members
}

fn mirrored(address: &EndpointAddress, is_ready: bool) -> Endpoint {
    Endpoint {
        addresses: vec![address.ip.clone()],
        conditions: Some(EndpointConditions { ready: Some(is_ready), ..EndpointConditions::default() }),
        hostname: address.hostname.clone().filter(|hostname| !hostname.is_empty()),
        node_name: address.node_name.clone(),
        target_ref: address.target_ref.clone(),
        ..Endpoint::default()
    }
}

fn slice_port(port: &v1::EndpointPort) -> EndpointPort {
    EndpointPort {
        name: Some(port.name.clone().unwrap_or_default()),
        port: Some(port.port),
        protocol: port.protocol.clone(),
        app_protocol: port.app_protocol.clone(),
    }
}

/// Counts how a slice changes, and returns whether it does not.
fn count_changes(slice: Option<&EndpointSlice>, desired: &EndpointSet, totals: &mut Totals) -> bool {
    let (mut kept, mut updated, mut removed) = (0, 0, 0);
    for endpoint in slice.iter().flat_map(|slice| slice.endpoints.iter().flatten()) {
        match desired.get(&identity(endpoint)) {
            None => removed += 1,
            Some(wanted) => {
                kept += 1;
                updated += usize::from(!is_same(wanted, endpoint));
            }
        }
    }
    let added = desired.len().saturating_sub(kept);
    totals.added += added;
    totals.updated += updated;
    totals.removed += removed;
    added + updated + removed == 0
}

/// Returns `true` if a slice has the labels and the annotations of the Endpoints and is owned by
/// it.
fn has_metadata_of(slice: &EndpointSlice, endpoints: &Endpoints) -> bool {
    let mut labels = slice.metadata.labels.clone().unwrap_or_default();
    labels.remove(MANAGED_BY);
    labels.remove(SERVICE_NAME);
    let is_owner = controller_of(&slice.metadata)
        .is_some_and(|owner| Some(&owner.uid) == endpoints.metadata.uid.as_ref());
    labels == endpoints.metadata.labels.clone().unwrap_or_default()
        && slice.metadata.annotations.clone().unwrap_or_default() == annotations(endpoints)
        && is_owner
}

fn annotations(endpoints: &Endpoints) -> BTreeMap<String, String> {
    let mut annotations = endpoints.metadata.annotations.clone().unwrap_or_default();
    annotations.remove(LAST_CHANGE_TRIGGER_TIME);
    annotations.remove(LAST_APPLIED);
    annotations
}

fn new_slice(endpoints: &Endpoints, address_type: String, ports: Vec<EndpointPort>) -> EndpointSlice {
    let name = endpoints.metadata.name.clone().unwrap_or_default();
    let mut labels = endpoints.metadata.labels.clone().unwrap_or_default();
    labels.insert(SERVICE_NAME.to_owned(), name.clone());
    labels.insert(MANAGED_BY.to_owned(), MANAGER.to_owned());
    EndpointSlice {
        metadata: ObjectMeta {
            generate_name: Some(format!("{name}-")),
            namespace: endpoints.metadata.namespace.clone(),
            labels: Some(labels),
            annotations: Some(annotations(endpoints)).filter(|annotations| !annotations.is_empty()),
            owner_references: Some(vec![controller_ref(endpoints)]),
            ..ObjectMeta::default()
        },
        address_type,
        endpoints: None,
        ports: Some(ports).filter(|ports| !ports.is_empty()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn endpoints(uid: &str, annotation: &str, subsets: Value) -> Endpoints {
        let meta = json!({
            "name": "s", "namespace": "n", "uid": uid, "labels": {"a": "b"},
            "annotations": {"n": annotation, LAST_APPLIED: "{}", LAST_CHANGE_TRIGGER_TIME: "t"},
        });
        serde_json::from_value(json!({"metadata": meta, "subsets": subsets})).unwrap()
    }

    #[test]
    fn slices_mirror_subsets() {
        let four = json!([{"addresses": [{"ip": "1.1.1.1"}], "notReadyAddresses": [{"ip": "1.1.1.2"}], "ports": [{"port": 80}]}]);
        let both = json!([{"addresses": [{"ip": "1.1.1.1"}, {"ip": "fd00::1"}], "ports": [{"port": 80}]}]);
        let other = json!([{"addresses": [{"ip": "1.1.1.1"}], "ports": [{"port": 81}]}]);
        let mut slices: BTreeMap<String, Arc<EndpointSlice>> = BTreeMap::new();
        let mut made = 0;
        for (case, endpoints, want, then) in [
            ("new", endpoints("u", "1", four.clone()), "+1", "IPv4:80=1.1.1.1,1.1.1.2!"),
            ("nothing new", endpoints("u", "1", four.clone()), "", "IPv4:80=1.1.1.1,1.1.1.2!"),
            ("another annotation", endpoints("u", "2", four.clone()), "~1", "IPv4:80=1.1.1.1,1.1.1.2!"),
            ("another owner of the name", endpoints("v", "2", four), "~1", "IPv4:80=1.1.1.1,1.1.1.2!"),
            ("both families", endpoints("v", "2", both), "+2 ~1", "IPv4:80=1.1.1.1 IPv6:80=fd00::1"),
            ("another port", endpoints("v", "2", other), "~1 -2", "IPv4:81=1.1.1.1"),
            ("invalid", endpoints("v", "2", json!([{"addresses": [{"ip": "x"}]}])), "-1", ""),
        ] {
            let plan = plan(&endpoints, slices.values().cloned().collect());
            let mut text = Vec::new();
            for slice in plan.changes.create {
                made += 1;
                text.push(format!("+{made}"));
                slices.insert(
                    made.to_string(),
                    Arc::new(EndpointSlice {
                        metadata: ObjectMeta { name: Some(made.to_string()), ..slice.metadata.clone() },
                        ..slice
                    }),
                );
            }
            for slice in plan.changes.update {
                let name = slice.metadata.name.clone().unwrap();
                text.push(format!("~{name}"));
                slices.insert(name, Arc::new(slice));
            }
            for slice in plan.changes.delete {
                let name = slice.metadata.name.clone().unwrap();
                text.push(format!("-{name}"));
                slices.remove(&name);
            }
            assert_eq!(text.join(" "), want, "{case}");
            let endpoint = |endpoint: &Endpoint| {
                let ready = endpoint.conditions.as_ref().unwrap().ready == Some(true);
                format!("{}{}", endpoint.addresses[0], if ready { "" } else { "!" })
            };
            let slice = |slice: &Arc<EndpointSlice>| {
                let endpoints: Vec<String> = slice.endpoints.iter().flatten().map(endpoint).collect();
                let port = slice.ports.as_ref().unwrap()[0].port.unwrap();
                format!("{}:{port}={}", slice.address_type, endpoints.join(","))
            };
            assert_eq!(slices.values().map(slice).collect::<Vec<_>>().join(" "), then, "{case}");
            let invalid = usize::from(case == "invalid");
            assert_eq!((plan.totals.invalid, plan.totals.skipped), (invalid, invalid), "{case}");
        }
    }

    #[test]
    fn a_thousand_addresses_of_a_subset_are_mirrored() {
        let addresses: Vec<Value> =
            (0..1100).map(|n| json!({"ip": format!("10.0.{}.{}", n / 256, n % 256)})).collect();
        let plan = plan(&endpoints("u", "1", json!([{"addresses": addresses}])), Vec::new());
        let count = plan.changes.create[0].endpoints.as_ref().unwrap().len();
        assert_eq!((plan.changes.create.len(), count, plan.totals.skipped), (1, 1000, 100));
    }
}
