//! The decision about a budget: its status from its pods, and the time at which a pod's condition
//! is out of date.

use std::sync::Arc;
use std::time::Duration;

use coracle_kinds::pods::{conditions, is_ready};
use k8s_openapi::api::core::v1::{Pod, PodCondition};
use k8s_openapi::api::policy::v1::{PodDisruptionBudget, PodDisruptionBudgetSpec, PodDisruptionBudgetStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector, Time};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use k8s_openapi::jiff::{SignedDuration, Timestamp};

use crate::workload::int_or_percent::{Round, scaled_value};

/// So long an evicted pod may take until it is being deleted, and a pod that is to be disrupted
/// until it is.
const DELETION: SignedDuration = SignedDuration::from_mins(2);
const TO_BE_DISRUPTED: &str = "DisruptionTarget";

/// The reason for which the pods of a budget cannot be counted.
pub(super) type CountError = String;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Counts {
    /// The expected number of pods.
    pub expected: i32,
    /// The number of pods that must remain healthy.
    pub desired: i32,
}

pub(super) struct Plan<'a> {
    pub status: PodDisruptionBudgetStatus,
    /// The time until an eviction should have been executed.
    pub recheck: Option<Duration>,
    /// Pods that were evicted but still exist.
    pub not_deleted: Vec<&'a Pod>,
}

/// Returns `true` if the expected number of pods has to be read from their controllers.
pub(super) fn needs_scale(spec: &PodDisruptionBudgetSpec) -> bool {
    spec.max_unavailable.is_some() || matches!(spec.min_available, Some(IntOrString::String(_)))
}

pub(super) fn counts(spec: &PodDisruptionBudgetSpec, scale: i32) -> Result<Counts, CountError> {
    Ok(match (&spec.max_unavailable, &spec.min_available) {
        (Some(most), _) => {
            Counts { expected: scale, desired: scale.saturating_sub(share(most, scale)?).max(0) }
        }
        (None, Some(least)) => Counts { expected: scale, desired: share(least, scale)? },
        (None, None) => Counts { expected: 0, desired: 0 },
    })
}

/// Returns a number, or a percentage of `whole`, rounded up.
fn share(of: &IntOrString, whole: i32) -> Result<i32, CountError> {
    let number = scaled_value(of, whole, Round::Up);
    number.ok_or_else(|| "invalid value for IntOrString: invalid type: string is not a percentage".to_owned())
}

pub(super) fn plan<'a>(
    budget: &PodDisruptionBudget,
    pods: &'a [Arc<Pod>],
    counts: Counts,
    now: Timestamp,
) -> Plan<'a> {
    let Counts { expected, desired } = counts;
    let old = budget.status.clone().unwrap_or_default();
    let evicted = old.disrupted_pods.unwrap_or_default();
    let staying = pods.iter().filter(|pod| pod.metadata.deletion_timestamp.is_none());
    let (mut healthy, mut disrupted, mut not_deleted) = (0, Vec::new(), Vec::new());
    for pod in staying {
        let name = pod.metadata.name.clone().unwrap_or_default();
        match evicted.get(&name) {
            Some(at) if deletion_deadline(at) >= now => disrupted.push((name, at.clone())),
            evicted => {
                not_deleted.extend(evicted.map(|_| pod.as_ref()));
                healthy += i32::from(is_ready(pod));
            }
        }
    }
    let recheck = disrupted.iter().map(|(_, at)| duration(deletion_deadline(at).duration_since(now))).min();
    let allowed = if expected > 0 { healthy.saturating_sub(desired).max(0) } else { 0 };
    let generation = budget.metadata.generation;
    let mut conditions = old.conditions.unwrap_or_default();
    let (state, reason) =
        if allowed > 0 { ("True", "SufficientPods") } else { ("False", "InsufficientPods") };
    set_allowed(&mut conditions, condition(state, reason, "", generation, now));
    let status = PodDisruptionBudgetStatus {
        conditions: Some(conditions),
        current_healthy: Some(healthy),
        desired_healthy: Some(desired),
        disrupted_pods: Some(disrupted.into_iter().collect::<std::collections::BTreeMap<_, _>>())
            .filter(|pods| !pods.is_empty()),
        disruptions_allowed: Some(allowed),
        expected_pods: Some(expected),
        observed_generation: generation,
    };
    Plan { status, recheck, not_deleted }
}

/// Returns the status of a budget if its pods cannot be counted. It allows no disruption.
pub(super) fn uncountable(
    budget: &PodDisruptionBudget,
    why: &str,
    now: Timestamp,
) -> PodDisruptionBudgetStatus {
    let mut status = budget.status.clone().unwrap_or_default();
    status.disruptions_allowed = Some(0);
    let condition = condition("False", "SyncFailed", why, status.observed_generation, now);
    set_allowed(status.conditions.get_or_insert_default(), condition);
    status
}

fn condition(
    status: &str,
    reason: &str,
    message: &str,
    generation: Option<i64>,
    now: Timestamp,
) -> Condition {
    Condition {
        last_transition_time: Time(now),
        message: message.to_owned(),
        observed_generation: generation,
        reason: reason.to_owned(),
        status: status.to_owned(),
        type_: "DisruptionAllowed".to_owned(),
    }
}

/// Replaces the condition of the same type. Its transition time is kept if the status is the same.
fn set_allowed(conditions: &mut Vec<Condition>, mut condition: Condition) {
    match conditions.iter_mut().find(|present| present.type_ == condition.type_) {
        Some(present) => {
            if present.status == condition.status {
                condition.last_transition_time = present.last_transition_time.clone();
            }
            *present = condition;
        }
        None => conditions.push(condition),
    }
}

fn deletion_deadline(evicted: &Time) -> Timestamp {
    evicted.0.saturating_add(DELETION).unwrap_or(Timestamp::MAX)
}

fn duration(signed: SignedDuration) -> Duration {
    Duration::try_from(signed).unwrap_or_default()
}

/// Returns the time after which the mark of a disruption is stale. Returns `None` if the pod is not
/// marked, or is marked rightly.
pub(super) fn stale_after(pod: &Pod, now: Timestamp) -> Option<Duration> {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    let marked = conditions(pod).find(|condition| condition.type_ == TO_BE_DISRUPTED)?;
    // The kubelet takes the time it needs.
    let is_right = pod.metadata.deletion_timestamp.is_some()
        || marked.status != "True"
        || marked.reason.as_deref() == Some("TerminationByKubelet")
        || matches!(phase, Some("Succeeded" | "Failed"));
    if is_right {
        return None;
    }
    let since = marked.last_transition_time.as_ref().map_or(Timestamp::UNIX_EPOCH, |time| time.0);
    Some(duration(DELETION.saturating_sub(now.duration_since(since))))
}

/// Returns the pod with its mark of a disruption set to false.
pub(super) fn without_disruption(pod: &Pod, now: Timestamp) -> Pod {
    let mut pod = pod.clone();
    let generation = pod.metadata.generation;
    let conditions = pod.status.iter_mut().flat_map(|status| &mut status.conditions).flatten();
    for condition in conditions.filter(|condition| condition.type_ == TO_BE_DISRUPTED) {
        *condition = PodCondition {
            type_: TO_BE_DISRUPTED.to_owned(),
            status: "False".to_owned(),
            observed_generation: generation,
            last_transition_time: Some(Time(now)),
            ..PodCondition::default()
        };
    }
    pod
}

/// Prints a selector in Go's format, as in kube-controller-manager's message.
pub(super) fn printed(selector: Option<&LabelSelector>) -> String {
    let Some(selector) = selector else { return "nil".to_owned() };
    let labels = selector.match_labels.iter().flatten();
    let labels: String = labels.map(|(key, value)| format!("{key}: {value},")).collect();
    let expressions = selector.match_expressions.iter().flatten().map(|expression| {
        let values = expression.values.clone().unwrap_or_default().join(" ");
        let (key, operator) = (&expression.key, &expression.operator);
        format!("LabelSelectorRequirement{{Key:{key},Operator:{operator},Values:[{values}],}},")
    });
    let expressions: String = expressions.collect();
    format!(
        "&LabelSelector{{MatchLabels:map[string]string{{{labels}}},MatchExpressions:[]LabelSelectorRequirement{{{expressions}}},}}"
    )
}

#[cfg(test)]
mod tests;
