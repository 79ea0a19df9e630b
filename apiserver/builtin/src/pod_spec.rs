//! Accessors of a pod's spec that several plugins share.

use coracle_apimachinery::pods;
use coracle_apiserver::admission::json::{items, text};
use coracle_pod_resources::{InitContainer, aggregate_containers, apply_pod_level_resources};
use serde_json::Value;

pub(super) use coracle_pod_resources::ResourceList;

/// A pod's containers, in the order in which policies look at them.
pub(super) const ALL_CONTAINERS: [&str; 3] = ["initContainers", "containers", "ephemeralContainers"];

/// The annotation of mirror pods, which a kubelet creates for static pods; the value is a hash of
/// the file.
pub(super) const MIRROR: &str = "kubernetes.io/config.mirror";

pub(super) fn containers<'a>(spec: &'a Value, lists: &'a [&str]) -> impl Iterator<Item = &'a Value> {
    lists.iter().flat_map(|list| items(&spec[list]))
}

/// Parses a list of resources by name.
pub(super) fn resources(list: &Value) -> ResourceList {
    let entries = list.as_object().into_iter().flatten();
    entries.filter_map(|(name, quantity)| Some((name.clone(), text(quantity).parse().ok()?))).collect()
}

/// Computes the `requests` or `limits` of a whole pod, without its overhead.
pub(super) fn pod_resources(spec: &Value, which: &str) -> ResourceList {
    with_pod_level(spec, which, resources(&spec["resources"][which]))
}

/// Computes [`pod_resources`] with other pod-level resources than those in the spec.
pub(super) fn with_pod_level(spec: &Value, which: &str, pod_level: ResourceList) -> ResourceList {
    let own = |container: &Value| resources(&container["resources"][which]);
    let init_containers = items(&spec["initContainers"]).iter().map(|container| InitContainer {
        resources: own(container),
        is_restartable: pods::is_sidecar(container),
    });
    let mut total = aggregate_containers(items(&spec["containers"]).iter().map(own), init_containers);
    apply_pod_level_resources(&mut total, pod_level);
    total
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn requests_of_containers_are_added_up() {
        let with = |requests: Value| json!({"resources": {"requests": requests}});
        let sidecar = json!({"restartPolicy": "Always", "resources": {"requests": {"cpu": "1"}}});
        for (case, spec, want) in [
            (
                "sum",
                json!({"containers": [with(json!({"cpu": "1"})), with(json!({"cpu": "500m", "memory": "1Gi"}))]}),
                "cpu=1500m memory=1Gi",
            ),
            (
                "a greedy start",
                json!({"initContainers": [with(json!({"cpu": "3"}))], "containers": [with(json!({"cpu": "1"}))]}),
                "cpu=3",
            ),
            (
                "a sidecar",
                json!({"initContainers": [sidecar, with(json!({"cpu": "3"}))], "containers": [with(json!({"cpu": "1"}))]}),
                "cpu=4",
            ),
            (
                "the pod's word",
                json!({"containers": [with(json!({"cpu": "1", "x": "1"}))], "resources": {"requests": {"cpu": "5", "x": "9"}}}),
                "cpu=5 x=1",
            ),
        ] {
            let got: Vec<String> =
                pod_resources(&spec, "requests").iter().map(|(n, q)| format!("{n}={q}")).collect();
            assert_eq!(got.join(" "), want, "{case}");
        }
    }
}
