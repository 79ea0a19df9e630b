//! The loop that deletes or recycles what is behind a released volume, if the plugin in the
//! controller can.
//!
//! A volume is reconciled when it changes; then, if it is released or failed before, and not
//! migrated:
//! 1. the plugin that can delete it is found; without one its phase becomes Failed, with an event;
//! 2. the server is asked whether it is still so, and whether its claim is deleted;
//! 3. the directory is removed, unless it is another volume's too, then the finalizer that kept the
//!    volume for that (KEP-2644), then the volume itself, which may be terminating by then; without
//!    the gate HonorPVReclaimPolicy one that is terminating is left alone, and no finalizer known.

use std::sync::Arc;

use coracle_clock::Clock;
use coracle_controller_runtime::cache::{Cache, NamespacedName};
use coracle_controller_runtime::events::Recorder;
use coracle_controller_runtime::{
    Action, Controller, Error, Initialize, ReconcileContext, Sources, ignore_not_found,
};
use coracle_kinds::pods::is_terminated;
use coracle_kinds::storage::{ClaimExt, DELETE, DELETION_PROTECTIONS, MIGRATED_TO, RECYCLE, VolumeExt};
use coracle_object_meta::{annotation, set_finalizer};
use coracle_volumes::indexes::ByClaim;
use coracle_volumes::migration::HOST_PATH;
use coracle_volumes::provisioner::directories::Directories;
use coracle_volumes::provisioner::operations::{Operations, Step, VolumeBehavior};
use coracle_volumes::timers::VOLUME_DELETION;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod};
use kube::ResourceExt;
use kube::api::DeleteParams;

use super::super::metrics::{Attempts, Operation};
use super::super::volumes::referred;
use super::super::writer::Writer;
use super::super::{COMPONENT, NAME, RESYNC};
use super::deletes;
use crate::settings::{Context, Settings};
use crate::timers::VOLUME_RESYNC;

pub struct ReclaimController {
    volumes: Arc<Cache<PersistentVolume>>,
    claims: Arc<Cache<PersistentVolumeClaim>>,
    pods: Arc<Cache<Pod>>,
    writer: Writer,
    directories: Directories,
    operations: Operations,
    honors_policy: bool,
    recorder: Recorder,
    clock: Clock,
    attempts: Attempts,
}

impl Initialize<Settings> for ReclaimController {
    fn new(context: &Context) -> ReclaimController {
        ReclaimController {
            volumes: context.cache(),
            claims: context.cache(),
            pods: context.cache(),
            writer: Writer::new(context),
            directories: Directories::new(&context.settings.volumes.data),
            operations: Operations::new(context.clock.clone()),
            honors_policy: context.settings.volumes.honors_policy,
            recorder: context.recorder(COMPONENT),
            clock: context.clock.clone(),
            attempts: Attempts::new(context, Operation::Delete, HOST_PATH),
        }
    }
}

impl Controller for ReclaimController {
    const NAME: &'static str = NAME;
    const QUEUE_NAME: &'static str = "host_path_reclaim";
    type Key = NamespacedName;

    fn sources(&self, sources: &mut Sources<NamespacedName>) {
        let volumes = self.volumes.clone();
        sources
            .on_each_if(&self.volumes, |change| change.new.as_ref().is_some_and(|volume| is_ours(volume)))
            .periodically(VOLUME_RESYNC.after(RESYNC), &self.clock, move |queue| {
                let ours = volumes.all().into_iter().filter(|volume| is_ours(volume));
                ours.for_each(|volume| queue.add(NamespacedName::of(volume.as_ref())));
            });
    }

    async fn reconcile(&self, name: &NamespacedName, ctx: &ReconcileContext) -> Result<Action, Error> {
        let Some(volume) = self.volumes.get(name).filter(|volume| is_ours(volume)) else {
            self.operations.forget(name);
            return Ok(Action::AwaitChange);
        };
        match volume.policy() {
            DELETE => return self.delete(&volume, ctx).await,
            RECYCLE => self.recycle(&volume, ctx).await?,
            _ => {}
        }
        Ok(Action::AwaitChange)
    }
}

impl ReclaimController {
    async fn delete(&self, volume: &PersistentVolume, ctx: &ReconcileContext) -> Result<Action, Error> {
        match deletes(volume) {
            Ok(true) => {}
            Ok(false) => return Ok(Action::AwaitChange),
            Err(refusal) => {
                self.fail(volume, "VolumeFailedDelete", refusal, ctx).await?;
                return Ok(Action::AwaitChange);
            }
        }
        let live = self.released(volume, ctx).await?;
        // Without the gate a terminating volume is taken for one that is being deleted already.
        let Some(live) = live.filter(|live| self.honors_policy || !live.is_terminating()) else {
            return Ok(Action::AwaitChange);
        };
        let name = NamespacedName::of(volume);
        let (behavior, warnings) = VolumeBehavior::of_volume(&live);
        let attempt = self.operations.attempt(&name, live.metadata.uid.as_deref(), behavior.delete);
        if attempt.is_new {
            warnings.iter().for_each(|c| self.recorder.warning(&live, "InvalidSimulation", c));
        }
        let deleted = match attempt.step {
            Step::Wait(left) => return Ok(Action::Requeue(VOLUME_DELETION.after(left))),
            Step::Fail(why) => Err(why),
            Step::Execute => match self.refusal(&live, ctx).await? {
                Some(refusal) => Err(refusal),
                None => self.directories.delete(&live).await,
            },
        };
        self.attempts.observe(attempt.seconds, deleted.is_ok());
        if let Err(refusal) = deleted {
            self.operations.fail(&name);
            self.fail(&live, "VolumeFailedDelete", refusal.clone(), ctx).await?;
            return Err(Error::Unfinished(refusal));
        }
        let mut changed = live.clone();
        let mut is_kept = false;
        for finalizer in DELETION_PROTECTIONS {
            is_kept |= set_finalizer(&mut changed.metadata, finalizer, false);
        }
        if self.honors_policy && is_kept {
            // Without its last finalizer a terminating volume is deleted.
            self.writer.volume(changed, ctx).await?;
        }
        ignore_not_found(ctx.api(&self.volumes).delete(&live, &DeleteParams::default()).await)?;
        Ok(Action::AwaitChange)
    }

    async fn recycle(&self, volume: &PersistentVolume, ctx: &ReconcileContext) -> Result<(), Error> {
        let Some(live) = self.released(volume, ctx).await? else { return Ok(()) };
        let pods = self.pods_of(&live);
        if !pods.is_empty() {
            let message = format!("Volume is used by pods: {}", pods.join(","));
            self.recorder.normal(&live, "VolumeFailedRecycle", message);
            return Ok(());
        }
        if live.spec.as_ref().is_none_or(|spec| spec.host_path.is_none()) {
            let refusal = "No recycler plugin found for the volume!".to_owned();
            return self.fail(&live, "VolumeFailedRecycle", refusal, ctx).await;
        }
        let recycled = match self.refusal(&live, ctx).await? {
            Some(refusal) => Err(refusal),
            None => self.directories.recycle(&live).await,
        };
        if let Err(refusal) = recycled {
            let refusal = format!("Recycle failed: {refusal}");
            self.fail(&live, "VolumeFailedRecycle", refusal.clone(), ctx).await?;
            return Err(Error::Unfinished(refusal));
        }
        self.recorder.normal(&live, "VolumeRecycled", "Volume recycled");
        self.writer.unbind(&live, ctx).await
    }

    /// Returns the reason if the directory of a released volume must be kept: another volume has
    /// it, too.
    async fn refusal(
        &self,
        volume: &PersistentVolume,
        ctx: &ReconcileContext,
    ) -> Result<Option<String>, Error> {
        let other = self.directories.other_user(volume, &self.volumes, ctx).await?;
        Ok(other.map(|other| format!("its directory is also that of persistentvolume {other}")))
    }

    /// Returns the volume as the server has it, if its claim is deleted.
    async fn released(
        &self,
        volume: &PersistentVolume,
        ctx: &ReconcileContext,
    ) -> Result<Option<PersistentVolume>, Error> {
        let live = ctx.api(&self.volumes).get(&NamespacedName::of(volume)).await?;
        let Some(live) = live.filter(|live| live.metadata.uid == volume.metadata.uid && is_ours(live)) else {
            return Ok(None);
        };
        let has_uid = live
            .claim_ref()
            .and_then(|reference| reference.uid.as_deref())
            .is_some_and(|uid| !uid.is_empty());
        let claim = referred(&self.claims, &live, ctx).await?;
        let is_elsewhere = |claim: &PersistentVolumeClaim| {
            !claim.volume_name().is_empty() && claim.volume_name() != live.name_any()
        };
        let is_wanted = !has_uid || claim.is_some_and(|claim| !is_elsewhere(&claim));
        Ok((!is_wanted).then_some(live))
    }

    fn pods_of(&self, volume: &PersistentVolume) -> Vec<String> {
        let pods = volume.claim_name().map(|claim| self.pods.by::<ByClaim>(&claim)).unwrap_or_default();
        let using = pods.iter().filter(|pod| !is_terminated(pod));
        using.map(|pod| NamespacedName::of(pod.as_ref()).to_string()).collect()
    }

    /// Sets phase Failed, and records an event if the phase changes.
    async fn fail(
        &self,
        volume: &PersistentVolume,
        reason: &str,
        message: String,
        ctx: &ReconcileContext,
    ) -> Result<(), Error> {
        if volume.phase() != "Failed" {
            let volume = self.writer.volume_status(volume.with_phase("Failed", &message), ctx).await?;
            self.recorder.warning(&volume, reason, message);
        }
        Ok(())
    }
}

/// Returns `true` if an in-tree plugin of this controller has to reclaim a volume.
fn is_ours(volume: &PersistentVolume) -> bool {
    matches!(volume.phase(), "Released" | "Failed") && annotation(&volume.metadata, MIGRATED_TO).is_none()
}
