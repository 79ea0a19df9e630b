//! The parts of a pod that the scheduler reads.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use coracle_kinds::pods;
use k8s_openapi::api::core::v1::Pod;

use super::affinity_terms::required_affinity_terms;
use super::topology_spread::STRICT;
use crate::simulated::is_ignored;

/// The scheduler of pods that name none.
pub const NAME: &str = "default-scheduler";

/// Returns the priority of a pod.
pub fn priority(pod: &Pod) -> i32 {
    pod.spec.as_ref().and_then(|spec| spec.priority).unwrap_or(0)
}

/// Returns the node on which pods were preempted for this one.
pub fn nominated_node(pod: &Pod) -> Option<&str> {
    pod.status.as_ref()?.nominated_node_name.as_deref().filter(|name| !name.is_empty())
}

/// Sorts pods in the order in which they are scheduled: by priority, then by age, then by name.
pub fn sort_by_priority(mut pods: Vec<Arc<Pod>>) -> Vec<Arc<Pod>> {
    pods.sort_by(|a, b| {
        let age = |pod: &Pod| pod.metadata.creation_timestamp.as_ref().map(|time| time.0);
        let [of_a, of_b] = [a, b].map(|pod| (Reverse(priority(pod)), age(pod)));
        let [path_a, path_b] = [a, b].map(|pod| (&pod.metadata.namespace, &pod.metadata.name));
        of_a.cmp(&of_b).then_with(|| path_a.cmp(&path_b))
    });
    pods
}

/// Returns the parts of a pod that its placement depends on, without its status.
pub fn asks_for(pod: &Pod) -> (Option<i64>, Option<&BTreeMap<String, String>>) {
    (pod.metadata.generation, pod.metadata.labels.as_ref())
}

/// Returns `true` if a pod may fit because another pod gets a node: it has required affinity to
/// pods, or a strict topology spread constraint.
pub fn wants_neighbors(pod: &Pod) -> bool {
    let constraints = pod.spec.iter().flat_map(|spec| spec.topology_spread_constraints.iter().flatten());
    let mut constraints = constraints.map(|constraint| constraint.when_unsatisfiable.as_str());
    required_affinity_terms(pod).next().is_some() || constraints.any(|effect| effect == STRICT)
}

/// Returns the uid of a pod.
pub fn uid(pod: &Pod) -> &str {
    pod.metadata.uid.as_deref().unwrap_or_default()
}

/// Returns `true` if a pod is bound to a node and has not ended.
pub fn occupies_node(pod: &Pod) -> bool {
    pods::node(pod).is_some() && !pods::is_terminal(pod)
}

/// Returns `true` if a pod without a node is to be scheduled by this scheduler.
pub fn is_waiting(pod: &Pod) -> bool {
    let spec = pod.spec.as_ref();
    let is_gated =
        spec.and_then(|spec| spec.scheduling_gates.as_ref()).is_some_and(|gates| !gates.is_empty());
    !is_gated && may_be_nominated(pod)
}

/// Returns `true` if a pod without a node is one of this scheduler's, though it may still have
/// gates.
pub fn may_be_nominated(pod: &Pod) -> bool {
    let spec = pod.spec.as_ref();
    let scheduler = spec.and_then(|spec| spec.scheduler_name.as_deref()).unwrap_or(NAME);
    scheduler == NAME && !pods::is_terminating(pod) && !pods::is_terminal(pod) && !is_ignored(pod)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn pod(spec: Value) -> Pod {
        serde_json::from_value(json!({"metadata": {}, "spec": spec})).unwrap()
    }

    #[test]
    fn gated_pods_do_not_wait_but_may_be_nominated() {
        let gates = json!([{"name": "example.com/gate"}]);
        for (case, spec, waits, may_be_nominated_too) in [
            ("plain", json!({"containers": []}), true, true),
            ("gated", json!({"containers": [], "schedulingGates": gates}), false, true),
            ("of another scheduler", json!({"containers": [], "schedulerName": "other"}), false, false),
        ] {
            let pod = pod(spec);
            assert_eq!((is_waiting(&pod), may_be_nominated(&pod)), (waits, may_be_nominated_too), "{case}");
        }
    }

    #[test]
    fn some_pods_want_neighbors() {
        let spread = |effect: &str| {
            json!({"containers": [], "topologySpreadConstraints": [
                {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": effect},
            ]})
        };
        let terms = json!({"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "zone"}]});
        let affinity = |kind: &str| json!({"containers": [], "affinity": {kind: terms}});
        for (case, spec, want) in [
            ("plain", json!({"containers": []}), false),
            ("affinity", affinity("podAffinity"), true),
            ("anti-affinity", affinity("podAntiAffinity"), false),
            ("strict spread", spread("DoNotSchedule"), true),
            ("preferred spread", spread("ScheduleAnyway"), false),
        ] {
            assert_eq!(wants_neighbors(&pod(spec)), want, "{case}");
        }
    }
}
