//! The plan for a Job: the action on its pods and then, from the outcome of that, its status. Pure.

use coracle_clock::Delay;
use k8s_openapi::api::batch::v1::JobStatus;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::conditions::{SUSPENDED, set_condition};
use super::manage::{PodAction, manage};
use super::pod_counts::{Observed, PodCounts, count};
use super::verdict::{Verdict, deadline_requeue, verdict};
use crate::timers::{JOB_BACKOFF, JOB_DEADLINE};

/// The action on the pods, and the state kept for the status.
pub struct Plan {
    pub pod_counts: PodCounts,
    pub verdict: Option<Verdict>,
    pub action: PodAction,
    pub requeue_after: Option<Delay>,
    /// Whether the pods of the Job were managed, and not only counted.
    is_managed: bool,
}

/// The outcome of the action.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Executed {
    pub created: usize,
    pub deleted: usize,
    /// The number of deleted pods that were ready.
    pub deleted_ready: usize,
}

/// The status as far as it follows from the pods; they are counted by [`super::tracking`] after
/// that.
pub struct Settled {
    pub status: JobStatus,
    pub verdict: Option<Verdict>,
    /// The reason and message of the event if a suspension began or ended.
    pub event: Option<(&'static str, &'static str)>,
}

pub fn plan(observed: &Observed) -> Plan {
    let pod_counts = PodCounts::of(observed);
    let verdict = verdict(observed, &pod_counts);
    let is_managed = verdict.is_none() && observed.job.metadata.deletion_timestamp.is_none();
    let action = match &verdict {
        Some(_) if pod_counts.active.is_empty() => PodAction::None,
        Some(_) => PodAction::Terminate(pod_counts.active.clone()),
        None if is_managed => manage(observed, &pod_counts),
        None => PodAction::None,
    };
    let back_off = match &action {
        PodAction::BackOff(left) => Some(JOB_BACKOFF.after(*left)),
        _ => None,
    };
    let deadline = deadline_requeue(observed).filter(|_| verdict.is_none());
    let deadline = deadline.map(|left| JOB_DEADLINE.after(left));
    let requeue_after = deadline.into_iter().chain(back_off).min();
    Plan { pod_counts, verdict, action, requeue_after, is_managed }
}

impl Plan {
    pub fn settle(&self, observed: &Observed, executed: Executed) -> Settled {
        let pod_counts = &self.pod_counts;
        let (deleted, deleted_ready) = (count(executed.deleted), count(executed.deleted_ready));
        let active = match self.action {
            // The value that kube-controller-manager reports.
            PodAction::BackOff(_) => 0,
            _ => count(pod_counts.active.len()) - deleted + count(executed.created),
        };
        let mut status = observed.status();
        status.uncounted_terminated_pods.get_or_insert_default();
        if status.start_time.is_none() && !observed.is_suspended() {
            status.start_time = Some(Time(observed.now));
        }
        status.active = nonzero(active);
        status.ready = Some(pod_counts.ready - deleted_ready);
        status.terminating = Some(pod_counts.terminating + deleted);
        let mut settled = Settled { status, verdict: self.verdict.clone(), event: None };
        if self.verdict.is_some() {
            // While a pod may still run the end cannot be declared.
            settled.verdict.take_if(|_| executed.deleted != pod_counts.active.len());
            return settled;
        }
        let is_complete = active == 0
            && match observed.spec.completions {
                None => pod_counts.succeeded > 0,
                Some(completions) => pod_counts.succeeded >= completions,
            };
        if is_complete {
            settled.verdict = Some(Verdict::completed());
        } else if self.is_managed {
            settled.event = note_suspension(observed, &mut settled.status);
        }
        settled
    }
}

pub fn nonzero(number: i32) -> Option<i32> {
    Some(number).filter(|number| *number != 0)
}

/// Updates the condition `Suspended`, which exists only in a Job that was suspended once, and the
/// start time.
fn note_suspension(observed: &Observed, status: &mut JobStatus) -> Option<(&'static str, &'static str)> {
    let now = observed.now;
    if observed.is_suspended() {
        status.start_time = None;
        let began = set_condition(status, SUSPENDED, true, ("JobSuspended", "Job suspended"), now);
        return began.then_some(("Suspended", "Job suspended"));
    }
    let resumed = set_condition(status, SUSPENDED, false, ("JobResumed", "Job resumed"), now);
    if resumed {
        status.start_time = Some(Time(now));
    }
    resumed.then_some(("Resumed", "Job resumed"))
}

#[cfg(test)]
mod tests;
