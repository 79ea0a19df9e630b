//! Objects that outlive what made them.

use serde_json::json;

use super::check;
use super::fake::{
    alice, claim, class, cluster, collector, manager, node, object, owned, pod, stateful_set, terminating,
    volume,
};

#[test]
fn objects_that_outlive_their_owner() {
    let set = object("ReplicaSet", "web-1", json!({}));
    let owned_pod = owned(pod("web-1-x"), &set);
    let stateful = |retention: serde_json::Value, replicas: i64| {
        let mut set = stateful_set("web", replicas, json!({}));
        set["spec"]["persistentVolumeClaimRetentionPolicy"] = retention;
        set
    };
    check(vec![
        (
            "an orphaned pod",
            "pods web-1-x",
            cluster([node("node-0"), pod("web-1-x")])
                .version("10:02:00", collector(), pod("web-1-x"))
                .version("10:00:00", manager(), owned_pod.clone())
                .deleted("10:02:01", alice(), terminating(set.clone(), &["orphan"])),
            "present: pod/web-1-x is still there because it was orphaned: its owner replicaset/web-1 was \
             deleted with propagationPolicy: Orphan (kubectl delete --cascade=orphan), and the reference to \
             it was removed at 10:02:00Z (3 minutes ago) by the garbage collector. Nothing deletes it now \
             but a request: kubectl delete pods web-1-x -n shop",
            &[
                "metadata.ownerReferences: replicaset.apps/shop/web-1 (removed); by the garbage collector; since 2026-11-27T10:02:00Z",
                "replicaset.apps/shop/web-1: replicaset/web-1 is gone",
            ],
        ),
        (
            "a released pod",
            "pods web-1-x",
            cluster([node("node-0"), pod("web-1-x"), set.clone()])
                .version("10:02:00", manager(), pod("web-1-x"))
                .version("10:00:00", manager(), owned_pod.clone()),
            "present: pod/web-1-x was released by replicaset/web-1 at 10:02:00Z (3 minutes ago): its labels \
             no longer match the selector of that owner, so that nothing deletes it with it. Change its \
             labels back to have it adopted, or: kubectl delete pods web-1-x -n shop",
            &["(removed)"],
        ),
        (
            "an owner that does not exist",
            "pods web-1-x",
            cluster([node("node-0"), owned_pod.clone()]).deleted("10:04:00", alice(), set.clone()),
            "present: pod/web-1-x is still there though its owner replicaset/web-1 does not exist: the \
             garbage collector deletes it as soon as it has noticed.",
            &[
                "metadata.ownerReferences: replicaset.apps/shop/web-1 (uid uid-web-1)",
                "replicaset.apps/shop/web-1: replicaset/web-1 is gone: it was deleted by alice with kubectl at 10:04:00Z",
            ],
        ),
        (
            "an owner that was made anew",
            "pods web-1-x",
            {
                let mut other = set.clone();
                other["metadata"]["uid"] = json!("another");
                cluster([node("node-0"), owned_pod.clone(), other]).deleted("10:04:00", alice(), set.clone())
            },
            "present: pod/web-1-x is still there though its owner replicaset/web-1 was replaced by another \
             object of its name (its uid differs): the garbage collector deletes it as soon as it has \
             noticed.",
            &["replicaset.apps/shop/web-1: replicaset/web-1 was replaced: the former object"],
        ),
        (
            "another owner that exists",
            "configmaps c",
            {
                let mut map = owned(object("ConfigMap", "c", json!({})), &set);
                let other = owned(map.clone(), &object("Widget", "w", json!({})));
                let widget = other["metadata"]["ownerReferences"][0].clone();
                map["metadata"]["ownerReferences"].as_array_mut().unwrap().push(widget);
                cluster([map, object("Widget", "w", json!({}))])
            },
            "present: configmap/c is still there though its owner replicaset/web-1 does not exist, because \
             it has other owners: widget.example.com/w. It is deleted when none of its owners exists.",
            &[],
        ),
        (
            "an owner of a kind that is not served",
            "configmaps c",
            {
                let mut map = owned(object("ConfigMap", "c", json!({})), &set);
                map["metadata"]["ownerReferences"][0]["apiVersion"] = json!("old.example.com/v1");
                map["metadata"]["ownerReferences"][0]["kind"] = json!("Old");
                cluster([map])
            },
            "present: configmap/c is still there because the garbage collector leaves it alone: its owner \
             is of the kind Old of old.example.com/v1, which the API does not serve, so that nobody can \
             tell whether old.old.example.com/web-1 exists. Serve that kind again (its \
             CustomResourceDefinition or APIService), or: kubectl delete configmaps c -n shop",
            &["the API to serve old.example.com/v1 Old again"],
        ),
        (
            "an owner in a namespace",
            "gadgets.example.com g",
            cluster([owned(object("Gadget", "g", json!({})), &set), set.clone()]),
            "present: gadget.example.com/g is still there because the garbage collector leaves it alone: \
             it is in no namespace, and its owner replicaset/web-1 is of a kind that is in namespaces, so \
             that the owner cannot be found. To delete it: kubectl delete gadgets.example.com g",
            &["metadata.ownerReferences: replicaset.apps/web-1"],
        ),
        (
            "the claim of a deleted StatefulSet",
            "persistentvolumeclaims data-web-0",
            cluster([claim("data-web-0", "Bound")]).deleted(
                "10:01:00",
                alice(),
                stateful(json!({"whenDeleted": "Retain"}), 1),
            ),
            "present: persistentvolumeclaim/data-web-0 is still there though statefulset/web was deleted, \
             because that StatefulSet had persistentVolumeClaimRetentionPolicy.whenDeleted: Retain. A new \
             StatefulSet of that name uses it again; if nobody needs its data: kubectl delete \
             persistentvolumeclaims data-web-0 -n shop",
            &[
                "statefulset.apps/shop/web: spec.persistentVolumeClaimRetentionPolicy.whenDeleted: Retain",
                "statefulset/web is gone",
            ],
        ),
        (
            "the claim of a pod that was scaled away",
            "persistentvolumeclaims data-web-2",
            cluster([claim("data-web-2", "Bound"), stateful(json!({}), 2)]),
            "present: persistentvolumeclaim/data-web-2 is still there though statefulset/web has no pod 2 \
             any more, because persistentVolumeClaimRetentionPolicy.whenScaled is Retain. The pod uses it \
             again when the StatefulSet is scaled up; if nobody needs its data: kubectl delete \
             persistentvolumeclaims data-web-2 -n shop",
            &["whenScaled: Retain"],
        ),
        (
            "the claim of a pod that was scaled away, which should be deleted",
            "persistentvolumeclaims data-web-2",
            cluster([claim("data-web-2", "Bound"), stateful(json!({"whenScaled": "Delete"}), 2)]),
            "present: persistentvolumeclaim/data-web-2 is still there though statefulset/web has no pod 2 \
             any more and whenScaled is Delete: the policy takes effect only on claims of pods that exist \
             while the StatefulSet is scaled down. To delete it: kubectl delete persistentvolumeclaims \
             data-web-2 -n shop",
            &["whenScaled: Delete"],
        ),
        (
            "a volume with the policy Retain",
            "persistentvolumes pv-1",
            cluster([volume("pv-1", "Released", "Retain"), class("standard", "x", "Immediate")]).deleted(
                "10:02:00",
                alice(),
                claim("data", "Bound"),
            ),
            "present: persistentvolume/pv-1 is still there though persistentvolumeclaim/shop/data was \
             deleted, because its reclaim policy is Retain: nothing deletes the volume or its storage. If \
             nobody needs its data: kubectl delete persistentvolumes pv-1 (the storage itself has to be \
             deleted at its provider)",
            &[
                "spec.persistentVolumeReclaimPolicy: Retain; remedy: kubectl delete persistentvolumes pv-1",
                "persistentvolumeclaim/data is gone",
            ],
        ),
    ]);
}
