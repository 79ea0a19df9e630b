//! The verdict on a Job: whether it ends, and why.

use std::time::Duration;

use coracle_kinds::{jobs, pods};
use k8s_openapi::jiff::SignedDuration;

use super::pod_counts::{Observed, PodCounts};
use super::policies::{FailureAction, match_success_policy};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Success,
    Failure,
}

/// The way in which a Job ends. It is written twice: when it is decided, and when no pod runs any
/// more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    pub outcome: Outcome,
    pub reason: String,
    pub message: String,
}

impl Verdict {
    fn new(outcome: Outcome, reason: &str, message: &str) -> Verdict {
        Verdict { outcome, reason: reason.to_owned(), message: message.to_owned() }
    }

    pub fn completed() -> Verdict {
        Verdict::new(Outcome::Success, "CompletionsReached", "Reached expected number of succeeded pods")
    }

    /// Returns the type of the condition that is set when the outcome is decided.
    pub fn interim_condition(&self) -> &'static str {
        match self.outcome {
            Outcome::Success => "SuccessCriteriaMet",
            Outcome::Failure => "FailureTarget",
        }
    }

    /// Returns the type of the condition that is set once all pods have ended.
    pub fn terminal_condition(&self) -> &'static str {
        match self.outcome {
            Outcome::Success => "Complete",
            Outcome::Failure => "Failed",
        }
    }
}

/// Returns the verdict of the first rule that applies, before the pods of the Job are counted
/// again; `None` if no rule applies yet. The completions are evaluated after the pods are managed.
pub fn verdict(observed: &Observed, pod_counts: &PodCounts) -> Option<Verdict> {
    decided(observed)
        .or_else(|| failed_by_policy(observed))
        .or_else(|| past_backoff_limit(observed, pod_counts))
        .or_else(|| past_deadline(observed))
        .or_else(|| past_failed_indexes(observed, pod_counts))
        .or_else(|| {
            let message = match_success_policy(observed.spec, &pod_counts.succeeded_indexes)?;
            observed.is_indexed().then(|| Verdict::new(Outcome::Success, "SuccessPolicy", &message))
        })
}

/// Returns the verdict of an earlier reconciliation, from the conditions of the Job.
fn decided(observed: &Observed) -> Option<Verdict> {
    let criteria = jobs::true_condition(observed.job, "SuccessCriteriaMet").map(|c| (Outcome::Success, c));
    let target = || jobs::true_condition(observed.job, "FailureTarget").map(|c| (Outcome::Failure, c));
    let (outcome, condition) = criteria.or_else(target)?;
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    Some(Verdict { outcome, reason: text(&condition.reason), message: text(&condition.message) })
}

fn failed_by_policy(observed: &Observed) -> Option<Verdict> {
    observed.spec.pod_failure_policy.as_ref()?;
    let failed = observed.pods.iter().filter(|pod| observed.is_failed(pod));
    let mut messages = failed.filter_map(|pod| match observed.failure_action(pod) {
        FailureAction::FailJob(message) => Some(message),
        _ => None,
    });
    messages.next().map(|message| Verdict::new(Outcome::Failure, "PodFailurePolicy", &message))
}

fn past_backoff_limit(observed: &Observed, pod_counts: &PodCounts) -> Option<Verdict> {
    let limit = observed.spec.backoff_limit.unwrap_or(6);
    let is_past = pod_counts.failed > limit || past_restarts(observed, limit);
    let message = "Job has reached the specified backoff limit";
    is_past.then(|| Verdict::new(Outcome::Failure, "BackoffLimitExceeded", message))
}

/// Returns `true` if the restarts of containers reach the limit. They count as failures if the
/// restart policy is OnFailure.
fn past_restarts(observed: &Observed, limit: i32) -> bool {
    let policy = observed.spec.template.spec.as_ref().and_then(|spec| spec.restart_policy.as_deref());
    let alive = observed.pods.iter().filter(|pod| matches!(pods::phase(pod), "Running" | "Pending"));
    let statuses = alive
        .filter_map(|pod| pod.status.as_ref())
        .flat_map(|status| status.init_container_statuses.iter().chain(&status.container_statuses).flatten());
    let restarts: i64 = statuses.map(|status| i64::from(status.restart_count)).sum();
    policy == Some("OnFailure") && restarts >= i64::from(limit.max(1))
}

fn past_deadline(observed: &Observed) -> Option<Verdict> {
    let message = "Job was active longer than specified deadline";
    let is_past = time_until_deadline(observed)? <= SignedDuration::ZERO;
    is_past.then(|| Verdict::new(Outcome::Failure, "DeadlineExceeded", message))
}

/// Returns how long the Job may still be active, counted from its start time; `None` if that is not
/// limited, or if the Job is suspended.
fn time_until_deadline(observed: &Observed) -> Option<SignedDuration> {
    let allowed = SignedDuration::from_secs(observed.spec.active_deadline_seconds?);
    let since = observed.job.status.as_ref().and_then(|status| status.start_time.as_ref()).map(|time| time.0);
    let elapsed = since.map_or(SignedDuration::ZERO, |since| observed.now.duration_since(since));
    (!observed.is_suspended()).then(|| allowed.saturating_sub(elapsed))
}

/// Returns the time until the deadline of the Job requires another reconciliation.
pub fn deadline_requeue(observed: &Observed) -> Option<Duration> {
    let left = time_until_deadline(observed)?;
    Duration::try_from(left).ok().filter(|left| !left.is_zero())
}

fn past_failed_indexes(observed: &Observed, pod_counts: &PodCounts) -> Option<Verdict> {
    let failed = pod_counts.failed_indexes.as_ref()?;
    if observed.spec.max_failed_indexes.is_some_and(|limit| failed.len() > limit) {
        let message = "Job has exceeded the specified maximal number of failed indexes";
        return Some(Verdict::new(Outcome::Failure, "MaxFailedIndexesExceeded", message));
    }
    let done = failed.len().saturating_add(pod_counts.succeeded_indexes.len());
    (!failed.is_empty() && done >= observed.completions())
        .then(|| Verdict::new(Outcome::Failure, "FailedIndexes", "Job has failed indexes"))
}
