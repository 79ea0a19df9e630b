//! The loop over volumes: observe, [`plan`], act.

pub mod plan;

use std::sync::Arc;

use coracle_clock::Clock;
use coracle_controller_runtime::cache::{Cache, NamespacedName};
use coracle_controller_runtime::events::Recorder;
use coracle_controller_runtime::{Action, Controller, Error, Initialize, ReconcileContext, Sources};
use coracle_kinds::storage::{ClaimExt, DELETE, MIGRATED_TO, VolumeExt};
use coracle_object_meta::annotation;
use coracle_volumes::indexes::ByClaimRef;
use coracle_volumes::migration::{HOST_PATH, Migration};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::storage::v1::StorageClass;
use kube::Resource;

use super::claims::plan::EventRecord;
use super::metrics::{EndToEnd, Operation, UNKNOWN};
use super::writer::Writer;
use super::{COMPONENT, NAME, RESYNC, in_tree};
use crate::settings::{Context, Settings};
use crate::timers::VOLUME_RESYNC;
use plan::{Plan, plan};

pub struct VolumeController {
    claims: Arc<Cache<PersistentVolumeClaim>>,
    volumes: Arc<Cache<PersistentVolume>>,
    classes: Arc<Cache<StorageClass>>,
    writer: Writer,
    recorder: Recorder,
    clock: Clock,
    honors_policy: bool,
    migration: Migration,
    deleting: EndToEnd,
}

impl Initialize<Settings> for VolumeController {
    fn new(context: &Context) -> VolumeController {
        VolumeController {
            claims: context.cache(),
            volumes: context.cache(),
            writer: Writer::new(context),
            recorder: context.recorder(COMPONENT),
            clock: context.clock.clone(),
            honors_policy: context.settings.volumes.honors_policy,
            migration: context.settings.volumes.migration,
            classes: context.cache(),
            deleting: EndToEnd::new(context, Operation::Delete),
        }
    }
}

impl Controller for VolumeController {
    const NAME: &'static str = NAME;
    const QUEUE_NAME: &'static str = "volumes";
    type Key = NamespacedName;

    fn sources(&self, sources: &mut Sources<NamespacedName>) {
        let (volumes, all) = (self.volumes.clone(), self.volumes.clone());
        sources
            .on_each(&self.volumes)
            .on(&self.claims, move |change, queue| {
                let stays = |claim: &&PersistentVolumeClaim| {
                    change.new.as_ref().is_some_and(|new| new.metadata.uid == claim.metadata.uid)
                };
                let gone = change.old.as_deref().filter(|claim| !stays(claim));
                let freed = gone.into_iter().flat_map(|claim| volumes_of(claim, &volumes));
                freed.for_each(|volume| queue.add(volume));
            })
            .periodically(VOLUME_RESYNC.after(RESYNC), &self.clock, move |queue| {
                all.all().iter().for_each(|volume| queue.add(NamespacedName::of(volume.as_ref())));
            });
    }

    async fn reconcile(&self, name: &NamespacedName, ctx: &ReconcileContext) -> Result<Action, Error> {
        let Some(volume) = self.volumes.get(name) else {
            self.deleting.end(name);
            return Ok(Action::AwaitChange);
        };
        let volume = match plan::annotated(&volume, self.honors_policy, self.migration) {
            Some(marked) => self.writer.volume(marked, ctx).await?,
            None => volume.as_ref().clone(),
        };
        let claim = referred(&self.claims, &volume, ctx).await?;
        match plan(&volume, claim.as_deref()) {
            Plan::Phase(phase) => {
                self.writer.volume_phase(volume, phase, ctx).await?;
            }
            Plan::Release => self.release(volume, ctx).await?,
            // The claim is reconciled whenever its volume changes.
            Plan::AwaitClaim => {}
            Plan::Mismatch { volume: about_volume, claim: about_claim } => {
                self.record(&volume, &about_volume);
                claim.iter().for_each(|claim| self.record(claim.as_ref(), &about_claim));
            }
            Plan::Unbind => self.writer.unbind(&volume, ctx).await?,
        }
        Ok(Action::AwaitChange)
    }
}

impl VolumeController {
    /// Returns the plugin or driver that deletes the storage of a volume, by its class: clients may
    /// write anything on the volume.
    fn deleter(&self, volume: &PersistentVolume) -> String {
        match in_tree::deletes(volume) {
            Ok(true) => HOST_PATH.to_owned(),
            Ok(false) => {
                let class = self.classes.get(&NamespacedName::new("", volume.class()));
                let driver = |plugin: &str| self.migration.driver(plugin).unwrap_or(plugin).to_owned();
                class.map_or(UNKNOWN.to_owned(), |class| driver(&class.provisioner))
            }
            Err(_) => UNKNOWN.to_owned(),
        }
    }

    fn record(&self, about: &impl Resource<DynamicType = ()>, event: &EventRecord) {
        self.recorder.event(about.object_ref(&()), event.r#type, event.reason, event.message.clone());
    }

    /// Sets phase Released and records an event for an unknown reclaim policy. The plugins apply
    /// known policies.
    async fn release(&self, mut volume: PersistentVolume, ctx: &ReconcileContext) -> Result<(), Error> {
        if !matches!(volume.phase(), "Released" | "Failed") {
            volume = self.writer.volume_phase(volume, "Released", ctx).await?;
        }
        if volume.policy() == DELETE && annotation(&volume.metadata, MIGRATED_TO).is_none() {
            self.deleting.begin(&NamespacedName::of(&volume), &self.deleter(&volume));
        }
        if let Some(event) = plan::unreclaimable(&volume).filter(|_| volume.phase() != "Failed") {
            let changed = volume.with_phase("Failed", &event.message);
            let changed = self.writer.volume_status(changed, ctx).await?;
            self.record(&changed, &event);
        }
        Ok(())
    }
}

/// Returns the volumes of a deleted claim, including one provisioned for the claim that the claim
/// does not name yet.
fn volumes_of(claim: &PersistentVolumeClaim, volumes: &Cache<PersistentVolume>) -> Vec<NamespacedName> {
    match claim.volume_name() {
        "" => {
            let meant = volumes.by::<ByClaimRef>(&NamespacedName::of(claim)).into_iter();
            meant.filter(|volume| volume.is_bound_to(claim)).map(|v| NamespacedName::of(v.as_ref())).collect()
        }
        name => vec![NamespacedName::new("", name)],
    }
}

/// Returns the claim that a volume refers to, by name and uid. The server is asked if the cache has
/// no such claim: the cache may be behind, and the data may be deleted next.
pub async fn referred(
    claims: &Arc<Cache<PersistentVolumeClaim>>,
    volume: &PersistentVolume,
    ctx: &ReconcileContext,
) -> Result<Option<Arc<PersistentVolumeClaim>>, Error> {
    let uid = volume.claim_ref().and_then(|reference| reference.uid.as_ref());
    let Some((name, uid)) = volume.claim_name().zip(uid).filter(|(_, uid)| !uid.is_empty()) else {
        return Ok(None);
    };
    let is_meant = |claim: &PersistentVolumeClaim| claim.metadata.uid.as_ref() == Some(uid);
    if let Some(claim) = claims.get(&name).filter(|claim| is_meant(claim)) {
        return Ok(Some(claim));
    }
    Ok(ctx.api(claims).get(&name).await?.filter(is_meant).map(Arc::new))
}
