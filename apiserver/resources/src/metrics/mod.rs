//! `metrics.k8s.io`: what metrics-server would measure, simulated by annotations of the pods.
//!
//! A running pod with `sim.coracle.dev/cpu` or `sim.coracle.dev/memory` uses that much, shared equally by its running containers;
//! a node uses what its pods use. Pods without these annotations are not measured. The group is served as soon as there is a pod
//! with one, so that a cluster without them is one without metrics-server.
//!
//! Source of names and texts: metrics-server's `pkg/api`.

mod node_metrics;
mod pod_metrics;

use std::collections::BTreeMap;

use coracle_apimachinery::Result;
use coracle_apimachinery::cluster::Cluster;
use coracle_apimachinery::names::GroupResource;
use coracle_apimachinery::object_meta::ObjectMeta;
use coracle_apimachinery::resource_info::ExtensionGroup;
use coracle_quantity::Quantity;
use serde_json::{Value, json};

pub use node_metrics::SimulatedNodeMetrics;
pub use pod_metrics::SimulatedPodMetrics;

const GROUP: &str = "metrics.k8s.io";
const API_VERSION: &str = "metrics.k8s.io/v1beta1";
/// The beginning of the annotations with the usage of a pod.
const PREFIX: &str = "sim.coracle.dev/";
/// The resources whose usage is simulated, with their annotations.
const RESOURCES: [(&str, &str); 2] = [("cpu", "sim.coracle.dev/cpu"), ("memory", "sim.coracle.dev/memory")];
/// The time over which usage is measured, which ends now: a new pod is measured soon.
const WINDOW: &str = "1s";

/// The group, its APIService, and the ClusterRole by which those who may view a namespace may view its metrics.
pub fn extension() -> Option<ExtensionGroup> {
    let api_service = json!({
        "kind": "APIService", "apiVersion": "apiregistration.k8s.io/v1",
        "metadata": {"name": format!("v1beta1.{GROUP}")},
        "spec": {"group": GROUP, "version": "v1beta1", "groupPriorityMinimum": 100, "versionPriority": 100},
    });
    let aggregate = |role: &str| (format!("rbac.authorization.k8s.io/aggregate-to-{role}"), json!("true"));
    let labels: serde_json::Map<String, Value> =
        ["admin", "edit", "view"].map(aggregate).into_iter().collect();
    let reader = json!({
        "kind": "ClusterRole", "apiVersion": "rbac.authorization.k8s.io/v1",
        "metadata": {"name": "system:aggregated-metrics-reader", "labels": labels},
        "rules": [{"apiGroups": [GROUP], "resources": ["pods", "nodes"], "verbs": ["get", "list", "watch"]}],
    });
    Some(ExtensionGroup {
        group: crate::extension_group(GROUP)?,
        source: GroupResource::new("", "pods"),
        is_provided_by: |pod| {
            RESOURCES.iter().any(|(_, annotation)| memchr::memmem::find(pod, annotation.as_bytes()).is_some())
        },
        objects: vec![api_service, reader],
    })
}

/// The pods of a namespace, or with `""` of all, that may have a usage.
fn measured_pods(cluster: &dyn Cluster, namespace: &str) -> Result<Vec<Value>> {
    let pods = cluster.list_containing(&GroupResource::new("", "pods"), namespace, PREFIX)?;
    Ok(pods.into_iter().filter(|pod| !usage(pod).is_empty()).collect())
}

/// The usage of a pod by resource; empty for one that does not run or is not measured.
fn usage(pod: &Value) -> BTreeMap<&'static str, Quantity> {
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
fn metadata(measured: &Value, now: &str) -> Value {
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
fn printed(resource: &str, milli: i64) -> String {
    let text = match resource {
        "cpu" => format!("{milli}m"),
        _ if milli % (1024 * 1000) == 0 => format!("{}Ki", milli / (1024 * 1000)),
        _ => (milli / 1000).to_string(),
    };
    coracle_quantity::printed(&text).map(|canonical| canonical.into_owned()).unwrap_or_default()
}

#[cfg(test)]
mod tests;
