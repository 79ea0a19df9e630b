//! The loop that makes volumes for the claims that were given to a plugin.
//!
//! A claim is looked at when it changes:
//! 1. one that is not the plugin's to provision (any more) is left alone;
//! 2. so is one whose volume `pvc-UID` is there: the binder goes on from it;
//! 3. what the plugin cannot do is told, and tried again;
//! 4. the directory is made, then the volume, which is meant for the claim from the start.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim};
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use serde_json::json;

use super::directories::Directories;
use super::operations::{Operations, Script, Step};
use super::{Asked, Plugin};
use crate::runtime::cache::{Cache, NamespacedName};
use crate::runtime::{Context, Controller, Error, Next, Sources, Turn, unless};
use crate::volume::{BETA_STORAGE_PROVISIONER, Claim, SELECTED_NODE, STORAGE_PROVISIONER, annotation};

pub struct Provision<P> {
    client: Client,
    claims: Arc<Cache<PersistentVolumeClaim>>,
    volumes: Arc<Cache<PersistentVolume>>,
    nodes: Arc<Cache<Node>>,
    directories: Directories,
    operations: Operations,
    plugin: P,
}

impl<P: Plugin> Controller for Provision<P> {
    const NAME: &'static str = P::CONTROLLER;
    const QUEUE: &'static str = P::QUEUE;
    type Key = NamespacedName;

    fn new(context: &Context) -> Provision<P> {
        Provision {
            client: context.client.clone(),
            claims: context.cache(),
            volumes: context.cache(),
            nodes: context.cache(),
            directories: Directories::new(&context.settings),
            operations: Operations::new(context.clock.clone()),
            plugin: P::new(context),
        }
    }

    fn sources(&self, sources: &mut Sources<NamespacedName>) {
        sources
            // Also one that was: an operation may be under way for it.
            .on_each_if(&self.claims, |change| change.states().any(|claim| is_given::<P>(claim)))
            .needs(&self.volumes)
            .needs(&self.nodes);
        self.plugin.needs(sources);
    }

    async fn reconcile(&self, name: &NamespacedName, turn: &mut Turn) -> Result<Next, Error> {
        let claim = self.claims.get(name).filter(|claim| is_given::<P>(claim));
        let volume_name = claim.as_ref().map(|claim| format!("pvc-{}", claim.uid().unwrap_or_default()));
        let is_there =
            volume_name.iter().any(|name| self.volumes.get(&NamespacedName::new("", name)).is_some());
        let class = claim.as_ref().filter(|_| !is_there).and_then(|claim| self.plugin.class(claim));
        let (Some(claim), Some(class), Some(volume_name)) = (claim, class, volume_name) else {
            self.operations.forget(name);
            return Ok(Next::Change);
        };
        let (script, complaints) = Script::of_class(&class);
        let attempt = self.operations.attempt(name, claim.metadata.uid.as_deref(), script.provision);
        let recorder = self.plugin.recorder();
        if attempt.is_new {
            self.plugin.begun(&claim);
            complaints.iter().for_each(|c| recorder.warning(claim.as_ref(), "InvalidSimulation", c));
        }
        if let Step::Wait(left) = attempt.step {
            return Ok(Next::After(left));
        }
        let node = annotation(&claim.metadata, SELECTED_NODE);
        let node = node.map(|node| (node, self.nodes.get(&NamespacedName::new("", node))));
        let asked = Asked { claim: &claim, class: &class, node };
        let made = match attempt.step {
            Step::Fail(why) => Err(self.plugin.failure(&class, &why)),
            _ => self.make(&volume_name, &asked, turn).await?,
        };
        self.plugin.observe(&class, attempt.seconds, made.is_ok());
        match made {
            Ok(()) => {
                let message = self.plugin.success(&volume_name);
                recorder.normal(claim.as_ref(), "ProvisioningSucceeded", message);
                self.operations.forget(name);
                Ok(Next::Change)
            }
            Err(why) => {
                recorder.warning(claim.as_ref(), "ProvisioningFailed", &why);
                self.operations.fail(name);
                Err(Error::Unfinished(why))
            }
        }
    }
}

impl<P: Plugin> Provision<P> {
    /// Makes the directory and the volume, or says why that cannot be.
    async fn make(
        &self,
        name: &str,
        asked: &Asked<'_>,
        turn: &mut Turn,
    ) -> Result<Result<(), String>, Error> {
        if let Some(refusal) = self.plugin.refusal(asked) {
            if refusal.reschedules {
                self.reschedule(asked.claim, turn).await?;
            }
            return Ok(Err(refusal.message));
        }
        let mut volume = asked.volume(name);
        self.plugin.complete(&mut volume, asked);
        if let Err(error) = self.directories.make(&volume).await {
            return Ok(Err(self.plugin.failure(asked.class, &error)));
        }
        let api = Api::<PersistentVolume>::all(self.client.clone());
        // One that is there was made by a try whose answer was lost.
        if let Some(answer) = unless(409, api.create(&PostParams::default(), &volume).await)? {
            turn.wrote(&self.volumes, &answer);
        }
        Ok(Ok(()))
    }

    /// Asks the scheduler for another node.
    async fn reschedule(&self, claim: &PersistentVolumeClaim, turn: &mut Turn) -> Result<(), Error> {
        let name = NamespacedName::of(claim);
        let api = Api::<PersistentVolumeClaim>::namespaced(self.client.clone(), &name.namespace);
        let patch = json!({"metadata": {"uid": claim.metadata.uid, "annotations": {SELECTED_NODE: null}}});
        let answer = api.patch(&name.name, &PatchParams::default(), &Patch::Merge(patch)).await;
        if let Some(claim) = unless(404, answer)? {
            turn.wrote(&self.claims, &claim);
        }
        Ok(())
    }
}

/// Whether a claim waits for this plugin.
fn is_given<P: Plugin>(claim: &PersistentVolumeClaim) -> bool {
    let provisioner = annotation(&claim.metadata, STORAGE_PROVISIONER)
        .or(annotation(&claim.metadata, BETA_STORAGE_PROVISIONER));
    provisioner == Some(P::PROVISIONER) && claim.volume_name().is_empty()
}
