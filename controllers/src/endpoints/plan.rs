//! The decision: the Endpoints of a Service from its pods.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use coracle_kinds::pods::is_ready;
use coracle_object_meta::annotation;
use k8s_openapi::api::core::v1::{EndpointAddress, EndpointPort, Endpoints, Pod, Service};
use k8s_openapi::jiff::Timestamp;

use crate::service_endpoints::pods::{addresses, find_port, hostname, is_endpoint, target_ref};
use crate::service_endpoints::selection::is_headless;
use crate::service_endpoints::subsets::{self, MAX_ADDRESSES, Member};
use crate::service_endpoints::trigger_time::format;
use crate::service_endpoints::{HEADLESS, LAST_CHANGE_TRIGGER_TIME};

const MANAGED_BY: &str = "endpoints.kubernetes.io/managed-by";
const MANAGER: &str = "endpoint-controller";
const OVER_CAPACITY: &str = "endpoints.kubernetes.io/over-capacity";
const TRUNCATED: &str = "truncated";

/// Returns the Endpoints to write; None if they are up to date.
pub fn plan(
    service: &Service,
    pods: &[Arc<Pod>],
    current: Option<&Endpoints>,
    trigger_time: Option<Timestamp>,
) -> Option<Endpoints> {
    let mut subsets = subsets::pack(members(service, pods));
    let is_truncated = subsets::truncate(&mut subsets, MAX_ADDRESSES);
    let subsets = Some(subsets).filter(|subsets| !subsets.is_empty());
    let mut own_labels = service.metadata.labels.clone().unwrap_or_default();
    own_labels.remove(HEADLESS);
    own_labels.insert(MANAGED_BY.to_owned(), MANAGER.to_owned());
    let mut labels = own_labels.clone();
    if is_headless(service) {
        labels.insert(HEADLESS.to_owned(), String::new());
    }
    if let Some(current) = current {
        let mut compared = current.metadata.labels.clone().unwrap_or_default();
        compared.remove(HEADLESS);
        let is_marked = annotation(&current.metadata, OVER_CAPACITY) == Some(TRUNCATED);
        if current.subsets.clone().filter(|subsets| !subsets.is_empty()) == subsets
            && compared == own_labels
            && is_marked == is_truncated
        {
            return None;
        }
    }
    let mut wanted = current.cloned().unwrap_or_default();
    wanted.metadata.name = service.metadata.name.clone();
    wanted.metadata.namespace = service.metadata.namespace.clone();
    wanted.metadata.labels = Some(labels);
    wanted.subsets = subsets;
    let annotations = wanted.metadata.annotations.get_or_insert_default();
    set(annotations, LAST_CHANGE_TRIGGER_TIME, trigger_time.map(format));
    set(annotations, OVER_CAPACITY, is_truncated.then(|| TRUNCATED.to_owned()));
    Some(wanted)
}

fn set(annotations: &mut BTreeMap<String, String>, key: &str, value: Option<String>) {
    match value {
        Some(value) => drop(annotations.insert(key.to_owned(), value)),
        None => drop(annotations.remove(key)),
    }
}

/// Returns each pod with each port by which it is an endpoint.
fn members(service: &Service, pods: &[Arc<Pod>]) -> Vec<Member> {
    let Some(spec) = &service.spec else { return Vec::new() };
    let publishes_all = spec.publish_not_ready_addresses == Some(true);
    let ports = spec.ports.as_deref().unwrap_or_default();
    let mut members = Vec::new();
    for pod in pods.iter().filter(|pod| is_endpoint(pod, publishes_all)) {
        let Some(ip) = address(service, pod) else { continue };
        let address = EndpointAddress {
            ip: ip.to_string(),
            hostname: hostname(pod, service),
            // Empty without a node, as of kube-controller-manager; then the endpoints are invalid.
            node_name: Some(coracle_kinds::pods::node(pod).unwrap_or_default().to_owned()),
            target_ref: Some(target_ref(pod)),
        };
        let is_ready = publishes_all || is_ready(pod);
        let member = |port| Member { address: address.clone(), is_ready, port };
        if ports.is_empty() && is_headless(service) {
            members.push(member(None));
        }
        for port in ports {
            let Some(number) = find_port(pod, port) else { continue };
            members.push(member(Some(EndpointPort {
                name: port.name.clone().filter(|name| !name.is_empty()),
                port: number,
                protocol: Some(port.protocol.clone().unwrap_or_else(|| "TCP".to_owned())),
                app_protocol: port.app_protocol.clone(),
            })));
        }
    }
    members
}

/// Returns the address of a pod in the first family of the Service.
fn address(service: &Service, pod: &Pod) -> Option<IpAddr> {
    let addresses = addresses(pod);
    let spec = service.spec.as_ref()?;
    let family = spec.ip_families.as_ref().and_then(|families| families.first());
    let cluster_ip = || spec.cluster_ip.as_deref().and_then(|ip| ip.parse::<IpAddr>().ok());
    let is_ipv6 = match family {
        Some(family) => family == "IPv6",
        None => cluster_ip().or(addresses.first().copied())?.is_ipv6(),
    };
    addresses.into_iter().find(|address| address.is_ipv6() == is_ipv6)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn service(spec: Value) -> Service {
        let meta = json!({"name": "s", "namespace": "n", "labels": {"team": "blue"}});
        serde_json::from_value(json!({"metadata": meta, "spec": spec})).unwrap()
    }

    fn pod(name: &str, ip: &str, ready: bool, deleted: Value) -> Arc<Pod> {
        let pod = json!({
            "metadata": {"name": name, "namespace": "n", "uid": name, "deletionTimestamp": deleted},
            "spec": {"containers": [], "hostname": "h", "subdomain": "s"},
            "status": {
                "podIPs": [{"ip": ip}],
                "conditions": [{"type": "Ready", "status": if ready { "True" } else { "False" }}],
            },
        });
        Arc::new(serde_json::from_value(pod).unwrap())
    }

    #[test]
    fn addresses_are_ready_or_not() {
        let pods = [
            pod("b", "10.0.0.2", true, Value::Null),
            pod("a", "10.0.0.10", true, Value::Null),
            pod("c", "10.0.0.3", false, Value::Null),
            pod("d", "10.0.0.4", true, json!("2026-01-01T00:00:00Z")),
            pod("e", "fd00::1", true, Value::Null),
        ];
        let ports = json!([{"name": "x", "port": 80}, {"name": "y", "port": 81, "targetPort": "none"}]);
        for (case, spec, ready, not_ready) in [
            ("plain", json!({"ipFamilies": ["IPv4"], "ports": ports}), "10.0.0.10 10.0.0.2", "10.0.0.3"),
            (
                "all are published",
                json!({"ipFamilies": ["IPv4"], "ports": ports, "publishNotReadyAddresses": true}),
                "10.0.0.10 10.0.0.2 10.0.0.3 10.0.0.4",
                "",
            ),
            ("the other family", json!({"ipFamilies": ["IPv6"], "ports": ports}), "fd00::1", ""),
            ("headless", json!({"clusterIP": "None", "ipFamilies": ["IPv6"]}), "fd00::1", ""),
        ] {
            let made = plan(&service(spec.clone()), &pods, None, None).unwrap();
            let subset = &made.subsets.as_ref().unwrap()[0];
            let ips = |addresses: &Option<Vec<EndpointAddress>>| {
                let ips: Vec<&str> = addresses.iter().flatten().map(|address| address.ip.as_str()).collect();
                ips.join(" ")
            };
            assert_eq!(ips(&subset.addresses), ready, "{case}");
            assert_eq!(ips(&subset.not_ready_addresses), not_ready, "{case}");
            assert_eq!(subset.ports.as_ref().map(Vec::len), spec["ports"].as_array().map(|_| 1), "{case}");
            assert_eq!(plan(&service(spec), &pods, Some(&made), None), None, "{case}: nothing changed");
        }
    }

    #[test]
    fn a_service_without_pods_has_endpoints_without_subsets() {
        let service = service(json!({"clusterIP": "10.0.0.1", "ports": [{"port": 80}]}));
        let made = plan(&service, &[], None, Some("2026-01-01T00:00:00Z".parse().unwrap())).unwrap();
        let labels = json!({"team": "blue", "endpoints.kubernetes.io/managed-by": "endpoint-controller"});
        let annotations = json!({"endpoints.kubernetes.io/last-change-trigger-time": "2026-01-01T00:00:00Z"});
        assert_eq!((json!(made.metadata.labels), json!(made.metadata.annotations)), (labels, annotations));
        assert_eq!(made.subsets, None);
        let pods = [pod("a", "10.0.0.10", true, Value::Null)];
        let next = plan(&service, &pods, Some(&made), None).unwrap();
        assert_eq!(json!(next.metadata.annotations), json!({}), "an old trigger time is removed");
    }
}
