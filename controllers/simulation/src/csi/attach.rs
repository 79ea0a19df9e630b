//! external-attacher: serves the VolumeAttachments of the driver. For a directory there is nothing
//! to attach but the status.
//!
//! A new one gets a finalizer, then its status; from a terminating one the finalizer is removed.

use std::sync::Arc;

use coracle_controller_runtime::cache::{Cache, NamespacedName};
use coracle_controller_runtime::{
    Action, Controller, Error, Initialize, ReconcileContext, Sources, ignore_conflict, ignore_not_found,
};
use coracle_kinds::storage::attachment::{is_attached, volume_of};
use coracle_object_meta::has_finalizer;
use coracle_volumes::migration::CSI_DRIVER;
use k8s_openapi::api::core::v1::PersistentVolume;
use k8s_openapi::api::storage::v1::VolumeAttachment;
use kube::api::Patch;
use serde_json::{Value, json};

use crate::settings::{Context, Settings};

/// The finalizer of external-attacher: `external-attacher/` and the driver's name with `-` for `.`.
const FINALIZER: &str = "external-attacher/coracle-csi";

pub struct ExternalAttacher {
    attachments: Arc<Cache<VolumeAttachment>>,
    volumes: Arc<Cache<PersistentVolume>>,
}

impl Initialize<Settings> for ExternalAttacher {
    fn new(context: &Context) -> ExternalAttacher {
        ExternalAttacher { attachments: context.cache(), volumes: context.cache() }
    }
}

impl Controller for ExternalAttacher {
    const NAME: &'static str = CSI_DRIVER;
    const QUEUE_NAME: &'static str = "csi_attach";
    /// An attachment.
    type Key = NamespacedName;

    fn sources(&self, sources: &mut Sources<NamespacedName>) {
        sources.on_each_if(&self.attachments, |change| change.new.as_ref().is_some_and(|new| is_ours(new)));
    }

    async fn reconcile(&self, name: &NamespacedName, ctx: &ReconcileContext) -> Result<Action, Error> {
        let Some(attachment) = self.attachments.get(name).filter(|attachment| is_ours(attachment)) else {
            return Ok(Action::AwaitChange);
        };
        let has_finalizer = has_finalizer(&attachment.metadata, FINALIZER);
        if attachment.metadata.deletion_timestamp.is_some() {
            if has_finalizer {
                let none = json!({"metadata": {"$deleteFromPrimitiveList/finalizers": [FINALIZER]}});
                self.patch(&attachment, none, ctx).await?;
            }
            return Ok(Action::AwaitChange);
        }
        if !has_finalizer {
            self.patch(&attachment, json!({"metadata": {"finalizers": [FINALIZER]}}), ctx).await?;
        }
        let volume = volume_of(&attachment).unwrap_or_default();
        if !is_attached(&attachment) && self.volumes.get(&NamespacedName::new("", volume)).is_some() {
            self.patch(&attachment, json!({"status": {"attached": true}}), ctx).await?;
        }
        Ok(Action::AwaitChange)
    }
}

impl ExternalAttacher {
    async fn patch(
        &self,
        attachment: &VolumeAttachment,
        mut patch: Value,
        ctx: &ReconcileContext,
    ) -> Result<(), Error> {
        let (api, name) = (ctx.api(&self.attachments), NamespacedName::of(attachment));
        let is_of_status = patch.get("status").is_some();
        patch["metadata"]["uid"] = json!(attachment.metadata.uid);
        let patch = Patch::Strategic(patch);
        let answer = match is_of_status {
            true => api.patch_status(&name, patch).await,
            false => api.patch(&name, patch).await,
        };
        ignore_not_found(ignore_conflict(answer))?;
        Ok(())
    }
}

fn is_ours(attachment: &VolumeAttachment) -> bool {
    attachment.spec.attacher == CSI_DRIVER
}
