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
