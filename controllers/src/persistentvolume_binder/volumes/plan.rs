//! The decision about a volume. Pure.

use coracle_kinds::storage::{
    ClaimExt, DELETE, EXTERNAL_PROTECTION, IN_TREE_PROTECTION, MIGRATED_TO, PROVISIONED_BY, RECYCLE, RETAIN,
    VolumeExt,
};
use coracle_object_meta::{annotation, has_finalizer, remove_annotation, set_annotation, set_finalizer};
use coracle_volumes::migration::{CSI_DRIVER, Migration};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};

use super::super::claims::plan::EventRecord;

#[derive(Clone, Debug, PartialEq)]
pub enum Plan {
    Phase(&'static str),
    /// The claim of the volume is deleted: phase Released, unless it was released before, then the
    /// reclaim policy.
    Release,
    /// The claim has still to be bound from its side.
    AwaitClaim,
    /// The two cannot be bound.
    Mismatch {
        volume: EventRecord,
        claim: EventRecord,
    },
    /// The claim of the volume is bound to another volume.
    Unbind,
}

/// Decides about a volume. `claim` is the claim that the reference refers to, by name and uid; None
/// if there is no such claim.
pub fn plan(volume: &PersistentVolume, claim: Option<&PersistentVolumeClaim>) -> Plan {
    let uid = volume.claim_ref().and_then(|reference| reference.uid.as_deref());
    if uid.is_none_or(str::is_empty) {
        return Plan::Phase("Available");
    }
    let name = volume.metadata.name.as_deref().unwrap_or_default();
    match claim {
        None => Plan::Release,
        Some(claim) if claim.volume_name().is_empty() => {
            if volume.volume_mode() == claim.volume_mode() {
                return Plan::AwaitClaim;
            }
            let claim = claim.metadata.name.as_deref().unwrap_or_default();
            Plan::Mismatch {
                volume: EventRecord::warning(
                    "VolumeMismatch",
                    format!(
                        "Cannot bind PersistentVolume to requested PersistentVolumeClaim {claim:?} due to incompatible volumeMode."
                    ),
                ),
                claim: EventRecord::warning(
                    "VolumeMismatch",
                    format!(
                        "Cannot bind PersistentVolume {name:?} to requested PersistentVolumeClaim due to incompatible volumeMode."
                    ),
                ),
            }
        }
        Some(claim) if claim.volume_name() == name => Plan::Phase("Bound"),
        // A dynamic volume was provisioned for one claim, and no other may use it.
        Some(_) if annotation(&volume.metadata, PROVISIONED_BY).is_some() && volume.policy() == DELETE => {
            Plan::Release
        }
        Some(_) => Plan::Unbind,
    }
}

/// Returns the event for a released volume with an unknown reclaim policy. It returns `None` for a
/// migrated volume, which its driver handles.
pub fn unreclaimable(volume: &PersistentVolume) -> Option<EventRecord> {
    let is_known = matches!(volume.policy(), RETAIN | RECYCLE | DELETE);
    (!is_known && annotation(&volume.metadata, MIGRATED_TO).is_none()).then(|| {
        EventRecord::warning(
            "VolumeUnknownReclaimPolicy",
            "Volume has unrecognized PersistentVolumeReclaimPolicy",
        )
    })
}

/// Returns the volume with the annotation and the finalizers of the component that has to delete
/// its storage (KEP-2644), or `None` if nothing changes.
///
/// A terminating volume gets no further finalizer. Therefore it keeps a finalizer that the CSI
/// driver and the plugin would otherwise exchange: each of them also deletes a volume with the
/// other's.
///
/// - `honors_policy`: the gate HonorPVReclaimPolicy
pub fn annotated(
    volume: &PersistentVolume,
    honors_policy: bool,
    migration: Migration,
) -> Option<PersistentVolume> {
    let mut marked = volume.clone();
    let meta = &mut marked.metadata;
    let plugin = annotation(&volume.metadata, PROVISIONED_BY)?;
    let is_too_late = |finalizer| volume.is_terminating() && has_finalizer(&volume.metadata, finalizer);
    let mut is_new = false;
    match migration.driver(plugin) {
        Some(driver) => {
            if annotation(meta, MIGRATED_TO) != Some(driver) {
                set_annotation(meta, MIGRATED_TO, driver);
                is_new = true;
            }
            let stays = driver == CSI_DRIVER && is_too_late(IN_TREE_PROTECTION);
            is_new |= honors_policy && !stays && set_finalizer(meta, IN_TREE_PROTECTION, false);
        }
        None => {
            is_new |= remove_annotation(meta, MIGRATED_TO);
            let stays = volume.policy() == DELETE && is_too_late(EXTERNAL_PROTECTION);
            if honors_policy && !stays && plugin.starts_with("kubernetes.io/") {
                is_new |= match volume.policy() {
                    DELETE => set_finalizer(meta, IN_TREE_PROTECTION, true),
                    RETAIN | RECYCLE => set_finalizer(meta, IN_TREE_PROTECTION, false),
                    _ => false,
                };
                is_new |= set_finalizer(meta, EXTERNAL_PROTECTION, false);
            }
        }
    }
    is_new.then_some(marked)
}

#[cfg(test)]
mod tests {
    use super::*;
    use coracle_volumes::migration::HOST_PATH;
    use serde_json::{Value, json};

    fn volume(meta: Value, spec: Value) -> PersistentVolume {
        let mut meta = meta;
        meta["name"] = json!("v");
        serde_json::from_value(json!({"metadata": meta, "spec": spec})).unwrap()
    }

    #[test]
    fn phases() {
        let ours = |policy: &str| json!({"claimRef": {"name": "c", "uid": "1"}, "persistentVolumeReclaimPolicy": policy});
        let dynamic = || json!({"annotations": {PROVISIONED_BY: "p"}});
        for (case, meta, spec, claim, want) in [
            ("free", json!({}), json!({}), None, Plan::Phase("Available")),
            (
                "meant for a name",
                json!({}),
                json!({"claimRef": {"name": "c"}}),
                None,
                Plan::Phase("Available"),
            ),
            ("its claim is gone", json!({}), ours("Delete"), None, Plan::Release),
            ("half bound", json!({}), ours("Delete"), Some(json!({})), Plan::AwaitClaim),
            ("bound", json!({}), ours("Delete"), Some(json!({"volumeName": "v"})), Plan::Phase("Bound")),
            ("not wanted", json!({}), ours("Delete"), Some(json!({"volumeName": "w"})), Plan::Unbind),
            ("made in vain", dynamic(), ours("Delete"), Some(json!({"volumeName": "w"})), Plan::Release),
            ("made in vain, kept", dynamic(), ours("Retain"), Some(json!({"volumeName": "w"})), Plan::Unbind),
        ] {
            let claim = claim.map(|spec| {
                let object = json!({"metadata": {"name": "c", "uid": "1"}, "spec": spec});
                serde_json::from_value::<PersistentVolumeClaim>(object).unwrap()
            });
            assert_eq!(plan(&volume(meta, spec), claim.as_ref()), want, "{case}");
        }
    }

    #[test]
    fn policies() {
        for (policy, annotations, want) in [
            ("Delete", json!({}), false),
            ("Retain", json!({}), false),
            ("Recycle", json!({}), false),
            ("", json!({}), true),
            ("Burn", json!({}), true),
            ("Burn", json!({MIGRATED_TO: "d"}), false),
        ] {
            let spec = json!({"persistentVolumeReclaimPolicy": policy});
            let volume = volume(json!({"annotations": annotations}), spec);
            assert_eq!(unreclaimable(&volume).is_some(), want, "{policy} {annotations}");
        }
    }

    /// Verifies the component that has to delete a volume's storage, by KEP-2644.
    #[test]
    fn marks() {
        let by = |provisioner: &str| json!({PROVISIONED_BY: provisioner});
        for (case, annotations, finalizers, policy, honors, want) in [
            ("static", json!({}), vec![], "Delete", true, None),
            ("to be deleted", by(HOST_PATH), vec![], "Delete", true, Some(vec![IN_TREE_PROTECTION])),
            ("marked", by(HOST_PATH), vec![IN_TREE_PROTECTION], "Delete", true, None),
            (
                "kept from now on",
                by(HOST_PATH),
                vec![IN_TREE_PROTECTION, "a/b"],
                "Retain",
                true,
                Some(vec!["a/b"]),
            ),
            ("of a driver", by("d"), vec![EXTERNAL_PROTECTION], "Delete", true, None),
            (
                "no driver's any more",
                by(HOST_PATH),
                vec![EXTERNAL_PROTECTION],
                "Delete",
                true,
                Some(vec![IN_TREE_PROTECTION]),
            ),
            ("before the KEP", by(HOST_PATH), vec![], "Delete", false, None),
            ("before the KEP again", by(HOST_PATH), vec![IN_TREE_PROTECTION], "Delete", false, None),
            ("migrated", by("kubernetes.io/gce-pd"), vec![IN_TREE_PROTECTION], "Delete", true, Some(vec![])),
        ] {
            let meta = json!({"annotations": annotations, "finalizers": finalizers});
            let volume = volume(meta, json!({"persistentVolumeReclaimPolicy": policy}));
            let marked = annotated(&volume, honors, Migration::default())
                .map(|volume| volume.metadata.finalizers.unwrap_or_default());
            let want = want.map(|names| names.into_iter().map(str::to_owned).collect::<Vec<_>>());
            assert_eq!(marked, want, "{case}");
        }
    }

    /// Verifies the finalizers with the gate enabled, and then disabled again.
    #[test]
    fn finalizers_are_exchanged() {
        let (plugin, driver) = (IN_TREE_PROTECTION, EXTERNAL_PROTECTION);
        let (off, on) = (Migration::default(), Migration { host_path: true });
        for (case, by, policy, has, is_terminating, migration, want) in [
            ("taken over", HOST_PATH, DELETE, vec![plugin], false, on, Some((Some(CSI_DRIVER), vec![]))),
            ("given back", HOST_PATH, DELETE, vec![driver], false, off, Some((None, vec![plugin]))),
            (
                "terminating, taken over",
                HOST_PATH,
                DELETE,
                vec![plugin],
                true,
                on,
                Some((Some(CSI_DRIVER), vec![plugin])),
            ),
            ("terminating, given back", HOST_PATH, DELETE, vec![driver], true, off, None),
            ("terminating, kept", HOST_PATH, RETAIN, vec![driver], true, off, Some((None, vec![]))),
            ("a driver's", CSI_DRIVER, DELETE, vec![driver], false, on, None),
        ] {
            let deleted = is_terminating.then_some("2026-01-01T00:00:00Z");
            let volume = serde_json::from_value(json!({
                "metadata": {"annotations": {PROVISIONED_BY: by}, "finalizers": has, "deletionTimestamp": deleted},
                "spec": {"persistentVolumeReclaimPolicy": policy},
            }))
            .unwrap();
            let got = annotated(&volume, true, migration).map(|volume| {
                let driver = annotation(&volume.metadata, MIGRATED_TO).map(str::to_owned);
                (driver, volume.metadata.finalizers.unwrap_or_default())
            });
            let want = want.map(|(driver, finalizers)| {
                (driver.map(str::to_owned), finalizers.into_iter().map(str::to_owned).collect::<Vec<_>>())
            });
            assert_eq!(got, want, "{case}");
        }
    }
}
