//! The conditions of a Job.

use k8s_openapi::api::batch::v1::{JobCondition, JobStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;

pub const SUSPENDED: &str = "Suspended";

/// Sets a condition. One that is not there counts as false. Returns whether its status has changed.
pub fn set_condition(
    status: &mut JobStatus,
    r#type: &str,
    is_true: bool,
    (reason, message): (&str, &str),
    now: Timestamp,
) -> bool {
    let value = if is_true { "True" } else { "False" };
    let conditions = status.conditions.iter_mut().flatten();
    let known = conditions.into_iter().find(|condition| condition.type_ == r#type);
    if known.as_ref().map_or(!is_true, |known| known.status == value) {
        return false;
    }
    let condition = JobCondition {
        type_: r#type.to_owned(),
        status: value.to_owned(),
        last_probe_time: Some(Time(now)),
        last_transition_time: Some(Time(now)),
        reason: Some(reason.to_owned()),
        message: Some(message.to_owned()),
    };
    match known {
        Some(known) => *known = condition,
        None => status.conditions.get_or_insert_default().push(condition),
    }
    true
}
