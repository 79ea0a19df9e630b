//! The history of a set: the revision of its current template, and the revisions to keep.

use std::collections::BTreeSet;
use std::sync::Arc;

use coracle_kinds::controller_revision::daemon_set::HASH_LABEL;
use coracle_kinds::controller_revision::{self, contains_template};
use k8s_openapi::api::apps::v1::{ControllerRevision, DaemonSet};
use k8s_openapi::api::core::v1::Pod;

/// The revisions of a set, divided by whether they hold the current template.
#[derive(Default)]
pub struct History {
    /// The revisions that hold the current template, the newest first. More than one is one too
    /// many.
    pub current: Vec<Arc<ControllerRevision>>,
    /// All others, the oldest first.
    pub old: Vec<Arc<ControllerRevision>>,
}

impl History {
    /// Sorts the revisions of a set.
    pub fn of(set: &DaemonSet, mut revisions: Vec<Arc<ControllerRevision>>) -> History {
        let Some(spec) = &set.spec else { return History::default() };
        controller_revision::sort(&mut revisions);
        let (mut current, old): (Vec<_>, Vec<_>) =
            revisions.into_iter().partition(|revision| contains_template(revision, &spec.template));
        current.reverse();
        History { current, old }
    }

    /// Returns the lowest number that the current revision may have.
    pub fn next_number(&self) -> i64 {
        self.old.iter().map(|revision| revision.revision).max().unwrap_or(0) + 1
    }

    /// Returns the oldest revisions beyond the limit, except those with pods.
    pub fn excess(&self, set: &DaemonSet, pods: &[Arc<Pod>]) -> Vec<Arc<ControllerRevision>> {
        let limit = set.spec.as_ref().and_then(|spec| spec.revision_history_limit).unwrap_or(10);
        let excess = self.old.len().saturating_sub(usize::try_from(limit).unwrap_or(0));
        let labels = pods.iter().filter_map(|pod| pod.metadata.labels.as_ref());
        let live: BTreeSet<&str> =
            labels.filter_map(|labels| labels.get(HASH_LABEL)).map(String::as_str).collect();
        let is_live =
            |revision: &&Arc<ControllerRevision>| hash(revision).is_some_and(|hash| live.contains(hash));
        self.old.iter().filter(|revision| !is_live(revision)).take(excess).cloned().collect()
    }
}

/// Returns the hash of a revision, which its pods carry.
pub fn hash(revision: &ControllerRevision) -> Option<&str> {
    revision.metadata.labels.as_ref()?.get(HASH_LABEL).map(String::as_str)
}
