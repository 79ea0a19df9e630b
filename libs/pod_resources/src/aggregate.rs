//! Requests or limits of a whole pod. All functions work on one of the two lists at a time.
//!
//! Source: KEP-753 (sidecar containers), KEP-2837 (pod-level resources).

use crate::list::{ResourceList, add_resource_list, max_resource_list};
use crate::names::is_pod_level;

/// The resources of an init container.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InitContainer {
    /// The requests or limits of the container.
    pub resources: ResourceList,
    /// Whether it is a sidecar (`restartPolicy: Always`), which keeps running with the containers
    /// started after it.
    pub is_restartable: bool,
}

/// Returns the largest amounts that the containers need at the same time.
///
/// App containers and sidecars run together; any other init container runs together with the
/// sidecars that are listed before it.
///
/// - `containers`: the requests, or the limits, of each app container
/// - `init_containers`: in the order in which they start
pub fn aggregate_containers(
    containers: impl IntoIterator<Item = ResourceList>,
    init_containers: impl IntoIterator<Item = InitContainer>,
) -> ResourceList {
    let mut total = ResourceList::new();
    let (mut sidecars, mut initializing) = (ResourceList::new(), ResourceList::new());
    for resources in containers {
        add_resource_list(&mut total, &resources);
    }
    for InitContainer { mut resources, is_restartable } in init_containers {
        if is_restartable {
            add_resource_list(&mut total, &resources);
            add_resource_list(&mut sidecars, &resources);
            max_resource_list(&mut initializing, &sidecars);
        } else {
            add_resource_list(&mut resources, &sidecars);
            max_resource_list(&mut initializing, &resources);
        }
    }
    max_resource_list(&mut total, &initializing);
    total
}

/// Replaces the sum of the containers by the pod's own requests or limits, for the resources that
/// may be specified at the pod level.
pub fn apply_pod_level_resources(total: &mut ResourceList, pod_level: ResourceList) {
    total.extend(pod_level.into_iter().filter(|(name, _)| is_pod_level(name)));
}

/// Adds the overhead of a pod to its limits, but only to existing ones, since a missing limit means
/// unlimited. (To requests it is added like everything else.)
pub fn add_overhead_to_limits(limits: &mut ResourceList, overhead: &ResourceList) {
    for (name, quantity) in overhead {
        if let Some(limit) = limits.get_mut(name).filter(|limit| !limit.is_zero()) {
            *limit = limit.plus(quantity);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(entries: &[(&str, &str)]) -> ResourceList {
        entries.iter().map(|(name, text)| ((*name).to_owned(), text.parse().expect("a quantity"))).collect()
    }

    fn cpu(text: &str) -> ResourceList {
        list(&[("cpu", text)])
    }

    fn init(text: &str, is_restartable: bool) -> InitContainer {
        InitContainer { resources: cpu(text), is_restartable }
    }

    #[test]
    fn containers_add_up_to_what_runs_at_one_time() {
        for (case, containers, init_containers, want) in [
            ("nothing", vec![], vec![], None),
            ("sum", vec![cpu("1"), cpu("500m")], vec![], Some("1500m")),
            ("a greedy init container", vec![cpu("1")], vec![init("3", false)], Some("3")),
            ("a modest init container", vec![cpu("2")], vec![init("1", false)], Some("2")),
            ("a sidecar", vec![cpu("1")], vec![init("1", true)], Some("2")),
            (
                "a sidecar before an init container",
                vec![cpu("1")],
                vec![init("1", true), init("2", false)],
                Some("3"),
            ),
            (
                "a sidecar after an init container",
                vec![cpu("1")],
                vec![init("1", false), init("1", true)],
                Some("2"),
            ),
        ] {
            let total = aggregate_containers(containers, init_containers);
            assert_eq!(total.get("cpu").map(ToString::to_string).as_deref(), want, "{case}");
        }
    }

    #[test]
    fn equal_quantities_stay_as_the_containers_write_them() {
        let total = aggregate_containers(
            [list(&[("memory", "1Gi")])],
            [InitContainer { resources: list(&[("memory", "1073741824")]), is_restartable: false }],
        );
        assert_eq!(total["memory"].to_string(), "1Gi");
    }

    #[test]
    fn pod_level_resources_replace_those_of_the_containers() {
        let mut total = list(&[("cpu", "1"), ("example.com/gpu", "1")]);
        apply_pod_level_resources(
            &mut total,
            list(&[("cpu", "5"), ("hugepages-2Mi", "4Mi"), ("example.com/gpu", "9")]),
        );
        assert_eq!(total, list(&[("cpu", "5"), ("hugepages-2Mi", "4Mi"), ("example.com/gpu", "1")]));
    }

    #[test]
    fn overhead_limits_only_what_is_limited() {
        let mut limits = list(&[("cpu", "1"), ("memory", "0")]);
        add_overhead_to_limits(
            &mut limits,
            &list(&[("cpu", "500m"), ("memory", "1Mi"), ("ephemeral-storage", "1")]),
        );
        assert_eq!(limits, list(&[("cpu", "1500m"), ("memory", "0")]));
    }
}
