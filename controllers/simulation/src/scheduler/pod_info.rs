//! The parts of a pod that the scheduler reads.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use coracle_kinds::pods;
use k8s_openapi::api::core::v1::Pod;

use crate::simulated::{is_finished, is_ignored};

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

/// Returns the uid of a pod.
pub fn uid(pod: &Pod) -> &str {
    pod.metadata.uid.as_deref().unwrap_or_default()
}

/// Returns `true` if a pod is bound to a node and has not ended.
pub fn occupies_node(pod: &Pod) -> bool {
    pods::node(pod).is_some() && !is_finished(pod)
}

/// Returns `true` if a pod without a node is to be scheduled by this scheduler.
pub fn is_waiting(pod: &Pod) -> bool {
    let spec = pod.spec.as_ref();
    let scheduler = spec.and_then(|spec| spec.scheduler_name.as_deref()).unwrap_or(NAME);
    let is_gated =
        spec.and_then(|spec| spec.scheduling_gates.as_ref()).is_some_and(|gates| !gates.is_empty());
    let is_terminating = pod.metadata.deletion_timestamp.is_some();
    scheduler == NAME && !is_gated && !is_terminating && !is_finished(pod) && !is_ignored(pod)
}
