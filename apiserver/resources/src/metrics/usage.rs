//! The usage of pods, by their annotations, and what the measurements of pods and of nodes have in
//! common.

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
/// The resources with a simulated usage, and their annotations.
pub const RESOURCES: [(&str, &str); 2] =
    [("cpu", "sim.coracle.dev/cpu"), ("memory", "sim.coracle.dev/memory")];
/// The window of a measurement, which ends at the time of the request. It is short, so that a new
/// pod is measured soon.
pub const WINDOW: &str = "1s";

/// The beginning of the container IDs, and of the runtime versions of nodes, that simulated
/// kubelets report.
pub const RUNTIME: &str = "coracle://";

/// The least usage of a container with a usage that follows from its requests, and that of one
/// without a request: of the CPU in thousandths of a core, of memory in bytes.
const MIN_CPU: i64 = 1;
const MIN_MEMORY: i64 = 1 << 20;
const DEFAULT_MEMORY: i64 = 8 << 20;

/// The pods that are measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measured {
    /// Pods with annotations of their usage.
    Annotated,
    /// Also pods that simulated kubelets run. Usage that is not in an annotation is derived from
    /// their requests.
    Simulated,
}

/// The usage of a running container by resource, in thousandths.
pub struct ContainerUsage<'a> {
    /// The name of the container.
    pub name: &'a str,
    /// The resources that are measured.
    pub milli: BTreeMap<&'static str, i64>,
}

/// Returns the pods of a namespace (`""` for all) that may have a usage.
pub fn measured_pods(cluster: &dyn Cluster, namespace: &str, measured: Measured) -> Result<Vec<Value>> {
    let text = match measured {
        Measured::Annotated => PREFIX,
        // The annotations of a pod count even if no simulated kubelet runs it.
        Measured::Simulated => "coracle",
    };
    cluster.list_containing(&GroupResource::new("", "pods"), namespace, text)
}

/// Returns `true` if a stored pod may be measured. It searches the bytes, so that other pods need
/// not be parsed.
pub fn may_be_measured(pod: &[u8], measured: Measured) -> bool {
    let has = |text: &str| memchr::memmem::find(pod, text.as_bytes()).is_some();
    RESOURCES.iter().any(|(_, annotation)| has(annotation))
        || measured == Measured::Simulated && has(RUNTIME) && has(r#""phase":"Running""#)
}

/// Returns the usage of the running containers of a pod; empty for one that does not run or is not
/// measured.
///
/// The amounts of annotations are shared equally by the containers; the first one gets the
/// remainder.
pub fn usage(pod: &Value, measured: Measured) -> Vec<ContainerUsage<'_>> {
    if pod["status"]["phase"] != "Running" {
        return Vec::new();
    }
    let statuses = pod["status"]["containerStatuses"].as_array().map(Vec::as_slice).unwrap_or_default();
    let running: Vec<&Value> =
        statuses.iter().filter(|status| status["state"]["running"].is_object()).collect();
    let annotated: BTreeMap<&str, Quantity> = RESOURCES
        .iter()
        .filter_map(|(resource, annotation)| Some((*resource, annotated_amount(pod, annotation)?)))
        .collect();
    let count = i64::try_from(running.len()).unwrap_or(i64::MAX);
    let share = |total: i64, index: usize| total / count + if index == 0 { total % count } else { 0 };
    let usage = running.iter().enumerate().filter_map(|(index, status)| {
        let name = status["name"].as_str()?;
        let is_simulated = measured == Measured::Simulated
            && status["containerID"].as_str().is_some_and(|id| id.starts_with(RUNTIME));
        let amounts = RESOURCES.iter().filter_map(|(resource, _)| {
            let milli = match (annotated.get(resource), *resource) {
                (Some(amount), "cpu") => share(amount.milli_value(), index),
                // Memory is shared in whole bytes.
                (Some(amount), _) => share(amount.value(), index).saturating_mul(1000),
                (None, _) if !is_simulated => return None,
                (None, resource) => estimated(request(pod, name, resource).as_ref(), resource),
            };
            Some((*resource, milli))
        });
        let milli: BTreeMap<_, _> = amounts.collect();
        (!milli.is_empty()).then_some(ContainerUsage { name, milli })
    });
    usage.collect()
}

/// Returns the amount in an annotation; None without a valid one.
fn annotated_amount(pod: &Value, annotation: &str) -> Option<Quantity> {
    let amount: Quantity = pod["metadata"]["annotations"].get(annotation)?.as_str()?.parse().ok()?;
    (!amount.is_negative()).then_some(amount)
}

/// Returns the request of a container.
fn request(pod: &Value, container: &str, resource: &str) -> Option<Quantity> {
    let containers = pod["spec"]["containers"].as_array()?;
    let container = containers.iter().find(|spec| spec["name"] == container)?;
    container["resources"]["requests"].get(resource)?.as_str()?.parse().ok()
}

/// Estimates the usage from a request, in thousandths: a tenth of the CPU, half of the memory.
fn estimated(request: Option<&Quantity>, resource: &str) -> i64 {
    match (resource, request) {
        ("cpu", request) => request.map_or(0, |request| request.milli_value() / 10).max(MIN_CPU),
        (_, Some(request)) => (request.value() / 2).max(MIN_MEMORY).saturating_mul(1000),
        (_, None) => DEFAULT_MEMORY * 1000,
    }
}

/// Returns the metadata of a measurement: the names and labels of the measured object.
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

/// Formats an amount in the usual units: thousandths of a core, and Ki.
pub fn printed(resource: &str, milli: i64) -> String {
    let text = match resource {
        "cpu" => format!("{milli}m"),
        _ if milli % (1024 * 1000) == 0 => format!("{}Ki", milli / (1024 * 1000)),
        _ => (milli / 1000).to_string(),
    };
    coracle_quantity::printed(&text).map(|canonical| canonical.into_owned()).unwrap_or_default()
}
