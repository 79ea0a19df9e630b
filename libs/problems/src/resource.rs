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
    pub is_namespaced: bool,
}

impl Resource {
    /// Returns the path of the objects of the resource.
    ///
    /// - `namespace`: the namespace of the objects; None for all
    pub fn path(&self, namespace: Option<&str>) -> String {
        let Resource { group, version, plural, .. } = self;
        let group = match group.as_str() {
            "" => "/api".to_owned(),
            group => format!("/apis/{group}"),
        };
        match namespace {
            None => format!("{group}/{version}/{plural}"),
            Some(namespace) => {
                let namespace: String = form_urlencoded::byte_serialize(namespace.as_bytes()).collect();
                format!("{group}/{version}/namespaces/{namespace}/{plural}")
            }
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
                let is_namespaced = found.scope.is_some_and(|scope| scope == "Namespaced");
                let (group, version) = (group.clone(), version.clone());
                resources.push(Resource { group, version, plural, kind, is_namespaced });
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
