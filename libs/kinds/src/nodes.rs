//! The condition Ready of nodes, and what node-lifecycle-controller writes when a kubelet does not
//! report any more.

use k8s_openapi::api::core::v1::{Node, NodeCondition};

/// The reason of a condition that was reported before the node was given up.
pub const STATUS_UNKNOWN: &str = "NodeStatusUnknown";
/// The reason of a condition that was never reported.
pub const STATUS_NEVER_UPDATED: &str = "NodeStatusNeverUpdated";

/// Returns the status of the condition Ready: `True`, `False` or `Unknown`.
pub fn ready_status(node: &Node) -> Option<&str> {
    condition(node, "Ready").map(|ready| ready.status.as_str())
}

/// Returns the condition of a type.
pub fn condition<'a>(node: &'a Node, r#type: &str) -> Option<&'a NodeCondition> {
    let conditions = node.status.as_ref()?.conditions.as_ref()?;
    conditions.iter().find(|condition| condition.type_ == r#type)
}

/// Returns `true` if a condition is unknown since the kubelet of the node was silent for too long.
pub fn is_given_up(condition: &NodeCondition) -> bool {
    let reason = condition.reason.as_deref();
    condition.status == "Unknown" && (reason == Some(STATUS_UNKNOWN) || reason == Some(STATUS_NEVER_UPDATED))
}
