//! The endpoint and the ports of a pod.

use coracle_kinds::pods::is_ready;
use k8s_openapi::api::core::v1::{Node, Pod, Service};
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointConditions, EndpointPort};

use crate::service_endpoints::pods::{addresses, find_port, hostname, target_ref};
use crate::service_endpoints::port_hash;

/// The label of a node's zone.
pub const ZONE: &str = "topology.kubernetes.io/zone";

/// The type of the addresses of a slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AddressType {
    Ipv4,
    Ipv6,
}

impl AddressType {
    /// Returns the name in slices, and in the spec of Services.
    pub fn name(self) -> &'static str {
        match self {
            AddressType::Ipv4 => "IPv4",
            AddressType::Ipv6 => "IPv6",
        }
    }

    /// Returns the types of a Service's endpoints.
    pub fn of(service: &Service) -> Vec<AddressType> {
        let all = [AddressType::Ipv4, AddressType::Ipv6];
        let Some(spec) = &service.spec else { return all.into() };
        let families = spec.ip_families.as_deref().unwrap_or_default();
        let address = spec.cluster_ip.as_deref().filter(|address| !matches!(*address, "" | "None"));
        match (families, address) {
            ([], None) => all.into(),
            ([], Some(address)) if address.contains(':') => vec![AddressType::Ipv6],
            ([], Some(_)) => vec![AddressType::Ipv4],
            (families, _) => {
                all.into_iter().filter(|all| families.iter().any(|family| family == all.name())).collect()
            }
        }
    }
}

/// Builds the endpoint of a pod; None if the pod has no address of the type.
pub fn endpoint(
    pod: &Pod,
    node: Option<&Node>,
    service: &Service,
    address_type: AddressType,
) -> Option<Endpoint> {
    let addresses: Vec<String> = addresses(pod)
        .iter()
        .filter(|address| address.is_ipv4() == (address_type == AddressType::Ipv4))
        .map(ToString::to_string)
        .collect();
    if addresses.is_empty() {
        return None;
    }
    let (serving, terminating) = (is_ready(pod), pod.metadata.deletion_timestamp.is_some());
    let spec = service.spec.as_ref();
    let publishes_all = spec.is_some_and(|spec| spec.publish_not_ready_addresses == Some(true));
    let zone = node.and_then(|node| node.metadata.labels.as_ref()?.get(ZONE).cloned());
    Some(Endpoint {
        addresses,
        conditions: Some(EndpointConditions {
            ready: Some(publishes_all || (serving && !terminating)),
            serving: Some(serving),
            terminating: Some(terminating),
        }),
        hostname: hostname(pod, service),
        node_name: coracle_kinds::pods::node(pod).map(str::to_owned),
        target_ref: Some(target_ref(pod)),
        zone: zone.filter(|zone| !zone.is_empty()),
        ..Endpoint::default()
    })
}

/// Returns the ports by which a pod is an endpoint of a Service. A named port that the pod does not
/// have is left out.
pub fn ports(pod: &Pod, service: &Service) -> Vec<EndpointPort> {
    let ports = service.spec.iter().flat_map(|spec| spec.ports.iter().flatten());
    let endpoint_port = |port: &k8s_openapi::api::core::v1::ServicePort| {
        let number = find_port(pod, port)?;
        Some(EndpointPort {
            name: Some(port.name.clone().unwrap_or_default()),
            port: Some(number),
            protocol: Some(port.protocol.clone().unwrap_or_else(|| "TCP".to_owned())),
            app_protocol: port.app_protocol.clone(),
        })
    };
    let mut ports: Vec<EndpointPort> = ports.filter_map(endpoint_port).collect();
    ports.sort_by_cached_key(port_hash::of_slice);
    ports
}

/// Returns `true` if the condition of an endpoint says that it is ready.
pub fn is_ready_endpoint(endpoint: &Endpoint) -> bool {
    endpoint.conditions.as_ref().is_some_and(|conditions| conditions.ready == Some(true))
}
