//! node-driver-registrar: the CSIDriver object, and the driver's entry in the CSINode of each
//! simulated node.
//!
//! Both are created once, when the driver or the node starts, and not again after a client has
//! deleted them.

use std::sync::Arc;

use coracle_controller_runtime::cache::{Cache, NamespacedName};
use coracle_controller_runtime::{
    Action, Controller, Error, Initialize, ReconcileContext, Sources, ignore_conflict, ignore_not_found,
};
use coracle_object_meta::set_annotation;
use coracle_volumes::migration::{CSI_DRIVER, Migration};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::storage::v1::{CSIDriver, CSIDriverSpec, CSINode, CSINodeDriver, CSINodeSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use serde_json::json;

use crate::node::SimulatedNode;
use crate::settings::{Context, Settings};

pub struct NodeDriverRegistrar {
    /// The client of CSIDrivers and CSINodes: there is no cache of what is written once.
    unrecorded: Client,
    nodes: Arc<Cache<Node>>,
    count: usize,
    migration: Migration,
}

/// The annotation of a CSINode with the plugins that its kubelet treats as migrated to CSI drivers.
const MIGRATED_PLUGINS: &str = "storage.alpha.kubernetes.io/migrated-plugins";

impl Initialize<Settings> for NodeDriverRegistrar {
    fn new(context: &Context) -> NodeDriverRegistrar {
        NodeDriverRegistrar {
            unrecorded: context.unrecorded.clone(),
            nodes: context.cache(),
            count: context.settings.nodes.unwrap_or(0),
            migration: context.settings.volumes.migration,
        }
    }
}

impl Controller for NodeDriverRegistrar {
    const NAME: &'static str = CSI_DRIVER;
    const QUEUE_NAME: &'static str = "csi_register";
    /// The name of a node, or of the driver.
    type Key = String;

    fn sources(&self, sources: &mut Sources<String>) {
        let count = self.count;
        sources
            .on(&self.nodes, move |change, queue| {
                let is_new = change.old.is_none();
                let name = change
                    .name()
                    .map(|name| name.name)
                    .filter(|name| is_new && SimulatedNode::named(name, count).is_some());
                name.into_iter().for_each(|name| queue.add(name));
            })
            .at_first([CSI_DRIVER.to_owned()]);
    }

    async fn reconcile(&self, key: &String, _: &ReconcileContext) -> Result<Action, Error> {
        match self.nodes.get(&NamespacedName::new("", key)) {
            Some(node) => self.node(&node).await?,
            None if key == CSI_DRIVER => {
                let api = Api::<CSIDriver>::all(self.unrecorded.clone());
                ignore_conflict(api.create(&PostParams::default(), &driver()).await)?;
            }
            None => {}
        }
        Ok(Action::AwaitChange)
    }
}

impl NodeDriverRegistrar {
    async fn node(&self, node: &Node) -> Result<(), Error> {
        let api = Api::<CSINode>::all(self.unrecorded.clone());
        let wanted = csi_node(node, self.migration);
        if ignore_conflict(api.create(&PostParams::default(), &wanted).await)?.is_none() {
            // Drivers are merged by their names.
            let annotations = &wanted.metadata.annotations;
            let patch = json!({"metadata": {"annotations": annotations}, "spec": wanted.spec});
            let patch = Patch::Strategic(patch);
            ignore_not_found(api.patch(&node.name_any(), &PatchParams::default(), &patch).await)?;
        }
        Ok(())
    }
}

fn driver() -> CSIDriver {
    let mut driver = CSIDriver::default();
    driver.metadata.name = Some(CSI_DRIVER.to_owned());
    driver.spec = CSIDriverSpec {
        attach_required: Some(true),
        fs_group_policy: Some("File".to_owned()),
        pod_info_on_mount: Some(false),
        volume_lifecycle_modes: Some(vec!["Persistent".to_owned()]),
        ..CSIDriverSpec::default()
    };
    driver
}

fn csi_node(node: &Node, migration: Migration) -> CSINode {
    let name = node.name_any();
    let mut csi_node = CSINode::default();
    csi_node.metadata.name = Some(name.clone());
    csi_node.metadata.owner_references = Some(vec![OwnerReference {
        api_version: "v1".to_owned(),
        kind: "Node".to_owned(),
        name: name.clone(),
        uid: node.uid().unwrap_or_default(),
        ..OwnerReference::default()
    }]);
    let driver = CSINodeDriver { name: CSI_DRIVER.to_owned(), node_id: name, ..CSINodeDriver::default() };
    set_annotation(&mut csi_node.metadata, MIGRATED_PLUGINS, &migration.plugins().join(","));
    csi_node.spec = CSINodeSpec { drivers: vec![driver] };
    csi_node
}
