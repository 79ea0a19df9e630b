//! Resource lists of the API, and the requests of a pod by its spec.

use std::collections::BTreeMap;

use coracle_pod_resources::{
    InitContainer, ResourceList, add_resource_list, aggregate_containers, apply_pod_level_resources,
};
use coracle_quantity::Quantity;
use k8s_openapi::api::core::v1::{Container, PodSpec};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Text;

/// Parses a resource list of the API. The API server admits no quantity that cannot be parsed.
pub fn resource_list(quantities: Option<&BTreeMap<String, Text>>) -> ResourceList {
    let quantities = quantities.into_iter().flatten();
    quantities.filter_map(|(name, quantity)| Some((name.clone(), quantity.0.parse().ok()?))).collect()
}

/// Returns the amount of a resource; zero if the list does not name it.
pub fn amount(list: &ResourceList, name: &str) -> Quantity {
    list.get(name).copied().unwrap_or(Quantity::from_int(0))
}

/// Returns `true` if an init container keeps running beside the other containers.
pub fn is_sidecar(container: &Container) -> bool {
    container.restart_policy.as_deref() == Some("Always")
}

/// Returns the requests of a pod with its overhead: the amounts that have to be free on its node.
pub fn requests(spec: &PodSpec) -> ResourceList {
    let own = |container: &Container| {
        resource_list(container.resources.as_ref().and_then(|resources| resources.requests.as_ref()))
    };
    let init_containers = spec
        .init_containers
        .iter()
        .flatten()
        .map(|container| InitContainer { resources: own(container), is_restartable: is_sidecar(container) });
    let mut total = aggregate_containers(spec.containers.iter().map(own), init_containers);
    let pod_level = spec.resources.as_ref().and_then(|resources| resources.requests.as_ref());
    apply_pod_level_resources(&mut total, resource_list(pod_level));
    add_resource_list(&mut total, &resource_list(spec.overhead.as_ref()));
    total
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_pods_ask_for() {
        let container = |cpu: &str| json!({"name": "c", "resources": {"requests": {"cpu": cpu}}});
        let sidecar = |cpu: &str| {
            let mut container = container(cpu);
            container["restartPolicy"] = json!("Always");
            container
        };
        for (case, spec, want) in [
            ("nothing", json!({"containers": [{"name": "c"}]}), 0),
            ("sums", json!({"containers": [container("1"), container("500m")]}), 1500),
            ("init", json!({"containers": [container("1")], "initContainers": [container("2")]}), 2000),
            (
                "sidecar before init",
                json!({"containers": [container("1")], "initContainers": [sidecar("1"), container("2")]}),
                3000,
            ),
            (
                "sidecar beside",
                json!({"containers": [container("1")], "initContainers": [container("1"), sidecar("1")]}),
                2000,
            ),
            ("overhead", json!({"containers": [container("1")], "overhead": {"cpu": "1"}}), 2000),
            (
                "the pod's own",
                json!({"containers": [container("1")], "resources": {"requests": {"cpu": "4"}}}),
                4000,
            ),
        ] {
            let spec: PodSpec = serde_json::from_value(spec).unwrap();
            assert_eq!(amount(&requests(&spec), "cpu").milli_value(), want, "{case}");
        }
    }
}
