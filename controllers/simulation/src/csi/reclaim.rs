//! external-provisioner's loop over volumes: keeps them by a finalizer until their directories are
//! removed (KEP-2644).
//!
//! A volume is reconciled when it or one of its attachments changes:
//! 1. its finalizer is added or removed by its reclaim policy;
//! 2. if it is released, to be deleted, and nowhere attached, the server is asked whether that is
//!    still so;
//! 3. the directory is removed, unless it is another volume's too, then the volume, then the
//!    finalizer.

use std::sync::Arc;

use coracle_controller_runtime::cache::{Cache, NamespacedName};
use coracle_controller_runtime::events::Recorder;
use coracle_controller_runtime::{
    Action, Controller, Error, Initialize, ReconcileContext, Sources, ignore_conflict, ignore_not_found,
    uid_precondition,
};
use coracle_kinds::storage::attachment::volume_of;
use coracle_kinds::storage::{DELETION_PROTECTIONS, VolumeExt};
use coracle_object_meta::has_finalizer;
use coracle_volumes::indexes::ByVolume;
use coracle_volumes::migration::{CSI_DRIVER, Migration};
use coracle_volumes::provisioner::directories::Directories;
use coracle_volumes::provisioner::operations::{Operations, Step, VolumeBehavior};
use coracle_volumes::timers::VOLUME_DELETION;
use k8s_openapi::api::core::v1::PersistentVolume;
use k8s_openapi::api::storage::v1::VolumeAttachment;
use kube::api::Patch;
use prometheus::{CounterVec, HistogramVec};
use serde_json::json;

use super::plan::{is_ours, should_delete_storage, with_finalizer_updated};
use crate::settings::{Context, Settings};

pub struct ReclaimController {
    volumes: Arc<Cache<PersistentVolume>>,
    attachments: Arc<Cache<VolumeAttachment>>,
    directories: Directories,
    operations: Operations,
    recorder: Recorder,
    migration: Migration,
    honors_policy: bool,
    deleted: CounterVec,
    failed: CounterVec,
    duration: HistogramVec,
}

impl Initialize<Settings> for ReclaimController {
    fn new(context: &Context) -> ReclaimController {
        let counter = |name, help| context.metrics.counter(name, help, &["class"]);
        ReclaimController {
            volumes: context.cache(),
            attachments: context.cache(),
            directories: Directories::new(&context.settings.volumes.data),
            operations: Operations::new(context.clock.clone()),
            recorder: super::recorder(context),
            migration: context.settings.volumes.migration,
            honors_policy: context.settings.volumes.honors_policy,
            deleted: counter("controller_persistentvolume_delete_total", "Volumes that were deleted"),
            failed: counter(
                "controller_persistentvolume_delete_failed_total",
                "Attempts to delete a volume that failed",
            ),
            duration: context.metrics.histogram(
                "controller_persistentvolume_delete_duration_seconds",
                "How long the deletion of a volume takes",
                prometheus::DEFAULT_BUCKETS,
                &["class"],
            ),
        }
    }
}

impl Controller for ReclaimController {
    const NAME: &'static str = CSI_DRIVER;
    const QUEUE_NAME: &'static str = "csi_reclaim";
    type Key = NamespacedName;

    fn sources(&self, sources: &mut Sources<NamespacedName>) {
        let migration = self.migration;
        sources
            // Also one that was: an operation may be under way for it.
            .on_each_if(&self.volumes, move |change| change.states().any(|volume| is_ours(volume, migration)))
            .on(&self.attachments, |change, queue| {
                let volume = change.object().and_then(|attachment| volume_of(attachment));
                volume.into_iter().for_each(|volume| queue.add(NamespacedName::new("", volume)));
            });
    }

    async fn reconcile(&self, name: &NamespacedName, ctx: &ReconcileContext) -> Result<Action, Error> {
        let Some(volume) = self.volumes.get(name).filter(|volume| is_ours(volume, self.migration)) else {
            self.operations.forget(name);
            return Ok(Action::AwaitChange);
        };
        if let Some(changed) = with_finalizer_updated(&volume, self.honors_policy) {
            ctx.api(&self.volumes).replace(&changed).await?;
            return Ok(Action::AwaitChange);
        }
        if !should_delete_storage(&volume) {
            self.operations.forget(name);
            return Ok(Action::AwaitChange);
        }
        let (behavior, warnings) = VolumeBehavior::of_volume(&volume);
        let attempt = self.operations.attempt(name, volume.metadata.uid.as_deref(), behavior.delete);
        if attempt.is_new {
            warnings.iter().for_each(|c| self.recorder.warning(volume.as_ref(), "InvalidSimulation", c));
        }
        let deleted = match attempt.step {
            Step::Wait(left) => return Ok(Action::Requeue(VOLUME_DELETION.after(left))),
            Step::Fail(why) => Err(why),
            Step::Execute => match self.attached_to(&volume) {
                Some(node) => Err(format!("persistentvolume {name} is still attached to node {node}")),
                None => self.delete(&volume, ctx).await?,
            },
        };
        let class = volume.class();
        match deleted {
            Ok(()) => {
                self.operations.forget(name);
                self.deleted.with_label_values(&[class]).inc();
                self.duration.with_label_values(&[class]).observe(attempt.seconds);
                Ok(Action::AwaitChange)
            }
            Err(why) => {
                self.operations.fail(name);
                self.failed.with_label_values(&[class]).inc();
                self.recorder.warning(volume.as_ref(), "VolumeFailedDelete", &why);
                Err(Error::Unfinished(why))
            }
        }
    }
}

impl ReclaimController {
    /// Returns the node that a volume is attached to.
    fn attached_to(&self, volume: &PersistentVolume) -> Option<String> {
        let attachments = self.attachments.by::<ByVolume>(&NamespacedName::of(volume));
        attachments.first().map(|attachment| attachment.spec.node_name.clone())
    }

    /// Deletes the directory and then the volume, or returns why that cannot be. A volume that is
    /// in use again is left alone.
    async fn delete(
        &self,
        volume: &PersistentVolume,
        ctx: &ReconcileContext,
    ) -> Result<Result<(), String>, Error> {
        let (api, name) = (ctx.api(&self.volumes), NamespacedName::of(volume));
        let live = api.get(&name).await?;
        let is_still =
            |live: &PersistentVolume| live.metadata.uid == volume.metadata.uid && should_delete_storage(live);
        let Some(live) = live.filter(is_still) else { return Ok(Ok(())) };
        if let Some(other) = self.directories.other_user(&live, &self.volumes, ctx).await? {
            return Ok(Err(format!("its directory is also that of persistentvolume {other}")));
        }
        if let Err(refusal) = self.directories.delete(&live).await {
            return Ok(Err(refusal));
        }
        ignore_not_found(ignore_conflict(api.delete(&live, &uid_precondition(&live)).await))?;
        if DELETION_PROTECTIONS.iter().any(|finalizer| has_finalizer(&live.metadata, finalizer)) {
            // Others take theirs away at the same time.
            let patch = json!({
                "metadata": {"uid": live.metadata.uid, "$deleteFromPrimitiveList/finalizers": DELETION_PROTECTIONS}
            });
            ignore_not_found(ignore_conflict(api.patch(&name, Patch::Strategic(patch)).await))?;
        }
        Ok(Ok(()))
    }
}
