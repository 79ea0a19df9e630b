//! The order in which the pods of an owner are deleted.
//!
//! Source: kube-controller-manager's `controller_utils.go` (`ActivePods`, `ActivePodsWithRanks`).

use std::cmp::{Ordering, Reverse};
use std::collections::HashMap;
use std::sync::Arc;

use coracle_kinds::pods;
use coracle_object_meta::annotation;
use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use k8s_openapi::jiff::Timestamp;

/// Pods with a lower cost are deleted first. It is 0 without the annotation.
pub const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";

/// Sorts the pods of a ReplicaSet or ReplicationController, those to delete first in front.
///
/// - `related`: the pods selected by the ReplicaSets of the same owner, for finding nodes with
///   several of them. Ended and terminating pods do not count.
/// - `has_cost`: whether the pod deletion cost counts (the gate PodDeletionCost)
pub fn sort_with_ranks(
    active: Vec<Arc<Pod>>,
    related: &[Arc<Pod>],
    has_cost: bool,
    now: Timestamp,
) -> Vec<Arc<Pod>> {
    let mut ranks: HashMap<&str, usize> = HashMap::new();
    for pod in related.iter().filter(|pod| pods::is_active(pod)) {
        *ranks.entry(node(pod)).or_default() += 1;
    }
    let cost = |pod: &Pod| if has_cost { deletion_cost(pod) } else { 0 };
    let rank = |pod: &Pod| ranks.get(node(pod)).copied().unwrap_or(0);
    sort(active, |a, b| {
        progress(a)
            .cmp(&progress(b))
            .then_with(|| cost(a).cmp(&cost(b)))
            .then_with(|| rank(b).cmp(&rank(a)))
            .then_with(|| by_age(a, b, pods::ready_since, now))
            .then_with(|| restarts(b).cmp(&restarts(a)))
            .then_with(|| by_age(a, b, created_at, now))
    })
}

/// Sorts the pods of a Job, those to delete first in front.
pub fn sort_active(active: Vec<Arc<Pod>>) -> Vec<Arc<Pod>> {
    // A pod without a time counts as newest.
    let newest_first =
        |pod: &Pod, time: fn(&Pod) -> Option<Timestamp>| (time(pod).is_some(), Reverse(time(pod)));
    let key = |pod: &Pod| {
        let ready = newest_first(pod, pods::ready_since);
        (progress(pod), ready, Reverse(restarts(pod)), newest_first(pod, created_at))
    };
    let mut active = active;
    active.sort_by_key(|pod| key(pod));
    active
}

/// Sorts pods by comparisons that follow different rules per pair, so that the order is not always
/// transitive: that is kube-controller-manager's order. The sorts of the standard library may panic
/// on it.
fn sort(pods: Vec<Arc<Pod>>, order: impl Fn(&Pod, &Pod) -> Ordering) -> Vec<Arc<Pod>> {
    let mut sorted: Vec<Arc<Pod>> = Vec::with_capacity(pods.len());
    for pod in pods {
        let at = sorted.partition_point(|other| order(other, &pod).is_le());
        sorted.insert(at, pod);
    }
    sorted
}

/// Returns the progress of a pod: bound to a node, running, ready.
fn progress(pod: &Pod) -> (bool, u8, bool) {
    let phase = match pods::phase(pod) {
        "Running" => 2,
        "Unknown" => 1,
        _ => 0,
    };
    (pods::node(pod).is_some(), phase, pods::is_ready(pod))
}

fn node(pod: &Pod) -> &str {
    pods::node(pod).unwrap_or_default()
}

/// Returns the deletion cost of a pod, or 0 if it is not valid. As in the API server, a number with
/// a plus sign or leading zeros is not valid.
fn deletion_cost(pod: &Pod) -> i32 {
    let text = annotation(&pod.metadata, DELETION_COST).unwrap_or_default();
    let digits = text.strip_prefix('-').unwrap_or(text);
    let is_canonical = text == "0" || !digits.starts_with(['0', '+']);
    text.parse().ok().filter(|_| is_canonical).unwrap_or(0)
}

/// Returns the highest number of restarts among the containers, and that among the sidecars.
fn restarts(pod: &Pod) -> (i32, i32) {
    let most = |statuses: &[&ContainerStatus]| statuses.iter().map(|s| s.restart_count).max().unwrap_or(0);
    let Some(status) = &pod.status else { return (0, 0) };
    let containers: Vec<_> = status.container_statuses.iter().flatten().collect();
    let is_sidecar = |name: &str| {
        let containers = pod.spec.iter().flat_map(|spec| spec.init_containers.iter().flatten());
        containers.into_iter().any(|c| c.name == name && c.restart_policy.as_deref() == Some("Always"))
    };
    let sidecars = status.init_container_statuses.iter().flatten();
    let sidecars: Vec<_> = sidecars.filter(|status| is_sidecar(&status.name)).collect();
    (most(&containers), most(&sidecars))
}

fn created_at(pod: &Pod) -> Option<Timestamp> {
    pod.metadata.creation_timestamp.as_ref().map(|time| time.0)
}

/// Compares two pods by age: the younger one first, if the magnitudes of their ages differ;
/// otherwise by uid, which is arbitrary but stable.
fn by_age(a: &Pod, b: &Pod, since: fn(&Pod) -> Option<Timestamp>, now: Timestamp) -> Ordering {
    let (a_since, b_since) = (since(a), since(b));
    match (a_since, b_since) {
        (a, b) if a == b => Ordering::Equal,
        (None, _) => Ordering::Less,
        (_, None) => Ordering::Greater,
        (Some(a_since), Some(b_since)) => {
            let magnitude = |since: Timestamp| {
                let age = u128::try_from(now.duration_since(since).as_nanos()).unwrap_or(0);
                age.checked_ilog2()
            };
            magnitude(a_since).cmp(&magnitude(b_since)).then_with(|| a.metadata.uid.cmp(&b.metadata.uid))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    const NOW: &str = "2026-01-01T01:00:00Z";

    /// Returns a pod that is running and ready on a node, with changes.
    fn pod(name: &str, changes: Value) -> Arc<Pod> {
        let mut pod = json!({
            "metadata": {"name": name, "uid": name, "creationTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {"nodeName": "node-0", "containers": [{"name": "c"}]},
            "status": {"phase": "Running", "conditions": [
                {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"},
            ]},
        });
        for (pointer, value) in changes.as_object().unwrap() {
            let (parent, field) = pointer.rsplit_once('/').unwrap();
            pod.pointer_mut(parent).unwrap()[field] = value.clone();
        }
        Arc::new(serde_json::from_value(pod).unwrap())
    }

    fn ready(status: &str, since: &str) -> Value {
        json!([{"type": "Ready", "status": status, "lastTransitionTime": since}])
    }

    fn cost(cost: &str) -> Value {
        json!({"/metadata/annotations": {DELETION_COST: cost}})
    }

    fn restarted(count: i32) -> Value {
        json!([{"name": "c", "ready": true, "restartCount": count, "image": "", "imageID": ""}])
    }

    #[test]
    fn the_first_rule_that_differs_decides() {
        // The first of each pair is deleted first.
        let pairs = [
            ("unassigned", json!({"/spec/nodeName": null}), json!({"/status/phase": "Pending"}), true),
            ("pending", json!({"/status/phase": "Pending"}), json!({"/status/phase": "Unknown"}), true),
            (
                "any other phase is like pending",
                json!({"/status/phase": ""}),
                json!({"/status/phase": "Unknown"}),
                true,
            ),
            ("unknown", json!({"/status/phase": "Unknown"}), cost("-9"), true),
            ("not ready", json!({"/status/conditions": ready("False", NOW)}), cost("-9"), true),
            ("a lower cost", cost("-5"), cost("0"), false),
            ("a higher cost", json!({}), cost("5"), false),
            (
                "shortly ready",
                json!({"/status/conditions": ready("True", "2026-01-01T00:59:00Z")}),
                json!({}),
                true,
            ),
            ("restarted", json!({"/status/containerStatuses": restarted(2)}), json!({}), true),
            ("newer", json!({"/metadata/creationTimestamp": "2026-01-01T00:59:00Z"}), json!({}), true),
        ];
        let now = NOW.parse().unwrap();
        for (case, first, second, also_of_jobs) in pairs {
            let (first, second) = (pod("first", first), pod("second", second));
            for pods in [vec![first.clone(), second.clone()], vec![second, first]] {
                assert_eq!(
                    names(&sort_with_ranks(pods.clone(), &[], true, now)),
                    ["first", "second"],
                    "{case}"
                );
                if also_of_jobs {
                    assert_eq!(names(&sort_active(pods)), ["first", "second"], "{case}, of a Job");
                }
            }
        }
    }

    fn names(pods: &[Arc<Pod>]) -> Vec<&str> {
        pods.iter().map(|pod| pod.metadata.name.as_deref().unwrap()).collect()
    }

    #[test]
    fn pods_on_crowded_nodes_are_deleted_first() {
        let on = |name, node: &str| pod(name, json!({"/spec/nodeName": node}));
        let own = vec![on("a", "empty"), on("b", "crowded")];
        let ended = pod("z", json!({"/spec/nodeName": "empty", "/status/phase": "Failed"}));
        let related = [own[0].clone(), own[1].clone(), on("c", "crowded"), ended.clone(), ended];
        let now = NOW.parse().unwrap();
        assert_eq!(names(&sort_with_ranks(own.clone(), &related, true, now)), ["b", "a"]);
        assert_eq!(names(&sort_with_ranks(own, &[], true, now)), ["a", "b"]);
    }

    #[test]
    fn ages_of_one_magnitude_do_not_count() {
        let since = |name, since| pod(name, json!({"/status/conditions": ready("True", since)}));
        let now = NOW.parse().unwrap();
        for (case, a, b, want) in [
            ("almost as old", "2026-01-01T00:00:00Z", "2026-01-01T00:01:00Z", ["a", "b"]),
            ("half as old", "2026-01-01T00:00:00Z", "2026-01-01T00:45:00Z", ["b", "a"]),
            ("in the future", "2026-01-01T00:59:59Z", "2026-01-01T02:00:00Z", ["b", "a"]),
        ] {
            let sorted = sort_with_ranks(vec![since("b", b), since("a", a)], &[], true, now);
            assert_eq!(names(&sorted), want, "{case}");
        }
    }

    #[test]
    fn only_canonical_costs_count() {
        for (text, want) in
            [("7", 7), ("-7", -7), ("0", 0), ("+5", 0), ("007", 0), ("-0", 0), ("x", 0), ("2147483648", 0)]
        {
            assert_eq!(deletion_cost(&pod("a", cost(text))), want, "{text}");
        }
    }
}
