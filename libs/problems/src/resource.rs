//! The resources that a cluster serves.

use kube::core::discovery::v2::APIGroupDiscovery;
use serde_json::Value;

use crate::text::text;

/// A resource in the version to read it in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resource {
    pub group: String,
    pub version: String,
    pub plural: String,
    pub kind: String,
}

impl Resource {
    /// Returns the path of all objects of the resource.
    pub fn path(&self) -> String {
        let Resource { group, version, plural, .. } = self;
        match group.as_str() {
            "" => format!("/api/{version}/{plural}"),
            _ => format!("/apis/{group}/{version}/{plural}"),
        }
    }

    /// Returns the resource as kubectl accepts it: `pods`, `deployments.apps`.
    pub fn qualified(&self) -> String {
        match self.group.as_str() {
            "" => self.plural.clone(),
            group => format!("{}.{group}", self.plural),
        }
    }
}

/// Returns each resource that can be listed, once, in the order of discovery and in the preferred
/// version.
pub fn listable(groups: impl IntoIterator<Item = APIGroupDiscovery>) -> Vec<Resource> {
    let mut resources: Vec<Resource> = Vec::new();
    for discovered in groups {
        let group = discovered.metadata.and_then(|metadata| metadata.name).unwrap_or_default();
        let first = resources.len();
        for served in discovered.versions {
            let version = served.version.unwrap_or_default();
            for found in served.resources.into_iter().filter(|found| found.verbs.iter().any(|v| v == "list"))
            {
                let plural = found.resource.unwrap_or_default();
                if resources.iter().skip(first).any(|other| other.plural == plural) {
                    continue;
                }
                let kind = found.response_kind.and_then(|kind| kind.kind).unwrap_or_default();
                resources.push(Resource { group: group.clone(), version: version.clone(), plural, kind });
            }
        }
    }
    resources
}

/// Formats an object as `kubectl get` names it, with its namespace: `pod/default/web-0`,
/// `deployment.apps/default/web`.
pub fn object_name(group: &str, kind: &str, namespace: &Value, name: &Value) -> String {
    let mut path = kind.to_lowercase();
    if !group.is_empty() {
        path = format!("{path}.{group}");
    }
    for part in [namespace, name].into_iter().filter_map(text) {
        path = format!("{path}/{part}");
    }
    path
}
