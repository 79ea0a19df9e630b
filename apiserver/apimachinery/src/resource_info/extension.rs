//! API groups that are served only while objects provide them, as an extension API server would
//! serve them.

use serde_json::Value;

use super::Group;
use crate::names::GroupResource;

/// A group of this server that a cluster only has once something provides it.
pub struct ExtensionGroup {
    /// The group with its resources.
    pub group: Group,
    /// The resource of the objects that provide the group.
    pub source: GroupResource,
    /// The predicate for objects of that resource, given as JSON: whether the object provides the
    /// group.
    pub is_provided_by: fn(&[u8]) -> bool,
    /// The objects that the server creates with the group: its APIServices and ClusterRoles.
    pub objects: Vec<Value>,
}
