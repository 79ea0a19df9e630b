//! external-resizer: gives claims what they ask for beyond what they have.
//!
//! A bound claim of the driver with a larger request than the capacity in its status:
//! 1. is marked as being resized;
//! 2. the capacity of its volume is set, which is all, since a directory has no size;
//! 3. its status gets the new capacity, and loses the mark. No node has anything to do.

use std::sync::Arc;

use coracle_clock::Clock;
use coracle_controller_runtime::cache::{Cache, NamespacedName};
use coracle_controller_runtime::events::Recorder;
use coracle_controller_runtime::{
    Action, Controller, Error, Initialize, ReconcileContext, Sources, ignore_not_found,
};
use coracle_kinds::storage::{ClaimExt, VolumeExt, asks_for_more};
use coracle_volumes::migration::{CSI_DRIVER, Migration};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, PersistentVolumeClaimCondition};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use kube::api::Patch;
use serde_json::{Value, json};

use super::plan::is_ours;
use crate::settings::{Context, Settings};

const RESIZING: &str = "Resizing";
/// Conditions about a resize, removed when it is done.
const OF_RESIZES: [&str; 4] =
    [RESIZING, "FileSystemResizePending", "ControllerResizeError", "NodeResizeError"];

pub struct ExternalResizer {
    claims: Arc<Cache<PersistentVolumeClaim>>,
    volumes: Arc<Cache<PersistentVolume>>,
    recorder: Recorder,
    clock: Clock,
    migration: Migration,
}

impl Initialize<Settings> for ExternalResizer {
    fn new(context: &Context) -> ExternalResizer {
        ExternalResizer {
            claims: context.cache(),
            volumes: context.cache(),
            recorder: context.recorder(&format!("external-resizer {CSI_DRIVER}")),
            clock: context.clock.clone(),
            migration: context.settings.volumes.migration,
        }
    }
}

impl Controller for ExternalResizer {
    const NAME: &'static str = CSI_DRIVER;
    const QUEUE_NAME: &'static str = "csi_resize";
    type Key = NamespacedName;

    fn sources(&self, sources: &mut Sources<NamespacedName>) {
        sources
            .on_each_if(&self.claims, |change| change.new.as_ref().is_some_and(|claim| asks_for_more(claim)));
    }

    async fn reconcile(&self, name: &NamespacedName, ctx: &ReconcileContext) -> Result<Action, Error> {
        let Some(claim) = self.claims.get(name).filter(|claim| asks_for_more(claim)) else {
            return Ok(Action::AwaitChange);
        };
        let volume = self.volumes.get(&NamespacedName::new("", claim.volume_name()));
        let is_ours =
            |volume: &Arc<PersistentVolume>| volume.is_bound_to(&claim) && is_ours(volume, self.migration);
        let Some(volume) = volume.filter(is_ours) else { return Ok(Action::AwaitChange) };
        let message = format!("External resizer is resizing volume {}", volume.name_any());
        self.recorder.normal(claim.as_ref(), RESIZING, message);
        let Some(claim) = self.patch(&claim, &begun(&claim, self.clock.now()), ctx).await? else {
            return Ok(Action::AwaitChange);
        };
        if volume.capacity().is_none_or(|capacity| capacity < claim.requested()) {
            let patch = Patch::Merge(json!({
                "metadata": {"uid": volume.metadata.uid},
                "spec": {"capacity": {"storage": requested(&claim)}},
            }));
            let patched = ctx.api(&self.volumes).patch(&NamespacedName::of(volume.as_ref()), patch).await;
            if ignore_not_found(patched)?.is_none() {
                return Ok(Action::AwaitChange);
            }
        }
        if let Some(claim) = self.patch(&claim, &done(&claim), ctx).await? {
            self.recorder.normal(&claim, "VolumeResizeSuccessful", "Resize volume succeeded");
        }
        Ok(Action::AwaitChange)
    }
}

impl ExternalResizer {
    async fn patch(
        &self,
        claim: &PersistentVolumeClaim,
        status: &Value,
        ctx: &ReconcileContext,
    ) -> Result<Option<PersistentVolumeClaim>, Error> {
        let meta = json!({"uid": claim.metadata.uid, "resourceVersion": claim.metadata.resource_version});
        let patch = Patch::Merge(json!({"metadata": meta, "status": status}));
        let answer = ctx.api(&self.claims).patch_status(&NamespacedName::of(claim), patch).await;
        Ok(ignore_not_found(answer)?)
    }
}

fn requested(claim: &PersistentVolumeClaim) -> Option<&Quantity> {
    claim.spec.as_ref()?.resources.as_ref()?.requests.as_ref()?.get("storage")
}

/// Returns the conditions that are not about resizing.
fn others(claim: &PersistentVolumeClaim) -> Vec<PersistentVolumeClaimCondition> {
    let conditions = claim.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.filter(|condition| !OF_RESIZES.contains(&condition.type_.as_str())).cloned().collect()
}

fn begun(claim: &PersistentVolumeClaim, now: Timestamp) -> Value {
    let mut conditions = others(claim);
    conditions.push(PersistentVolumeClaimCondition {
        type_: RESIZING.to_owned(),
        status: "True".to_owned(),
        last_transition_time: Some(Time(now)),
        ..PersistentVolumeClaimCondition::default()
    });
    json!({
        "conditions": conditions,
        "allocatedResources": {"storage": requested(claim)},
        "allocatedResourceStatuses": {"storage": "ControllerResizeInProgress"},
    })
}

fn done(claim: &PersistentVolumeClaim) -> Value {
    let conditions = others(claim);
    json!({
        "capacity": {"storage": requested(claim)},
        "conditions": (!conditions.is_empty()).then_some(conditions),
        "allocatedResourceStatuses": {"storage": null},
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses() {
        let claim: PersistentVolumeClaim = serde_json::from_value(json!({
            "spec": {"resources": {"requests": {"storage": "2Gi"}}},
            "status": {"capacity": {"storage": "1Gi"}, "conditions": [
                {"type": "FileSystemResizePending", "status": "True"}, {"type": "Other", "status": "True"},
            ]},
        }))
        .unwrap();
        let types = |status: &Value| {
            let conditions = status["conditions"].as_array().cloned().unwrap_or_default();
            conditions.iter().map(|c| c["type"].as_str().unwrap_or("").to_owned()).collect::<Vec<_>>()
        };
        let begun = begun(&claim, Timestamp::UNIX_EPOCH);
        assert_eq!(types(&begun), ["Other", RESIZING]);
        assert_eq!(begun["allocatedResourceStatuses"]["storage"], "ControllerResizeInProgress");
        let done = done(&claim);
        assert_eq!(types(&done), ["Other"]);
        assert_eq!(done["capacity"]["storage"], "2Gi");
    }
}
