//! The built-in resources: names, scopes, verbs and types from the schema table, behavior from the
//! table of kinds.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use coracle_apimachinery::names::{GroupKind, GroupResource, Text};
use coracle_apimachinery::resource_info::{
    Conversion, Endpoint, ExtensionGroup, Group, ResourceInfo, ResourceTable, Storage, Subresource, Version,
    api_version, type_prefix,
};
use coracle_apimachinery::schema::{self, TypeRef, schema};
use coracle_apimachinery::strategy::Part;

use crate::{behavior, convert, metrics};

/// Builds the table of the built-in resources.
pub fn built_in() -> ResourceTable {
    let groups = schema().groups().iter().filter(|group| !group.is_extension);
    ResourceTable::new(groups.map(|known| group(known, resources())).collect())
}

/// Returns a group that is served only while some object provides it; None if there is no such
/// group of that name.
fn extension_group(name: &str) -> Option<Group> {
    let known = schema().groups().iter().find(|group| group.is_extension && group.name == name)?;
    Some(group(known, resources()))
}

/// Returns the group that is served only once pods have metrics.
pub fn metrics_extension(measured: metrics::Measured) -> Option<ExtensionGroup> {
    extension_group(metrics::GROUP).map(|group| metrics::extension(group, measured))
}

fn group(known: &'static schema::Group, resources: &[Arc<ResourceInfo>]) -> Group {
    let version = |version: &&'static str| Version {
        name: (*version).into(),
        resources: resources
            .iter()
            .filter(|info| info.group == known.name && info.version == *version)
            .cloned()
            .collect(),
    };
    Group { name: known.name.into(), versions: known.versions.iter().map(version).collect(), custom: false }
}

/// Returns the built-in resources in the order of discovery, which all control planes of the
/// process share.
fn resources() -> &'static [Arc<ResourceInfo>] {
    static RESOURCES: LazyLock<Vec<Arc<ResourceInfo>>> = LazyLock::new(read);
    &RESOURCES
}

fn read() -> Vec<Arc<ResourceInfo>> {
    let mut versions: HashMap<GroupKind, Vec<(String, TypeRef)>> = HashMap::new();
    for resource in schema().resources() {
        let version = (api_version(resource.group, resource.version), resource.type_id.into());
        versions.entry(group_kind(resource)).or_default().push(version);
    }
    let versions: HashMap<GroupKind, Arc<[_]>> =
        versions.into_iter().map(|(kind, versions)| (kind, versions.into())).collect();
    schema().resources().iter().filter_map(|resource| info(resource, &versions)).map(Arc::new).collect()
}

fn info(
    resource: &'static schema::Resource,
    versions: &HashMap<GroupKind, Arc<[(String, TypeRef)]>>,
) -> Option<ResourceInfo> {
    let group_kind = group_kind(resource);
    Some(ResourceInfo {
        group: resource.group.into(),
        version: resource.version.into(),
        kind: resource.kind.into(),
        list_kind: resource.list_kind.clone().into(),
        plural: resource.plural.into(),
        singular: resource.singular.clone().into(),
        short_names: texts(&resource.short_names),
        categories: texts(&resource.categories),
        namespaced: resource.namespaced,
        verbs: texts(&resource.verbs),
        subresources: resource.subresources.iter().filter_map(|one| subresource(resource, one)).collect(),
        storage_version_hash: resource.storage_version_hash.into(),
        type_ref: resource.type_id.into(),
        storage: storage(resource)?,
        versions: versions.get(&group_kind)?.clone(),
        conversion: Conversion::Local(convert),
        retirement: None,
        behavior: behavior(resource.group, resource.kind),
        group_resource: GroupResource::new(resource.group, resource.plural),
        api_version: api_version(resource.group, resource.version),
        group_kind,
    })
}

fn texts(list: &[&'static str]) -> Vec<Text> {
    list.iter().map(|text| Text::from(*text)).collect()
}

/// The groups whose kinds are not served as Tables below `/status`.
const WITHOUT_TABLES_OF_STATUS: [&str; 4] =
    ["apiextensions.k8s.io", "apiregistration.k8s.io", "resource.k8s.io", "scheduling.k8s.io"];

/// Returns the subresource; None if it has no function in this server.
fn subresource(
    resource: &schema::Resource,
    subresource: &'static schema::Subresource,
) -> Option<Subresource> {
    let endpoint = Endpoint::named(subresource.name)?;
    let printer = match endpoint {
        Endpoint::Part(Part::Status) if !WITHOUT_TABLES_OF_STATUS.contains(&resource.group) => {
            Some(behavior(resource.group, resource.kind).printer)
        }
        Endpoint::Scale => Some(behavior(subresource.group, subresource.kind).printer),
        _ => None,
    };
    Some(Subresource {
        name: subresource.name.into(),
        group: subresource.group.into(),
        version: subresource.version.into(),
        kind: subresource.kind.into(),
        verbs: texts(&subresource.verbs),
        type_ref: subresource.type_id.into(),
        endpoint,
        printer,
    })
}

fn storage(resource: &schema::Resource) -> Option<Storage> {
    // A version that is not served differs in name only, and has no type here: in its stead stands
    // the one that is served.
    let (group, version) = match resource.storage_version {
        (group, version) if schema().kind(group, version, resource.kind).is_some() => (group, version),
        _ => (resource.group, resource.version),
    };
    let api_version = api_version(group, version);
    Some(Storage {
        type_ref: schema().kind(group, version, resource.kind)?.into(),
        bucket: GroupResource::new(group, resource.plural).to_string().into(),
        type_prefix: Some(type_prefix(resource.kind, &api_version)),
        api_version,
    })
}

fn group_kind(resource: &schema::Resource) -> GroupKind {
    let group = if resource.kind == "Event" { "" } else { resource.group };
    GroupKind::new(group, resource.kind)
}

#[cfg(test)]
mod tests {
    use coracle_apimachinery::resource_info::{CustomKind, CustomVersion, SharedResourceTable};

    use super::*;

    #[test]
    fn every_resource_of_the_schema_is_there() {
        let table = built_in();
        let shared = SharedResourceTable::new(table.clone());
        let metrics = extension_group("metrics.k8s.io").expect("a group");
        shared.add_group(metrics);
        shared.replace(table.clone());
        assert!(!table.has_group("metrics.k8s.io"));
        let table = shared.load();
        for resource in schema().resources() {
            let info = table.find(resource.group, resource.version, resource.plural).expect(resource.plural);
            assert_eq!(info.subresources.len(), resource.subresources.len(), "{}", resource.plural);
        }
    }

    #[test]
    fn how_messages_name_what_is_served() {
        let table = built_in();
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
            let info = table.find(group, version, plural).expect(plural);
            assert_eq!(info.registry_key("n", "x"), key);
            assert_eq!(info.internal_type(), internal);
        }
    }

    #[test]
    fn custom_groups_follow_the_built_in_ones() {
        let count = built_in().groups().len();
        let custom = [
            ("z.example.com", "v1alpha1", "bs"),
            ("a.example.com", "v1", "as"),
            ("z.example.com", "v1", "bs"),
            ("z.example.com", "v1", "as"),
            ("z.example.com", "v1", "bs"),
        ];
        let infos = custom.into_iter().flat_map(|(group, version, plural)| {
            let kind = CustomKind::new(group, "Thing", plural, true);
            kind.resources(vec![CustomVersion::new(version).stored()]).expect("a custom kind")
        });
        let table = built_in().with_custom(infos);
        let mut names: Vec<String> = Vec::new();
        for group in &table.groups()[count..] {
            for version in &group.versions {
                let plurals: Vec<&str> = version.resources.iter().map(|r| &*r.plural).collect();
                names.push(format!("{}/{} {}", group.name, version.name, plurals.join(" ")));
            }
        }
        assert_eq!(names, ["a.example.com/v1 as", "z.example.com/v1 as bs", "z.example.com/v1alpha1 bs"]);
    }
}
