//! The parts of a pod that a kubelet reads beside its behavior.

use std::time::Duration;

use coracle_controller_runtime::cache::NamespacedName;
use k8s_openapi::api::core::v1::Pod;

/// Returns `true` if the kubelet has to stop and delete a pod. The API server deletes a pod without
/// a grace period at once, unless it has finalizers. A terminating pod with neither is left over
/// from a server that ended between the two writes of the deletion.
pub fn waits_for_removal(pod: &Pod) -> bool {
    let grace = pod.metadata.deletion_grace_period_seconds.unwrap_or(0);
    let is_kept = pod.metadata.finalizers.as_ref().is_some_and(|finalizers| !finalizers.is_empty());
    pod.metadata.deletion_timestamp.is_some() && (grace > 0 || !is_kept)
}

/// Returns the name of a pod in the kubelet's messages.
pub fn full_name(pod: &Pod) -> String {
    let NamespacedName { namespace, name } = NamespacedName::of(pod);
    format!("{name}_{namespace}({})", pod.metadata.uid.as_deref().unwrap_or_default())
}

/// Returns the time that the containers of a pod may take to exit.
pub fn grace_period(pod: &Pod) -> Duration {
    let of_spec = pod.spec.as_ref().and_then(|spec| spec.termination_grace_period_seconds);
    let seconds = pod.metadata.deletion_grace_period_seconds.or(of_spec).unwrap_or(30);
    Duration::from_secs(u64::try_from(seconds).unwrap_or(0))
}

/// Returns messages about the readiness gates of a pod that are not true.
pub fn closed_gates(pod: &Pod) -> Vec<String> {
    let known = |r#type: &str| {
        let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
        conditions.into_iter().flatten().find(|condition| condition.type_ == r#type)
    };
    let gates = pod.spec.iter().flat_map(|spec| spec.readiness_gates.iter().flatten());
    let closed = gates.filter_map(|gate| match (&gate.condition_type, known(&gate.condition_type)) {
        (gate, None) => {
            Some(format!("corresponding condition of pod readiness gate {gate:?} does not exist."))
        }
        (_, Some(condition)) if condition.status == "True" => None,
        (gate, Some(condition)) => Some(format!(
            "the status of pod readiness gate {gate:?} is not \"True\", but {}",
            condition.status
        )),
    });
    closed.collect()
}
