//! PodMetrics.

use coracle_apimachinery::cluster::Cluster;
use coracle_apimachinery::names::GroupResource;
use coracle_apimachinery::strategy::Computed;
use coracle_apimachinery::{Error, Result};
use serde_json::{Map, Value, json};

use super::usage::{API_VERSION, GROUP, WINDOW, measured_pods, metadata, printed, usage};

/// The usage of pods, from their annotations.
pub struct SimulatedPodMetrics;

impl Computed for SimulatedPodMetrics {
    fn list(&self, cluster: &dyn Cluster, namespace: &str, now: &str) -> Result<Vec<Value>> {
        Ok(measured_pods(cluster, namespace)?.iter().filter_map(|pod| metrics(pod, now)).collect())
    }

    fn get(&self, cluster: &dyn Cluster, namespace: &str, name: &str, now: &str) -> Result<Option<Value>> {
        let pod = cluster.get(&GroupResource::new("", "pods"), namespace, name)?;
        Ok(pod.and_then(|pod| metrics(&pod, now)))
    }

    fn not_found(&self, namespace: &str, name: &str) -> Error {
        Error::not_found(&GroupResource::new(GROUP, "podmetrics"), &format!("{namespace}/{name}"))
    }
}

/// The usage of a pod; None if it is not measured.
fn metrics(pod: &Value, now: &str) -> Option<Value> {
    let usage = usage(pod);
    let statuses = pod["status"]["containerStatuses"].as_array()?;
    let running = statuses.iter().filter(|status| status["state"]["running"].is_object());
    let names: Vec<&str> = running.filter_map(|status| status["name"].as_str()).collect();
    let count = i64::try_from(names.len()).ok().filter(|count| *count > 0 && !usage.is_empty())?;
    // The first container gets what cannot be shared equally.
    let share = |total: i64, index: usize| total / count + if index == 0 { total % count } else { 0 };
    let containers = names.iter().enumerate().map(|(index, name)| {
        let amounts = usage.iter().map(|(resource, amount)| {
            // Memory is shared in whole bytes.
            let amount = match *resource {
                "cpu" => share(amount.milli_value(), index),
                _ => share(amount.value(), index).saturating_mul(1000),
            };
            ((*resource).to_owned(), printed(resource, amount).into())
        });
        json!({"name": name, "usage": amounts.collect::<Map<String, Value>>()})
    });
    Some(json!({
        "kind": "PodMetrics", "apiVersion": API_VERSION, "metadata": metadata(pod, now),
        "timestamp": now, "window": WINDOW, "containers": containers.collect::<Vec<_>>(),
    }))
}
