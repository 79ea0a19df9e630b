//! Jobs for controllers: the tracking finalizer and the index annotation of their pods, and their
//! final conditions.

use coracle_object_meta::{annotation, has_finalizer};
use k8s_openapi::api::batch::v1::{Job, JobCondition};
use k8s_openapi::api::core::v1::Pod;

/// The finalizer that keeps a pod of a Job until it is counted.
pub const TRACKING_FINALIZER: &str = "batch.kubernetes.io/job-tracking";
/// The annotation, and the label, with the completion index of a pod of an Indexed Job.
pub const COMPLETION_INDEX: &str = "batch.kubernetes.io/job-completion-index";
/// The value of `spec.managedBy` if the built-in controller manages a Job.
pub const JOB_CONTROLLER: &str = "kubernetes.io/job-controller";

/// Returns the condition with this type, if it is true.
pub fn true_condition<'a>(job: &'a Job, r#type: &str) -> Option<&'a JobCondition> {
    let conditions = job.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.into_iter().find(|condition| condition.type_ == r#type && condition.status == "True")
}

/// Returns the condition `Complete` or `Failed` of a Job, if it has finished.
pub fn finished(job: &Job) -> Option<&JobCondition> {
    true_condition(job, "Complete").or_else(|| true_condition(job, "Failed"))
}

/// Returns `true` if a controller other than the built-in one manages a Job.
pub fn is_managed_externally(job: &Job) -> bool {
    let manager = job.spec.as_ref().and_then(|spec| spec.managed_by.as_deref());
    manager.is_some_and(|manager| manager != JOB_CONTROLLER)
}

/// Returns `true` if a pod has the tracking finalizer, and so has not been counted yet.
pub fn is_tracked(pod: &Pod) -> bool {
    has_finalizer(&pod.metadata, TRACKING_FINALIZER)
}

/// Returns the completion index of a pod, or `None` if it has none or an invalid one.
pub fn completion_index(pod: &Pod) -> Option<i32> {
    annotation(&pod.metadata, COMPLETION_INDEX)?.parse().ok().filter(|index| *index >= 0)
}
