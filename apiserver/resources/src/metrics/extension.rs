//! The group as one that is served only while something provides it: here a pod with an annotation of usage.

use coracle_apimachinery::names::GroupResource;
use coracle_apimachinery::resource_info::{ExtensionGroup, Group};
use serde_json::{Value, json};

use super::usage::{GROUP, RESOURCES};

/// `group` as an extension: with its APIService, and the ClusterRole that lets everyone who may view
/// a namespace view its metrics.
pub fn extension(group: Group) -> ExtensionGroup {
    let api_service = json!({
        "kind": "APIService", "apiVersion": "apiregistration.k8s.io/v1",
        "metadata": {"name": format!("v1beta1.{GROUP}")},
        "spec": {"group": GROUP, "version": "v1beta1", "groupPriorityMinimum": 100, "versionPriority": 100},
    });
    let aggregate = |role: &str| (format!("rbac.authorization.k8s.io/aggregate-to-{role}"), json!("true"));
    let labels: serde_json::Map<String, Value> =
        ["admin", "edit", "view"].map(aggregate).into_iter().collect();
    let reader = json!({
        "kind": "ClusterRole", "apiVersion": "rbac.authorization.k8s.io/v1",
        "metadata": {"name": "system:aggregated-metrics-reader", "labels": labels},
        "rules": [{"apiGroups": [GROUP], "resources": ["pods", "nodes"], "verbs": ["get", "list", "watch"]}],
    });
    ExtensionGroup {
        group,
        source: GroupResource::new("", "pods"),
        is_provided_by: |pod| {
            RESOURCES.iter().any(|(_, annotation)| memchr::memmem::find(pod, annotation.as_bytes()).is_some())
        },
        objects: vec![api_service, reader],
    }
}
