//! The group as one that is served only once something provides it: here a pod that is measured.

use std::sync::Arc;

use coracle_apimachinery::names::GroupResource;
use coracle_apimachinery::resource_info::{ExtensionGroup, Group};
use serde_json::{Value, json};

use super::usage::{GROUP, Measured, may_be_measured};
use super::{SimulatedNodeMetrics, SimulatedPodMetrics};

/// Returns `group` as an extension for the pods that are measured. It comes with its APIService,
/// and with the ClusterRole that lets everyone who may view a namespace view its metrics.
pub fn extension(mut group: Group, measured: Measured) -> ExtensionGroup {
    for info in group.versions.iter_mut().flat_map(|version| &mut version.resources) {
        // The other control planes of the process have the same one.
        let info = Arc::make_mut(info);
        info.behavior.computed = Some(match (&*info.kind, measured) {
            ("PodMetrics", Measured::Annotated) => &SimulatedPodMetrics(Measured::Annotated),
            ("PodMetrics", Measured::Simulated) => &SimulatedPodMetrics(Measured::Simulated),
            (_, Measured::Annotated) => &SimulatedNodeMetrics(Measured::Annotated),
            (_, Measured::Simulated) => &SimulatedNodeMetrics(Measured::Simulated),
        });
    }
    let api_service = json!({
        "kind": "APIService", "apiVersion": "apiregistration.k8s.io/v1",
        "metadata": {
            "name": format!("v1beta1.{GROUP}"),
            "labels": {"kube-aggregator.kubernetes.io/automanaged": "onstart"},
        },
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
        is_provided_by: match measured {
            Measured::Annotated => |pod| may_be_measured(pod, Measured::Annotated),
            Measured::Simulated => |pod| may_be_measured(pod, Measured::Simulated),
        },
        objects: vec![api_service, reader],
    }
}
