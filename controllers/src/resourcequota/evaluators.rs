//! Kinds of which quotas limit more than the number: what an object takes, by the names that quotas have for it.

use std::collections::BTreeMap;

use coracle_pod_resources::{ResourceList, add_resource_list, max_resource_list};
use coracle_quantity::Quantity;
use k8s_openapi::api::core::v1::{
    PersistentVolumeClaim, ResourceQuotaSpec, ScopedResourceSelectorRequirement, Service, ServiceSpec,
};
use k8s_openapi::api::resource::v1::{DeviceRequest, ResourceClaim};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Written;
use k8s_openapi::jiff::Timestamp;

use super::scopes;

pub(super) trait Evaluator {
    /// Whether a name in a quota is about objects of this kind.
    fn matches(name: &str) -> bool;

    fn usage(&self, now: Timestamp) -> ResourceList;

    /// Whether the object is in a scope; most kinds are in none.
    fn is_in(&self, _scope: &ScopedResourceSelectorRequirement) -> bool {
        false
    }
}

/// What an object takes of that which a quota limits.
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

/// A resource list of the API.
pub(super) fn amounts(list: Option<&BTreeMap<String, Written>>) -> ResourceList {
    let list = list.into_iter().flatten();
    list.filter_map(|(name, amount)| Some((name.clone(), amount.0.parse().ok()?))).collect()
}

fn counted(names: impl IntoIterator<Item = (&'static str, usize)>) -> ResourceList {
    let number = |count| Quantity::from_int(i64::try_from(count).unwrap_or(i64::MAX));
    names.into_iter().map(|(name, count)| (name.to_owned(), number(count))).collect()
}

impl Evaluator for Service {
    fn matches(name: &str) -> bool {
        ["count/services", "services", "services.loadbalancers", "services.nodeports"].contains(&name)
    }

    fn usage(&self, _now: Timestamp) -> ResourceList {
        let (balancers, node_ports) = self.spec.as_ref().map_or((0, 0), outside);
        counted([
            ("count/services", 1),
            ("services", 1),
            ("services.loadbalancers", balancers),
            ("services.nodeports", node_ports),
        ])
    }
}

/// What a service takes of the world outside: load balancers and node ports, those to come included.
fn outside(spec: &ServiceSpec) -> (usize, usize) {
    let ports = spec.ports.as_deref().unwrap_or_default();
    let given = ports.iter().filter(|port| port.node_port.unwrap_or(0) != 0).count();
    match spec.type_.as_deref() {
        Some("NodePort") => (0, ports.len()),
        Some("LoadBalancer") if spec.allocate_load_balancer_node_ports == Some(false) => (1, given),
        Some("LoadBalancer") => (1, ports.len()),
        _ => (0, 0),
    }
}

const OF_STORAGE_CLASS: &str = ".storageclass.storage.k8s.io/";
const STORAGE: [&str; 2] = ["persistentvolumeclaims", "requests.storage"];

impl Evaluator for PersistentVolumeClaim {
    fn matches(name: &str) -> bool {
        let part = name.split_once(OF_STORAGE_CLASS).map_or(name, |(_, part)| part);
        name == "count/persistentvolumeclaims" || STORAGE.contains(&part)
    }

    fn usage(&self, _now: Timestamp) -> ResourceList {
        let mut usage = counted([("persistentvolumeclaims", 1)]);
        let storage = |list: Option<&BTreeMap<String, Written>>| amounts(list).remove("storage");
        let spec = self.spec.clone().unwrap_or_default();
        let allocated = self.status.as_ref().and_then(|status| status.allocated_resources.as_ref());
        if let Some(asked) = storage(spec.resources.and_then(|resources| resources.requests).as_ref()) {
            // While a volume grows, or an expansion is taken back, both sizes are held.
            let held = storage(allocated).map_or(asked, |allocated| asked.max(allocated));
            usage.insert("requests.storage".to_owned(), held.rounded_up());
        }
        let beta =
            self.metadata.annotations.as_ref().and_then(|a| a.get("volume.beta.kubernetes.io/storage-class"));
        if let Some(class) = beta.cloned().or(spec.storage_class_name).filter(|class| !class.is_empty()) {
            let of_class =
                usage.iter().map(|(name, amount)| (format!("{class}{OF_STORAGE_CLASS}{name}"), *amount));
            usage.extend(of_class.collect::<Vec<_>>());
        }
        usage.insert("count/persistentvolumeclaims".to_owned(), one());
        usage
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

const CLAIMS: &str = "count/resourceclaims.resource.k8s.io";
const OF_DEVICE_CLASS: &str = ".deviceclass.resource.k8s.io/devices";
/// Another name for the same, under which pods ask for devices too.
const REQUESTS_OF_DEVICE_CLASS: &str = "requests.deviceclass.resource.kubernetes.io/";
/// As many devices as one claim can get.
const ALL_DEVICES: i64 = 32;

impl Evaluator for ResourceClaim {
    fn matches(name: &str) -> bool {
        name == CLAIMS || name.ends_with(OF_DEVICE_CLASS)
    }

    fn usage(&self, _now: Timestamp) -> ResourceList {
        let mut usage = counted([(CLAIMS, 1)]);
        let requests = self.spec.devices.iter().flat_map(|devices| &devices.requests).flatten();
        requests.for_each(|request| add_resource_list(&mut usage, &devices(request)));
        usage
    }
}

/// The devices that a request may take, by class: of alternatives the most.
fn devices(request: &DeviceRequest) -> ResourceList {
    let of_class = |class: &str, mode: Option<&str>, count: Option<i64>| {
        let number = match mode {
            Some("ExactCount") => count.unwrap_or(0),
            Some("All") => ALL_DEVICES,
            _ => 0,
        };
        let names = [format!("{class}{OF_DEVICE_CLASS}"), format!("{REQUESTS_OF_DEVICE_CLASS}{class}")];
        names.map(|name| (name, Quantity::from_int(number))).into()
    };
    let mut most = ResourceList::new();
    for one in request.first_available.iter().flatten() {
        max_resource_list(
            &mut most,
            &of_class(&one.device_class_name, one.allocation_mode.as_deref(), one.count),
        );
    }
    if let Some(exactly) = request.exactly.as_ref().filter(|_| most.is_empty()) {
        let mode = exactly.allocation_mode.as_deref();
        most = of_class(&exactly.device_class_name, mode, exactly.count);
    }
    most
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::serde::de::DeserializeOwned;
    use serde_json::{Value, json};

    fn used<K: Evaluator + DeserializeOwned>(mut object: Value) -> String {
        object["metadata"] = json!({});
        let usage = serde_json::from_value::<K>(object).unwrap().usage(Timestamp::UNIX_EPOCH);
        assert!(usage.keys().any(|name| K::matches(name)));
        let shown = usage.iter().filter(|(name, _)| !name.starts_with("count/"));
        shown.map(|(name, amount)| format!("{name}={amount}")).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn services_take_ports_and_balancers() {
        let ports = json!([{"port": 1, "nodePort": 30000}, {"port": 2}]);
        for (spec, want) in [
            (json!({"ports": ports}), "services=1 services.loadbalancers=0 services.nodeports=0"),
            (
                json!({"type": "NodePort", "ports": ports}),
                "services=1 services.loadbalancers=0 services.nodeports=2",
            ),
            (
                json!({"type": "LoadBalancer", "ports": ports}),
                "services=1 services.loadbalancers=1 services.nodeports=2",
            ),
            (
                json!({"type": "LoadBalancer", "ports": ports, "allocateLoadBalancerNodePorts": false}),
                "services=1 services.loadbalancers=1 services.nodeports=1",
            ),
        ] {
            assert_eq!(used::<Service>(json!({"spec": spec})), want);
        }
    }

    #[test]
    fn volume_claims_take_storage_of_their_class() {
        let spec = json!({"storageClassName": "gold", "resources": {"requests": {"storage": "1Gi"}}});
        for (spec, status, want) in [
            (json!({}), json!({}), "persistentvolumeclaims=1"),
            (
                spec.clone(),
                json!({}),
                "gold.storageclass.storage.k8s.io/persistentvolumeclaims=1 \
                 gold.storageclass.storage.k8s.io/requests.storage=1Gi persistentvolumeclaims=1 requests.storage=1Gi",
            ),
            (
                spec,
                json!({"allocatedResources": {"storage": "2Gi"}}),
                "gold.storageclass.storage.k8s.io/persistentvolumeclaims=1 \
                 gold.storageclass.storage.k8s.io/requests.storage=2Gi persistentvolumeclaims=1 requests.storage=2Gi",
            ),
        ] {
            assert_eq!(used::<PersistentVolumeClaim>(json!({"spec": spec, "status": status})), want);
        }
    }

    #[test]
    fn resource_claims_take_devices() {
        let exactly = |class: &str, mode: &str, count: i64| json!({"name": "r", "exactly": {"deviceClassName": class, "allocationMode": mode, "count": count}});
        let or = |class: &str, count: i64| json!({"name": "s", "deviceClassName": class, "allocationMode": "ExactCount", "count": count});
        for (requests, want) in [
            (json!([]), ""),
            (
                json!([exactly("a", "ExactCount", 2), exactly("b", "All", 0), exactly("a", "ExactCount", 1)]),
                "a.deviceclass.resource.k8s.io/devices=3 b.deviceclass.resource.k8s.io/devices=32 \
                 requests.deviceclass.resource.kubernetes.io/a=3 requests.deviceclass.resource.kubernetes.io/b=32",
            ),
            (
                json!([{"name": "r", "firstAvailable": [or("a", 1), or("a", 4), or("b", 2)]}]),
                "a.deviceclass.resource.k8s.io/devices=4 b.deviceclass.resource.k8s.io/devices=2 \
                 requests.deviceclass.resource.kubernetes.io/a=4 requests.deviceclass.resource.kubernetes.io/b=2",
            ),
        ] {
            assert_eq!(used::<ResourceClaim>(json!({"spec": {"devices": {"requests": requests}}})), want);
        }
    }
}
