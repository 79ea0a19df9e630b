//! ephemeral-volume-controller: creates the claims of pods' ephemeral volumes from their templates.
//!
//! A pod is reconciled when it changes and when a claim it controls is deleted; then, unless it is
//! terminating, each ephemeral volume has its claim `POD-VOLUME`, made if need be. A claim of the
//! name that the pod does not control becomes an event, and is retried. Deleting is the garbage
//! collector's business.

use std::sync::Arc;

use coracle_controller_runtime::cache::{Cache, NamespacedName};
use coracle_controller_runtime::events::Recorder;
use coracle_controller_runtime::{Action, Controller, Error, Initialize, ReconcileContext, Sources};
use coracle_object_meta::is_controlled_by;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, PersistentVolumeClaimTemplate, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::ResourceExt;
use prometheus::Counter;

use crate::settings::{Context, Settings};

pub struct EphemeralVolumeController {
    pods: Arc<Cache<Pod>>,
    claims: Arc<Cache<PersistentVolumeClaim>>,
    recorder: Recorder,
    created: Counter,
    failed: Counter,
}

impl Initialize<Settings> for EphemeralVolumeController {
    fn new(context: &Context) -> EphemeralVolumeController {
        let counter = |name, help| context.metrics.counter(name, help, &[]).with_label_values::<&str>(&[]);
        EphemeralVolumeController {
            pods: context.cache(),
            claims: context.cache(),
            recorder: context.recorder("ephemeral_volume"),
            created: counter("ephemeral_volume_controller_create_total", "Claims that were to be made"),
            failed: counter(
                "ephemeral_volume_controller_create_failures_total",
                "Claims that could not be made",
            ),
        }
    }
}

impl Controller for EphemeralVolumeController {
    const NAME: &'static str = "ephemeral-volume-controller";
    const QUEUE_NAME: &'static str = "ephemeral_volume";
    type Key = NamespacedName;

    fn sources(&self, sources: &mut Sources<NamespacedName>) {
        sources
            .on_each_if(&self.pods, |change| {
                change.new.as_ref().is_some_and(|pod| ephemeral(pod).next().is_some())
            })
            .on(&self.claims, |change, queue| {
                let gone = change.old.as_ref().filter(|_| change.new.is_none());
                let owners = gone
                    .iter()
                    .flat_map(|claim| claim.owner_references())
                    .filter(|owner| owner.kind == "Pod");
                let namespace = gone.and_then(|claim| claim.namespace()).unwrap_or_default();
                owners.for_each(|owner| queue.add(NamespacedName::new(&namespace, &owner.name)));
            });
    }

    async fn reconcile(&self, name: &NamespacedName, ctx: &ReconcileContext) -> Result<Action, Error> {
        let Some(pod) = self.pods.get(name) else { return Ok(Action::AwaitChange) };
        if pod.metadata.deletion_timestamp.is_some() {
            return Ok(Action::AwaitChange);
        }
        for (volume, template) in ephemeral(&pod) {
            if let Err(error) = self.provide(&pod, volume, template, ctx).await {
                self.recorder.warning(
                    pod.as_ref(),
                    "FailedBinding",
                    format!("ephemeral volume {volume}: {error}"),
                );
                return Err(error);
            }
        }
        Ok(Action::AwaitChange)
    }
}

impl EphemeralVolumeController {
    async fn provide(
        &self,
        pod: &Pod,
        volume: &str,
        template: &PersistentVolumeClaimTemplate,
        ctx: &ReconcileContext,
    ) -> Result<(), Error> {
        let namespace = pod.namespace().unwrap_or_default();
        let name = NamespacedName::new(&namespace, format!("{}-{volume}", pod.name_any()));
        if let Some(claim) = self.claims.get(&name) {
            return match is_controlled_by(&claim.metadata, pod) {
                true => Ok(()),
                false => Err(Error::Unfinished(format!(
                    "PVC {name} was not created for pod {} (pod is not owner)",
                    NamespacedName::of(pod)
                ))),
            };
        }
        self.created.inc();
        match ctx.api(&self.claims).create(&claim(pod, &name, template)).await {
            Ok(_) => Ok(()),
            Err(error) => {
                self.failed.inc();
                let error = Error::from(error);
                Err(Error::Unfinished(format!("create PVC {}: {}", name.name, error.message())))
            }
        }
    }
}

/// Iterates over the names and templates of a pod's ephemeral volumes.
fn ephemeral(pod: &Pod) -> impl Iterator<Item = (&str, &PersistentVolumeClaimTemplate)> {
    let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    volumes.filter_map(|volume| {
        Some((volume.name.as_str(), volume.ephemeral.as_ref()?.volume_claim_template.as_ref()?))
    })
}

fn claim(
    pod: &Pod,
    name: &NamespacedName,
    template: &PersistentVolumeClaimTemplate,
) -> PersistentVolumeClaim {
    let mut claim = PersistentVolumeClaim::default();
    claim.metadata.name = Some(name.name.clone());
    claim.metadata.namespace = Some(name.namespace.clone());
    if let Some(meta) = &template.metadata {
        claim.metadata.annotations.clone_from(&meta.annotations);
        claim.metadata.labels.clone_from(&meta.labels);
    }
    claim.metadata.owner_references = Some(vec![OwnerReference {
        api_version: "v1".to_owned(),
        kind: "Pod".to_owned(),
        name: pod.name_any(),
        uid: pod.uid().unwrap_or_default(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    }]);
    claim.spec = Some(template.spec.clone());
    claim
}
