//! The documents of discovery, generated from the served resources.
//!
//! Source: API concepts, "API Discovery"; KEP-3352 for the aggregated form.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Value, json};

use crate::names::Text;
use crate::representation;
use crate::request::negotiate::Format;
use crate::resource_info::{Group, ResourceInfo, ResourceTable, Subresource, Version};
use crate::schema::schema;
use crate::{Error, Result};

/// Returns the document at `/api`.
pub(super) fn versions(table: &ResourceTable, address: &str) -> Value {
    let core = table.groups().iter().filter(|group| group.name.is_empty()).flat_map(|group| &group.versions);
    json!({
        "kind": "APIVersions",
        "versions": core.map(|version| &version.name).collect::<Vec<_>>(),
        "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": address}],
    })
}

/// Returns the document at `/apis`.
pub(super) fn groups(groups: &[Group]) -> Value {
    let groups: Vec<Value> = groups.iter().map(api_group).collect();
    json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
}

/// Returns the document at `/apis/GROUP`.
pub(super) fn group(group: &Group) -> Value {
    let mut document = api_group(group);
    document["kind"] = "APIGroup".into();
    document["apiVersion"] = "v1".into();
    document
}

fn api_group(group: &Group) -> Value {
    let named =
        |version: &Version| json!({"groupVersion": group_version(group, version), "version": version.name});
    let versions: Vec<Value> = group.versions.iter().map(named).collect();
    json!({"name": group.name, "preferredVersion": versions.first(), "versions": versions})
}

fn group_version(group: &Group, version: &Version) -> String {
    match &*group.name {
        "" => version.name.to_string(),
        name => format!("{name}/{}", version.name),
    }
}

/// Returns the document at `/api/VERSION` or `/apis/GROUP/VERSION`.
pub(super) fn resources(group: &Group, version: &Version) -> Value {
    let resources: Vec<Value> =
        version.resources.iter().flat_map(|resource| with_subresources(resource)).collect();
    let mut list = json!({
        "kind": "APIResourceList",
        "groupVersion": group_version(group, version),
        "resources": resources,
    });
    // The core group predates `apiVersion` in these lists, and still has none.
    if !group.name.is_empty() {
        list["apiVersion"] = "v1".into();
    }
    list
}

fn with_subresources(resource: &ResourceInfo) -> Vec<Value> {
    let mut whole = json!({
        "name": resource.plural,
        "singularName": resource.singular,
        "namespaced": resource.namespaced,
        "kind": resource.kind,
        "verbs": resource.offered_verbs().collect::<Vec<_>>(),
    });
    add_names(&mut whole, resource);
    if !resource.storage_version_hash.is_empty() {
        whole["storageVersionHash"] = (*resource.storage_version_hash).into();
    }
    let part = |part: &Subresource| {
        let mut document = json!({
            "name": format!("{}/{}", resource.plural, part.name),
            "singularName": "",
            "namespaced": resource.namespaced,
            "kind": part.kind,
            "verbs": part.verbs,
        });
        if is_of_another_version(part, resource) {
            document["version"] = (*part.version).into();
            if !part.group.is_empty() {
                document["group"] = (*part.group).into();
            }
        }
        document
    };
    std::iter::once(whole).chain(resource.subresources.iter().map(part)).collect()
}

/// Returns `true` if the kind of a subresource has another group or version than the resource.
fn is_of_another_version(part: &Subresource, resource: &ResourceInfo) -> bool {
    (&part.group, &part.version) != (&resource.group, &resource.version)
}

/// Sets the lists that are omitted if they are empty.
fn add_names(document: &mut Value, resource: &ResourceInfo) {
    for (name, list) in [("shortNames", &resource.short_names), ("categories", &resource.categories)] {
        if !list.is_empty() {
            document[name] = json!(list);
        }
    }
}

/// Builds the aggregated form of `/api` and `/apis`.
pub(super) fn aggregated(groups: &[Group]) -> Value {
    let items: Vec<Value> = groups
        .iter()
        .map(|group| {
            let metadata = if group.name.is_empty() { json!({}) } else { json!({"name": group.name}) };
            let versions: Vec<Value> = group.versions.iter().map(|v| version_discovery(group, v)).collect();
            json!({"metadata": metadata, "versions": versions})
        })
        .collect();
    json!({
        "kind": "APIGroupDiscoveryList",
        "apiVersion": "apidiscovery.k8s.io/v2",
        "metadata": {},
        "items": items,
    })
}

fn version_discovery(group: &Group, version: &Version) -> Value {
    // The group and version of built-in kinds are omitted where they are those of the resource.
    let own: (&str, &str) = if group.custom { (&group.name, &version.name) } else { ("", "") };
    let response_kind = |kind: &Text, other: Option<(&str, &str)>| {
        let (group, version) = other.unwrap_or(own);
        json!({"group": group, "version": version, "kind": kind})
    };
    let about_resource = |resource: &Arc<ResourceInfo>| {
        let mut document = json!({
            "resource": resource.plural,
            "responseKind": response_kind(&resource.kind, None),
            "scope": if resource.namespaced { "Namespaced" } else { "Cluster" },
            "singularResource": resource.singular,
            "verbs": resource.offered_verbs().collect::<Vec<_>>(),
        });
        add_names(&mut document, resource);
        let part = |part: &Subresource| {
            let other = is_of_another_version(part, resource).then_some((&*part.group, &*part.version));
            json!({
                "subresource": part.name,
                "responseKind": response_kind(&part.kind, other),
                "verbs": part.verbs,
            })
        };
        let parts: Vec<Value> = resource.subresources.iter().map(part).collect();
        if !parts.is_empty() {
            document["subresources"] = parts.into();
        }
        document
    };
    let resources: Vec<Value> = version.resources.iter().map(about_resource).collect();
    json!({"version": version.name, "resources": resources, "freshness": "Current"})
}

/// Returns the document at `/`, which is always indented.
pub(super) fn index(table: &ResourceTable, other_paths: &[String]) -> String {
    let ours = ["/api", "/apis", "/apis/", "/openapi/v2", "/openapi/v3", "/openapi/v3/", "/version"];
    let mut paths: BTreeSet<String> = ours.into_iter().map(str::to_owned).collect();
    paths.extend(other_paths.iter().cloned());
    for group in table.groups() {
        let root = if group.name.is_empty() { "/api".to_owned() } else { format!("/apis/{}", group.name) };
        paths.extend(group.versions.iter().map(|version| format!("{root}/{}", version.name)));
        paths.insert(root);
    }
    let paths: Vec<String> = paths.into_iter().map(|path| format!("    {}", Value::from(path))).collect();
    format!("{{\n  \"paths\": [\n{}\n  ]\n}}", paths.join(",\n"))
}

/// Encodes a document.
pub(super) fn encode(document: &Value, format: Format, pretty: bool) -> Result<Bytes> {
    let text = |name: &str| document[name].as_str().unwrap_or("v1");
    let (group, version) = text("apiVersion").split_once('/').unwrap_or(("", "v1"));
    let id = schema().kind(group, version, text("kind"));
    let id = id.ok_or_else(|| Error::Internal(format!("no type for {}", document["kind"])))?;
    Ok(representation::encode(document, &id.into(), format, pretty))
}
