//! Filters by the volumes of a pod: disks that only one pod may use at a time, and volumes that
//! cannot be reached from a node.

use coracle_kinds::node_affinity::label;
use k8s_openapi::api::core::v1::{Node, PersistentVolume, Volume};

use super::candidate::{Candidate, Rejection};
use super::node_info::NodeInfo;
use super::volume_binding::reaches;

/// The labels of volumes and nodes for their zones and regions, each with its present name.
const TOPOLOGY: [(&str, &str); 4] = [
    ("failure-domain.beta.kubernetes.io/zone", "topology.kubernetes.io/zone"),
    ("failure-domain.beta.kubernetes.io/region", "topology.kubernetes.io/region"),
    ("topology.kubernetes.io/zone", "topology.kubernetes.io/zone"),
    ("topology.kubernetes.io/region", "topology.kubernetes.io/region"),
];

/// Rejects a node where another pod uses a disk of the pod (upstream `VolumeRestrictions`).
pub fn disk_conflict(candidate: &Candidate, node: &NodeInfo) -> Option<Rejection> {
    let mut disks = candidate.spec.volumes.iter().flatten().filter(|volume| is_disk(volume)).peekable();
    disks.peek()?;
    let used =
        || node.pods.iter().flat_map(|pod| pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten()));
    match disks.any(|disk| used().any(|other| conflict(disk, other))) {
        true => Rejection::resolvable("node(s) had no available disk"),
        false => None,
    }
}

fn is_disk(volume: &Volume) -> bool {
    volume.gce_persistent_disk.is_some()
        || volume.aws_elastic_block_store.is_some()
        || volume.iscsi.is_some()
        || volume.rbd.is_some()
}

/// Returns `true` if two volumes are the same disk, and not both only read it.
fn conflict(one: &Volume, other: &Volume) -> bool {
    let both_read = |one: Option<bool>, other: Option<bool>| one == Some(true) && other == Some(true);
    let gce = one.gce_persistent_disk.as_ref().zip(other.gce_persistent_disk.as_ref());
    let aws = one.aws_elastic_block_store.as_ref().zip(other.aws_elastic_block_store.as_ref());
    let iscsi = one.iscsi.as_ref().zip(other.iscsi.as_ref());
    let rbd = one.rbd.as_ref().zip(other.rbd.as_ref());
    gce.is_some_and(|(a, b)| a.pd_name == b.pd_name && !both_read(a.read_only, b.read_only))
        || aws.is_some_and(|(a, b)| a.volume_id == b.volume_id)
        || iscsi.is_some_and(|(a, b)| a.iqn == b.iqn && !both_read(a.read_only, b.read_only))
        || rbd.is_some_and(|(a, b)| {
            a.monitors.iter().any(|monitor| b.monitors.contains(monitor))
                && a.pool == b.pool
                && a.image == b.image
                && !both_read(a.read_only, b.read_only)
        })
}

/// Rejects a node that the pod's volumes cannot be attached to, now or once they are provisioned.
pub fn unreachable(candidate: &Candidate, node: &Node) -> Option<Rejection> {
    let Candidate { claims, .. } = candidate;
    if !claims.volumes.iter().all(|volume| reaches(volume, node)) {
        return Rejection::unresolvable("node(s) didn't match PersistentVolume's node affinity");
    }
    match claims.bindings_on(node) {
        Ok(_) => None,
        Err(reason) => Rejection::unresolvable(reason),
    }
}

/// Rejects a node in another zone or region than a volume, by their labels. A node without such
/// labels is in a cluster without zones.
pub fn other_zone(candidate: &Candidate, node: &Node) -> Option<Rejection> {
    if candidate.claims.volumes.is_empty() || TOPOLOGY.iter().all(|(key, _)| label(node, key).is_none()) {
        return None;
    }
    match candidate.claims.volumes.iter().all(|volume| is_in_zone(volume, node)) {
        true => None,
        false => Rejection::unresolvable("node(s) had no available volume zone"),
    }
}

fn is_in_zone(volume: &PersistentVolume, node: &Node) -> bool {
    let Some(labels) = &volume.metadata.labels else { return true };
    TOPOLOGY.iter().filter_map(|(key, name)| Some((key, name, labels.get(*key)?))).all(
        |(key, name, zones)| {
            let mut zones = zones.split("__").map(str::trim);
            let here = label(node, key).or_else(|| label(node, name));
            // A label that cannot be parsed does not count.
            zones.clone().any(str::is_empty) || here.is_some_and(|here| zones.any(|zone| zone == here))
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn disks_are_used_by_one_pod_of_a_node() {
        let gce = |name: &str, reads: bool| json!({"gcePersistentDisk": {"pdName": name, "readOnly": reads}});
        let aws =
            |id: &str, reads: bool| json!({"awsElasticBlockStore": {"volumeID": id, "readOnly": reads}});
        let iscsi = |iqn: &str, reads: bool| json!({"iscsi": {"targetPortal": "t", "iqn": iqn, "lun": 0, "readOnly": reads}});
        let rbd = |monitors: &[&str], image: &str, reads: bool| json!({"rbd": {"monitors": monitors, "pool": "p", "image": image, "readOnly": reads}});
        let volume = |mut volume: Value| -> Volume {
            volume["name"] = json!("v");
            serde_json::from_value(volume).unwrap()
        };
        for (case, one, other, want) in [
            ("one disk", gce("a", false), gce("a", false), true),
            ("one disk, one reader", gce("a", true), gce("a", false), true),
            ("one disk, two readers", gce("a", true), gce("a", true), false),
            ("two disks", gce("a", false), gce("b", false), false),
            ("block store", aws("a", true), aws("a", true), true),
            ("two block stores", aws("a", false), aws("b", false), false),
            ("target", iscsi("a", false), iscsi("a", true), true),
            ("target, two readers", iscsi("a", true), iscsi("a", true), false),
            ("image", rbd(&["m", "n"], "i", false), rbd(&["n"], "i", false), true),
            ("image, two readers", rbd(&["m"], "i", true), rbd(&["m"], "i", true), false),
            ("image of another cluster", rbd(&["m"], "i", false), rbd(&["n"], "i", false), false),
            ("two images", rbd(&["m"], "i", false), rbd(&["m"], "j", false), false),
            ("two kinds", gce("a", false), aws("a", false), false),
        ] {
            assert_eq!(conflict(&volume(one), &volume(other)), want, "{case}");
        }
    }

    #[test]
    fn volumes_are_used_in_their_zones() {
        const ZONE: &str = "topology.kubernetes.io/zone";
        const BETA_ZONE: &str = "failure-domain.beta.kubernetes.io/zone";
        const REGION: &str = "topology.kubernetes.io/region";
        for (case, volume, node, want) in [
            ("no label", json!({}), json!({ZONE: "a"}), true),
            ("its zone", json!({ZONE: "a"}), json!({ZONE: "a"}), true),
            ("another zone", json!({ZONE: "b"}), json!({ZONE: "a"}), false),
            ("one of its zones", json!({ZONE: "b__a"}), json!({ZONE: "a"}), true),
            ("another region", json!({ZONE: "a", REGION: "r"}), json!({ZONE: "a", REGION: "s"}), false),
            ("no such label", json!({REGION: "r"}), json!({ZONE: "a"}), false),
            ("the old name", json!({BETA_ZONE: "a"}), json!({ZONE: "a"}), true),
            ("the old name, another zone", json!({BETA_ZONE: "b"}), json!({ZONE: "a"}), false),
            ("no zones at all", json!({ZONE: "b__"}), json!({ZONE: "a"}), true),
        ] {
            let volume: PersistentVolume =
                serde_json::from_value(json!({"metadata": {"labels": volume}})).unwrap();
            let node: Node = serde_json::from_value(json!({"metadata": {"labels": node}})).unwrap();
            assert_eq!(is_in_zone(&volume, &node), want, "{case}");
        }
    }
}
