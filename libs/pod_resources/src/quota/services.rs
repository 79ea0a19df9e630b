//! Services in resource quotas: load balancers and node ports.

use super::counted;
use crate::list::ResourceList;

/// Returns `true` if a name in a quota limits services.
pub fn matches(name: &str) -> bool {
    ["count/services", "services", "services.loadbalancers", "services.nodeports"].contains(&name)
}

/// Returns the usage of a service, with the node ports that are still to be allocated.
///
/// - `service_type`: its type; empty for the default
/// - `allocates_node_ports`: `allocateLoadBalancerNodePorts`, which is true by default
/// - `ports`: the number of its ports
/// - `assigned`: how many of them have a node port
pub fn usage(service_type: &str, allocates_node_ports: bool, ports: usize, assigned: usize) -> ResourceList {
    let (load_balancers, node_ports) = match service_type {
        "NodePort" => (0, ports),
        "LoadBalancer" if allocates_node_ports => (1, ports),
        "LoadBalancer" => (1, assigned),
        _ => (0, 0),
    };
    counted([
        ("count/services", 1),
        ("services", 1),
        ("services.loadbalancers", load_balancers),
        ("services.nodeports", node_ports),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quota::shown;

    #[test]
    fn services_take_ports_and_balancers() {
        for (service_type, allocates, want) in [
            ("", true, "services.loadbalancers=0 services.nodeports=0"),
            ("ClusterIP", true, "services.loadbalancers=0 services.nodeports=0"),
            ("NodePort", true, "services.loadbalancers=0 services.nodeports=2"),
            ("LoadBalancer", true, "services.loadbalancers=1 services.nodeports=2"),
            ("LoadBalancer", false, "services.loadbalancers=1 services.nodeports=1"),
        ] {
            let usage = usage(service_type, allocates, 2, 1);
            assert!(usage.keys().all(|name| matches(name)));
            assert_eq!(shown(&usage), format!("count/services=1 services=1 {want}"), "{service_type}");
        }
    }
}
