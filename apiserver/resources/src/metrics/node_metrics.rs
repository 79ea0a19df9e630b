//! NodeMetrics: what the pods of each node use together.

use std::collections::HashMap;

use coracle_apimachinery::cluster::Cluster;
use coracle_apimachinery::conditions;
use coracle_apimachinery::names::GroupResource;
use coracle_apimachinery::object_meta::ObjectMeta;
use coracle_apimachinery::strategy::Computed;
use coracle_apimachinery::{Error, Result};
use serde_json::{Map, Value, json};

use super::usage::{
    API_VERSION, GROUP, Measured, RESOURCES, RUNTIME, WINDOW, measured_pods, metadata, printed, usage,
};

/// The usage of a simulated node besides that of its pods, in thousandths: of its kubelet and its
/// system.
const OWN_CPU: i64 = 50;
const OWN_MEMORY: i64 = (256 << 20) * 1000;

/// The usage of nodes: that of their pods, and where these need no annotations, that of a node's
/// own.
pub struct SimulatedNodeMetrics(pub Measured);

impl Computed for SimulatedNodeMetrics {
    fn list(&self, cluster: &dyn Cluster, _: &str, now: &str) -> Result<Vec<Value>> {
        let mut used: HashMap<(String, &str), i64> = HashMap::new();
        for pod in measured_pods(cluster, "", self.0)? {
            let node = pod["spec"]["nodeName"].as_str().unwrap_or_default();
            for (resource, milli) in usage(&pod, self.0).into_iter().flat_map(|container| container.milli) {
                let sum = used.entry((node.to_owned(), resource)).or_default();
                *sum = sum.saturating_add(milli);
            }
        }
        let nodes = cluster.list(&GroupResource::new("", "nodes"), "")?;
        let metrics = nodes.iter().filter(|node| is_ready(node)).map(|node| {
            let usage = RESOURCES.iter().map(|(resource, _)| {
                let of_pods = used.get(&(node.name().to_owned(), *resource)).copied().unwrap_or_default();
                let own = match *resource {
                    _ if self.0 == Measured::Annotated || !is_simulated(node) => 0,
                    "cpu" => OWN_CPU,
                    _ => OWN_MEMORY,
                };
                ((*resource).to_owned(), printed(resource, of_pods.saturating_add(own)).into())
            });
            json!({
                "kind": "NodeMetrics", "apiVersion": API_VERSION, "metadata": metadata(node, now),
                "timestamp": now, "window": WINDOW, "usage": usage.collect::<Map<String, Value>>(),
            })
        });
        Ok(metrics.collect())
    }

    fn not_found(&self, _: &str, name: &str) -> Error {
        Error::not_found(&GroupResource::new(GROUP, "nodemetrics"), name)
    }
}

/// Returns `true` if a node is ready, so that its kubelet would report its usage.
fn is_ready(node: &Value) -> bool {
    conditions::is_true(&node["status"], "Ready")
}

/// Returns `true` if the kubelet of a node is simulated.
fn is_simulated(node: &Value) -> bool {
    let runtime = node["status"]["nodeInfo"]["containerRuntimeVersion"].as_str();
    runtime.is_some_and(|runtime| runtime.starts_with(RUNTIME))
}
