//! persistentvolume-binder-controller: claims find volumes, volumes are provisioned for claims and reclaimed after them.
//!
//! Two state machines, of claims and of volumes, and two loops for what in-tree plugins do:
//! - [`claims`]: an unbound claim is bound to a volume, gets one provisioned, or waits; a bound one is kept so, or is lost;
//! - [`volumes`]: a volume is available, bound or released, and marked with who has to delete what is behind it (KEP-2644);
//! - [`in_tree`]: `kubernetes.io/host-path` provisions, deletes and recycles. What other provisioners do is left to them.
//!
//! [`coracle_volumes::search`] finds a volume for a claim, [`coracle_volumes::bind`] decides how both change. Everything is reconciled again every 15 seconds, for
//! not all that matters makes an event.

mod claims;
mod in_tree;
mod metrics;
mod volumes;

use std::sync::Arc;
use std::time::Duration;

use coracle_controller_runtime::cache::Cache;
use coracle_controller_runtime::{Error, Part, ReconcileContext, run_all, start_part};
use coracle_volumes::bind;
use coracle_volumes::provisioner::provision;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};

use crate::settings::{Context, Settings};

pub const NAME: &str = "persistentvolume-binder-controller";

/// The component of the events.
const COMPONENT: &str = "persistentvolume-controller";

/// kube-controller-manager's `--pvclaimbinder-sync-period`.
const RESYNC: Duration = Duration::from_secs(15);

/// Runs until the future is dropped.
///
/// # Panics
/// If one of the loops does.
pub async fn run(context: Context, ready: impl FnOnce() + Send + 'static) {
    metrics::show_inventory(&context);
    let parts: [Part<Settings>; 4] = [
        start_part::<_, claims::ClaimController>,
        start_part::<_, volumes::VolumeController>,
        start_part::<_, provision::ProvisionController<in_tree::HostPath>>,
        start_part::<_, in_tree::reclaim::ReclaimController>,
    ];
    run_all(context, &parts, ready).await;
}

/// Writes of claims and volumes, each against the revision that was read.
struct Writer {
    claims: Arc<Cache<PersistentVolumeClaim>>,
    volumes: Arc<Cache<PersistentVolume>>,
}

impl Writer {
    fn new(context: &Context) -> Writer {
        Writer { claims: context.cache(), volumes: context.cache() }
    }

    async fn claim(
        &self,
        claim: PersistentVolumeClaim,
        ctx: &ReconcileContext,
    ) -> Result<PersistentVolumeClaim, Error> {
        Ok(ctx.api(&self.claims).replace(&claim).await?)
    }

    async fn claim_status(
        &self,
        claim: PersistentVolumeClaim,
        ctx: &ReconcileContext,
    ) -> Result<PersistentVolumeClaim, Error> {
        Ok(ctx.api(&self.claims).replace_status(&claim).await?)
    }

    async fn volume(
        &self,
        volume: PersistentVolume,
        ctx: &ReconcileContext,
    ) -> Result<PersistentVolume, Error> {
        Ok(ctx.api(&self.volumes).replace(&volume).await?)
    }

    async fn volume_status(
        &self,
        volume: PersistentVolume,
        ctx: &ReconcileContext,
    ) -> Result<PersistentVolume, Error> {
        Ok(ctx.api(&self.volumes).replace_status(&volume).await?)
    }

    /// The volume in a phase.
    async fn volume_phase(
        &self,
        volume: PersistentVolume,
        phase: &str,
        ctx: &ReconcileContext,
    ) -> Result<PersistentVolume, Error> {
        match bind::volume_phase(&volume, phase, "") {
            Some(changed) => self.volume_status(changed, ctx).await,
            None => Ok(volume),
        }
    }

    /// Both sides, in the order of [`bind`].
    async fn bind(
        &self,
        claim: &PersistentVolumeClaim,
        volume: &PersistentVolume,
        ctx: &ReconcileContext,
    ) -> Result<(), Error> {
        let mut volume = volume.clone();
        if let Some(changed) = bind::volume_to_claim(&volume, claim) {
            volume = self.volume(changed, ctx).await?;
        }
        volume = self.volume_phase(volume, "Bound", ctx).await?;
        let mut claim = claim.clone();
        if let Some(changed) = bind::claim_to_volume(&claim, &volume) {
            claim = self.claim(changed, ctx).await?;
        }
        if let Some(changed) = bind::claim_phase(&claim, "Bound", Some(&volume)) {
            self.claim_status(changed, ctx).await?;
        }
        Ok(())
    }

    /// Unbinds a volume that its claim does not refer to.
    async fn unbind(&self, volume: &PersistentVolume, ctx: &ReconcileContext) -> Result<(), Error> {
        let volume = self.volume(bind::unbound(volume), ctx).await?;
        self.volume_phase(volume, "Available", ctx).await.map(|_| ())
    }
}
