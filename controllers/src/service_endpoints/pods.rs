//! The pods that are endpoints of a Service, and their ports.

use std::net::IpAddr;

use coracle_kinds::pods::phase;
use coracle_kinds::resources::is_sidecar;
use k8s_openapi::api::core::v1::{ContainerPort, ObjectReference, Pod, Service, ServicePort};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

/// Returns the addresses of a pod, the primary one first.
pub fn addresses(pod: &Pod) -> Vec<IpAddr> {
    let Some(status) = &pod.status else { return Vec::new() };
    let mut ips: Vec<&str> = status.pod_ips.iter().flatten().map(|ip| ip.ip.as_str()).collect();
    if ips.is_empty() {
        ips.extend(status.pod_ip.as_deref());
    }
    ips.into_iter().filter_map(|ip| ip.parse().ok()).collect()
}

/// Returns `true` if a pod is an endpoint of the Services that select it, ready or not.
///
/// - `with_terminating`: whether terminating pods are endpoints
pub fn is_endpoint(pod: &Pod, with_terminating: bool) -> bool {
    let is_over = matches!(phase(pod), "Succeeded" | "Failed");
    let is_terminating = pod.metadata.deletion_timestamp.is_some();
    !is_over && !addresses(pod).is_empty() && (with_terminating || !is_terminating)
}

/// Returns the hostname of a pod in the DNS domain of a Service, if it has one there.
pub fn hostname(pod: &Pod, service: &Service) -> Option<String> {
    let spec = pod.spec.as_ref()?;
    let is_in_domain = spec.subdomain.is_some() && spec.subdomain == service.metadata.name;
    let is_same_namespace = pod.metadata.namespace == service.metadata.namespace;
    spec.hostname.clone().filter(|name| !name.is_empty() && is_in_domain && is_same_namespace)
}

/// Returns a reference to a pod for its endpoint.
pub fn target_ref(pod: &Pod) -> ObjectReference {
    ObjectReference {
        kind: Some("Pod".to_owned()),
        namespace: pod.metadata.namespace.clone(),
        name: pod.metadata.name.clone(),
        uid: pod.metadata.uid.clone(),
        ..ObjectReference::default()
    }
}

/// Returns the port of a pod to which a port of a Service leads, or `None` if the pod has no port
/// of that name.
pub fn find_port(pod: &Pod, port: &ServicePort) -> Option<i32> {
    let name = match &port.target_port {
        None => return Some(port.port),
        Some(IntOrString::Int(0)) => return Some(port.port),
        Some(IntOrString::Int(number)) => return Some(*number),
        Some(IntOrString::String(name)) => name,
    };
    let spec = pod.spec.as_ref()?;
    let sidecars = spec.init_containers.iter().flatten().filter(|container| is_sidecar(container));
    let mut ports = spec.containers.iter().chain(sidecars).flat_map(|c| c.ports.iter().flatten());
    let protocol = |protocol: &Option<String>| protocol.clone().unwrap_or_else(|| "TCP".to_owned());
    let is_it = |candidate: &&ContainerPort| {
        candidate.name.as_ref() == Some(name) && protocol(&candidate.protocol) == protocol(&port.protocol)
    };
    ports.find(is_it).map(|found| found.container_port)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn target_ports_are_numbers_or_names() {
        let pod: Pod = serde_json::from_value(json!({"spec": {
            "initContainers": [
                {"name": "i", "ports": [{"name": "init", "containerPort": 1}]},
                {"name": "s", "restartPolicy": "Always", "ports": [{"name": "side", "containerPort": 2}]},
            ],
            "containers": [{"name": "c", "ports": [
                {"name": "dns", "containerPort": 53, "protocol": "UDP"},
                {"name": "http", "containerPort": 8080},
            ]}],
        }}))
        .unwrap();
        let find = |target: Value, protocol: &str| {
            let port = json!({"port": 80, "targetPort": target, "protocol": protocol});
            find_port(&pod, &serde_json::from_value(port).unwrap())
        };
        for (target, protocol, want) in [
            (json!(null), "TCP", Some(80)),
            (json!(8081), "TCP", Some(8081)),
            (json!("http"), "TCP", Some(8080)),
            (json!("http"), "UDP", None),
            (json!("dns"), "UDP", Some(53)),
            (json!("side"), "TCP", Some(2)),
            (json!("init"), "TCP", None),
        ] {
            assert_eq!(find(target.clone(), protocol), want, "{target} {protocol}");
        }
    }
}
