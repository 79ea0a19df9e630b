//! What to do about a volume. Pure.

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};

use super::super::claims::plan::Notice;
use crate::volume::{
    Claim, DELETE, EXTERNAL_PROTECTION, IN_TREE_PROTECTION, MIGRATED_TO, Migration, PROVISIONED_BY, RECYCLE,
    RETAIN, Volume, annotate, annotation, set_finalizer, strip,
};

#[derive(Clone, Debug, PartialEq)]
pub enum Plan {
    Phase(&'static str),
    /// Its claim is gone: phase Released, unless it was reclaimed before, then its policy.
    Release,
    /// The claim has still to be bound from its side.
    LookAtClaim,
    /// The two cannot be bound.
    Mismatch {
        volume: Notice,
        claim: Notice,
    },
    /// Its claim took another volume: let it go.
    Unbind,
}

/// `claim`: what the reference means, by name and uid; None if there is no such claim.
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
                return Plan::LookAtClaim;
            }
            let claim = claim.metadata.name.as_deref().unwrap_or_default();
            Plan::Mismatch {
                volume: Notice::warning(
                    "VolumeMismatch",
                    format!(
                        "Cannot bind PersistentVolume to requested PersistentVolumeClaim {claim:?} due to incompatible volumeMode."
                    ),
                ),
                claim: Notice::warning(
                    "VolumeMismatch",
                    format!(
                        "Cannot bind PersistentVolume {name:?} to requested PersistentVolumeClaim due to incompatible volumeMode."
                    ),
                ),
            }
        }
        Some(claim) if claim.volume_name() == name => Plan::Phase("Bound"),
        // A dynamic volume was made for one claim, and is of no use to another.
        Some(_) if annotation(&volume.metadata, PROVISIONED_BY).is_some() && volume.policy() == DELETE => {
            Plan::Release
        }
        Some(_) => Plan::Unbind,
    }
}

/// The volume with the marks that say who has to delete what is behind it (KEP-2644); None if it has them.
///
/// - `honors_policy`: the gate HonorPVReclaimPolicy.
pub fn marked(
    volume: &PersistentVolume,
    honors_policy: bool,
    migration: Migration,
) -> Option<PersistentVolume> {
    let mut marked = volume.clone();
    let meta = &mut marked.metadata;
    let plugin = annotation(&volume.metadata, PROVISIONED_BY)?;
    let mut is_new = false;
    match migration.driver(plugin) {
        Some(driver) => {
            if annotation(meta, MIGRATED_TO) != Some(driver) {
                annotate(meta, MIGRATED_TO, driver);
                is_new = true;
            }
            is_new |= honors_policy && set_finalizer(meta, IN_TREE_PROTECTION, false);
        }
        None => {
            is_new |= strip(meta, MIGRATED_TO);
            if honors_policy && plugin.starts_with("kubernetes.io/") {
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
            ("half bound", json!({}), ours("Delete"), Some(json!({})), Plan::LookAtClaim),
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

    /// KEP-2644: who has to delete what is behind a volume.
    #[test]
    fn marks() {
        const PLUGIN: &str = "kubernetes.io/host-path";
        let by = |provisioner: &str| json!({PROVISIONED_BY: provisioner});
        for (case, annotations, finalizers, policy, honors, want) in [
            ("static", json!({}), vec![], "Delete", true, None),
            ("to be deleted", by(PLUGIN), vec![], "Delete", true, Some(vec![IN_TREE_PROTECTION])),
            ("marked", by(PLUGIN), vec![IN_TREE_PROTECTION], "Delete", true, None),
            (
                "kept from now on",
                by(PLUGIN),
                vec![IN_TREE_PROTECTION, "a/b"],
                "Retain",
                true,
                Some(vec!["a/b"]),
            ),
            ("of a driver", by("d"), vec![EXTERNAL_PROTECTION], "Delete", true, None),
            (
                "no driver's any more",
                by(PLUGIN),
                vec![EXTERNAL_PROTECTION],
                "Delete",
                true,
                Some(vec![IN_TREE_PROTECTION]),
            ),
            ("before the KEP", by(PLUGIN), vec![], "Delete", false, None),
            ("before the KEP again", by(PLUGIN), vec![IN_TREE_PROTECTION], "Delete", false, None),
            ("migrated", by("kubernetes.io/gce-pd"), vec![IN_TREE_PROTECTION], "Delete", true, Some(vec![])),
        ] {
            let meta = json!({"annotations": annotations, "finalizers": finalizers});
            let volume = volume(meta, json!({"persistentVolumeReclaimPolicy": policy}));
            let marked = marked(&volume, honors, Migration::default())
                .map(|volume| volume.metadata.finalizers.unwrap_or_default());
            let want = want.map(|names| names.into_iter().map(str::to_owned).collect::<Vec<_>>());
            assert_eq!(marked, want, "{case}");
        }
    }
}
