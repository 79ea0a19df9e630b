//! Writes of claims and volumes.

use std::sync::Arc;

use coracle_controller_runtime::cache::Cache;
use coracle_controller_runtime::{Error, ReconcileContext};
use coracle_volumes::bind;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};

use crate::settings::Context;

/// Writes of claims and volumes, each against the revision that was read.
pub struct Writer {
    claims: Arc<Cache<PersistentVolumeClaim>>,
    volumes: Arc<Cache<PersistentVolume>>,
}

impl Writer {
    pub fn new(context: &Context) -> Writer {
        Writer { claims: context.cache(), volumes: context.cache() }
    }

    /// Replaces a claim.
    pub async fn claim(
        &self,
        claim: PersistentVolumeClaim,
        ctx: &ReconcileContext,
    ) -> Result<PersistentVolumeClaim, Error> {
        Ok(ctx.api(&self.claims).replace(&claim).await?)
    }

    /// Replaces the status of a claim.
    pub async fn claim_status(
        &self,
        claim: PersistentVolumeClaim,
        ctx: &ReconcileContext,
    ) -> Result<PersistentVolumeClaim, Error> {
        Ok(ctx.api(&self.claims).replace_status(&claim).await?)
    }

    /// Replaces a volume.
    pub async fn volume(
        &self,
        volume: PersistentVolume,
        ctx: &ReconcileContext,
    ) -> Result<PersistentVolume, Error> {
        Ok(ctx.api(&self.volumes).replace(&volume).await?)
    }

    /// Replaces the status of a volume.
    pub async fn volume_status(
        &self,
        volume: PersistentVolume,
        ctx: &ReconcileContext,
    ) -> Result<PersistentVolume, Error> {
        Ok(ctx.api(&self.volumes).replace_status(&volume).await?)
    }

    /// Writes the phase of the volume, unless it has it already, and returns the volume.
    pub async fn volume_phase(
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

    /// Binds both sides, in the order of [`bind`].
    pub async fn bind(
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
    pub async fn unbind(&self, volume: &PersistentVolume, ctx: &ReconcileContext) -> Result<(), Error> {
        let volume = self.volume(bind::unbound(volume), ctx).await?;
        self.volume_phase(volume, "Available", ctx).await.map(|_| ())
    }
}
