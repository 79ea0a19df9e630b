//! Tracking of finished pods, which ensures that each pod of a Job is counted exactly once.
//!
//! A finished pod is kept by a finalizer. First its uid (in an Indexed Job its index, if it
//! succeeded) is added to the status; then the finalizer is removed; then the uid is removed from
//! the status and the counter incremented. If any step fails, the next reconciliation continues
//! from the status: uids without a finalizer are counted, and pods with one lose it.
//!
//! Source: kube-controller-manager's `trackJobStatusAndRemoveFinalizers`.

use std::collections::HashSet;
use std::sync::Arc;

use coracle_kinds::pods;
use k8s_openapi::api::batch::v1::{JobStatus, UncountedTerminatedPods};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;

use super::conditions::set_condition;
use super::plan::{Settled, nonzero};
use super::pod_counts::{Observed, PodCounts, uid};
use super::policies::FailureAction;
use super::verdict::{Outcome, Verdict};

/// The maximum number of pods that are counted in one reconciliation.
const MAX_UNCOUNTED: usize = 500;

/// The counting of pods, between its writes.
pub struct Tracking {
    /// The status to write before finalizers are removed.
    pub status: JobStatus,
    /// The pods to remove the finalizer of, once the status is written.
    pub released: Vec<Arc<Pod>>,
    /// The actions of the pod failure policy, for the metrics.
    pub handled_by_policy: Vec<&'static str>,
    verdict: Option<Verdict>,
    /// The uids of pods with the finalizer.
    tracked: HashSet<String>,
    reached_limit: bool,
}

/// Decides which pods can be counted, and prepares the first status to write.
pub fn track(observed: &Observed, pod_counts: &PodCounts, settled: Settled) -> Tracking {
    let Settled { mut status, verdict, .. } = settled;
    let mut pods: Vec<&Arc<Pod>> = observed.pods.iter().filter(|pod| observed.is_tracked(pod)).collect();
    if observed.is_indexed() {
        pods.sort_by_key(|pod| observed.index(pod));
    }
    let tracked: HashSet<String> = pods.iter().map(|pod| uid(pod).to_owned()).collect();
    count_released(&mut status, &tracked);
    let uncounted = status.uncounted_terminated_pods.take().unwrap_or_default();
    let mut lists = Lists::of(uncounted, pod_counts);
    let (mut released, mut reached_limit) = (Vec::new(), false);
    for pod in pods {
        if !can_be_released(observed, pod_counts, verdict.as_ref(), pod) {
            continue;
        }
        released.push(pod.clone());
        lists.add(observed, verdict.as_ref(), pod);
        reached_limit = lists.len() >= MAX_UNCOUNTED;
        if reached_limit {
            break;
        }
    }
    let Lists { succeeded, failed, new_indexes, handled_by_policy, .. } = lists;
    let list = |uids: Vec<String>| Some(uids).filter(|uids| !uids.is_empty());
    status.uncounted_terminated_pods =
        Some(UncountedTerminatedPods { succeeded: list(succeeded), failed: list(failed) });
    if observed.is_indexed() {
        let completed = pod_counts.succeeded_before.with(new_indexes);
        status.succeeded = nonzero(completed.len());
        status.completed_indexes = Some(completed.to_string()).filter(|text| !text.is_empty());
        status.failed_indexes = pod_counts.failed_indexes.as_ref().map(ToString::to_string);
    }
    if let Some(Verdict { reason, message, .. }) = &verdict {
        let interim = verdict.as_ref().map_or("", Verdict::interim_condition);
        set_condition(&mut status, interim, true, (reason, message), observed.now);
    }
    Tracking { status, released, handled_by_policy, verdict, tracked, reached_limit }
}

/// Returns `true` if the finalizer of a pod is not needed any more.
fn can_be_released(
    observed: &Observed,
    pod_counts: &PodCounts,
    verdict: Option<&Verdict>,
    pod: &Pod,
) -> bool {
    let is_memory = || {
        let kept = observed.index(pod).and_then(|index| pod_counts.awaiting_replacement.get(&index));
        kept.is_some_and(|kept| uid(kept) == uid(pod))
    };
    observed.job.metadata.deletion_timestamp.is_some()
        || verdict.is_some()
        || pods::phase(pod) == "Succeeded"
        || (observed.is_failed(pod) && !is_memory())
}

/// The pods to count.
struct Lists<'a> {
    succeeded: Vec<String>,
    failed: Vec<String>,
    known: HashSet<String>,
    new_indexes: Vec<i32>,
    handled_by_policy: Vec<&'static str>,
    pod_counts: &'a PodCounts,
}

impl Lists<'_> {
    fn of(uncounted: UncountedTerminatedPods, pod_counts: &PodCounts) -> Lists<'_> {
        let (succeeded, failed) =
            (uncounted.succeeded.unwrap_or_default(), uncounted.failed.unwrap_or_default());
        let known = succeeded.iter().chain(&failed).cloned().collect();
        Lists { succeeded, failed, known, new_indexes: Vec::new(), handled_by_policy: Vec::new(), pod_counts }
    }

    fn len(&self) -> usize {
        self.succeeded.len() + self.failed.len() + self.new_indexes.len()
    }

    fn add(&mut self, observed: &Observed, verdict: Option<&Verdict>, pod: &Pod) {
        if self.known.contains(uid(pod)) {
            return;
        }
        let job_fails = verdict.is_some_and(|verdict| verdict.outcome == Outcome::Failure);
        if pods::phase(pod) == "Succeeded" {
            match observed.index(pod) {
                Some(index) if observed.is_indexed() => {
                    let is_known = self.pod_counts.succeeded_before.contains(index)
                        || self.new_indexes.last() == Some(&index);
                    if !is_known {
                        self.new_indexes.push(index);
                    }
                }
                _ if observed.is_indexed() => {}
                _ => self.succeeded.push(uid(pod).to_owned()),
            }
        } else if (observed.is_failed(pod) || job_fails) && observed.has_place(pod) {
            let action = observed.failure_action(pod);
            self.handled_by_policy.extend(action.name());
            if action != FailureAction::Ignore {
                self.failed.push(uid(pod).to_owned());
            }
        }
    }
}

/// Moves uids whose pods have lost the finalizer into the counters. Returns whether there were any.
fn count_released(status: &mut JobStatus, tracked: &HashSet<String>) -> bool {
    let Some(uncounted) = &mut status.uncounted_terminated_pods else { return false };
    let mut any = false;
    let mut count = |uids: &mut Option<Vec<String>>, counter: &mut Option<i32>| {
        let Some(list) = uids else { return };
        let before = list.len();
        list.retain(|uid| tracked.contains(uid));
        let counted = super::pod_counts::count(before - list.len());
        *counter = nonzero(counter.unwrap_or(0).saturating_add(counted));
        any |= counted > 0;
        uids.take_if(|list| list.is_empty());
    };
    count(&mut uncounted.succeeded, &mut status.succeeded);
    count(&mut uncounted.failed, &mut status.failed);
    any
}

impl Tracking {
    /// Returns `true` if the status before the removal of finalizers has to be written.
    pub fn has_changed(&self, observed: &Observed) -> bool {
        observed.job.status.as_ref() != Some(&self.status)
    }

    /// Returns the status after the removal of finalizers, and the verdict if the Job has finished.
    /// Returns `None` if there is nothing to write.
    ///
    /// - `written`: the status that is stored
    /// - `released`: the uids of the pods without a finalizer
    /// - `is_all_released`: whether all removals succeeded
    pub fn conclude(
        &self,
        written: &JobStatus,
        released: &HashSet<String>,
        is_all_released: bool,
        now: Timestamp,
    ) -> Option<(JobStatus, Option<&Verdict>)> {
        let mut status = written.clone();
        let tracked = self.tracked.difference(released).cloned().collect();
        let counted = count_released(&mut status, &tracked);
        let may_finish = is_all_released && !self.reached_limit;
        let finished = self.verdict.as_ref().filter(|_| may_finish && is_over(&status));
        if let Some(verdict) = finished {
            let why = (verdict.reason.as_str(), verdict.message.as_str());
            set_condition(&mut status, verdict.terminal_condition(), true, why, now);
            if verdict.outcome == Outcome::Success {
                status.completion_time = Some(Time(now));
            }
        }
        (counted || finished.is_some()).then_some((status, finished))
    }
}

/// Returns `true` if all pods are counted and none is terminating.
fn is_over(status: &JobStatus) -> bool {
    let uncounted = status.uncounted_terminated_pods.as_ref();
    let is_counted = uncounted.is_none_or(|pods| pods.succeeded.is_none() && pods.failed.is_none());
    is_counted && status.terminating.unwrap_or(0) == 0
}
