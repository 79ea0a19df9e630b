//! The loop that makes volumes for the claims that were given to a plugin.
//!
//! A claim is reconciled when it changes:
//! 1. one that is not the plugin's to provision (any more) is left alone;
//! 2. so is one that has its volume `pvc-UID`: the binder continues from it;
//! 3. what the plugin cannot do becomes an event, and is retried;
//! 4. the directory is made, then the volume, which is meant for the claim from the start;
//! 5. a directory without a volume is removed when it is not claimed any more, also after a crash
//!    ([`Journal`]).

use std::sync::Arc;

use coracle_controller_runtime::cache::{Cache, Change, NamespacedName};
use coracle_controller_runtime::{
    Action, Context, Controller, Error, Initialize, ReconcileContext, Sources, ignore_conflict,
    ignore_not_found,
};
use coracle_kinds::storage::{BETA_STORAGE_PROVISIONER, ClaimExt, SELECTED_NODE, STORAGE_PROVISIONER};
use coracle_object_meta::annotation;
use k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim};
use kube::ResourceExt;
use kube::api::Patch;
use serde_json::json;

use super::directories::{Directories, NO_DIRECTORY};
use super::journal::{Journal, JournalEntry};
use super::operations::{Operations, Step, VolumeBehavior};
use super::plugin::{ProvisionRequest, ProvisionerPlugin};
use crate::timers::VOLUME_PROVISIONING;

/// The loop over the claims that were given to a plugin.
pub struct ProvisionController<P> {
    claims: Arc<Cache<PersistentVolumeClaim>>,
    volumes: Arc<Cache<PersistentVolume>>,
    nodes: Arc<Cache<Node>>,
    directories: Directories,
    operations: Operations,
    journal: Arc<Journal>,
    plugin: P,
}

impl<P: ProvisionerPlugin> Initialize<P::Settings> for ProvisionController<P> {
    fn new(context: &Context<P::Settings>) -> ProvisionController<P> {
        let data = &context.settings.as_ref().as_ref().data;
        ProvisionController {
            claims: context.cache(),
            volumes: context.cache(),
            nodes: context.cache(),
            directories: Directories::new(data),
            operations: Operations::new(context.clock.clone()),
            journal: Arc::new(Journal::open(&data.own, P::PROVISIONER)),
            plugin: P::new(context),
        }
    }
}

impl<P: ProvisionerPlugin> Controller for ProvisionController<P> {
    const NAME: &'static str = P::CONTROLLER;
    const QUEUE_NAME: &'static str = P::QUEUE_NAME;
    type Key = NamespacedName;

    fn sources(&self, sources: &mut Sources<NamespacedName>) {
        let journal = self.journal.clone();
        let has_begun = move |change: &Change<_>| change.name().is_some_and(|name| journal.contains(&name));
        sources
            // Also one that was: an operation may be under way for it.
            .on_each_if(&self.claims, move |change| {
                change.states().any(|claim| is_given::<P>(claim)) || has_begun(change)
            })
            .at_first(self.journal.claims());
    }

    async fn reconcile(&self, name: &NamespacedName, ctx: &ReconcileContext) -> Result<Action, Error> {
        let claim = self.claims.get(name);
        self.abandon(name, claim.as_deref(), ctx).await?;
        let claim = claim.filter(|claim| is_given::<P>(claim));
        let volume_name = claim.as_deref().map(volume_name);
        let is_there =
            volume_name.iter().any(|name| self.volumes.get(&NamespacedName::new("", name)).is_some());
        let class = claim.as_ref().filter(|_| !is_there).and_then(|claim| self.plugin.class(claim));
        let (Some(claim), Some(class), Some(volume_name)) = (claim, class, volume_name) else {
            self.operations.forget(name);
            return Ok(Action::AwaitChange);
        };
        let (behavior, warnings) = VolumeBehavior::of_class(&class);
        let attempt = self.operations.attempt(name, claim.metadata.uid.as_deref(), behavior.provision);
        let recorder = self.plugin.recorder();
        if attempt.is_new {
            self.plugin.begun(&claim);
            warnings.iter().for_each(|c| recorder.warning(claim.as_ref(), "InvalidSimulation", c));
        }
        if let Step::Wait(left) = attempt.step {
            return Ok(Action::Requeue(VOLUME_PROVISIONING.after(left)));
        }
        let node = annotation(&claim.metadata, SELECTED_NODE);
        let node = node.map(|node| (node, self.nodes.get(&NamespacedName::new("", node))));
        let request = ProvisionRequest { claim: &claim, class: &class, node };
        let made = self.make(&volume_name, &request, attempt.step, ctx).await?;
        self.plugin.observe(&class, attempt.seconds, made.is_ok());
        match made {
            Ok(()) => {
                let message = self.plugin.success(&volume_name);
                recorder.normal(claim.as_ref(), "ProvisioningSucceeded", message);
                self.operations.forget(name);
                Ok(Action::AwaitChange)
            }
            Err(why) => {
                recorder.warning(claim.as_ref(), "ProvisioningFailed", &why);
                self.operations.fail(name);
                Err(Error::Unfinished(why))
            }
        }
    }
}

impl<P: ProvisionerPlugin> ProvisionController<P> {
    /// Makes the directory and the volume, or returns why that cannot be.
    async fn make(
        &self,
        name: &str,
        request: &ProvisionRequest<'_>,
        step: Step,
        ctx: &ReconcileContext,
    ) -> Result<Result<(), String>, Error> {
        if let Some(refusal) = self.plugin.unsupported(request) {
            if refusal.reschedules {
                self.reschedule(request.claim, ctx).await?;
            }
            return Ok(Err(refusal.message));
        }
        let mut volume = request.volume(name);
        self.plugin.complete(&mut volume, request);
        let claim = NamespacedName::of(request.claim);
        let made = match self.begin(&claim, &volume).await {
            Ok(()) => self.directories.make(&volume).await,
            Err(refusal) => Err(refusal),
        };
        // As it fails in the worst case: something was made, and not recorded.
        let made = match step {
            Step::Fail(why) => made.and(Err(why)),
            _ => made,
        };
        if let Err(error) = made {
            return Ok(Err(self.plugin.failure(request.class, &error)));
        }
        // An existing one was made by an attempt that got no response.
        ignore_conflict(ctx.api(&self.volumes).create(&volume).await)?;
        self.end(&claim, name).await;
        Ok(Ok(()))
    }

    /// Records in the journal that a directory is to be made, or returns why it must not be.
    async fn begin(&self, claim: &NamespacedName, volume: &PersistentVolume) -> Result<(), String> {
        let directory = self.directories.of(volume).ok_or(NO_DIRECTORY)?;
        let begun = JournalEntry::new(claim, &volume.name_any(), directory);
        self.journal.begin(begun).await.map_err(|error| format!("cannot note that it begins: {error}"))
    }

    async fn end(&self, claim: &NamespacedName, volume: &str) {
        if let Err(error) = self.journal.end(claim, volume).await {
            tracing::warn!(%claim, volume, %error, "cannot note that it was made");
        }
    }

    /// Removes the directories that were begun for a claim which will not get their volumes any
    /// more.
    async fn abandon(
        &self,
        name: &NamespacedName,
        claim: Option<&PersistentVolumeClaim>,
        ctx: &ReconcileContext,
    ) -> Result<(), Error> {
        let waits_for = claim.filter(|claim| claim.volume_name().is_empty()).map(volume_name);
        let begun = self.journal.of(name).into_iter();
        for begun in begun.filter(|begun| waits_for.as_ref() != Some(&begun.volume)) {
            let volume = NamespacedName::new("", &begun.volume);
            if !self.directories.is_own(&begun.directory) {
                // The data directory was another, or had another name.
                let directory = begun.directory.display();
                tracing::warn!(claim = %name, %directory, "an unfinished volume is left behind");
            } else if ctx.api(&self.volumes).get(&volume).await?.is_none() {
                self.directories.remove(&begun.directory).await.map_err(Error::Unfinished)?;
            }
            self.end(name, &begun.volume).await;
        }
        Ok(())
    }

    /// Asks the scheduler for another node.
    async fn reschedule(&self, claim: &PersistentVolumeClaim, ctx: &ReconcileContext) -> Result<(), Error> {
        let name = NamespacedName::of(claim);
        let patch = json!({"metadata": {"uid": claim.metadata.uid, "annotations": {SELECTED_NODE: null}}});
        ignore_not_found(ctx.api(&self.claims).patch(&name, Patch::Merge(patch)).await)?;
        Ok(())
    }
}

/// Returns the name of the volume that is provisioned for a claim.
fn volume_name(claim: &PersistentVolumeClaim) -> String {
    format!("pvc-{}", claim.uid().unwrap_or_default())
}

/// Returns `true` if a claim waits for this plugin.
fn is_given<P: ProvisionerPlugin>(claim: &PersistentVolumeClaim) -> bool {
    let provisioner = annotation(&claim.metadata, STORAGE_PROVISIONER)
        .or(annotation(&claim.metadata, BETA_STORAGE_PROVISIONER));
    provisioner == Some(P::PROVISIONER) && claim.volume_name().is_empty()
}
