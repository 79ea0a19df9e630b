//! Workloads of apps/v1, and the ReplicationController.

use coracle_apimachinery::names::{GroupKind, GroupVersion};
use coracle_apimachinery::render::columns::Text::{Field as Described, Literal};
use coracle_apimachinery::render::columns::{AGE, Column, NAME, Row, integer, string};
use coracle_apimachinery::selector::LabelSelector;
use serde_json::Value;

use super::template::{CONTAINERS, IMAGES, labels, selector};

const READY_OF_DESIRED: Column = string("Ready", Literal("Number of the pod with ready state"), |row| {
    let count = |path| row.get(path).int().unwrap_or(0);
    format!("{}/{}", count("status.readyReplicas"), count("spec.replicas")).into()
});

/// The columns of Deployment.
pub const DEPLOYMENT: &[Column] = &[
    NAME,
    READY_OF_DESIRED,
    string("Up-to-date", Described("apps.v1.DeploymentStatus.updatedReplicas"), |row| {
        row.integer("status.updatedReplicas")
    }),
    string("Available", Described("apps.v1.DeploymentStatus.availableReplicas"), |row| {
        row.integer("status.availableReplicas")
    }),
    AGE,
    CONTAINERS,
    IMAGES,
    string("Selector", Described("apps.v1.DeploymentSpec.selector"), |row| {
        let selector = LabelSelector::from_object(row.get("spec.selector").value());
        selector.map_or_else(String::new, |selector| selector.to_string()).into()
    })
    .wide(),
];

/// The columns of StatefulSet.
pub const STATEFUL_SET: &[Column] = &[NAME, READY_OF_DESIRED, AGE, CONTAINERS, IMAGES];

/// The columns of ReplicaSet.
pub const REPLICA_SET: &[Column] = &[
    NAME,
    integer("Desired", Described("apps.v1.ReplicaSetSpec.replicas"), |row| row.integer("spec.replicas")),
    integer("Current", Described("apps.v1.ReplicaSetStatus.replicas"), |row| row.integer("status.replicas")),
    integer("Ready", Described("apps.v1.ReplicaSetStatus.readyReplicas"), |row| {
        row.integer("status.readyReplicas")
    }),
    AGE,
    CONTAINERS,
    IMAGES,
    string("Selector", Described("apps.v1.ReplicaSetSpec.selector"), selector_cell).wide(),
];

/// The columns of ReplicationController.
pub const REPLICATION_CONTROLLER: &[Column] = &[
    NAME,
    integer("Desired", Described("core.v1.ReplicationControllerSpec.replicas"), |row| {
        row.integer("spec.replicas")
    }),
    integer("Current", Described("core.v1.ReplicationControllerStatus.replicas"), |row| {
        row.integer("status.replicas")
    }),
    integer("Ready", Described("core.v1.ReplicationControllerStatus.readyReplicas"), |row| {
        row.integer("status.readyReplicas")
    }),
    AGE,
    CONTAINERS,
    IMAGES,
    string("Selector", Described("core.v1.ReplicationControllerSpec.selector"), |row| {
        labels(&row.get("spec.selector")).into()
    })
    .wide(),
];

/// The columns of DaemonSet.
pub const DAEMON_SET: &[Column] = &[
    NAME,
    integer("Desired", Described("apps.v1.DaemonSetStatus.desiredNumberScheduled"), |row| {
        row.integer("status.desiredNumberScheduled")
    }),
    integer("Current", Described("apps.v1.DaemonSetStatus.currentNumberScheduled"), |row| {
        row.integer("status.currentNumberScheduled")
    }),
    integer("Ready", Described("apps.v1.DaemonSetStatus.numberReady"), |row| {
        row.integer("status.numberReady")
    }),
    integer("Up-to-date", Described("apps.v1.DaemonSetStatus.updatedNumberScheduled"), |row| {
        row.integer("status.updatedNumberScheduled")
    }),
    integer("Available", Described("apps.v1.DaemonSetStatus.numberAvailable"), |row| {
        row.integer("status.numberAvailable")
    }),
    string("Node Selector", Described("core.v1.PodSpec.nodeSelector"), |row| {
        labels(&row.get("spec.template.spec.nodeSelector")).into()
    }),
    AGE,
    CONTAINERS,
    IMAGES,
    string("Selector", Described("apps.v1.DaemonSetSpec.selector"), selector_cell).wide(),
];

/// The columns of ControllerRevision.
pub const CONTROLLER_REVISION: &[Column] = &[
    NAME,
    string("Controller", Literal("Controller of the object"), controller),
    string("Revision", Described("apps.v1.ControllerRevision.revision"), |row| row.integer("revision")),
    AGE,
];

fn selector_cell(row: &Row<'_>) -> Value {
    selector(&row.get("spec.selector")).into()
}

/// Formats the controller of the object: `statefulset.apps/web`.
fn controller(row: &Row<'_>) -> Value {
    let mut owners = row.get("metadata.ownerReferences").items();
    let Some(owner) = owners.find(|owner| owner.get("controller").bool()) else { return "<none>".into() };
    let group = GroupVersion::parse(owner.get("apiVersion").str()).map_or_else(String::new, |gv| gv.group);
    let kind = GroupKind::new(&group, owner.get("kind").str()).to_string().to_lowercase();
    format!("{kind}/{}", owner.get("name").str()).into()
}
