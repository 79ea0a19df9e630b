//! The status of a Deployment, from those of its ReplicaSets, and how its rollout gets on.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::apps::v1::{
    Deployment, DeploymentCondition, DeploymentStatus, ReplicaSet, ReplicaSetStatus,
};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::ResourceExt;

use super::conditions::{
    self, AVAILABLE, PROGRESSING, REPLICA_FAILURE, condition, find, reason, remove, replace,
};
use super::replica_sets::{ReplicaSets, desired_replicas, reported, total};
use super::rolling;

pub(super) const NEW_REPLICA_SET_AVAILABLE: &str = "NewReplicaSetAvailable";
pub(super) const TIMED_OUT: &str = "ProgressDeadlineExceeded";

/// Returns the time that a rollout has to progress; None for no limit: then its progress is not
/// reported.
pub(super) fn progress_deadline(deployment: &Deployment) -> Option<SignedDuration> {
    let seconds = deployment.spec.as_ref()?.progress_deadline_seconds?;
    (seconds != i32::MAX).then(|| SignedDuration::from_secs(seconds.into()))
}

/// Computes the counts and the condition `Available`; the other conditions are kept. Counts of 0
/// are absent, as they are stored.
pub(super) fn calculate(deployment: &Deployment, sets: &ReplicaSets, now: Timestamp) -> DeploymentStatus {
    let sum = |number: fn(&ReplicaSetStatus) -> Option<i32>| {
        sets.all().fold(0i32, |sum, set| sum.saturating_add(reported(set, number)))
    };
    let positive = |number: i32| Some(number).filter(|number| *number > 0);
    let old = deployment.status.clone().unwrap_or_default();
    let available = sum(|status| status.available_replicas);
    let updated = sets.new.as_ref().map_or(0, |new| reported(new, |status| Some(status.replicas)));
    let mut status = DeploymentStatus {
        observed_generation: deployment.metadata.generation,
        replicas: positive(sum(|status| Some(status.replicas))),
        updated_replicas: positive(updated),
        ready_replicas: positive(sum(|status| status.ready_replicas)),
        available_replicas: positive(available),
        unavailable_replicas: positive(total(sets.all()).saturating_sub(available)),
        terminating_replicas: terminating(sets),
        collision_count: old.collision_count,
        conditions: old.conditions,
    };
    let (state, reason, has) = if available >= rolling::min_available(deployment) {
        ("True", "MinimumReplicasAvailable", "has")
    } else {
        ("False", "MinimumReplicasUnavailable", "does not have")
    };
    let message = format!("Deployment {has} minimum availability.");
    conditions::set(&mut status, condition(AVAILABLE, state, reason, message, now));
    status
}

/// Returns the number of terminating pods; None if one of the sets does not report it, though it
/// was reconciled.
fn terminating(sets: &ReplicaSets) -> Option<i32> {
    sets.all().try_fold(0i32, |sum, set| {
        let status = set.status.as_ref();
        match status.and_then(|status| status.terminating_replicas) {
            Some(number) => Some(sum.saturating_add(number)),
            None if status.and_then(|status| status.observed_generation).unwrap_or(0) == 0 => Some(sum),
            None => None,
        }
    })
}

/// Returns `true` if all pods belong to the new ReplicaSet and are available.
pub(super) fn is_complete(deployment: &Deployment, status: &DeploymentStatus) -> bool {
    let counts = [status.updated_replicas, status.replicas, status.available_replicas];
    counts.iter().all(|count| count.unwrap_or(0) == desired_replicas(deployment))
        && status.observed_generation.unwrap_or(0) >= deployment.metadata.generation.unwrap_or(0)
}

/// Adds to a calculated status how the rollout gets on, and what failed.
pub(super) fn with_progress(
    deployment: &Deployment,
    sets: &ReplicaSets,
    mut status: DeploymentStatus,
    now: Timestamp,
) -> DeploymentStatus {
    let old = deployment.status.clone().unwrap_or_default();
    match progress_deadline(deployment) {
        None => remove(&mut status, PROGRESSING),
        // A completed rollout has no progress deadline.
        Some(_)
            if status.replicas == status.updated_replicas
                && reason(&old, PROGRESSING) == Some(NEW_REPLICA_SET_AVAILABLE) => {}
        Some(deadline) => {
            let what = match &sets.new {
                Some(new) => format!("ReplicaSet {:?}", new.name_any()),
                None => format!("Deployment {:?}", deployment.name_any()),
            };
            if is_complete(deployment, &status) {
                let message = format!("{what} has successfully progressed.");
                let done = condition(PROGRESSING, "True", NEW_REPLICA_SET_AVAILABLE, message, now);
                conditions::set(&mut status, done);
            } else if is_progressing(&old, &status) {
                let message = format!("{what} is progressing.");
                let mut progressing = condition(PROGRESSING, "True", "ReplicaSetUpdated", message, now);
                if let Some(before) = find(&old, PROGRESSING).filter(|before| before.status == "True") {
                    progressing.last_transition_time.clone_from(&before.last_transition_time);
                }
                // Also an equal one: the deadline counts from the last update.
                replace(&mut status, progressing);
            } else if is_timed_out(&status, deadline, now) {
                let message = format!("{what} has timed out progressing.");
                conditions::set(&mut status, condition(PROGRESSING, "False", TIMED_OUT, message, now));
            }
        }
    }
    match replica_failure(sets) {
        Some(failure) => conditions::set(&mut status, failure),
        None => remove(&mut status, REPLICA_FAILURE),
    }
    status
}

fn is_progressing(old: &DeploymentStatus, new: &DeploymentStatus) -> bool {
    let number = |count: Option<i32>| count.unwrap_or(0);
    let of_old = |status: &DeploymentStatus| number(status.replicas) - number(status.updated_replicas);
    number(new.updated_replicas) > number(old.updated_replicas)
        || of_old(new) < of_old(old)
        || number(new.ready_replicas) > number(old.ready_replicas)
        || number(new.available_replicas) > number(old.available_replicas)
}

fn is_timed_out(status: &DeploymentStatus, deadline: SignedDuration, now: Timestamp) -> bool {
    let Some(progressing) = find(status, PROGRESSING) else { return false };
    match progressing.reason.as_deref() {
        Some(NEW_REPLICA_SET_AVAILABLE) => false,
        Some(TIMED_OUT) => true,
        _ => time_left(progressing, deadline, now).is_some_and(|left| left.is_negative()),
    }
}

fn time_left(
    progressing: &DeploymentCondition,
    deadline: SignedDuration,
    now: Timestamp,
) -> Option<SignedDuration> {
    let since = progressing.last_update_time.as_ref()?.0;
    Some(deadline - now.duration_since(since))
}

/// Returns the time until the progress has to be checked against the deadline, or `None` if there
/// is nothing to check.
pub(super) fn recheck_after(
    deployment: &Deployment,
    status: &DeploymentStatus,
    now: Timestamp,
) -> Option<Duration> {
    const LATER: Duration = Duration::from_secs(1);
    let deadline = progress_deadline(deployment)?;
    let progressing = find(deployment.status.as_ref()?, PROGRESSING)?;
    let is_decided = matches!(progressing.reason.as_deref(), Some(TIMED_OUT | NEW_REPLICA_SET_AVAILABLE));
    if is_complete(deployment, status) || is_decided {
        return None;
    }
    let left = time_left(progressing, deadline, now)?;
    Some(Duration::try_from(left).unwrap_or_default() + LATER)
}

/// Returns the condition of the new ReplicaSet, or of the first other one that has it.
fn replica_failure(sets: &ReplicaSets) -> Option<DeploymentCondition> {
    let failure = |set: &Arc<ReplicaSet>| {
        let conditions = set.status.as_ref()?.conditions.as_ref()?;
        conditions.iter().find(|condition| condition.type_ == REPLICA_FAILURE).cloned()
    };
    let failure = sets.new.iter().chain(&sets.old).find_map(failure)?;
    Some(DeploymentCondition {
        type_: failure.type_,
        status: failure.status,
        reason: failure.reason,
        message: failure.message,
        last_update_time: failure.last_transition_time.clone(),
        last_transition_time: failure.last_transition_time,
    })
}

#[cfg(test)]
mod tests;
