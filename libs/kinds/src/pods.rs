//! Pods for controllers: creation from templates, their node, readiness and containers.

use std::borrow::Cow;
use std::time::Duration;

use coracle_object_meta::controller_ref;
use k8s_openapi::api::core::v1::{
    Container, ContainerPort, ContainerRestartRule, EphemeralContainer, Pod, PodCondition, PodSpec,
    PodTemplateSpec,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::{Resource, ResourceExt};

use crate::resources::is_sidecar;

/// The largest length of a name, in bytes.
const MAX_NAME_LENGTH: usize = 253;

/// Creates a pod controlled by `owner` from a template, without a name: the API server generates
/// one from that of the owner.
pub fn from_template(template: &PodTemplateSpec, owner: &impl Resource<DynamicType = ()>) -> Pod {
    let meta = template.metadata.clone().unwrap_or_default();
    let mut prefix = owner.name_any();
    if prefix.len() < MAX_NAME_LENGTH {
        prefix.push('-');
    }
    let metadata = ObjectMeta {
        generate_name: Some(prefix),
        namespace: owner.namespace(),
        labels: meta.labels,
        annotations: meta.annotations,
        finalizers: meta.finalizers,
        owner_references: Some(vec![controller_ref(owner)]),
        ..ObjectMeta::default()
    };
    Pod { metadata, spec: template.spec.clone(), status: None }
}

/// Returns the node that a pod is bound to.
pub fn node(pod: &Pod) -> Option<&str> {
    pod.spec.as_ref()?.node_name.as_deref().filter(|name| !name.is_empty())
}

/// Returns the phase of a pod, which is empty if the pod was not created yet.
pub fn phase(pod: &Pod) -> &str {
    pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default()
}

/// Returns `true` if a pod has a deletion timestamp.
pub fn is_terminating(pod: &Pod) -> bool {
    pod.metadata.deletion_timestamp.is_some()
}

/// Returns the time at which the deletion of a pod was requested; None if it was not.
pub fn begin_of_deletion(pod: &Pod) -> Option<Timestamp> {
    let grace = SignedDuration::from_secs(pod.metadata.deletion_grace_period_seconds.unwrap_or(0));
    pod.metadata.deletion_timestamp.as_ref()?.0.checked_sub(grace).ok()
}

/// Returns `true` if a pod has ended: its phase is Succeeded or Failed.
pub fn is_terminal(pod: &Pod) -> bool {
    matches!(phase(pod), "Succeeded" | "Failed")
}

/// Returns the condition of a pod that waits for the resources of its spec (KEP-1287).
pub fn pending_resize(pod: &Pod) -> Option<&PodCondition> {
    conditions(pod).find(|condition| condition.type_ == "PodResizePending")
}

/// Returns `true` if the node of a pod can never give it the resources of its spec, so that only
/// those that it has count.
pub fn is_resize_infeasible(pod: &Pod) -> bool {
    pending_resize(pod).is_some_and(|condition| condition.reason.as_deref() == Some("Infeasible"))
}

/// Returns `true` if a pod counts for its controller: it has not ended and is not terminating.
pub fn is_active(pod: &Pod) -> bool {
    !is_terminal(pod) && !is_terminating(pod)
}

/// Iterates over the conditions of a pod.
pub fn conditions(pod: &Pod) -> impl Iterator<Item = &PodCondition> {
    pod.status.iter().flat_map(|status| &status.conditions).flatten()
}

/// Returns the time since which a pod is ready, or `None` if it is not ready or the time is
/// unknown.
pub fn ready_since(pod: &Pod) -> Option<Timestamp> {
    Some(ready(pod)?.last_transition_time.as_ref()?.0)
}

fn ready(pod: &Pod) -> Option<&PodCondition> {
    conditions(pod).find(|condition| condition.type_ == "Ready" && condition.status == "True")
}

/// Returns whether the condition `Ready` is true.
pub fn is_ready(pod: &Pod) -> bool {
    ready(pod).is_some()
}

/// Returns `true` if a pod has been ready for `min_ready_seconds`.
pub fn is_available(pod: &Pod, min_ready_seconds: i32, now: Timestamp) -> bool {
    is_ready(pod)
        && (min_ready_seconds == 0
            || time_until_available(pod, min_ready_seconds, now) == Some(Duration::ZERO))
}

/// Returns the time for which a ready pod must stay ready until it is available; `None` if it is
/// not ready, or if the time of its transition is unknown.
pub fn time_until_available(pod: &Pod, min_ready_seconds: i32, now: Timestamp) -> Option<Duration> {
    let since = ready_since(pod)?;
    let left = SignedDuration::from_secs(min_ready_seconds.into()) - now.duration_since(since);
    Some(left.try_into().unwrap_or_default())
}

/// The part of a container in the life of its pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Runs to its end before the next one is started.
    Init,
    /// An init container that keeps running with the app containers.
    Sidecar,
    /// Runs once the init containers have ended and the sidecars have started.
    Main,
    /// A container that was added to a running pod for debugging; it runs once.
    Ephemeral,
}

/// Iterates over a pod's init containers, then its app containers, then its ephemeral ones, whose
/// list only grows.
pub fn containers(pod: &Pod) -> impl Iterator<Item = (Role, Cow<'_, Container>)> {
    let init = pod.spec.iter().flat_map(|spec: &PodSpec| spec.init_containers.iter().flatten());
    let init = init.map(|spec| (if is_sidecar(spec) { Role::Sidecar } else { Role::Init }, spec));
    let main = pod.spec.iter().flat_map(|spec| &spec.containers).map(|spec| (Role::Main, spec));
    let ephemeral = pod.spec.iter().flat_map(|spec| spec.ephemeral_containers.iter().flatten());
    let ephemeral = ephemeral.map(|spec| (Role::Ephemeral, Cow::Owned(as_container(spec))));
    init.chain(main).map(|(role, spec)| (role, Cow::Borrowed(spec))).chain(ephemeral)
}

/// Converts an ephemeral container to a container with the fields that matter when it runs.
fn as_container(ephemeral: &EphemeralContainer) -> Container {
    let ephemeral = ephemeral.clone();
    let EphemeralContainer { name, image, command, args, env, env_from, resources, volume_mounts, .. } =
        ephemeral;
    Container {
        name,
        image,
        command,
        args,
        env,
        env_from,
        resources,
        volume_mounts,
        stdin: ephemeral.stdin,
        stdin_once: ephemeral.stdin_once,
        tty: ephemeral.tty,
        restart_policy: Some("Never".to_owned()),
        ..Container::default()
    }
}

/// Returns `true` if a container is restarted after an exit with this code: by the first of its
/// `restartPolicyRules` that matches, else by its own policy, else by that of the pod.
pub fn restarts_after(pod: &Pod, container: &Container, code: i32) -> bool {
    let of_pod = pod.spec.as_ref().and_then(|spec| spec.restart_policy.as_deref());
    if matching_rule(container, code).is_some() {
        return true;
    }
    match container.restart_policy.as_deref().or(of_pod) {
        Some("Never") => false,
        Some("OnFailure") => code != 0,
        _ => true,
    }
}

/// Returns `true` if all containers of its pod are restarted after a container has exited with this
/// code (KEP-5532).
pub fn restarts_all_after(container: &Container, code: i32) -> bool {
    matching_rule(container, code).is_some_and(restarts_all)
}

/// Returns `true` if an exit of a container may restart all containers of the pod.
pub fn may_restart_all(spec: &PodSpec) -> bool {
    let containers = spec.containers.iter().chain(spec.init_containers.iter().flatten());
    containers.flat_map(|container| container.restart_policy_rules.iter().flatten()).any(restarts_all)
}

fn restarts_all(rule: &ContainerRestartRule) -> bool {
    rule.action == "RestartAllContainers"
}

/// Returns the rule that decides about an exit code. All actions of rules restart the container.
fn matching_rule(container: &Container, code: i32) -> Option<&ContainerRestartRule> {
    container.restart_policy.as_ref()?;
    container.restart_policy_rules.iter().flatten().find(|rule| matches_code(rule, code))
}

fn matches_code(rule: &ContainerRestartRule, code: i32) -> bool {
    let Some(rule) = &rule.exit_codes else { return false };
    let is_listed = rule.values.iter().flatten().any(|listed| *listed == code);
    match rule.operator.as_str() {
        "In" => is_listed,
        "NotIn" => !is_listed,
        _ => false,
    }
}

/// A claim as a pod names it.
pub struct PodClaim<'a> {
    /// The name of the pod's volume that uses the claim.
    pub volume: &'a str,
    /// The name of the claim.
    pub name: String,
    /// Whether the claim is created from a template in the pod.
    pub is_ephemeral: bool,
}

/// Iterates over the claims of a pod.
pub fn pod_claims(pod: &Pod) -> impl Iterator<Item = PodClaim<'_>> {
    let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    volumes.filter_map(|volume| {
        let (name, is_ephemeral) = match (&volume.persistent_volume_claim, &volume.ephemeral) {
            (Some(source), _) => (source.claim_name.clone(), false),
            (None, Some(_)) => (format!("{}-{}", pod.name_any(), volume.name), true),
            _ => return None,
        };
        Some(PodClaim { volume: &volume.name, name, is_ephemeral })
    })
}

/// Iterates over the ports of its node that a pod occupies.
pub fn host_ports(spec: &PodSpec) -> impl Iterator<Item = &ContainerPort> {
    let sidecars = spec.init_containers.iter().flatten().filter(|container| is_sidecar(container));
    let ports = spec.containers.iter().chain(sidecars).flat_map(|container| container.ports.iter().flatten());
    ports.filter(|port| port.host_port.is_some_and(|number| number > 0))
}

/// Returns `true` if two containers cannot have these host ports on the same node.
pub fn host_ports_conflict(one: &ContainerPort, other: &ContainerPort) -> bool {
    let address = |port: &ContainerPort| port.host_ip.clone().filter(|ip| !ip.is_empty() && ip != "0.0.0.0");
    let protocol = |port: &ContainerPort| port.protocol.clone().unwrap_or("TCP".to_owned());
    let (here, there) = (address(one), address(other));
    one.host_port == other.host_port
        && protocol(one) == protocol(other)
        && (here.is_none() || there.is_none() || here == there)
}

/// Returns `true` if no container of a pod runs any more: the pod has ended, or is terminating
/// without a running container.
pub fn is_terminated(pod: &Pod) -> bool {
    let Some(status) = &pod.status else { return pod.metadata.deletion_timestamp.is_some() };
    let all =
        [&status.init_container_statuses, &status.container_statuses, &status.ephemeral_container_statuses];
    let none_runs = all.into_iter().flatten().flatten().all(|container| {
        container.state.as_ref().is_some_and(|state| state.terminated.is_some() || state.waiting.is_some())
    });
    is_terminal(pod) || (pod.metadata.deletion_timestamp.is_some() && none_runs)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn rules_of_a_container_precede_policies() {
        let rule = |operator: &str, codes: &[i32]| json!({"action": "Restart", "exitCodes": {"operator": operator, "values": codes}});
        for (case, of_pod, own, rules, code, want) in [
            ("the pod's policy", "OnFailure", json!(null), json!(null), 0, false),
            ("its own policy", "Never", json!("OnFailure"), json!(null), 1, true),
            ("a rule", "Never", json!("Never"), json!([rule("In", &[3, 42])]), 42, true),
            ("another code", "Never", json!("Never"), json!([rule("In", &[3, 42])]), 1, false),
            ("all other codes", "Never", json!("Never"), json!([rule("NotIn", &[0])]), 1, true),
            (
                "the second rule",
                "Never",
                json!("Never"),
                json!([rule("In", &[1]), rule("In", &[2])]),
                2,
                true,
            ),
            ("no policy of its own", "Never", json!(null), json!([rule("In", &[1])]), 1, false),
            ("an unknown operator", "Never", json!("Never"), json!([rule("Near", &[1])]), 1, false),
        ] {
            let container = json!({"name": "c", "restartPolicy": own, "restartPolicyRules": rules});
            let container: Container = serde_json::from_value(container).unwrap();
            let pod =
                serde_json::from_value(json!({"spec": {"restartPolicy": of_pod, "containers": []}})).unwrap();
            assert_eq!(restarts_after(&pod, &container, code), want, "{case}");
        }
    }

    #[test]
    fn a_pod_is_available_when_it_has_been_ready_long_enough() {
        let now: Timestamp = "2026-01-01T00:01:00Z".parse().unwrap();
        let seconds = Duration::from_secs;
        for (case, status, since, min, want, left) in [
            ("not ready", "False", json!("2026-01-01T00:00:00Z"), 0, false, None),
            ("no minimum", "True", json!(null), 0, true, None),
            ("just ready", "True", json!("2026-01-01T00:01:00Z"), 10, false, Some(seconds(10))),
            ("on the second", "True", json!("2026-01-01T00:00:50Z"), 10, true, Some(seconds(0))),
            ("long ago", "True", json!("2026-01-01T00:00:00Z"), 10, true, Some(seconds(0))),
            ("since when", "True", json!(null), 10, false, None),
        ] {
            let condition = json!({"type": "Ready", "status": status, "lastTransitionTime": since});
            let pod: Pod = serde_json::from_value(json!({"status": {"conditions": [condition]}})).unwrap();
            assert_eq!(is_available(&pod, min, now), want, "{case}");
            assert_eq!(time_until_available(&pod, min, now), left, "{case}");
        }
    }
}
