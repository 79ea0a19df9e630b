//! Pod: what several plugins read in a pod's spec.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{items, text};
use crate::quantity::Quantity;
use crate::validation::resource_list::is_huge_pages;

/// A pod's containers, in the order in which policies look at them.
pub(super) const ALL_CONTAINERS: [&str; 3] = ["initContainers", "containers", "ephemeralContainers"];

/// An annotation of pods that a kubelet made of a file; the value names the file's version.
pub(super) const MIRROR: &str = "kubernetes.io/config.mirror";

pub(super) type ResourceList = BTreeMap<String, Quantity>;

pub(super) fn containers<'a>(spec: &'a Value, lists: &'a [&str]) -> impl Iterator<Item = &'a Value> {
    lists.iter().flat_map(|list| items(&spec[list]))
}

/// A list of resources by name.
pub(super) fn resources(list: &Value) -> ResourceList {
    let entries = list.as_object().into_iter().flatten();
    entries.filter_map(|(name, quantity)| Some((name.clone(), text(quantity).parse().ok()?))).collect()
}

/// What a whole pod asks for: `requests` or `limits`. The containers' sum, but at least what each init container needs
/// beside the sidecars that run by then; the pod's own word counts more.
pub(super) fn pod_resources(spec: &Value, which: &str) -> ResourceList {
    let mut total = ResourceList::new();
    let (mut sidecars, mut at_start) = (ResourceList::new(), ResourceList::new());
    for container in items(&spec["containers"]) {
        add(&mut total, &resources(&container["resources"][which]));
    }
    for container in items(&spec["initContainers"]) {
        let own = resources(&container["resources"][which]);
        if container["restartPolicy"] == "Always" {
            add(&mut total, &own);
            add(&mut sidecars, &own);
            raise(&mut at_start, &sidecars);
        } else {
            let mut together = own;
            add(&mut together, &sidecars);
            raise(&mut at_start, &together);
        }
    }
    raise(&mut total, &at_start);
    let own = resources(&spec["resources"][which]);
    let counts_more = |name: &str| ["cpu", "memory"].contains(&name) || is_huge_pages(name);
    total.extend(own.into_iter().filter(|(name, _)| counts_more(name)));
    total
}

pub(super) fn add(list: &mut ResourceList, more: &ResourceList) {
    for (name, quantity) in more {
        list.entry(name.clone()).and_modify(|sum| *sum = sum.plus(quantity)).or_insert(*quantity);
    }
}

/// The larger of both, one by one.
pub(super) fn raise(list: &mut ResourceList, least: &ResourceList) {
    for (name, quantity) in least {
        let entry = list.entry(name.clone()).or_insert(*quantity);
        *entry = (*entry).max(*quantity);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn pods_add_up() {
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
