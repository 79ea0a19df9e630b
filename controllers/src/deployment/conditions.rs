//! The conditions of a Deployment.

use k8s_openapi::api::apps::v1::{DeploymentCondition, DeploymentStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;

pub(super) const AVAILABLE: &str = "Available";
pub(super) const PROGRESSING: &str = "Progressing";
pub(super) const REPLICA_FAILURE: &str = "ReplicaFailure";

/// Builds a condition with a status that changes now.
pub(super) fn condition(
    r#type: &str,
    status: &str,
    reason: &str,
    message: String,
    now: Timestamp,
) -> DeploymentCondition {
    DeploymentCondition {
        type_: r#type.to_owned(),
        status: status.to_owned(),
        reason: Some(reason.to_owned()),
        message: Some(message),
        last_update_time: Some(Time(now)),
        last_transition_time: Some(Time(now)),
    }
}

/// Returns the condition of a type.
pub(super) fn find<'a>(status: &'a DeploymentStatus, r#type: &str) -> Option<&'a DeploymentCondition> {
    status.conditions.iter().flatten().find(|condition| condition.type_ == r#type)
}

/// Returns the reason of the condition of a type.
pub(super) fn reason<'a>(status: &'a DeploymentStatus, r#type: &str) -> Option<&'a str> {
    find(status, r#type)?.reason.as_deref()
}

/// Sets a condition if its status or its reason is another; it is the last one then. The time of
/// its transition is kept if its status is.
pub(super) fn set(status: &mut DeploymentStatus, mut condition: DeploymentCondition) {
    if let Some(old) = find(status, &condition.type_)
        && old.status == condition.status
    {
        if old.reason == condition.reason {
            return;
        }
        condition.last_transition_time.clone_from(&old.last_transition_time);
    }
    replace(status, condition);
}

/// Replaces the condition of that type in any case.
pub(super) fn replace(status: &mut DeploymentStatus, condition: DeploymentCondition) {
    remove(status, &condition.type_);
    status.conditions.get_or_insert_default().push(condition);
}

/// Removes the condition of a type.
pub(super) fn remove(status: &mut DeploymentStatus, r#type: &str) {
    if let Some(conditions) = &mut status.conditions {
        conditions.retain(|condition| condition.type_ != r#type);
        if conditions.is_empty() {
            status.conditions = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_condition_is_replaced_if_its_status_or_reason_changes() {
        let time = |second| Timestamp::from_second(second).unwrap();
        let mut status = DeploymentStatus::default();
        let mut apply = |state: &str, reason: &str, message: &str, second| {
            set(&mut status, condition(PROGRESSING, state, reason, message.to_owned(), time(second)));
            let progressing = find(&status, PROGRESSING).unwrap();
            let seconds = [&progressing.last_transition_time, &progressing.last_update_time]
                .map(|time| time.as_ref().unwrap().0.as_second());
            let types: Vec<_> =
                status.conditions.iter().flatten().map(|c| c.type_.chars().next().unwrap()).collect();
            let seen = (progressing.message.clone().unwrap(), seconds, types.iter().collect::<String>());
            replace(&mut status, condition(AVAILABLE, "True", "", String::new(), time(second)));
            seen
        };
        for (case, state, reason, message, second, want) in [
            ("the first", "True", "A", "first", 1, ("first", [1, 1], "P")),
            ("another message", "True", "A", "second", 2, ("first", [1, 1], "PA")),
            ("another reason", "True", "B", "third", 3, ("third", [1, 3], "AP")),
            ("another status", "False", "B", "fourth", 4, ("fourth", [4, 4], "AP")),
        ] {
            let (message, seconds, order) = apply(state, reason, message, second);
            assert_eq!((message.as_str(), seconds, order.as_str()), want, "{case}");
        }
        remove(&mut status, AVAILABLE);
        remove(&mut status, PROGRESSING);
        assert_eq!(status.conditions, None);
    }
}
