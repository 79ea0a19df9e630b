//! Claims that are not bound, and volumes that no claim can use.

use serde_json::json;

use super::check;
use super::fake::{
    alice, claim, class, cluster, condition, event, node, pending, pod, unready, using, volume,
};

#[test]
fn claims_that_are_not_bound() {
    let pending_claim = || claim("data", "Pending");
    let without_class = |class: serde_json::Value| {
        let mut claim = pending_claim();
        claim["spec"]["storageClassName"] = class;
        claim
    };
    let of_volume = || {
        let mut claim = pending_claim();
        claim["spec"]["volumeName"] = json!("pv-1");
        claim
    };
    let lost = || {
        let mut claim = of_volume();
        claim["status"]["phase"] = json!("Lost");
        claim
    };
    check(vec![
        (
            "no class",
            "persistentvolumeclaims data",
            cluster([without_class(json!(null))]),
            "notReady: persistentvolumeclaim/data is pending because it names no StorageClass, no \
             StorageClass is the default, and no volume fits it. Name a class in spec.storageClassName, \
             mark one as default, or create a volume.",
            &["spec.storageClassName"],
        ),
        (
            "the empty class",
            "persistentvolumeclaims data",
            cluster([without_class(json!(""))]),
            "notReady: persistentvolumeclaim/data is pending because spec.storageClassName is \"\", so that \
             no volume is made for it: it waits for an Available volume without class that fits it (1Gi).",
            &["an Available volume without class that fits it (1Gi)"],
        ),
        (
            "class not found",
            "persistentvolumeclaims data",
            cluster([pending_claim(), class("fast", "x", "Immediate")]),
            "notReady: persistentvolumeclaim/data is pending because its class storageclass/standard does \
             not exist (there is fast). Create that StorageClass or a volume of that class, or make the claim anew with another class.",
            &["storageclass/standard, which does not exist; there is fast"],
        ),
        (
            "first consumer",
            "persistentvolumeclaims data",
            cluster([pending_claim(), class("standard", "coracle.csi", "WaitForFirstConsumer")]),
            "notReady: persistentvolumeclaim/data is pending because storageclass/standard has \
             volumeBindingMode: WaitForFirstConsumer: it waits for the first pod that uses it, and there is \
             none. Create a pod that uses the claim.",
            &["the first pod that uses it, and there is none"],
        ),
        (
            "first consumer that has no node",
            "persistentvolumeclaims data",
            cluster([
                pending_claim(),
                class("standard", "coracle.csi", "WaitForFirstConsumer"),
                using(
                    pending(
                        "web-0",
                        "0/1 nodes are available: 1 Insufficient cpu. preemption: 0/1 nodes are available.",
                    ),
                    &["data"],
                ),
            ]),
            "notReady: persistentvolumeclaim/data is pending because storageclass/standard has \
             volumeBindingMode: WaitForFirstConsumer: it waits for the scheduler to choose a node for \
             pod/web-0. Its volume is made on that node.",
            &[
                "the scheduler to choose a node for pod/web-0",
                "pod/shop/web-0: pod/web-0 is pending because the scheduler finds no node",
                "1 Insufficient cpu; remedy: ask for less",
            ],
        ),
        (
            "the provisioner fails",
            "persistentvolumeclaims data",
            cluster([
                pending_claim(),
                class("standard", "disk.example.com", "Immediate"),
                event(&pending_claim(), "ProvisioningFailed", "rpc error: quota of disks used up"),
            ]),
            "notReady: persistentvolumeclaim/data is pending because its volume could not be made by \
             disk.example.com (storageclass/standard): rpc error: quota of disks used up. That is tried \
             again.",
            &["since 2026-11-27T10:04:00Z; disk.example.com: rpc error"],
        ),
        (
            "a provisioner",
            "persistentvolumeclaims data",
            cluster([pending_claim(), class("standard", "disk.example.com", "Immediate")]),
            "notReady: persistentvolumeclaim/data is pending because it waits for the provisioner \
             disk.example.com of storageclass/standard, which has to make its volume. If that lasts, no \
             program of that provisioner runs.",
            &["the provisioner disk.example.com of storageclass/standard"],
        ),
        (
            "no provisioner",
            "persistentvolumeclaims data",
            cluster([pending_claim(), class("standard", "kubernetes.io/no-provisioner", "Immediate")]),
            "notReady: persistentvolumeclaim/data is pending because it waits for an Available volume of \
             storageclass/standard that fits it: this class makes no volumes. Create a volume.",
            &[],
        ),
        (
            "its volume does not exist",
            "persistentvolumeclaims data",
            cluster([of_volume()]),
            "notReady: persistentvolumeclaim/data is pending because it asks for persistentvolume/pv-1, \
             which does not exist. It is bound when that volume is created.",
            &["spec.volumeName: pv-1; persistentvolume/pv-1, which does not exist"],
        ),
        (
            "its volume has another claim",
            "persistentvolumeclaims data",
            {
                let mut volume = volume("pv-1", "Bound", "Retain");
                volume["spec"]["claimRef"]["name"] = json!("other");
                cluster([of_volume(), volume])
            },
            "notReady: persistentvolumeclaim/data is pending because it asks for persistentvolume/pv-1, \
             which is bound to another claim, persistentvolumeclaim/shop/other. Name another volume in \
             spec.volumeName of a new claim.",
            &["persistentvolumeclaim/shop/other"],
        ),
        (
            "its volume does not match",
            "persistentvolumeclaims data",
            {
                let mut volume = volume("pv-1", "Available", "Retain");
                volume["spec"]["claimRef"] = json!(null);
                let mismatch = event(
                    &of_volume(),
                    "VolumeMismatch",
                    "Cannot bind to requested volume \"pv-1\": requested PV is too small",
                );
                cluster([of_volume(), volume, mismatch])
            },
            "notReady: persistentvolumeclaim/data is pending because it asks for persistentvolume/pv-1: \
             VolumeMismatch: Cannot bind to requested volume \"pv-1\": requested PV is too small.",
            &[],
        ),
        (
            "lost",
            "persistentvolumeclaims data",
            cluster([lost()]).deleted("10:01:00", alice(), volume("pv-1", "Bound", "Retain")),
            "notReady: persistentvolumeclaim/data is lost: its volume persistentvolume/pv-1 no longer exists. The claim cannot be repaired in place: delete it and make it \
             anew (kubectl delete persistentvolumeclaims data -n shop).",
            &["spec.volumeName: pv-1", "persistentvolume/pv-1 is gone: it was deleted by alice with kubectl"],
        ),
        (
            "an expansion that fails",
            "persistentvolumeclaims data",
            {
                let mut claim = claim("data", "Bound");
                claim["status"]["conditions"] =
                    json!([condition("ControllerResizeError", "True", "", "no space")]);
                cluster([claim])
            },
            "notReady: persistentvolumeclaim/data is bound, and its volume is not yet as requested: its \
             condition ControllerResizeError is True since 10:00:00Z (5 minutes ago): no space.",
            &["status.conditions: ControllerResizeError=True"],
        ),
        ("bound", "persistentvolumeclaims data", cluster([claim("data", "Bound")]), "none", &[]),
    ]);
}

#[test]
fn volumes_that_no_claim_can_use() {
    let failing = || volume("pv-1", "Released", "Delete");
    check(vec![
        (
            "released",
            "persistentvolumes pv-1",
            cluster([volume("pv-1", "Released", "Retain")]),
            "notReady: persistentvolume/pv-1 is released: persistentvolumeclaim/shop/data was deleted, and \
             no other claim can use the volume while spec.claimRef names that claim. To offer it with its \
             data again: kubectl patch persistentvolumes pv-1 --type=merge -p \
             '{\"spec\":{\"claimRef\":null}}'",
            &["status.phase: Released"],
        ),
        (
            "released, to be deleted",
            "persistentvolumes pv-1",
            cluster([failing()]),
            "notReady: persistentvolume/pv-1 is released: persistentvolumeclaim/shop/data was deleted, and \
             the volume is deleted by its reclaim policy Delete. The deletion of its storage is under way.",
            &[],
        ),
        (
            "released, and cannot be deleted",
            "persistentvolumes pv-1",
            cluster([failing(), event(&failing(), "VolumeFailedDelete", "still attached to node node-0")]),
            "notReady: persistentvolume/pv-1 is released: persistentvolumeclaim/shop/data was deleted, and \
             the volume is deleted by its reclaim policy Delete. The last attempt to delete its storage \
             failed: still attached to node node-0. It is tried again.",
            &["still attached to node node-0"],
        ),
        (
            "failed",
            "persistentvolumes pv-1",
            {
                let mut volume = volume("pv-1", "Failed", "Recycle");
                volume["status"]["message"] = json!("Recycle failed: pod failed");
                cluster([volume])
            },
            "notReady: persistentvolume/pv-1 has failed: its claim was deleted, and the attempt to reclaim \
             it by its policy Recycle ended with: Recycle failed: pod failed. It is tried again; or set \
             another policy: kubectl patch persistentvolumes pv-1 --type=merge -p \
             '{\"spec\":{\"persistentVolumeReclaimPolicy\":\"Retain\"}}'",
            &["Recycle failed: pod failed"],
        ),
        (
            "waits for its claim",
            "persistentvolumes pv-1",
            cluster([volume("pv-1", "Available", "Retain")]),
            "notReady: persistentvolume/pv-1 waits for its claim: spec.claimRef reserves it for \
             persistentvolumeclaim/shop/data, which does not exist. It is bound when that claim is created \
             with a class, size and access modes that the volume offers.",
            &["spec.claimRef: persistentvolumeclaim/shop/data"],
        ),
        (
            "its claim has another volume",
            "persistentvolumes pv-1",
            {
                let mut claim = claim("data", "Bound");
                claim["spec"]["volumeName"] = json!("pv-2");
                cluster([volume("pv-1", "Available", "Retain"), claim])
            },
            "notReady: persistentvolume/pv-1 waits for its claim: spec.claimRef reserves it for \
             persistentvolumeclaim/shop/data, which is bound to persistentvolume/pv-2 instead.",
            &[],
        ),
        ("bound", "persistentvolumes pv-1", cluster([volume("pv-1", "Bound", "Retain")]), "none", &[]),
    ]);
}

#[test]
fn pods_that_wait_for_claims() {
    let unbound = "0/1 nodes are available: pod has unbound immediate PersistentVolumeClaims. not found";
    let on_node = using(unready("web-0", "Pending", json!({})), &["data"]);
    check(vec![
        (
            "an unbound claim",
            "pods web-0",
            cluster([using(pending("web-0", unbound), &["data"]), claim("data", "Pending")]),
            "notReady: pod/web-0 is pending because the scheduler finds no node for it: the only node \
             cannot take it (pod has unbound immediate PersistentVolumeClaims). See \
             persistentvolumeclaim/shop/data: persistentvolumeclaim/data is pending because its class \
             storageclass/standard does not exist (there is none). Create that StorageClass or a volume of that class, or make the claim anew with another class.",
            &[
                "pod has unbound immediate PersistentVolumeClaims",
                "persistentvolumeclaim/shop/data: persistentvolumeclaim/data is pending because its class",
                "spec.storageClassName: standard",
            ],
        ),
        (
            "a claim that does not exist",
            "pods web-0",
            cluster([using(
                pending(
                    "web-0",
                    "0/1 nodes are available: persistentvolumeclaim \"data\" not found. not found",
                ),
                &["data"],
            )])
            .deleted("10:01:00", alice(), claim("data", "Bound")),
            "notReady: pod/web-0 is pending because the scheduler finds no node for it: the only node \
             cannot take it (persistentvolumeclaim \"data\" not found). See \
             persistentvolumeclaim/shop/data: persistentvolumeclaim/data does not exist.",
            &[
                "persistentvolumeclaim/shop/data: persistentvolumeclaim/data does not exist",
                "persistentvolumeclaim/data is gone",
            ],
        ),
        (
            "a claim that is being deleted",
            "pods web-0",
            cluster([
                using(
                    pending(
                        "web-0",
                        "0/1 nodes are available: persistentvolumeclaim \"data\" is being deleted. not found",
                    ),
                    &["data"],
                ),
                using(pod("web-1"), &["data"]),
                super::fake::terminating(claim("data", "Bound"), &["kubernetes.io/pvc-protection"]),
            ]),
            "notReady: pod/web-0 is pending because the scheduler finds no node for it: the only node \
             cannot take it (persistentvolumeclaim \"data\" is being deleted). See \
             persistentvolumeclaim/shop/data: persistentvolumeclaim/data was marked for deletion at \
             10:03:00Z (2 minutes ago), and is still there because its finalizer \
             kubernetes.io/pvc-protection is still set. The persistentvolumeclaim-protection-controller \
             removes it once no pod uses the claim; pod/web-1 still uses it. To change that: kubectl delete \
             pods web-1 -n shop",
            &["persistentvolumeclaim/data was marked for deletion", "pod/shop/web-1: spec.volumes: data"],
        ),
        (
            "a volume that cannot be mounted",
            "pods web-0",
            cluster([
                node("node-0"),
                on_node.clone(),
                claim("data", "Bound"),
                event(&on_node, "FailedMount", "MountVolume.SetUp failed: secret \"key\" not found"),
            ]),
            "notReady: pod/web-0 is pending because the kubelet of node/node-0 cannot start it: \
             MountVolume.SetUp failed: secret \"key\" not found. It starts when that is repaired.",
            &["spec.volumes; MountVolume.SetUp failed"],
        ),
        (
            "an ephemeral claim",
            "pods web-0",
            {
                let mut pod = pending("web-0", unbound);
                pod["spec"]["volumes"] = json!([{"name": "scratch", "ephemeral": {}}]);
                cluster([
                    pod,
                    claim("web-0-scratch", "Pending"),
                    class("standard", "disk.example.com", "Immediate"),
                ])
            },
            "notReady: pod/web-0 is pending because the scheduler finds no node for it: the only node \
             cannot take it (pod has unbound immediate PersistentVolumeClaims). See \
             persistentvolumeclaim/shop/web-0-scratch: persistentvolumeclaim/web-0-scratch is pending \
             because it waits for the provisioner disk.example.com of storageclass/standard, which has to \
             make its volume. If that lasts, no program of that provisioner runs.",
            &["persistentvolumeclaim/shop/web-0-scratch"],
        ),
    ]);
}
