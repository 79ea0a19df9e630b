//! The conditions of an autoscaler.

use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscalerCondition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;

/// The content of a condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Statement {
    pub r#type: &'static str,
    pub is_true: bool,
    pub reason: String,
    pub message: String,
}

impl Statement {
    pub fn able_to_scale(is_true: bool, reason: &str, message: impl Into<String>) -> Statement {
        Statement { r#type: "AbleToScale", is_true, reason: reason.to_owned(), message: message.into() }
    }

    pub fn scaling_active(is_true: bool, reason: &str, message: impl Into<String>) -> Statement {
        Statement { r#type: "ScalingActive", is_true, reason: reason.to_owned(), message: message.into() }
    }

    pub fn scaling_limited(is_true: bool, reason: &str, message: impl Into<String>) -> Statement {
        Statement { r#type: "ScalingLimited", is_true, reason: reason.to_owned(), message: message.into() }
    }
}

/// Sets a condition in its place, or as the last one. The transition time changes with the status
/// only.
pub fn set(conditions: &mut Vec<HorizontalPodAutoscalerCondition>, statement: Statement, now: Timestamp) {
    let status = if statement.is_true { "True" } else { "False" };
    let index = conditions.iter().position(|condition| condition.type_ == statement.r#type);
    let mut condition = HorizontalPodAutoscalerCondition {
        type_: statement.r#type.to_owned(),
        status: status.to_owned(),
        reason: Some(statement.reason).filter(|reason| !reason.is_empty()),
        message: Some(statement.message).filter(|message| !message.is_empty()),
        last_transition_time: Some(Time(now)),
    };
    match index.and_then(|index| conditions.get_mut(index)) {
        Some(old) => {
            if old.status == status {
                condition.last_transition_time = old.last_transition_time.take();
            }
            *old = condition;
        }
        None => conditions.push(condition),
    }
}
