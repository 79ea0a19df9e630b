//! The classification of a Job's pods: the active ones, and those that have newly finished.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use coracle_kinds::{jobs, pods};
use k8s_openapi::api::batch::v1::{Job, JobSpec, JobStatus};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;

use super::backoff::{BackoffRecord, finish_time};
use super::indexes::Indexes;
use super::policies::{FailureAction, match_pod_failure_policy};

/// The annotation with the failures of an index before a pod, for Jobs with `backoffLimitPerIndex`.
pub const INDEX_FAILURE_COUNT: &str = "batch.kubernetes.io/job-index-failure-count";
/// The annotation with the failures that the pod failure policy had ignored.
pub const INDEX_IGNORED_FAILURE_COUNT: &str = "batch.kubernetes.io/job-index-ignored-failure-count";

/// The state that a reconciliation of a Job is based on.
#[derive(Clone, Copy)]
pub struct Observed<'a> {
    pub job: &'a Job,
    pub spec: &'a JobSpec,
    /// The pods that the Job controls, including ended and terminating ones.
    pub pods: &'a [Arc<Pod>],
    /// The uids of pods whose finalizer was removed, though the cache may still show it.
    pub released: &'a HashSet<String>,
    pub backoff: BackoffRecord,
    pub now: Timestamp,
}

impl Observed<'_> {
    pub fn status(&self) -> JobStatus {
        self.job.status.clone().unwrap_or_default()
    }

    pub fn is_suspended(&self) -> bool {
        self.spec.suspend == Some(true)
    }

    pub fn is_indexed(&self) -> bool {
        self.spec.completion_mode.as_deref() == Some("Indexed")
    }

    pub fn completions(&self) -> i32 {
        self.spec.completions.unwrap_or(0)
    }

    /// Returns `true` if a pod has not been counted yet.
    pub fn is_tracked(&self, pod: &Pod) -> bool {
        jobs::is_tracked(pod) && !self.released.contains(uid(pod))
    }

    /// Returns the index of a pod if it is below the completions.
    pub fn index(&self, pod: &Pod) -> Option<i32> {
        jobs::completion_index(pod).filter(|index| *index < self.completions())
    }

    /// Returns `true` if a finished pod counts. In an Indexed Job it counts only with an index.
    pub fn has_place(&self, pod: &Pod) -> bool {
        !self.is_indexed() || self.index(pod).is_some()
    }

    /// Returns `true` if pods are replaced only once they are in phase Failed, not while they are
    /// terminating.
    pub fn replaces_only_failed(&self) -> bool {
        self.spec.pod_replacement_policy.as_deref() == Some("Failed")
            || self.spec.pod_failure_policy.is_some()
    }

    pub fn is_failed(&self, pod: &Pod) -> bool {
        match pods::phase(pod) {
            "Failed" => true,
            "Succeeded" => false,
            // There may be no kubelet to end it.
            _ => !self.replaces_only_failed() && pods::is_terminating(pod),
        }
    }

    pub fn failure_action(&self, pod: &Pod) -> FailureAction {
        match_pod_failure_policy(self.spec, pod)
    }
}

/// The counts of a Job's pods.
pub struct PodCounts {
    pub active: Vec<Arc<Pod>>,
    pub ready: i32,
    /// Pods that are terminating and have not ended.
    pub terminating: i32,
    /// Pods that have succeeded, counted or not; in an Indexed Job indexes.
    pub succeeded: i32,
    pub failed: i32,
    /// The completed indexes of the status, and those with newly succeeded pods.
    pub succeeded_before: Indexes,
    pub succeeded_indexes: Indexes,
    /// Set with `backoffLimitPerIndex`.
    pub failed_indexes: Option<Indexes>,
    /// Set with `backoffLimitPerIndex`: the failed pods that keep the failure counts of their
    /// indexes until they are replaced.
    pub awaiting_replacement: BTreeMap<i32, Arc<Pod>>,
    pub backoff: BackoffRecord,
}

impl PodCounts {
    pub fn of(observed: &Observed) -> PodCounts {
        let active: Vec<Arc<Pod>> =
            observed.pods.iter().filter(|pod| pods::is_active(pod)).cloned().collect();
        let status = observed.status();
        let uncounted = status.uncounted_terminated_pods.clone().unwrap_or_default();
        let (uncounted_succeeded, uncounted_failed) =
            (uncounted.succeeded.unwrap_or_default(), uncounted.failed.unwrap_or_default());
        // A pod that was counted as failed while it was terminating may still succeed: it remains
        // counted as failed.
        let listed: HashSet<&str> =
            uncounted_succeeded.iter().chain(&uncounted_failed).map(String::as_str).collect();
        let new = |has_finished: &dyn Fn(&Pod) -> bool| -> Vec<&Arc<Pod>> {
            let is_new = |pod: &&Arc<Pod>| {
                observed.is_tracked(pod)
                    && !listed.contains(uid(pod))
                    && observed.has_place(pod)
                    && has_finished(pod)
            };
            observed.pods.iter().filter(is_new).collect()
        };
        let new_succeeded = new(&|pod| pods::phase(pod) == "Succeeded");
        let new_failed = new(&|pod| observed.is_failed(pod));
        let counted = new_failed.iter().filter(|pod| observed.failure_action(pod).is_counted()).count();
        let succeeded_before =
            Indexes::parse(status.completed_indexes.as_deref().unwrap_or_default(), observed.completions());
        let new_indexes: Vec<i32> = new_succeeded.iter().filter_map(|pod| observed.index(pod)).collect();
        let succeeded_indexes = succeeded_before.with(new_indexes);
        let has_limit_per_index = observed.is_indexed() && observed.spec.backoff_limit_per_index.is_some();
        let failed_indexes = has_limit_per_index.then(|| failed_indexes(observed, &status));
        let succeeded = match observed.is_indexed() {
            true => succeeded_indexes.len(),
            false => status
                .succeeded
                .unwrap_or(0)
                .saturating_add(count(new_succeeded.len() + uncounted_succeeded.len())),
        };
        let times = |pods: &[&Arc<Pod>]| pods.iter().map(|pod| finish_time(pod)).collect::<Vec<_>>();
        let mut pod_counts = PodCounts {
            ready: count(active.iter().filter(|pod| pods::is_ready(pod)).count()),
            terminating: count(observed.pods.iter().filter(|pod| is_terminating(pod)).count()),
            succeeded,
            failed: status.failed.unwrap_or(0).saturating_add(count(counted + uncounted_failed.len())),
            succeeded_before,
            succeeded_indexes,
            failed_indexes,
            awaiting_replacement: BTreeMap::new(),
            backoff: observed.backoff.with(&times(&new_succeeded), &times(&new_failed)),
            active,
        };
        if has_limit_per_index {
            pod_counts.awaiting_replacement = awaiting_replacement(observed, &pod_counts);
        }
        pod_counts
    }

    pub fn active_indexes(&self) -> impl Iterator<Item = i32> {
        self.active.iter().filter_map(|pod| jobs::completion_index(pod))
    }
}

pub fn uid(pod: &Pod) -> &str {
    pod.metadata.uid.as_deref().unwrap_or_default()
}

pub fn count(number: usize) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}

/// Returns `true` if a pod is terminating and has not ended.
pub fn is_terminating(pod: &Pod) -> bool {
    !pods::is_terminal(pod) && pods::is_terminating(pod)
}

fn failed_indexes(observed: &Observed, status: &JobStatus) -> Indexes {
    let before = Indexes::parse(status.failed_indexes.as_deref().unwrap_or_default(), observed.completions());
    let tracked = observed.pods.iter().filter(|pod| observed.is_tracked(pod));
    let new = tracked.filter(|pod| is_index_failed(observed, pod)).filter_map(|pod| observed.index(pod));
    before.with(new.collect::<Vec<_>>())
}

/// Returns `true` if a pod failed and its index may not have another one.
fn is_index_failed(observed: &Observed, pod: &Pod) -> bool {
    let limit = observed.spec.backoff_limit_per_index.unwrap_or(i32::MAX);
    observed.is_failed(pod)
        && match observed.failure_action(pod) {
            FailureAction::FailIndex => true,
            action => action.is_counted() && failure_counts(pod).counted >= limit,
        }
}

/// The failures of an index.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FailureCounts {
    pub counted: i32,
    pub ignored: i32,
}

impl FailureCounts {
    pub fn total(&self) -> i32 {
        self.counted.saturating_add(self.ignored)
    }

    /// Returns the counts with one more failure, handled by this action.
    pub fn after(self, action: &FailureAction) -> FailureCounts {
        match action.is_counted() {
            true => FailureCounts { counted: self.counted.saturating_add(1), ..self },
            false => FailureCounts { ignored: self.ignored.saturating_add(1), ..self },
        }
    }
}

/// Returns the failures of the pod's index before this pod.
pub fn failure_counts(pod: &Pod) -> FailureCounts {
    let of = |name| pod.annotations().get(name).and_then(|text| text.parse().ok()).unwrap_or(0).max(0);
    FailureCounts { counted: of(INDEX_FAILURE_COUNT), ignored: of(INDEX_IGNORED_FAILURE_COUNT) }
}

/// Returns the last failed pod of each index that is neither done nor active.
fn awaiting_replacement(observed: &Observed, pod_counts: &PodCounts) -> BTreeMap<i32, Arc<Pod>> {
    let active: HashSet<i32> = pod_counts.active_indexes().collect();
    let is_open = |index: i32| {
        !pod_counts.succeeded_indexes.contains(index)
            && !pod_counts.failed_indexes.as_ref().is_some_and(|failed| failed.contains(index))
            && !active.contains(&index)
    };
    let mut last: BTreeMap<i32, Arc<Pod>> = BTreeMap::new();
    let failed = observed.pods.iter().filter(|pod| observed.is_tracked(pod) && observed.is_failed(pod));
    for (index, pod) in failed.filter_map(|pod| Some((observed.index(pod)?, pod))) {
        let order = |pod: &Pod| (failure_counts(pod).total(), finish_time(pod));
        if is_open(index) && last.get(&index).is_none_or(|known| order(known) <= order(pod)) {
            last.insert(index, pod.clone());
        }
    }
    last
}
