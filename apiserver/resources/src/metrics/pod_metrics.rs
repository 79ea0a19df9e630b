//! PodMetrics.

use coracle_apimachinery::cluster::Cluster;
use coracle_apimachinery::names::GroupResource;
use coracle_apimachinery::strategy::Computed;
use coracle_apimachinery::{Error, Result};
use serde_json::{Map, Value, json};

use super::usage::{API_VERSION, GROUP, Measured, WINDOW, measured_pods, metadata, printed, usage};

/// The usage of pods.
pub struct SimulatedPodMetrics(pub Measured);

impl Computed for SimulatedPodMetrics {
    fn list(&self, cluster: &dyn Cluster, namespace: &str, now: &str) -> Result<Vec<Value>> {
        let pods = measured_pods(cluster, namespace, self.0)?;
        Ok(pods.iter().filter_map(|pod| metrics(pod, self.0, now)).collect())
    }

    fn get(&self, cluster: &dyn Cluster, namespace: &str, name: &str, now: &str) -> Result<Option<Value>> {
        let pod = cluster.get(&GroupResource::new("", "pods"), namespace, name)?;
        Ok(pod.and_then(|pod| metrics(&pod, self.0, now)))
    }

    fn not_found(&self, namespace: &str, name: &str) -> Error {
        Error::not_found(&GroupResource::new(GROUP, "podmetrics"), &format!("{namespace}/{name}"))
    }
}

/// Returns the usage of a pod; None if it is not measured.
fn metrics(pod: &Value, measured: Measured, now: &str) -> Option<Value> {
    let usage = usage(pod, measured);
    let containers = usage.iter().map(|container| {
        let amounts = container.milli.iter();
        let amounts =
            amounts.map(|(resource, milli)| ((*resource).to_owned(), printed(resource, *milli).into()));
        json!({"name": container.name, "usage": amounts.collect::<Map<String, Value>>()})
    });
    let containers: Vec<Value> = containers.collect();
    (!containers.is_empty()).then(|| {
        json!({
            "kind": "PodMetrics", "apiVersion": API_VERSION, "metadata": metadata(pod, now),
            "timestamp": now, "window": WINDOW, "containers": containers,
        })
    })
}
