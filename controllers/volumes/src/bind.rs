//! The changes of a claim and a volume when they are bound, and when the volume is unbound. Pure.
//!
//! Binding has no transaction: it consists of four writes, each skipped if nothing changes, in an
//! order in which the next pass can complete the binding after a crash between any two of them.

use coracle_kinds::storage::{BIND_COMPLETED, BOUND_BY_CONTROLLER, ClaimExt, VolumeExt};
use coracle_object_meta::{annotation, remove_annotation, set_annotation};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};

/// Returns the volume with a reference to the claim, or `None` if it has that reference.
pub fn volume_to_claim(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> Option<PersistentVolume> {
    let is_meant = volume.is_bound_to(claim);
    let refers = is_meant && volume.claim_ref().is_some_and(|reference| reference.uid == claim.metadata.uid);
    // A volume that a user bound to this claim is not marked as bound by the controller.
    let marks = !is_meant && annotation(&volume.metadata, BOUND_BY_CONTROLLER).is_none();
    if refers && !marks {
        return None;
    }
    let mut volume = volume.clone();
    if !refers {
        volume.spec.get_or_insert_default().claim_ref = Some(claim.reference());
    }
    if marks {
        set_annotation(&mut volume.metadata, BOUND_BY_CONTROLLER, "yes");
    }
    Some(volume)
}

/// Returns the volume in a phase, or `None` if it is in that phase.
pub fn volume_phase(volume: &PersistentVolume, phase: &str, message: &str) -> Option<PersistentVolume> {
    (volume.phase() != phase).then(|| volume.with_phase(phase, message))
}

/// Returns the claim with the name of the volume and the mark of a complete binding, or `None` if
/// it has both.
pub fn claim_to_volume(
    claim: &PersistentVolumeClaim,
    volume: &PersistentVolume,
) -> Option<PersistentVolumeClaim> {
    let names = volume.metadata.name.as_deref() == Some(claim.volume_name());
    let is_complete = annotation(&claim.metadata, BIND_COMPLETED).is_some();
    if names && is_complete {
        return None;
    }
    let mut claim = claim.clone();
    if !names {
        claim.spec.get_or_insert_default().volume_name.clone_from(&volume.metadata.name);
        set_annotation(&mut claim.metadata, BOUND_BY_CONTROLLER, "yes");
    }
    set_annotation(&mut claim.metadata, BIND_COMPLETED, "yes");
    Some(claim)
}

/// The annotation of a volume that is being expanded with its former capacity.
const PRE_RESIZE_CAPACITY: &str = "volume.alpha.kubernetes.io/pre-resize-capacity";

/// Returns the claim with a phase and with the fields of its status that are copied from the
/// volume, or `None` if nothing changes.
pub fn claim_phase(
    claim: &PersistentVolumeClaim,
    phase: &str,
    volume: Option<&PersistentVolume>,
) -> Option<PersistentVolumeClaim> {
    let mut changed = claim.clone();
    let is_new = claim.phase() != phase;
    let was_pending = claim.phase() == "Pending";
    let status = changed.status.get_or_insert_default();
    status.phase = Some(phase.to_owned());
    match volume {
        None => {
            status.access_modes = None;
            status.capacity = None;
            status.current_volume_attributes_class_name = None;
        }
        Some(volume) => {
            status.access_modes = Some(volume.access_modes().to_vec()).filter(|modes| !modes.is_empty());
            let spec = volume.spec.as_ref();
            if is_new {
                let before = annotation(&volume.metadata, PRE_RESIZE_CAPACITY);
                let mut capacity = spec.and_then(|spec| spec.capacity.clone());
                if let (Some(before), Some(capacity)) = (before, &mut capacity) {
                    let before = k8s_openapi::apimachinery::pkg::api::resource::Quantity(before.to_owned());
                    capacity.insert("storage".to_owned(), before);
                }
                status.capacity = capacity;
            }
            if is_new && was_pending {
                let class = spec.and_then(|spec| spec.volume_attributes_class_name.clone());
                status.current_volume_attributes_class_name = class;
            }
        }
    }
    (changed.status != claim.status).then_some(changed)
}

/// Returns the volume without its claim. The whole reference is removed if the controller set it,
/// otherwise only its uid.
pub fn unbound(volume: &PersistentVolume) -> PersistentVolume {
    let mut volume = volume.clone();
    let by_controller = remove_annotation(&mut volume.metadata, BOUND_BY_CONTROLLER);
    let spec = volume.spec.get_or_insert_default();
    match (&mut spec.claim_ref, by_controller) {
        (Some(reference), false) => reference.uid = None,
        (reference, _) => *reference = None,
    }
    volume
}
