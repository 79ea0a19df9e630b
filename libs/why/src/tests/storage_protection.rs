//! Claims, volumes and devices that their finalizers protect.

use serde_json::json;

use super::check;
use super::fake::{claim, cluster, event, node, object, owned, pod, terminating, unready, using, volume};

#[test]
fn protected_storage() {
    let claim_ended = using(unready("web-0", "Succeeded", json!({})), &["data"]);
    check(vec![
        (
            "a claim in use by two pods",
            "persistentvolumeclaims data",
            cluster([
                terminating(claim("data", "Bound"), &["kubernetes.io/pvc-protection"]),
                using(pod("web-0"), &["data"]),
                using(pod("web-1"), &["data"]),
                using(pod("other"), &["cache"]),
            ]),
            "present: persistentvolumeclaim/data was marked for deletion at 10:03:00Z (2 minutes ago), and \
             is still there because its finalizer kubernetes.io/pvc-protection is still set. The \
             persistentvolumeclaim-protection-controller removes it once no pod uses the claim; pod/web-0 \
             and pod/web-1 still use it. To change that: kubectl delete pods web-0 web-1 -n shop",
            &["pod/shop/web-0: spec.volumes: data", "pod/shop/web-1: spec.volumes: data"],
        ),
        (
            "a claim in use by a pod that has ended",
            "persistentvolumeclaims data",
            cluster([terminating(claim("data", "Bound"), &["kubernetes.io/pvc-protection"]), claim_ended]),
            "present: persistentvolumeclaim/data was marked for deletion at 10:03:00Z (2 minutes ago), and \
             is still there because its finalizer kubernetes.io/pvc-protection is still set. The \
             persistentvolumeclaim-protection-controller removes it once no pod uses the claim; pod/web-0 \
             still uses it (a pod that has ended counts until it is deleted). To change that: kubectl \
             delete pods web-0 -n shop",
            &[
                "the deletion of the pod, which has ended and uses the claim; remedy: kubectl delete pods web-0 -n shop",
            ],
        ),
        (
            "a claim in use by a pod that a finalizer holds",
            "persistentvolumeclaims data",
            cluster([
                node("node-0"),
                terminating(claim("data", "Bound"), &["kubernetes.io/pvc-protection"]),
                using(terminating(unready("web-0", "Failed", json!({})), &["example.com/hold"]), &["data"]),
            ]),
            "present: persistentvolumeclaim/data was marked for deletion at 10:03:00Z (2 minutes ago), and \
             is still there because its finalizer kubernetes.io/pvc-protection is still set. The \
             persistentvolumeclaim-protection-controller removes it once no pod uses the claim; pod/web-0 \
             still uses it (a pod that has ended counts until it is deleted).",
            &["pod/shop/web-0: pod/web-0 was marked", "metadata.finalizers: example.com/hold"],
        ),
        (
            "a claim that no pod uses any more",
            "persistentvolumeclaims data",
            cluster([terminating(claim("data", "Bound"), &["kubernetes.io/pvc-protection"])]),
            "present: persistentvolumeclaim/data was marked for deletion at 10:03:00Z (2 minutes ago), and \
             is still there because its finalizer kubernetes.io/pvc-protection is still set. The \
             persistentvolumeclaim-protection-controller removes it once no pod uses the claim; none does \
             any more.",
            &[],
        ),
        (
            "a claim of its own that a pod is done with",
            "persistentvolumeclaims web-0-scratch",
            {
                let mut pod = terminating(pod("web-0"), &["example.com/hold"]);
                pod["spec"]["volumes"] = json!([{"name": "scratch", "ephemeral": {}}]);
                let claim = owned(claim("web-0-scratch", "Bound"), &pod);
                cluster([terminating(claim, &["kubernetes.io/pvc-protection"]), pod])
            },
            "present: persistentvolumeclaim/web-0-scratch was marked for deletion at 10:03:00Z (2 minutes \
             ago), and is still there because its finalizer kubernetes.io/pvc-protection is still set. \
             The persistentvolumeclaim-protection-controller removes it once no pod uses the claim; none \
             does any more.",
            &[],
        ),
        (
            "a claim of its own that a pod uses",
            "persistentvolumeclaims web-0-scratch",
            {
                let mut pod = pod("web-0");
                pod["spec"]["volumes"] = json!([{"name": "scratch", "ephemeral": {}}]);
                let claim = owned(claim("web-0-scratch", "Bound"), &pod);
                cluster([terminating(claim, &["kubernetes.io/pvc-protection"]), pod])
            },
            "present: persistentvolumeclaim/web-0-scratch was marked for deletion at 10:03:00Z (2 minutes \
             ago), and is still there because its finalizer kubernetes.io/pvc-protection is still set. \
             The persistentvolumeclaim-protection-controller removes it once no pod uses the claim; \
             pod/web-0 still uses it. To change that: kubectl delete pods web-0 -n shop",
            &["pod/shop/web-0: spec.volumes: scratch"],
        ),
        (
            "a volume that waits for its claim",
            "persistentvolumes pv-1",
            cluster([
                terminating(volume("pv-1", "Bound", "Retain"), &["kubernetes.io/pv-protection"]),
                claim("data", "Bound"),
            ]),
            "present: persistentvolume/pv-1 was marked for deletion at 10:03:00Z (2 minutes ago), and is \
             still there because its finalizer kubernetes.io/pv-protection is still set. The \
             persistentvolume-protection-controller removes it once the volume is bound to no claim; it is \
             bound to persistentvolumeclaim/shop/data. To change that: kubectl delete \
             persistentvolumeclaims data -n shop",
            &[
                "the persistentvolume-protection-controller",
                "persistentvolumeclaim/shop/data: spec.volumeName: pv-1; the deletion of the claim",
            ],
        ),
        (
            "a volume that waits for a claim in use",
            "persistentvolumes pv-1",
            cluster([
                terminating(volume("pv-1", "Bound", "Delete"), &["kubernetes.io/pv-protection"]),
                terminating(claim("data", "Bound"), &["kubernetes.io/pvc-protection"]),
                using(pod("web-0"), &["data"]),
            ]),
            "present: persistentvolume/pv-1 was marked for deletion at 10:03:00Z (2 minutes ago), and is \
             still there because its finalizer kubernetes.io/pv-protection is still set. The \
             persistentvolume-protection-controller removes it once the volume is bound to no claim; it is \
             bound to persistentvolumeclaim/shop/data, which is being deleted.",
            &[
                "persistentvolumeclaim/shop/data: persistentvolumeclaim/data was marked",
                "pod/shop/web-0: spec.volumes: data",
            ],
        ),
        (
            "a volume that waits for its claim to delete its storage",
            "persistentvolumes pv-1",
            cluster([
                terminating(
                    volume("pv-1", "Bound", "Delete"),
                    &["kubernetes.io/pv-protection", "external-provisioner.volume.kubernetes.io/finalizer"],
                ),
                claim("data", "Bound"),
            ]),
            "present: persistentvolume/pv-1 was marked for deletion at 10:03:00Z (2 minutes ago), and is \
             still there because its finalizers kubernetes.io/pv-protection and \
             external-provisioner.volume.kubernetes.io/finalizer are still set. \
             kubernetes.io/pv-protection: the persistentvolume-protection-controller removes it once the \
             volume is bound to no claim; it is bound to persistentvolumeclaim/shop/data. To change that: \
             kubectl delete persistentvolumeclaims data -n shop; \
             external-provisioner.volume.kubernetes.io/finalizer: the external-provisioner of the CSI \
             driver removes it after it has deleted the storage of the volume, which happens once \
             persistentvolumeclaim/shop/data is deleted, to which the volume is bound. To change that: \
             kubectl delete persistentvolumeclaims data -n shop",
            &[],
        ),
        (
            "a volume whose deletion fails",
            "persistentvolumes pv-1",
            {
                let volume = terminating(
                    volume("pv-1", "Released", "Delete"),
                    &["external-provisioner.volume.kubernetes.io/finalizer"],
                );
                let failed = event(&volume, "VolumeFailedDelete", "rpc error: disk is attached");
                cluster([volume, failed])
            },
            "present: persistentvolume/pv-1 was marked for deletion at 10:03:00Z (2 minutes ago), and is \
             still there because its finalizer external-provisioner.volume.kubernetes.io/finalizer is still \
             set. The external-provisioner of the CSI driver removes it after it has deleted the storage of \
             the volume; the last attempt failed: rpc error: disk is attached. It is tried again, and \
             succeeds once that is repaired.",
            &[
                "since 2026-11-27T10:04:00Z; the deletion of the storage, which failed: rpc error: disk is attached",
            ],
        ),
        (
            "a volume of a plugin whose deletion failed",
            "persistentvolumes pv-1",
            {
                let mut volume =
                    terminating(volume("pv-1", "Failed", "Delete"), &["kubernetes.io/pv-controller"]);
                volume["status"]["message"] =
                    json!("host_path deleter only supports /tmp/.+ but received provided /data");
                cluster([volume])
            },
            "present: persistentvolume/pv-1 was marked for deletion at 10:03:00Z (2 minutes ago), and is \
             still there because its finalizer kubernetes.io/pv-controller is still set. The \
             persistentvolume-binder-controller removes it after it has deleted the storage of the volume; \
             the last attempt failed: host_path deleter only supports /tmp/.+ but received provided /data. \
             It is tried again, and succeeds once that is repaired.",
            &["status.phase: Failed; the deletion of the storage, which failed: host_path deleter"],
        ),
        (
            "a volume that never had a claim",
            "persistentvolumes pv-1",
            cluster([terminating(volume("pv-1", "Available", "Delete"), &["kubernetes.io/pv-controller"])]),
            "present: persistentvolume/pv-1 was marked for deletion at 10:03:00Z (2 minutes ago), and is \
             still there because its finalizer kubernetes.io/pv-controller is still set. The \
             persistentvolume-binder-controller removes it after it has deleted the storage of the volume; \
             it does so only after a claim was bound to the volume and deleted, and the volume is \
             Available. To change that: kubectl patch persistentvolumes pv-1 --type=merge -p \
             '{\"spec\":{\"persistentVolumeReclaimPolicy\":\"Retain\"}}'",
            &[],
        ),
        (
            "devices that a pod has reserved",
            "resourceclaims.resource.k8s.io gpu",
            cluster([terminating(
                object(
                    "ResourceClaim",
                    "gpu",
                    json!({"status": {"reservedFor": [{"resource": "pods", "name": "train"}]}}),
                ),
                &["resource.kubernetes.io/delete-protection"],
            )]),
            "present: resourceclaim/gpu was marked for deletion at 10:03:00Z (2 minutes ago), and is still \
             there because its finalizer resource.kubernetes.io/delete-protection is still set. The \
             resourceclaim controller removes it once the claim is reserved for no pod; it is reserved for \
             pod/train.",
            &["pod/shop/train: spec.resourceClaims"],
        ),
        (
            "a class that a claim uses",
            "volumeattributesclasses.storage.k8s.io gold",
            {
                let mut claim = claim("data", "Bound");
                claim["spec"]["volumeAttributesClassName"] = json!("gold");
                cluster([
                    claim,
                    terminating(
                        object("VolumeAttributesClass", "gold", json!({})),
                        &["kubernetes.io/vac-protection"],
                    ),
                ])
            },
            "present: volumeattributesclass/gold was marked for deletion at 10:03:00Z (2 minutes ago), and \
             is still there because its finalizer kubernetes.io/vac-protection is still set. The \
             volumeattributesclass-protection-controller removes it once no claim and no volume uses the \
             class; used by persistentvolumeclaim/shop/data.",
            &["persistentvolumeclaim/shop/data: spec.volumeAttributesClassName"],
        ),
        (
            "an attachment whose driver fails",
            "volumeattachments.storage.k8s.io csi-1",
            cluster([terminating(
                object(
                    "VolumeAttachment",
                    "csi-1",
                    json!({
                        "spec": {"attacher": "disk.example.com", "nodeName": "node-0"},
                        "status": {"detachError": {"message": "busy"}},
                    }),
                ),
                &["external-attacher/disk-example-com"],
            )]),
            "present: volumeattachment/csi-1 was marked for deletion at 10:03:00Z (2 minutes ago), and is \
             still there because its finalizer external-attacher/disk-example-com is still set. The \
             external-attacher of the CSI driver removes it after the driver disk.example.com has detached \
             the volume from node/node-0; the last attempt failed: busy.",
            &[],
        ),
    ]);
}
