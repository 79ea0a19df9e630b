//! The usage of pods, by their annotations, and what the measurements of pods and of nodes have in common.

use std::collections::BTreeMap;

use coracle_apimachinery::Result;
use coracle_apimachinery::cluster::Cluster;
use coracle_apimachinery::names::GroupResource;
use coracle_apimachinery::object_meta::ObjectMeta;
use coracle_quantity::Quantity;
use serde_json::{Value, json};

/// The group of measurements.
pub const GROUP: &str = "metrics.k8s.io";
/// The version in which measurements are shown.
pub const API_VERSION: &str = "metrics.k8s.io/v1beta1";
/// The beginning of the annotations with the usage of a pod.
pub const PREFIX: &str = "sim.coracle.dev/";
/// The resources of which the usage is simulated, with their annotations.
pub const RESOURCES: [(&str, &str); 2] =
    [("cpu", "sim.coracle.dev/cpu"), ("memory", "sim.coracle.dev/memory")];
/// The time over which usage is measured, which ends now: a new pod is measured soon.
pub const WINDOW: &str = "1s";

/// The pods of a namespace, or with `""` of all, that may have a usage.
pub fn measured_pods(cluster: &dyn Cluster, namespace: &str) -> Result<Vec<Value>> {
    let pods = cluster.list_containing(&GroupResource::new("", "pods"), namespace, PREFIX)?;
    Ok(pods.into_iter().filter(|pod| !usage(pod).is_empty()).collect())
}

/// The usage of a pod by resource; empty for one that does not run or is not measured.
pub fn usage(pod: &Value) -> BTreeMap<&'static str, Quantity> {
    if pod["status"]["phase"] != "Running" {
        return BTreeMap::new();
    }
    let amounts = RESOURCES.iter().filter_map(|(resource, annotation)| {
        let text = pod["metadata"]["annotations"].get(annotation)?.as_str()?;
        let amount: Quantity = text.parse().ok()?;
        (!amount.is_negative()).then_some((*resource, amount))
    });
    amounts.collect()
}

/// The metadata of a measurement: the names and labels of what was measured.
pub fn metadata(measured: &Value, now: &str) -> Value {
    let mut metadata = json!({"name": measured.name(), "creationTimestamp": now});
    if !measured.namespace().is_empty() {
        metadata["namespace"] = measured.namespace().into();
    }
    if let Some(labels) = measured.meta("labels") {
        metadata["labels"] = labels.clone();
    }
    metadata
}

/// An amount in the units in which people look at it: thousandths of a core, and Ki.
pub fn printed(resource: &str, milli: i64) -> String {
    let text = match resource {
        "cpu" => format!("{milli}m"),
        _ if milli % (1024 * 1000) == 0 => format!("{}Ki", milli / (1024 * 1000)),
        _ => (milli / 1000).to_string(),
    };
    coracle_quantity::printed(&text).map(|canonical| canonical.into_owned()).unwrap_or_default()
}
