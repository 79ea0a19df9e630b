//! The state from which the plan and the status of a set follow.

use std::sync::Arc;

use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::jiff::Timestamp;

/// The observed state of a set.
pub struct Observed<'a> {
    pub set: &'a DaemonSet,
    /// The pods that it controls.
    pub pods: &'a [Arc<Pod>],
    pub nodes: &'a [Arc<Node>],
    /// The hash of the current template.
    pub hash: &'a str,
    pub now: Timestamp,
}

impl Observed<'_> {
    /// Returns the number of seconds that a pod of the set has to be ready to be available.
    pub fn min_ready_seconds(&self) -> i32 {
        self.set.spec.as_ref().and_then(|spec| spec.min_ready_seconds).unwrap_or(0)
    }
}
