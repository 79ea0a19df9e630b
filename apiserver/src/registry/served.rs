//! What is served: every resource, found by the path a client names, with all that the verbs need to know of it.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use serde_json::Value;

use crate::names::{GroupKind, GroupResource};
use crate::request::info::ResourceRequest;
use crate::resources::{self, Behaviour};
use crate::schema::{self, StructId, schema};

/// One resource in one version.
pub struct Served {
    pub resource: &'static schema::Resource,
    pub behaviour: Behaviour,
    pub group_resource: GroupResource,
    pub group_kind: GroupKind,
    /// As objects of this version say it.
    pub api_version: String,
    /// Where the objects of all its versions are stored.
    pub bucket: Arc<str>,
    /// The version in which they are stored, and its type.
    pub storage_api_version: String,
    pub storage_type: StructId,
    /// The first bytes of every stored object: what list items leave out.
    pub type_prefix: String,
}

impl Served {
    fn new(resource: &'static schema::Resource) -> Option<Served> {
        let (storage_group, storage_version) = Self::stored_as(resource);
        let group_resource = GroupResource::new(resource.group, resource.plural);
        let storage_api_version = api_version(storage_group, storage_version);
        let bucket = GroupResource::new(storage_group, resource.plural).to_string();
        Some(Served {
            behaviour: resources::behaviour(resource.group, resource.kind),
            group_kind: group_kind(resource),
            api_version: api_version(resource.group, resource.version),
            storage_type: schema().kind(storage_group, storage_version, resource.kind)?,
            type_prefix: format!(
                "{{\"kind\":\"{}\",\"apiVersion\":\"{storage_api_version}\",",
                resource.kind
            ),
            bucket: bucket.into(),
            group_resource,
            storage_api_version,
            resource,
        })
    }

    /// The group and version in which objects are stored. A version that is not served differs in name only, and has no
    /// type here: in its stead stands the one that is served.
    fn stored_as(resource: &schema::Resource) -> (&'static str, &'static str) {
        let (group, version) = resource.storage_version;
        match schema().kind(group, version, resource.kind) {
            Some(_) => (group, version),
            None => (resource.group, resource.version),
        }
    }

    pub fn namespaced(&self) -> bool {
        self.resource.namespaced
    }

    pub fn type_id(&self) -> StructId {
        self.resource.type_id
    }

    /// Whether objects are stored in the very version in which this resource shows them.
    pub fn is_storage_version(&self) -> bool {
        self.api_version == self.storage_api_version
    }

    pub fn has_verb(&self, verb: &str) -> bool {
        self.resource.verbs.contains(&verb)
    }

    pub fn subresource(&self, name: &str) -> Option<&'static schema::Subresource> {
        self.resource.subresources.iter().find(|s| s.name == name)
    }

    /// From the form of this version to the form that is stored.
    pub fn to_storage(&self, object: Value) -> Value {
        if self.is_storage_version() {
            return object;
        }
        resources::convert(&self.group_kind, &self.storage_api_version, object)
    }

    /// From the form that is stored to the form of this version.
    pub fn from_storage(&self, object: Value) -> Value {
        if self.is_storage_version() {
            return object;
        }
        resources::convert(&self.group_kind, &self.api_version, object)
    }

    /// The key that an object would have in the real server's store; some messages show it.
    pub fn registry_key(&self, namespace: &str, name: &str) -> String {
        let GroupResource { group, resource } = &self.group_resource;
        let directory = match (group.as_str(), resource.as_str()) {
            ("", "services") => "services/specs".to_owned(),
            ("", "endpoints") => "services/endpoints".to_owned(),
            ("", "replicationcontrollers") => "controllers".to_owned(),
            ("", "nodes") => "minions".to_owned(),
            ("networking.k8s.io", "ingresses") => "ingress".to_owned(),
            ("apiextensions.k8s.io" | "apiregistration.k8s.io", _) => format!("{group}/{resource}"),
            _ => resource.clone(),
        };
        format!("/registry/{directory}/{}", self.storage_name(namespace, name))
    }

    /// The real server's internal Go type, which messages about answers name.
    pub fn internal_type(&self) -> String {
        let package = match self.group_kind.group.split('.').next() {
            None | Some("") => "core",
            Some(first) => first,
        };
        format!("*{package}.{}", self.group_kind.kind)
    }

    /// What every use of an API on its way out is warned of.
    pub fn deprecation(&self) -> Option<&'static str> {
        match (self.resource.group, self.resource.kind) {
            ("", "Endpoints") => {
                Some("v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice")
            }
            ("", "ComponentStatus") => Some("v1 ComponentStatus is deprecated in v1.19+"),
            _ => None,
        }
    }

    /// The name under which an object is stored in its bucket.
    pub fn storage_name(&self, namespace: &str, name: &str) -> String {
        if self.namespaced() { format!("{namespace}/{name}") } else { name.to_owned() }
    }
}

/// The kind as the server thinks of it: events are one kind, whichever group shows them.
fn group_kind(resource: &schema::Resource) -> GroupKind {
    let group = if resource.kind == "Event" { "" } else { resource.group };
    GroupKind::new(group, resource.kind)
}

fn api_version(group: &str, version: &str) -> String {
    if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") }
}

/// All that is served.
pub struct Table {
    /// By plural: few resources share theirs.
    by_plural: HashMap<&'static str, Vec<Arc<Served>>>,
    by_resource: HashMap<GroupResource, Arc<Served>>,
    groups: HashSet<&'static str>,
}

impl Table {
    /// The built-in resources.
    pub fn built_in() -> Table {
        let mut table =
            Table { by_plural: HashMap::new(), by_resource: HashMap::new(), groups: HashSet::new() };
        for resource in schema().resources() {
            let Some(served) = Served::new(resource).map(Arc::new) else { continue };
            table.groups.insert(resource.group);
            table.by_plural.entry(resource.plural).or_default().push(served.clone());
            // Of several versions, the one that is stored speaks for the resource.
            if served.is_storage_version() || !table.by_resource.contains_key(&served.group_resource) {
                table.by_resource.insert(served.group_resource.clone(), served);
            }
        }
        table
    }

    pub fn find(&self, group: &str, version: &str, plural: &str) -> Option<&Arc<Served>> {
        let same =
            |served: &&Arc<Served>| served.resource.group == group && served.resource.version == version;
        self.by_plural.get(plural)?.iter().find(same)
    }

    /// Whether a request's names lead somewhere.
    pub fn serves(&self, request: &ResourceRequest) -> bool {
        let served = self.find(&request.group, &request.version, &request.resource);
        let subresource = &request.subresource;
        served.is_some_and(|served| subresource.is_empty() || served.subresource(subresource).is_some())
    }

    pub fn by_resource(&self, resource: &GroupResource) -> Option<&Arc<Served>> {
        self.by_resource.get(resource)
    }

    pub fn has_group(&self, group: &str) -> bool {
        self.groups.contains(group)
    }

    pub fn iter(&self) -> impl Iterator<Item = &Arc<Served>> {
        self.by_resource.values()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn how_messages_name_what_is_served() {
        let table = Table::built_in();
        for (group, version, plural, key, internal) in [
            ("", "v1", "configmaps", "/registry/configmaps/n/x", "*core.ConfigMap"),
            ("", "v1", "services", "/registry/services/specs/n/x", "*core.Service"),
            ("", "v1", "nodes", "/registry/minions/x", "*core.Node"),
            ("events.k8s.io", "v1", "events", "/registry/events/n/x", "*core.Event"),
            ("networking.k8s.io", "v1", "ingresses", "/registry/ingress/n/x", "*networking.Ingress"),
            (
                "rbac.authorization.k8s.io",
                "v1",
                "clusterroles",
                "/registry/clusterroles/x",
                "*rbac.ClusterRole",
            ),
            (
                "apiextensions.k8s.io",
                "v1",
                "customresourcedefinitions",
                "/registry/apiextensions.k8s.io/customresourcedefinitions/x",
                "*apiextensions.CustomResourceDefinition",
            ),
        ] {
            let served = table.find(group, version, plural).expect(plural);
            assert_eq!(served.registry_key("n", "x"), key);
            assert_eq!(served.internal_type(), internal);
        }
    }
}
