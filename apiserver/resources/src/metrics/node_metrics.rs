//! NodeMetrics: what the pods of each node use together.

use std::collections::HashMap;

use coracle_apimachinery::cluster::Cluster;
use coracle_apimachinery::conditions;
use coracle_apimachinery::names::GroupResource;
use coracle_apimachinery::object_meta::ObjectMeta;
use coracle_apimachinery::strategy::Computed;
use coracle_apimachinery::{Error, Result};
use serde_json::{Map, Value, json};

use super::usage::{API_VERSION, GROUP, RESOURCES, WINDOW, measured_pods, metadata, printed, usage};

/// The usage of nodes, from the annotations of their pods.
pub struct SimulatedNodeMetrics;

impl Computed for SimulatedNodeMetrics {
    fn list(&self, cluster: &dyn Cluster, _: &str, now: &str) -> Result<Vec<Value>> {
        let mut used: HashMap<(String, &str), i64> = HashMap::new();
        for pod in measured_pods(cluster, "")? {
            let node = pod["spec"]["nodeName"].as_str().unwrap_or_default();
            for (resource, amount) in usage(&pod) {
                let sum = used.entry((node.to_owned(), resource)).or_default();
                *sum = sum.saturating_add(amount.milli_value());
            }
        }
        let nodes = cluster.list(&GroupResource::new("", "nodes"), "")?;
        let metrics = nodes.iter().filter(|node| is_ready(node)).map(|node| {
            let usage = RESOURCES.iter().map(|(resource, _)| {
                let milli = used.get(&(node.name().to_owned(), *resource)).copied().unwrap_or_default();
                ((*resource).to_owned(), printed(resource, milli).into())
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

/// Whether the kubelet of a node, which measures, is there.
fn is_ready(node: &Value) -> bool {
    conditions::is_true(&node["status"], "Ready")
}
