//! persistentvolume-expander-controller: handles claims that request more than their capacity.
//!
//! No in-tree plugin can expand volumes. So it only records an event that an external resizer has
//! to expand the claim, each time a claim requests more, and annotates the claim if that resizer is
//! a CSI driver that took over from a plugin.

use std::sync::Arc;

use coracle_controller_runtime::cache::{Cache, NamespacedName};
use coracle_controller_runtime::events::Recorder;
use coracle_controller_runtime::{
    Action, Controller, Error, Initialize, ReconcileContext, Sources, ignore_not_found,
};
use coracle_kinds::storage::{ClaimExt, VolumeExt, asks_for_more};
use coracle_object_meta::annotation;
use coracle_volumes::migration::{Migration, plugin_of};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::api::Patch;
use serde_json::json;

use crate::settings::{Context, Settings};

const COMPONENT: &str = "volume_expand";
/// The annotation with the resizer of a claim.
const RESIZER: &str = "volume.kubernetes.io/storage-resizer";

pub struct ExpandController {
    claims: Arc<Cache<PersistentVolumeClaim>>,
    volumes: Arc<Cache<PersistentVolume>>,
    recorder: Recorder,
    migration: Migration,
}

impl Initialize<Settings> for ExpandController {
    fn new(context: &Context) -> ExpandController {
        ExpandController {
            claims: context.cache(),
            volumes: context.cache(),
            recorder: context.recorder(COMPONENT),
            migration: context.settings.volumes.migration,
        }
    }
}

impl Controller for ExpandController {
    const NAME: &'static str = "persistentvolume-expander-controller";
    const QUEUE_NAME: &'static str = "volume_expand";
    type Key = NamespacedName;

    fn sources(&self, sources: &mut Sources<NamespacedName>) {
        sources.on_each_if(&self.claims, |change| {
            let asks_anew = |claim: &Arc<PersistentVolumeClaim>| {
                let before = change.old.as_ref().map(|old| old.requested());
                before.is_none_or(|before| before < claim.requested())
            };
            change.new.as_ref().is_some_and(asks_anew)
        });
    }

    async fn reconcile(&self, name: &NamespacedName, ctx: &ReconcileContext) -> Result<Action, Error> {
        let Some(claim) = self.claims.get(name).filter(|claim| asks_for_more(claim)) else {
            return Ok(Action::AwaitChange);
        };
        let volume = self.volumes.get(&NamespacedName::new("", claim.volume_name()));
        let Some(volume) = volume.filter(|volume| volume.is_bound_to(&claim)) else {
            return Ok(Action::AwaitChange);
        };
        let migrated = plugin_of(&volume).and_then(|plugin| Some((plugin, self.migration.driver(plugin)?)));
        let driver = migrated.map(|(_, driver)| driver);
        let message = match migrated {
            Some((plugin, _)) => {
                format!("CSI migration enabled for {plugin}; waiting for external resizer to expand the pvc")
            }
            None => "waiting for an external controller to expand this PVC".to_owned(),
        };
        self.recorder.normal(claim.as_ref(), "ExternalExpanding", message);
        if let Some(driver) = driver.filter(|driver| annotation(&claim.metadata, RESIZER) != Some(driver)) {
            let patch = json!({"metadata": {"uid": claim.metadata.uid, "annotations": {RESIZER: driver}}});
            ignore_not_found(ctx.api(&self.claims).patch(name, Patch::Merge(patch)).await)?;
        }
        Ok(Action::AwaitChange)
    }
}
