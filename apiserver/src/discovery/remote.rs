//! The groups and versions of other servers in the documents of discovery.

use std::collections::HashMap;

use serde_json::{Value, json};

use crate::aggregator::{RemoteResource, RemoteVersion};

/// Adds them to an APIGroupList.
pub(super) fn add_groups(list: &mut Value, remote: &[RemoteVersion]) {
    let Some(groups) = list["groups"].as_array_mut() else { return };
    for version in remote {
        let entry = group_version(version);
        match groups.iter_mut().find(|group| group["name"] == version.group.as_str()) {
            Some(group) => push_once(&mut group["versions"], entry, "groupVersion"),
            None => groups
                .push(json!({"name": version.group, "preferredVersion": entry.clone(), "versions": [entry]})),
        }
    }
}

/// Returns the APIGroup of a group that only other servers serve.
pub(super) fn group(name: &str, remote: &[RemoteVersion]) -> Option<Value> {
    let mut list = json!({"groups": []});
    add_groups(&mut list, &remote.iter().filter(|v| v.group == name).cloned().collect::<Vec<_>>());
    let mut group = list["groups"].get_mut(0)?.take();
    group["kind"] = "APIGroup".into();
    group["apiVersion"] = "v1".into();
    Some(group)
}

/// Adds them to an APIGroupDiscoveryList.
pub(super) fn add_discovery(list: &mut Value, remote: &[RemoteVersion]) {
    let Some(items) = list["items"].as_array_mut() else { return };
    for version in remote {
        let entry = version_discovery(version);
        match items.iter_mut().find(|item| item["metadata"]["name"] == version.group.as_str()) {
            Some(item) => push_once(&mut item["versions"], entry, "version"),
            None => items.push(json!({"metadata": {"name": version.group}, "versions": [entry]})),
        }
    }
}

fn group_version(version: &RemoteVersion) -> Value {
    json!({"groupVersion": format!("{}/{}", version.group, version.version), "version": version.version})
}

/// Adds an entry unless the list has one with the same name: a version that this server serves too
/// is listed once.
fn push_once(list: &mut Value, entry: Value, name: &str) {
    if let Some(list) = list.as_array_mut()
        && !list.iter().any(|known| known[name] == entry[name])
    {
        list.push(entry);
    }
}

fn version_discovery(version: &RemoteVersion) -> Value {
    let Some(listed) = &version.resources else {
        return json!({"version": version.version, "freshness": "Stale"});
    };
    let mut resources: Vec<Value> = Vec::new();
    // By plural.
    let mut places: HashMap<&str, usize> = HashMap::new();
    for resource in listed.iter() {
        let (plural, part) = resource.name.split_once('/').unwrap_or((&resource.name, ""));
        if part.is_empty() {
            let mut entry = json!({
                "resource": plural,
                "responseKind": response_kind(resource),
                "scope": if resource.namespaced { "Namespaced" } else { "Cluster" },
                "singularResource": resource.singular,
                "verbs": resource.verbs,
            });
            for (name, list) in [("shortNames", &resource.short_names), ("categories", &resource.categories)]
            {
                if !list.is_empty() {
                    entry[name] = json!(list);
                }
            }
            places.entry(plural).or_insert(resources.len());
            resources.push(entry);
        } else if let Some(entry) = places.get(plural).and_then(|place| resources.get_mut(*place)) {
            let subresource = json!({
                "subresource": part,
                "responseKind": response_kind(resource),
                "verbs": resource.verbs,
            });
            match entry["subresources"].as_array_mut() {
                Some(list) => list.push(subresource),
                None => entry["subresources"] = json!([subresource]),
            }
        }
    }
    json!({"version": version.version, "freshness": "Current", "resources": resources})
}

/// Returns the kind as the other server's list names it: without group and version if they are
/// those of the list.
fn response_kind(resource: &RemoteResource) -> Value {
    json!({"group": resource.group, "version": resource.version, "kind": resource.kind})
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn other_servers_stand_beside_this_one() {
        let resources = json!({"resources": [
            {"name": "pods", "singularName": "", "namespaced": true, "kind": "PodMetrics", "verbs": ["get"]},
            {"name": "pods/x", "kind": "X", "group": "other", "version": "v2", "verbs": ["get"]},
        ]});
        let resources = RemoteResource::read_list(resources.to_string().as_bytes()).expect("readable");
        let version = |version: &str, resources: Option<Arc<[RemoteResource]>>| RemoteVersion {
            group: "metrics.k8s.io".into(),
            version: version.into(),
            priorities: (100, 100),
            resources,
        };
        let remote = [version("v1", Some(resources)), version("v1beta1", None)];
        let mut groups = json!({"groups": [{"name": "apps", "versions": []}]});
        add_groups(&mut groups, &remote);
        assert_eq!(groups["groups"][1]["preferredVersion"]["groupVersion"], "metrics.k8s.io/v1");
        assert_eq!(groups["groups"][1]["versions"].as_array().map(Vec::len), Some(2));
        assert_eq!(
            group("metrics.k8s.io", &remote).map(|group| group["kind"].clone()),
            Some("APIGroup".into())
        );
        assert_eq!(group("apps", &remote), None);
        let mut discovery = json!({"items": []});
        add_discovery(&mut discovery, &remote);
        let versions = &discovery["items"][0]["versions"];
        assert_eq!(versions[0]["resources"][0]["responseKind"]["kind"], "PodMetrics");
        assert_eq!(versions[0]["resources"][0]["subresources"][0]["responseKind"]["group"], "other");
        assert_eq!(versions[1], json!({"version": "v1beta1", "freshness": "Stale"}));
    }
}
