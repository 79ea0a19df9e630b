//! The usage of an object: its amounts of resources, by the resource names in quotas.
//!
//! Every object counts as one under `count/RESOURCE.GROUP`; some resources have older names for the
//! same count, and some objects use other resources too.

use std::collections::{BTreeMap, BTreeSet};

use coracle_apimachinery::annotations::BETA_STORAGE_CLASS;
use coracle_apimachinery::names::GroupResource;
use coracle_apimachinery::pods;
use coracle_apiserver::admission::json::{items, text};
use coracle_apiserver::admission::{AdmissionAttributes, Operation};
use coracle_pod_resources::names::is_pod_level;
use coracle_pod_resources::quota::resource_claims::DeviceRequest;
use coracle_pod_resources::{add_overhead_to_limits, add_resource_list, quota};
use serde_json::Value;

use crate::pod_spec::{ResourceList, containers, pod_resources, resources};
use coracle_quantity::Quantity;

/// The resources that each container of a pod must specify if a quota limits them.
const REQUIRED: [&str; 6] =
    ["cpu", "memory", "requests.cpu", "requests.memory", "limits.cpu", "limits.memory"];
/// Resources with a count under their plain name, which is older than `count/`.
const COUNTED_BY_NAME: [&str; 4] = ["configmaps", "replicationcontrollers", "resourcequotas", "secrets"];

/// The method for measuring the usage of a resource's objects.
#[derive(Debug, PartialEq)]
pub(super) enum Evaluator {
    Pods,
    Services,
    Claims,
    DeviceClaims,
    /// Only the number of objects, under each of these names.
    Objects(Vec<String>),
}

impl Evaluator {
    /// Returns the evaluator of a request; None if quotas do not count it.
    pub(super) fn of(attributes: &AdmissionAttributes<'_>) -> Option<Evaluator> {
        use Operation::{Create, Update};
        let resource = attributes.resource;
        let evaluator = match (resource.group.as_str(), resource.resource.as_str()) {
            ("" | "events.k8s.io", "events") => return None,
            ("", "pods") => Evaluator::Pods,
            ("", "services") => Evaluator::Services,
            ("", "persistentvolumeclaims") => Evaluator::Claims,
            ("resource.k8s.io", "resourceclaims") => Evaluator::DeviceClaims,
            ("", name) if COUNTED_BY_NAME.contains(&name) => {
                Evaluator::Objects(vec![count(resource), name.to_owned()])
            }
            _ => Evaluator::Objects(vec![count(resource)]),
        };
        let ends = |pod: &Value| pod["spec"]["activeDeadlineSeconds"].as_i64().is_some_and(|s| s >= 0);
        let handled = match (&evaluator, attributes.subresource, attributes.operation) {
            (_, "", Create) => true,
            (Evaluator::Services | Evaluator::Claims | Evaluator::DeviceClaims, "", Update) => true,
            (Evaluator::Claims, "status", Update) | (Evaluator::Pods, "resize", Update) => true,
            // The only update that moves a pod from one scope to another.
            (Evaluator::Pods, "", Update) => {
                attributes.old_object.is_some_and(|old| ends(old) != ends(attributes.object))
            }
            _ => false,
        };
        handled.then_some(evaluator)
    }

    /// Returns whether a resource name in a quota is measured by this evaluator.
    pub(super) fn measures(&self, name: &str) -> bool {
        match self {
            Evaluator::Pods => quota::pods::matches(name),
            Evaluator::Services => quota::services::matches(name),
            Evaluator::Claims => quota::persistent_volume_claims::matches(name),
            Evaluator::DeviceClaims => quota::resource_claims::matches(name),
            Evaluator::Objects(names) => names.iter().any(|counted| counted == name),
        }
    }

    pub(super) fn usage(&self, object: &Value) -> ResourceList {
        match self {
            Evaluator::Pods => pod_usage(object),
            Evaluator::Services => service_usage(&object["spec"]),
            Evaluator::Claims => claim_usage(object),
            Evaluator::DeviceClaims => device_claim_usage(&object["spec"]["devices"]),
            Evaluator::Objects(names) => names.iter().map(|name| (name.clone(), one())).collect(),
        }
    }

    /// Returns the measured resources that some containers do not specify although they must, each
    /// as `cpu for: a,b`.
    pub(super) fn missing(&self, measured: &[&str], object: &Value) -> Vec<String> {
        let spec = &object["spec"];
        let whole = ["requests", "limits"].iter().any(|list| {
            let names = spec["resources"][list].as_object().into_iter().flatten();
            names.into_iter().any(|(name, _)| is_pod_level(name))
        });
        if *self != Evaluator::Pods || whole {
            return Vec::new();
        }
        let mut missing: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for container in containers(spec, &["containers", "initContainers"]) {
            let own = &container["resources"];
            let specified =
                quota::pods::compute_usage(&resources(&own["requests"]), &resources(&own["limits"]));
            for name in measured.iter().filter(|n| REQUIRED.contains(n) && !specified.contains_key(**n)) {
                missing.entry(name).or_default().insert(text(&container["name"]));
            }
        }
        let missing = missing.into_iter().map(|(name, containers)| {
            format!("{name} for: {}", containers.into_iter().collect::<Vec<_>>().join(","))
        });
        missing.collect()
    }
}

fn one() -> Quantity {
    Quantity::from_int(1)
}

fn count(resource: &GroupResource) -> String {
    format!("count/{resource}")
}

fn pod_usage(pod: &Value) -> ResourceList {
    let mut usage = ResourceList::from([(quota::pods::COUNT_PODS.to_owned(), one())]);
    if !pods::is_terminal(pod) {
        let spec = &pod["spec"];
        let [mut requests, mut limits] = ["requests", "limits"].map(|which| pod_resources(spec, which));
        let overhead = resources(&spec["overhead"]);
        add_resource_list(&mut requests, &overhead);
        add_overhead_to_limits(&mut limits, &overhead);
        usage.extend(quota::pods::compute_usage(&requests, &limits));
    }
    usage
}

fn service_usage(spec: &Value) -> ResourceList {
    let ports = items(&spec["ports"]);
    let assigned = ports.iter().filter(|port| port["nodePort"].as_i64().unwrap_or(0) != 0).count();
    let allocates_node_ports = spec["allocateLoadBalancerNodePorts"] != false;
    quota::services::usage(text(&spec["type"]), allocates_node_ports, ports.len(), assigned)
}

fn claim_usage(claim: &Value) -> ResourceList {
    let size = |list: &Value| resources(list).get("storage").copied();
    let beta = text(&claim["metadata"]["annotations"][BETA_STORAGE_CLASS]);
    let class = if beta.is_empty() { text(&claim["spec"]["storageClassName"]) } else { beta };
    let requested = size(&claim["spec"]["resources"]["requests"]);
    quota::persistent_volume_claims::usage(requested, size(&claim["status"]["allocatedResources"]), class)
}

fn device_claim_usage(devices: &Value) -> ResourceList {
    quota::resource_claims::usage(items(&devices["requests"]).iter().map(|request| {
        let alternatives = match items(&request["firstAvailable"]) {
            [] => std::slice::from_ref(&request["exactly"]),
            alternatives => alternatives,
        };
        alternatives.iter().map(|request| DeviceRequest {
            device_class: text(&request["deviceClassName"]),
            allocation_mode: text(&request["allocationMode"]),
            count: request["count"].as_i64().unwrap_or(0),
        })
    }))
}
