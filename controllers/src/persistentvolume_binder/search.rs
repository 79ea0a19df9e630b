//! The volume that suits a claim best. Pure.

use std::collections::BTreeSet;

use coracle_quantity::Quantity;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::core::{Selector, SelectorExt};

use crate::volume::{Claim, Volume};

/// Why a volume that a claim names cannot be its volume, in the words of the event.
pub fn mismatch(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> Option<String> {
    let name = volume.metadata.name.as_deref().unwrap_or_default();
    let too_small = volume.capacity().is_none_or(|capacity| capacity < claim.requested());
    let reasons = [
        (volume.is_terminating(), format!("the volume is marked for deletion {name:?}")),
        (too_small, "requested PV is too small".to_owned()),
        (volume.class() != claim.class(), "storageClassName does not match".to_owned()),
        (
            volume.attributes_class() != claim.attributes_class(),
            "volumeAttributesClassName does not match".to_owned(),
        ),
        (volume.volume_mode() != claim.volume_mode(), "incompatible volumeMode".to_owned()),
        (!has_modes(volume, claim), "incompatible accessMode".to_owned()),
    ];
    reasons.into_iter().find(|(applies, _)| *applies).map(|(_, reason)| reason)
}

fn has_modes(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> bool {
    claim.access_modes().iter().all(|mode| volume.access_modes().contains(mode))
}

/// The best volume for a claim that names none. `delayed`: only a volume that was meant for it, since the scheduler chooses.
///
/// Fewer access modes beat a smaller size: the sets of modes are searched one after the other, the smallest first.
pub fn best<'a, V: AsRef<PersistentVolume>>(
    claim: &PersistentVolumeClaim,
    volumes: &'a [V],
    delayed: bool,
) -> Option<&'a V> {
    let selector: Option<Selector> = claim
        .spec
        .as_ref()
        .and_then(|spec| spec.selector.clone())
        .map(|selector| selector.try_into())
        .transpose()
        .ok()?;
    let requested = claim.requested();
    let could_be = |volume: &PersistentVolume| {
        (volume.claim_ref().is_none() || volume.is_bound_to(claim))
            && volume.capacity().is_some_and(|capacity| capacity >= requested)
            && volume.volume_mode() == claim.volume_mode()
            && volume.attributes_class() == claim.attributes_class()
            && !volume.is_terminating()
            && has_modes(volume, claim)
    };
    let suits = |volume: &PersistentVolume| {
        let labels = volume.metadata.labels.as_ref();
        volume.phase() == "Available"
            && volume.class() == claim.class()
            && selector.as_ref().is_none_or(|selector| match labels {
                Some(labels) => selector.matches(labels),
                None => selector.matches(&Default::default()),
            })
    };
    let candidates: Vec<(&V, BTreeSet<&str>)> = volumes
        .iter()
        .filter(|volume| could_be((*volume).as_ref()))
        .map(|volume| (volume, volume.as_ref().access_modes().iter().map(String::as_str).collect()))
        .collect();
    let mut sets: Vec<&BTreeSet<&str>> = candidates.iter().map(|(_, modes)| modes).collect();
    sets.sort_by_key(|modes| (modes.len(), (*modes).clone()));
    sets.dedup();
    sets.into_iter().find_map(|set| {
        let mut in_set = candidates.iter().filter(|(_, modes)| modes == set).map(|(volume, _)| *volume);
        let meant = in_set.clone().find(|volume| (*volume).as_ref().is_bound_to(claim));
        meant.or_else(|| {
            let suiting = in_set.by_ref().filter(|volume| !delayed && suits((*volume).as_ref()));
            smallest(suiting)
        })
    })
}

fn smallest<'a, V: AsRef<PersistentVolume>>(volumes: impl Iterator<Item = &'a V>) -> Option<&'a V> {
    let sized = volumes.filter_map(|volume| Some((volume.as_ref().capacity()?, volume)));
    let smaller = |a: (Quantity, &'a V), b: (Quantity, &'a V)| if b.0 < a.0 { b } else { a };
    sized.reduce(smaller).map(|(_, volume)| volume)
}
