//! Groups that are served only while something provides them, as an extension API server would.

use serde_json::Value;

use super::Group;
use crate::names::GroupResource;

/// A group of this server that a cluster only has once something provides it.
pub struct ExtensionGroup {
    /// The group with its resources.
    pub group: Group,
    /// The resource whose objects provide it.
    pub source: GroupResource,
    /// Whether an object of that resource, as the bytes of its JSON, provides it.
    pub is_provided_by: fn(&[u8]) -> bool,
    /// What the server creates with it: its APIServices and ClusterRoles.
    pub objects: Vec<Value>,
}
