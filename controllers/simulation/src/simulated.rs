//! The pods and nodes that are simulated, by their annotations and states.

use coracle_object_meta::annotation;
use k8s_openapi::api::core::v1::{Node, Pod};

/// A pod with this annotation is not simulated.
pub const IGNORE: &str = "sim.coracle.dev/ignore";

/// A Node with this annotation has a kubelet that does nothing.
pub const SILENT: &str = "sim.coracle.dev/silent";

/// Returns `true` if a node neither reports its status nor runs pods.
pub fn is_silent(node: &Node) -> bool {
    annotation(&node.metadata, SILENT) == Some("true")
}

/// Returns `true` if a pod is not simulated.
pub fn is_ignored(pod: &Pod) -> bool {
    annotation(&pod.metadata, IGNORE) == Some("true")
}
