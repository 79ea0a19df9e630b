//! The index of pods by their nodes.

use coracle_kinds::pods;
use k8s_openapi::api::core::v1::Pod;

use crate::runtime::cache::{Index, NamespacedName};

/// Finds the pods that are bound to a node.
pub struct ByNode;

impl ByNode {
    /// The key of a node.
    pub fn key(node: &str) -> NamespacedName {
        NamespacedName::new("", node)
    }
}

impl Index<Pod> for ByNode {
    fn keys(pod: &Pod) -> Vec<NamespacedName> {
        pods::node(pod).into_iter().map(ByNode::key).collect()
    }
}
