//! The volumes that are attached to a node, in its status.
//!
//! A volume is in the list from when its driver has attached it until it is to be detached: what
//! removes a machine waits for an empty list.
//!
//! Source: kube-controller-manager's `pkg/controller/volume/attachdetach/statusupdater`.

use std::sync::Arc;
use std::time::Duration;

use coracle_controller_runtime::cache::{Cache, NamespacedName};
use coracle_controller_runtime::{
    Action, Controller, Error, Initialize, ReconcileContext, Sources, ignore_not_found,
};
use coracle_kinds::storage::attachment::{attachment, is_attached, volume_of};
use coracle_volumes::indexes::ByNode;
use k8s_openapi::api::core::v1::{AttachedVolume, Node, PersistentVolume};
use k8s_openapi::api::storage::v1::VolumeAttachment;
use kube::ResourceExt;
use kube::api::Patch;
use serde_json::json;

use super::is_managed;
use crate::settings::{Context, Settings};
use crate::timers::NODE_VOLUMES_BATCH;

/// Volumes that are attached at one time are written once: a node with many volumes is large. It is
/// the period of kube-controller-manager's reconciler.
const TOGETHER: Duration = Duration::from_millis(100);

pub struct NodeStatusController {
    nodes: Arc<Cache<Node>>,
    volumes: Arc<Cache<PersistentVolume>>,
    attachments: Arc<Cache<VolumeAttachment>>,
}

impl Initialize<Settings> for NodeStatusController {
    fn new(context: &Context) -> NodeStatusController {
        NodeStatusController {
            nodes: context.cache(),
            volumes: context.cache(),
            attachments: context.cache(),
        }
    }
}

impl Controller for NodeStatusController {
    const NAME: &'static str = super::NAME;
    const QUEUE_NAME: &'static str = "attach_detach_node_status";
    /// A node.
    type Key = NamespacedName;

    fn sources(&self, sources: &mut Sources<NamespacedName>) {
        sources
            .on(&self.attachments, |change, queue| {
                if change.changed(is_reported) {
                    let nodes = change.states().map(|attachment| ByNode::key(&attachment.spec.node_name));
                    nodes.for_each(|node| queue.add_after(node, NODE_VOLUMES_BATCH.after(TOGETHER)));
                }
            })
            // One of the name may have other volumes attached.
            .on_each_if(&self.nodes, |change| change.changed(|node| node.metadata.uid.clone()));
    }

    async fn reconcile(&self, name: &NamespacedName, ctx: &ReconcileContext) -> Result<Action, Error> {
        let Some(node) = self.nodes.get(name).filter(|node| is_managed(node)) else {
            return Ok(Action::AwaitChange);
        };
        let mut attachments = self.attachments.by::<ByNode>(name);
        attachments.retain(|attachment| is_reported(attachment));
        attachments.sort_by_key(|attachment| attachment.name_any());
        let wanted: Vec<AttachedVolume> =
            attachments.iter().filter_map(|attachment| self.volume(attachment)).collect();
        let known = node.status.as_ref().and_then(|status| status.volumes_attached.as_deref());
        if known.unwrap_or_default() != wanted {
            // A list without elements is removed.
            let wanted = Some(wanted).filter(|wanted| !wanted.is_empty());
            let patch =
                json!({"metadata": {"uid": node.metadata.uid}, "status": {"volumesAttached": wanted}});
            ignore_not_found(ctx.api(&self.nodes).patch_status_unread(name, Patch::Strategic(patch)).await)?;
        }
        Ok(Action::AwaitChange)
    }
}

impl NodeStatusController {
    /// Returns the volume of an attachment; None if a client made the attachment.
    fn volume(&self, known: &VolumeAttachment) -> Option<AttachedVolume> {
        let volume = self.volumes.get(&NamespacedName::new("", volume_of(known)?))?;
        let made = attachment(&volume, &known.spec.node_name)?;
        let source = volume.spec.as_ref()?.csi.as_ref()?;
        (made.metadata.name == known.metadata.name).then(|| AttachedVolume {
            device_path: String::new(),
            name: format!("kubernetes.io/csi/{}^{}", source.driver, source.volume_handle),
        })
    }
}

fn is_reported(attachment: &VolumeAttachment) -> bool {
    is_attached(attachment) && attachment.metadata.deletion_timestamp.is_none()
}
