//! Creation and deletion of a Job's pods.

use std::sync::Arc;
use std::time::Duration;

use coracle_kinds::jobs;
use k8s_openapi::api::core::v1::Pod;

use super::backoff;
use super::pod_counts::{FailureCounts, Observed, PodCounts, count, failure_counts};
use crate::workload::pacing;
use crate::workload::pod_control::BURST_REPLICAS;
use crate::workload::ranking::sort_active;

/// The action on the pods of a Job. A reconciliation either creates or deletes pods, not both.
#[derive(Debug)]
pub enum PodAction {
    None,
    /// Deletes active pods of a Job that ends. They keep their finalizers, and so are counted if
    /// the Job fails.
    Terminate(Vec<Arc<Pod>>),
    /// Deletes active pods that are too many. They lose their finalizers before, and so are not
    /// counted.
    Remove(Vec<Arc<Pod>>),
    Create(Creation),
    /// Pods are missing, but it is too early to create them.
    BackOff(Duration),
}

/// Pods to create.
#[derive(Debug, PartialEq, Eq)]
pub enum Creation {
    /// The number of pods to create, for a Job that is not Indexed.
    Plain(usize),
    /// Pods of these indexes; with `backoffLimitPerIndex` with the failures before.
    Indexed(Vec<(i32, Option<FailureCounts>)>),
}

impl Creation {
    pub fn len(&self) -> usize {
        match self {
            Creation::Plain(count) => *count,
            Creation::Indexed(indexes) => indexes.len(),
        }
    }
}

/// Returns the next action on the pods of a Job that has no verdict.
///
/// Source: kube-controller-manager's `manageJob`.
pub fn manage(observed: &Observed, pod_counts: &PodCounts) -> PodAction {
    let active = count(pod_counts.active.len());
    if observed.is_suspended() {
        return removal(observed, pod_counts, active);
    }
    let parallelism = observed.spec.parallelism.unwrap_or(1);
    let wanted = match observed.spec.completions {
        // After the first success no pods are created.
        None if pod_counts.succeeded > 0 => active,
        None => parallelism,
        Some(completions) => completions.saturating_sub(pod_counts.succeeded).min(parallelism).max(0),
    };
    match removal(observed, pod_counts, (active - wanted).max(0)) {
        PodAction::Remove(pods) => PodAction::Remove(pods.into_iter().take(BURST_REPLICAS).collect()),
        _ => creation(observed, pod_counts, wanted),
    }
}

fn creation(observed: &Observed, pod_counts: &PodCounts, wanted: i32) -> PodAction {
    let held = if observed.replaces_only_failed() {
        usize::try_from(pod_counts.terminating).unwrap_or(0)
    } else {
        0
    };
    let wanted = usize::try_from(wanted).unwrap_or(0);
    let missing = wanted.saturating_sub(pod_counts.active.len()).saturating_sub(held).min(BURST_REPLICAS);
    let missing = missing.min(pacing::allowed_creations(wanted, &pod_counts.active));
    let has_limit_per_index = pod_counts.failed_indexes.is_some();
    if missing == 0 {
        return PodAction::None;
    }
    if !has_limit_per_index && let Some(left) = pod_counts.backoff.remaining(observed.now) {
        return PodAction::BackOff(left);
    }
    if !observed.is_indexed() {
        return PodAction::Create(Creation::Plain(missing));
    }
    let indexes = pending_indexes(observed, pod_counts, missing);
    if !has_limit_per_index {
        let indexes = indexes.into_iter().map(|index| (index, None)).collect();
        return creation_of(indexes);
    }
    let (mut now, mut earliest) = (Vec::new(), None);
    for index in indexes {
        let replaced = pod_counts.awaiting_replacement.get(&index);
        let failures = replaced.map_or_else(FailureCounts::default, |pod| {
            failure_counts(pod).after(&observed.failure_action(pod))
        });
        let left = replaced.and_then(|pod| {
            let failures = u32::try_from(failures.total()).unwrap_or(0);
            backoff::remaining(failures, backoff::finish_time(pod), observed.now)
        });
        match left {
            None => now.push((index, Some(failures))),
            Some(left) => earliest = Some(earliest.map_or(left, |earliest: Duration| earliest.min(left))),
        }
    }
    match earliest {
        Some(left) if now.is_empty() => PodAction::BackOff(left),
        _ => creation_of(now),
    }
}

fn creation_of(indexes: Vec<(i32, Option<FailureCounts>)>) -> PodAction {
    if indexes.is_empty() { PodAction::None } else { PodAction::Create(Creation::Indexed(indexes)) }
}

/// Returns the lowest indexes that need a pod and have none, at most `missing` of them.
fn pending_indexes(observed: &Observed, pod_counts: &PodCounts, missing: usize) -> Vec<i32> {
    let mut taken = pod_counts.succeeded_indexes.with(pod_counts.active_indexes());
    if let Some(failed) = &pod_counts.failed_indexes {
        taken = taken.union(failed);
    }
    if observed.replaces_only_failed() {
        let terminating = observed.pods.iter().filter(|pod| super::pod_counts::is_terminating(pod));
        taken = taken.with(terminating.filter_map(|pod| jobs::completion_index(pod)).collect::<Vec<_>>());
    }
    taken.lowest_missing(observed.completions(), missing)
}

/// Returns the removal of superfluous pods: first the pods of an Indexed Job without an index or
/// with the index of another pod, then others, until at least `least` pods are removed.
fn removal(observed: &Observed, pod_counts: &PodCounts, least: i32) -> PodAction {
    let (mut surplus, left) = match observed.is_indexed() {
        true => without_place(observed, &pod_counts.active),
        false => (Vec::new(), pod_counts.active.clone()),
    };
    let least = usize::try_from(least).unwrap_or(0);
    if surplus.len() < least {
        let more = least - surplus.len();
        surplus.extend(sort_active(left).into_iter().take(more));
    }
    if surplus.is_empty() { PodAction::None } else { PodAction::Remove(surplus) }
}

/// Divides pods into those without an index of their own, and the best one of each index.
fn without_place(observed: &Observed, active: &[Arc<Pod>]) -> (Vec<Arc<Pod>>, Vec<Arc<Pod>>) {
    let mut sorted: Vec<Arc<Pod>> = active.to_vec();
    sorted.sort_by_key(|pod| observed.index(pod));
    let (mut surplus, mut left) = (Vec::new(), Vec::new());
    for pods in sorted.chunk_by(|a, b| observed.index(a) == observed.index(b)) {
        let mut pods = sort_active(pods.to_vec());
        let has_place = pods.first().is_some_and(|pod| observed.index(pod).is_some());
        if has_place {
            left.extend(pods.pop());
        }
        surplus.extend(pods);
    }
    (surplus, left)
}
