//! persistentvolume-protection-controller: keeps a finalizer on PersistentVolumes until they are
//! deleted and no longer bound.
//!
//! A volume is reconciled when it changes: one that is not terminating has the finalizer
//! `kubernetes.io/pv-protection`, one that is deleted loses it as soon as its phase is not Bound.

use std::sync::Arc;

use coracle_controller_runtime::cache::{Cache, NamespacedName};
use coracle_controller_runtime::{
    Action, Controller, Error, Initialize, ReconcileContext, Sources, ignore_not_found,
};
use coracle_kinds::storage::VolumeExt;
use coracle_object_meta::set_finalizer;
use k8s_openapi::api::core::v1::PersistentVolume;

use crate::settings::{Context, Settings};

const PROTECTION: &str = "kubernetes.io/pv-protection";

pub struct PersistentVolumeProtectionController {
    volumes: Arc<Cache<PersistentVolume>>,
}

impl Initialize<Settings> for PersistentVolumeProtectionController {
    fn new(context: &Context) -> PersistentVolumeProtectionController {
        PersistentVolumeProtectionController { volumes: context.cache() }
    }
}

impl Controller for PersistentVolumeProtectionController {
    const NAME: &'static str = "persistentvolume-protection-controller";
    const QUEUE_NAME: &'static str = "pvprotection";
    type Key = NamespacedName;

    fn sources(&self, sources: &mut Sources<NamespacedName>) {
        sources.on_each(&self.volumes);
    }

    async fn reconcile(&self, name: &NamespacedName, ctx: &ReconcileContext) -> Result<Action, Error> {
        let Some(volume) = self.volumes.get(name) else { return Ok(Action::AwaitChange) };
        if let Some(changed) = protected(&volume) {
            ignore_not_found(ctx.api(&self.volumes).replace(&changed).await)?;
        }
        Ok(Action::AwaitChange)
    }
}

/// Returns the volume with the finalizer added or removed; None if it needs no change.
fn protected(volume: &PersistentVolume) -> Option<PersistentVolume> {
    if volume.is_terminating() && volume.phase() == "Bound" {
        return None;
    }
    let mut changed = volume.clone();
    set_finalizer(&mut changed.metadata, PROTECTION, !volume.is_terminating()).then_some(changed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn finalizers() {
        let deleted = Some("2026-01-01T00:00:00Z");
        let (none, both) = (json!([]), json!(["a/b", PROTECTION]));
        for (case, deletion, phase, finalizers, want) in [
            ("new", None, "Pending", &none, Some(vec![PROTECTION])),
            ("protected", None, "Available", &both, None),
            ("deleted while bound", deleted, "Bound", &both, None),
            ("deleted and released", deleted, "Released", &both, Some(vec!["a/b"])),
            ("deleted and never bound", deleted, "Pending", &both, Some(vec!["a/b"])),
            ("deleted, not protected", deleted, "Available", &none, None),
        ] {
            let volume = serde_json::from_value(json!({
                "metadata": {"deletionTimestamp": deletion, "finalizers": finalizers}, "status": {"phase": phase},
            }));
            let changed = protected(&volume.unwrap());
            let want = want.map(|names| names.into_iter().map(str::to_owned).collect::<Vec<_>>());
            assert_eq!(changed.map(|volume| volume.metadata.finalizers.unwrap_or_default()), want, "{case}");
        }
    }
}
