//! Invented addresses: those of simulated nodes and of the pods on them. No process listens there,
//! but on a machine that has a route or a proxy a stranger's may, so that they are never dialled.
//!
//! A node is simulated if its kubelet reports the container runtime `coracle://`. A pod is
//! simulated if its node is, unless it has the annotation `sim.coracle.dev/ignore: "true"`: then a
//! client writes its status, with a real address.

use std::net::{IpAddr, SocketAddr};

use coracle_apimachinery::Result;
use coracle_apimachinery::cluster::Cluster;
use coracle_apimachinery::names::GroupResource;
use coracle_apimachinery::validation::ip::Cidr;
use coracle_apiserver::webhook::TransportError;
use serde_json::Value;

/// The scheme of the container runtime of a simulated node.
const RUNTIME: &str = "coracle://";
/// The annotation of a pod that no simulated kubelet runs.
const IGNORE: &str = "sim.coracle.dev/ignore";

/// The addresses of simulated nodes, and the ranges of those of their pods.
#[derive(Debug, Default, PartialEq)]
pub(super) struct SimulatedNetwork {
    nodes: Vec<IpAddr>,
    pods: Vec<Cidr>,
}

impl SimulatedNetwork {
    /// Reads the network of all simulated nodes.
    pub fn load(cluster: &dyn Cluster) -> Result<SimulatedNetwork> {
        let mut network = SimulatedNetwork::default();
        for node in cluster.list_containing(&GroupResource::new("", "nodes"), "", RUNTIME)? {
            network.add(&node);
        }
        Ok(network)
    }

    /// Adds the addresses of a node, if it is simulated.
    fn add(&mut self, node: &Value) {
        if !is_simulated(node) {
            return;
        }
        let items = |pointer: &str| node.pointer(pointer).and_then(Value::as_array).into_iter().flatten();
        let addresses = items("/status/addresses").filter_map(|address| address["address"].as_str());
        self.nodes.extend(addresses.filter_map(|address| address.parse::<IpAddr>().ok()));
        let ranges = items("/spec/podCIDRs").chain(node.pointer("/spec/podCIDR"));
        self.pods.extend(ranges.filter_map(|range| Cidr::parse(range.as_str()?)));
    }

    /// Refuses the address of a simulated pod or node.
    ///
    /// # Errors
    /// [`TransportError::Unreachable`]
    pub fn check(&self, address: SocketAddr) -> Result<(), TransportError> {
        match self.contains(address.ip()) {
            true => Err(TransportError::Unreachable(format!(
                "dial tcp {address}: the address is that of a simulated pod or node, where no process listens"
            ))),
            false => Ok(()),
        }
    }

    /// Returns `true` if an address is that of a simulated node or pod.
    pub fn contains(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.nodes.contains(&address) || self.pods.iter().any(|range| range.contains(address))
    }
}

fn is_simulated(node: &Value) -> bool {
    let runtime = node.pointer("/status/nodeInfo/containerRuntimeVersion").and_then(Value::as_str);
    runtime.is_some_and(|runtime| runtime.starts_with(RUNTIME))
}

/// Returns whether the address of an endpoint is that of a simulated pod. It is also `true` if the
/// pod or its node no longer exists, because the pod may have been simulated.
pub(super) fn is_simulated_pod(
    namespace: &str,
    name: &str,
    address: IpAddr,
    cluster: &dyn Cluster,
) -> Result<bool> {
    let Some(pod) = cluster.get(&GroupResource::new("", "pods"), namespace, name)? else { return Ok(true) };
    let node = pod.pointer("/spec/nodeName").and_then(Value::as_str).unwrap_or_default();
    let node = cluster.get(&GroupResource::new("", "nodes"), "", node)?;
    let annotations = pod.pointer("/metadata/annotations");
    if annotations.is_none_or(|annotations| annotations[IGNORE] != "true") {
        return Ok(node.is_none_or(|node| is_simulated(&node)));
    }
    let mut network = SimulatedNetwork::default();
    node.iter().for_each(|node| network.add(node));
    Ok(network.contains(address))
}

#[cfg(test)]
mod tests {
    use super::*;
    use coracle_apiserver::admission::testing::World;
    use serde_json::json;

    fn node(name: &str, runtime: &str) -> Value {
        json!({
            "metadata": {"name": name},
            "spec": {"podCIDR": "10.244.0.0/21", "podCIDRs": ["10.244.0.0/21"]},
            "status": {
                "addresses": [
                    {"type": "InternalIP", "address": "172.18.0.2"}, {"type": "Hostname", "address": name},
                ],
                "nodeInfo": {"containerRuntimeVersion": runtime},
            },
        })
    }

    #[test]
    fn addresses_of_simulated_nodes_are_invented() {
        let address = |text: &str| text.parse::<IpAddr>().expect("an address");
        for (runtime, text, want) in [
            ("coracle://0.1.0", "10.244.7.255", true),
            ("coracle://0.1.0", "10.244.8.0", false),
            ("coracle://0.1.0", "::ffff:10.244.0.5", true),
            ("coracle://0.1.0", "172.18.0.2", true),
            ("coracle://0.1.0", "127.0.0.1", false),
            ("containerd://2.0.0", "10.244.0.5", false),
        ] {
            let world = World::default().with("", "nodes", node("n", runtime));
            let network = SimulatedNetwork::load(&world).expect("readable");
            assert_eq!(network.contains(address(text)), want, "{runtime} {text}");
        }
    }

    #[test]
    fn pods_are_simulated_with_their_node() {
        let nodes = || {
            let world = World::default().with("", "nodes", node("simulated", "coracle://0.1.0"));
            world.with("", "nodes", node("real", "containerd://2.0.0"))
        };
        let pod = |node: &str, ignored: &str| {
            json!({"metadata": {"namespace": "ns", "name": "p", "annotations": {IGNORE: ignored}},
                   "spec": {"nodeName": node}})
        };
        let (invented, real) = ("10.244.0.5", "192.0.2.1");
        for (case, pod, address, want) in [
            ("no pod", None, real, true),
            ("no node", Some(pod("gone", "")), real, true),
            ("a simulated node", Some(pod("simulated", "")), real, true),
            ("a real node", Some(pod("real", "")), invented, false),
            ("status by a client", Some(pod("simulated", "true")), real, false),
            ("an address of the simulation", Some(pod("simulated", "true")), invented, true),
            ("not bound", Some(pod("", "true")), real, false),
        ] {
            let world = pod.into_iter().fold(nodes(), |world, pod| world.with("", "pods", pod));
            let address = address.parse().expect("an address");
            assert_eq!(is_simulated_pod("ns", "p", address, &world).ok(), Some(want), "{case}");
        }
    }
}
