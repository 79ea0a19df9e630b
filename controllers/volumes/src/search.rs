//! The volume that suits a claim best. Pure.

use std::collections::BTreeSet;

use coracle_kinds::storage::{ClaimExt, VolumeExt};
use coracle_quantity::Quantity;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::core::{Selector, SelectorExt};

/// Returns the message of the event if a volume that a claim names cannot be bound to it.
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

/// Returns the best volume for a claim that names none. `delayed`: only a volume that refers to the
/// claim, since the scheduler chooses.
///
/// Fewer access modes beat a smaller size: the sets of modes are searched one after the other, the
/// smallest first.
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

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};
    use std::sync::Arc;

    /// Builds a volume from its name, its size, the initials of its modes (`wxr`: ReadWriteOnce,
    /// ReadWriteMany, ReadOnlyMany) and further fields of its spec.
    fn volume(name: &str, size: &str, modes: &str, more: Value) -> Arc<PersistentVolume> {
        let mut object = json!({
            "metadata": {"name": name, "labels": {"disk": name}},
            "spec": {"capacity": {"storage": size}, "accessModes": long(modes)},
            "status": {"phase": "Available"},
        });
        for (member, value) in more.as_object().unwrap() {
            match member.as_str() {
                "phase" => object["status"]["phase"] = value.clone(),
                "deletionTimestamp" => object["metadata"][member] = value.clone(),
                _ => object["spec"][member] = value.clone(),
            }
        }
        Arc::new(serde_json::from_value(object).unwrap())
    }

    fn claim(size: &str, modes: &str, more: Value) -> PersistentVolumeClaim {
        let mut spec = json!({"accessModes": long(modes), "resources": {"requests": {"storage": size}}});
        for (member, value) in more.as_object().unwrap() {
            spec[member] = value.clone();
        }
        let object = json!({"metadata": {"name": "c", "namespace": "n", "uid": "1"}, "spec": spec});
        serde_json::from_value(object).unwrap()
    }

    fn long(modes: &str) -> Vec<&'static str> {
        let long = |mode| match mode {
            'w' => "ReadWriteOnce",
            'x' => "ReadWriteMany",
            _ => "ReadOnlyMany",
        };
        modes.chars().map(long).collect()
    }

    #[test]
    fn the_best_volume() {
        let plain = || json!({});
        let mine = || json!({"claimRef": {"name": "c", "namespace": "n"}, "storageClassName": "k"});
        let taken = || json!({"claimRef": {"name": "d", "namespace": "n"}});
        let a = |more| volume("a", "5Gi", "w", more);
        for (case, claim, volumes, delayed, want) in [
            ("none", claim("1Gi", "w", plain()), vec![], false, None),
            (
                "the smallest that is large enough",
                claim("2Gi", "w", plain()),
                vec![a(plain()), volume("b", "3Gi", "w", plain()), volume("c", "1Gi", "w", plain())],
                false,
                Some("b"),
            ),
            (
                "fewer modes before a smaller size",
                claim("1Gi", "w", plain()),
                vec![volume("b", "1Gi", "wx", plain()), a(plain())],
                false,
                Some("a"),
            ),
            ("all modes", claim("1Gi", "wx", plain()), vec![a(plain())], false, None),
            ("taken", claim("1Gi", "w", plain()), vec![a(taken())], false, None),
            (
                "terminating",
                claim("1Gi", "w", plain()),
                vec![a(json!({"deletionTimestamp": "2026-01-01T00:00:00Z"}))],
                false,
                None,
            ),
            ("released", claim("1Gi", "w", plain()), vec![a(json!({"phase": "Released"}))], false, None),
            (
                "another class",
                claim("1Gi", "w", plain()),
                vec![a(json!({"storageClassName": "k"}))],
                false,
                None,
            ),
            (
                "another mode",
                claim("1Gi", "w", json!({"volumeMode": "Block"})),
                vec![a(plain())],
                false,
                None,
            ),
            (
                "another attributes class",
                claim("1Gi", "w", json!({"volumeAttributesClassName": "gold"})),
                vec![a(plain())],
                false,
                None,
            ),
            (
                "by labels",
                claim("1Gi", "w", json!({"selector": {"matchLabels": {"disk": "b"}}})),
                vec![a(plain()), volume("b", "9Gi", "w", plain())],
                false,
                Some("b"),
            ),
            (
                "meant for it, whatever its class",
                claim("1Gi", "w", plain()),
                vec![volume("b", "1Gi", "w", plain()), a(mine())],
                false,
                Some("a"),
            ),
            ("meant for it, and too small", claim("9Gi", "w", plain()), vec![a(mine())], false, None),
            ("the scheduler chooses", claim("1Gi", "w", plain()), vec![a(plain())], true, None),
            ("the scheduler chose", claim("1Gi", "w", plain()), vec![a(mine())], true, Some("a")),
        ] {
            let found = best(&claim, &volumes, delayed).and_then(|volume| volume.metadata.name.as_deref());
            assert_eq!(found, want, "{case}");
        }
    }
}
