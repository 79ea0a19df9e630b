//! The decision about a volume of the driver. Pure.

use coracle_kinds::storage::{
    DELETE, DELETION_PROTECTIONS, EXTERNAL_PROTECTION, MIGRATED_TO, PROVISIONED_BY, RECYCLE, RETAIN,
    VolumeExt,
};
use coracle_object_meta::{annotation, has_finalizer, set_finalizer};
use coracle_volumes::migration::{CSI_DRIVER, Migration};
use k8s_openapi::api::core::v1::PersistentVolume;

/// Returns `true` if the driver is responsible for a volume: it provisioned the volume, or took it
/// over from a plugin, or a client created the volume for it.
pub fn is_ours(volume: &PersistentVolume, migration: Migration) -> bool {
    let source = volume.spec.as_ref().and_then(|spec| spec.csi.as_ref());
    match annotation(&volume.metadata, PROVISIONED_BY) {
        Some(CSI_DRIVER) => true,
        // The mark alone does not do: it may be of a time when the driver had taken over.
        Some(plugin) => {
            annotation(&volume.metadata, MIGRATED_TO) == Some(CSI_DRIVER)
                && migration.driver(plugin) == Some(CSI_DRIVER)
        }
        None => source.is_some_and(|source| source.driver == CSI_DRIVER),
    }
}

/// Returns whether the volume must have the external deletion-protection finalizer (KEP-2644), or
/// `None` if the finalizer is left as it is.
///
/// - `honors_policy`: the gate HonorPVReclaimPolicy
pub fn wants_finalizer(volume: &PersistentVolume, honors_policy: bool) -> Option<bool> {
    match volume.policy() {
        _ if !honors_policy => Some(false),
        RETAIN | RECYCLE => Some(false),
        DELETE if volume.phase() == "Bound" && !volume.is_terminating() => Some(true),
        _ => None,
    }
}

/// Returns the volume with the finalizer added or removed, or `None` if nothing changes.
pub fn with_finalizer_updated(volume: &PersistentVolume, honors_policy: bool) -> Option<PersistentVolume> {
    let mut changed = volume.clone();
    let wanted = wants_finalizer(volume, honors_policy)?;
    set_finalizer(&mut changed.metadata, EXTERNAL_PROTECTION, wanted).then_some(changed)
}

/// Returns `true` if the driver must delete the storage of a volume. If a volume is terminating
/// without a protection finalizer, the driver is not responsible for its storage.
pub fn should_delete_storage(volume: &PersistentVolume) -> bool {
    let is_kept = DELETION_PROTECTIONS.iter().any(|finalizer| has_finalizer(&volume.metadata, finalizer));
    (is_kept || !volume.is_terminating()) && volume.phase() == "Released" && volume.policy() == DELETE
}

#[cfg(test)]
mod tests {
    use super::*;
    use coracle_kinds::storage::IN_TREE_PROTECTION;
    use serde_json::{Value, json};

    fn volume(policy: &str, phase: &str, meta: Value) -> PersistentVolume {
        serde_json::from_value(json!({
            "metadata": meta, "status": {"phase": phase},
            "spec": {"persistentVolumeReclaimPolicy": policy},
        }))
        .unwrap()
    }

    #[test]
    fn the_driver_owns_volumes_it_provisioned_or_took_over() {
        let csi = |driver: &str| json!({"csi": {"driver": driver, "volumeHandle": "h"}});
        let off = Migration::default();
        let on = Migration { host_path: true };
        let by = |plugin: &str| json!({PROVISIONED_BY: plugin});
        let migrated = json!({PROVISIONED_BY: "kubernetes.io/host-path", MIGRATED_TO: CSI_DRIVER});
        for (case, annotations, source, migration, want) in [
            ("made by it", by(CSI_DRIVER), csi(CSI_DRIVER), off, true),
            ("made for it", json!({}), csi(CSI_DRIVER), off, true),
            ("made by another for it", by("csi.example.com"), csi(CSI_DRIVER), off, false),
            ("another's", by("csi.example.com"), csi("csi.example.com"), off, false),
            ("made for another", json!({}), csi("csi.example.com"), off, false),
            ("a directory of the host", json!({}), json!({"hostPath": {"path": "/tmp/a"}}), off, false),
            ("taken over", migrated.clone(), json!({"hostPath": {"path": "/tmp/a"}}), on, true),
            ("given back", migrated, json!({"hostPath": {"path": "/tmp/a"}}), off, false),
            ("about to be taken over", by("kubernetes.io/host-path"), json!({}), on, false),
        ] {
            let volume = json!({"metadata": {"annotations": annotations}, "spec": source});
            let volume = serde_json::from_value(volume).unwrap();
            assert_eq!(is_ours(&volume, migration), want, "{case}");
        }
    }

    #[test]
    fn the_reclaim_policy_determines_the_finalizer() {
        let kept = json!({"finalizers": [EXTERNAL_PROTECTION]});
        let terminating = json!({"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["other"]});
        for (case, volume, honors, want) in [
            ("static, bound", volume(DELETE, "Bound", json!({})), true, Some(true)),
            ("static, free", volume(DELETE, "Available", json!({})), true, None),
            ("bound, terminating", volume(DELETE, "Bound", terminating), true, None),
            ("has it", volume(DELETE, "Bound", kept.clone()), true, None),
            ("retained", volume(RETAIN, "Bound", kept.clone()), true, Some(false)),
            ("recycled, released", volume(RECYCLE, "Released", kept.clone()), true, Some(false)),
            ("gate off", volume(DELETE, "Bound", kept), false, Some(false)),
            ("gate off, without", volume(DELETE, "Bound", json!({})), false, None),
        ] {
            let got = with_finalizer_updated(&volume, honors);
            let got = got.map(|volume| has_finalizer(&volume.metadata, EXTERNAL_PROTECTION));
            assert_eq!(got, want, "{case}");
        }
    }

    #[test]
    fn released_volumes_with_policy_delete_are_deleted() {
        let kept = json!({"finalizers": [EXTERNAL_PROTECTION]});
        let terminating =
            |finalizer: &str| json!({"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": [finalizer]});
        for (case, volume, want) in [
            ("released", volume(DELETE, "Released", kept), true),
            ("released, never kept", volume(DELETE, "Released", json!({})), true),
            ("deleted first", volume(DELETE, "Released", terminating(EXTERNAL_PROTECTION)), true),
            (
                "deleted first, then taken over",
                volume(DELETE, "Released", terminating(IN_TREE_PROTECTION)),
                true,
            ),
            ("deleted before it was kept", volume(DELETE, "Released", terminating("other")), false),
            ("failed", volume(DELETE, "Failed", json!({})), false),
            ("bound", volume(DELETE, "Bound", json!({})), false),
            ("free", volume(DELETE, "Available", json!({})), false),
            ("retained", volume(RETAIN, "Released", json!({})), false),
        ] {
            assert_eq!(should_delete_storage(&volume), want, "{case}");
        }
    }
}
