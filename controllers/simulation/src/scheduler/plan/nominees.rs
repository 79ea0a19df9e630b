//! Nominated pods: nodes are kept free for them while pods of no higher priority are scheduled.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;

use super::Snapshot;
use crate::scheduler::pod_info::{nominated_node, priority, uid};

impl Snapshot {
    /// Keeps the nodes free of all nominated pods that are at least as important.
    pub(super) fn reserve_for_important(&mut self, priority_of_pod: i32) {
        while let Some(pod) = self.nominees.pop_if(|pod| priority(pod) >= priority_of_pod) {
            if let Some(node) = nominated_node(&pod) {
                self.reserve(node, &pod);
            }
        }
    }

    /// Keeps a node free for a pod that was nominated for it.
    pub(super) fn reserve(&mut self, node: &str, pod: &Arc<Pod>) {
        if let Some(node) = self.find(node).and_then(|index| self.nodes.get_mut(index)) {
            node.nominate(pod.clone());
        }
    }

    /// Gives back what was kept for a pod.
    pub(super) fn release(&mut self, pod: &Pod) {
        let node = nominated_node(pod).and_then(|name| self.find(name));
        if let Some(node) = node.and_then(|index| self.nodes.get_mut(index)) {
            node.release(pod);
        }
    }
}

/// Returns the nominated ones of these pods that are not assumed to be on a node, the least
/// important first.
pub fn nominees(unassigned: &[Arc<Pod>], is_assumed: impl Fn(&str) -> bool) -> Vec<Arc<Pod>> {
    let is_nominee = |pod: &&Arc<Pod>| nominated_node(pod).is_some() && !is_assumed(uid(pod));
    let mut nominees: Vec<_> = unassigned.iter().filter(is_nominee).cloned().collect();
    nominees.sort_by_key(|pod| priority(pod));
    nominees
}
