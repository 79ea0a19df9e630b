//! The resources of deleted definitions. History may still have their objects.

use std::sync::Arc;

use coracle_apimachinery::names::GroupResource;
use coracle_apimachinery::resource_info::{CustomKind, CustomVersion, ResourceInfo, ResourceTable};
use coracle_apiserver::registry::ObjectIndex;
use coracle_storage::{Revision, Store};
use serde_json::Value;

use crate::history::events;
use crate::why::parsed;

/// The maximum number of deleted definitions that are read.
const MAX_DEFINITIONS: usize = 1000;

/// Returns the resources of deleted definitions, each as it was last.
///
/// - `resources`: what is served
/// - `until`: the last revision
pub fn resources(
    store: &Store<ObjectIndex>,
    resources: &ResourceTable,
    until: Revision,
) -> Vec<Arc<ResourceInfo>> {
    let definitions = GroupResource::new("apiextensions.k8s.io", "customresourcedefinitions");
    let Some(definitions) = resources.by_resource(&definitions) else { return Vec::new() };
    let mut former: Vec<Arc<ResourceInfo>> = Vec::new();
    let deleted = events(store, &definitions.storage.bucket, until).filter(|event| event.after.is_none());
    for event in deleted.take(MAX_DEFINITIONS) {
        let definition = event.before.as_deref().map(parsed).unwrap_or_default();
        let Some(info) = resource(&definition["spec"]) else { continue };
        former.retain(|earlier| earlier.group_resource != info.group_resource);
        if resources.by_resource(&info.group_resource).is_none() {
            former.push(Arc::new(info));
        }
    }
    former
}

/// Returns the resource of a definition in its storage version.
fn resource(spec: &Value) -> Option<ResourceInfo> {
    let names = &spec["names"];
    let is_namespaced = spec["scope"] == "Namespaced";
    let (group, kind, plural) = (spec["group"].as_str()?, names["kind"].as_str()?, names["plural"].as_str()?);
    let mut kind = CustomKind::new(group, kind, plural, is_namespaced);
    if let Some(singular) = names["singular"].as_str() {
        kind.singular = singular.to_owned();
    }
    let short_names = names["shortNames"].as_array().into_iter().flatten();
    kind.short_names = short_names.filter_map(|name| name.as_str().map(str::to_owned)).collect();
    let version = spec["versions"].as_array()?.iter().find(|version| version["storage"] == true)?;
    let version = CustomVersion::new(version["name"].as_str()?).stored();
    kind.resources(vec![version]).ok()?.pop()
}
