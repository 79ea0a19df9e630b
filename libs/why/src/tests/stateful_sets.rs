//! StatefulSets that wait for a pod or a claim.

use serde_json::{Value, json};

use super::check;
use super::fake::{
    claim, class, cluster, crashing, event, node, object, owned, pending, pod, stateful_set, terminating,
    using,
};

#[test]
fn stateful_sets() {
    let ready = |n: i64| json!({"replicas": n, "readyReplicas": n});
    let set = stateful_set("web", 3, ready(1));
    let with = |status: Value, spec: Value| {
        let mut set = stateful_set("web", 2, status);
        set["spec"].as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
        set
    };
    let revisions = json!({"readyReplicas": 2, "currentRevision": "web-1", "updateRevision": "web-2", "updatedReplicas": 1});
    let stale = owned(claim("data-web-1", "Bound"), &pod("web-1"));
    let old = {
        let mut pod = crashing("web-0");
        pod["metadata"]["labels"] = json!({"controller-revision-hash": "web-1"});
        pod
    };
    let quota =
        object("ResourceQuota", "small", json!({"status": {"hard": {"pods": "1"}, "used": {"pods": "1"}}}));
    check(vec![
        (
            "waits for the deletion of a claim",
            "statefulsets.apps web",
            cluster([
                node("node-0"),
                set.clone(),
                pod("web-0"),
                terminating(claim("data-web-1", "Bound"), &["kubernetes.io/pvc-protection"]),
                using(pod("reader"), &["data-web-1"]),
            ]),
            "notReady: statefulset/web has 1 of 3 pods ready: it waits for the deletion of \
             persistentvolumeclaim/data-web-1 before it makes pod/web-1. That claim is being deleted; the \
             StatefulSet makes a new claim and the pod once it is deleted.",
            &[
                "persistentvolumeclaim/shop/data-web-1: persistentvolumeclaim/data-web-1 was marked for deletion",
                "pod/shop/reader: spec.volumes: data",
            ],
        ),
        (
            "waits for a stale claim",
            "statefulsets.apps web",
            cluster([node("node-0"), set.clone(), pod("web-0"), stale]),
            "notReady: statefulset/web has 1 of 3 pods ready: it waits for the deletion of \
             persistentvolumeclaim/data-web-1 before it makes pod/web-1. That claim belongs to a former \
             pod of that name, and the garbage collector deletes it; the StatefulSet makes a new claim \
             and the pod once it is deleted.",
            &["persistentvolumeclaim/shop/data-web-1"],
        ),
        (
            "a pod that is not ready",
            "statefulsets.apps web",
            cluster([node("node-0"), set.clone(), crashing("web-0")]),
            "notReady: statefulset/web has 1 of 3 pods ready: pod/web-0 is not ready. With \
             podManagementPolicy OrderedReady it makes no pod after pod/web-0, and updates and deletes \
             none, until that pod is ready.",
            &[
                "pod/shop/web-0: pod/web-0 is running and not ready because its container app ended again",
                "status.containerStatuses: app",
            ],
        ),
        (
            "a chain of causes",
            "statefulsets.apps web",
            cluster([
                set.clone(),
                using(
                    pending(
                        "web-0",
                        "0/1 nodes are available: pod has unbound immediate PersistentVolumeClaims.",
                    ),
                    &["data-web-0"],
                ),
                claim("data-web-0", "Pending"),
                class("fast", "x", "Immediate"),
            ]),
            "notReady: statefulset/web has 1 of 3 pods ready: pod/web-0 is not ready. With \
             podManagementPolicy OrderedReady it makes no pod after pod/web-0, and updates and deletes \
             none, until that pod is ready.",
            &[
                "pod/shop/web-0",
                "persistentvolumeclaim/shop/data-web-0: persistentvolumeclaim/data-web-0 is pending because its class",
                "storageclass/standard, which does not exist; there is fast",
            ],
        ),
        (
            "a pod that is being deleted",
            "statefulsets.apps web",
            cluster([node("node-0"), set.clone(), terminating(pod("web-0"), &["example.com/hold"])]),
            "notReady: statefulset/web has 1 of 3 pods ready: pod/web-0 is being deleted, and is made \
             anew afterwards. With podManagementPolicy OrderedReady it makes no pod after pod/web-0, and \
             updates and deletes none, until that pod is ready.",
            &["pod/shop/web-0: pod/web-0 was marked for deletion", "metadata.finalizers: example.com/hold"],
        ),
        (
            "the next pod",
            "statefulsets.apps web",
            cluster([node("node-0"), set.clone(), pod("web-0")]),
            "notReady: statefulset/web has 1 of 3 pods ready: pod/web-1 does not exist yet; the \
             StatefulSet controller makes it. All pods before it are ready, so that it is next \
             (podManagementPolicy: OrderedReady).",
            &[],
        ),
        (
            "a quota",
            "statefulsets.apps web",
            cluster([
                node("node-0"),
                set.clone(),
                pod("web-0"),
                quota.clone(),
                event(
                    &set,
                    "FailedCreate",
                    "create Pod web-1 in StatefulSet web failed error: pods \"web-1\" is forbidden: exceeded quota: small, requested: pods=1, used: pods=1, limited: pods=1",
                ),
            ]),
            "notReady: statefulset/web has 1 of 3 pods ready: the creation of a pod was refused at \
             10:04:00Z (60 seconds ago): create Pod web-1 in StatefulSet web failed error: pods \"web-1\" \
             is forbidden: exceeded quota: small, requested: pods=1, used: pods=1, limited: pods=1. The \
             StatefulSet controller tries it again.",
            &["pod/shop/web-1", "resourcequota/shop/small: spec.hard; used of allowed: pods 1 of 1"],
        ),
        (
            "start ordinal",
            "statefulsets.apps web",
            cluster([node("node-0"), with(json!({}), json!({"ordinals": {"start": 5}})), pod("web-5")]),
            "notReady: statefulset/web has 0 of 2 pods ready: pod/web-6 does not exist yet; the \
             StatefulSet controller makes it. All pods before it are ready, so that it is next \
             (podManagementPolicy: OrderedReady).",
            &["pod/shop/web-6"],
        ),
        (
            "the pod before it is not available yet",
            "statefulsets.apps web",
            cluster([node("node-0"), with(json!({}), json!({"minReadySeconds": 400})), pod("web-0")]),
            "notReady: statefulset/web has 0 of 2 pods ready: pod/web-1 does not exist yet; the \
             StatefulSet controller makes it. Before that, pod/web-0 has to be ready for 400 seconds \
             (minReadySeconds), 100 seconds more.",
            &["pod/shop/web-1"],
        ),
        (
            "parallel",
            "statefulsets.apps web",
            cluster([
                node("node-0"),
                with(json!({}), json!({"podManagementPolicy": "Parallel"})),
                crashing("web-0"),
                pod("web-1"),
            ]),
            "notReady: statefulset/web has 0 of 2 pods ready: pod/web-0 is not ready.",
            &[],
        ),
        (
            "partition",
            "statefulsets.apps web",
            cluster([
                node("node-0"),
                with(
                    revisions.clone(),
                    json!({"updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 1}}}),
                ),
                pod("web-0"),
                pod("web-1"),
            ]),
            "notReady: statefulset/web is updated as far as its partition allows: the pods with an \
             ordinal below 1 stay at revision web-1. Lower spec.updateStrategy.rollingUpdate.partition to \
             update them.",
            &["rollingUpdate.partition: 1"],
        ),
        (
            "on delete",
            "statefulsets.apps web",
            cluster([
                node("node-0"),
                with(revisions.clone(), json!({"updateStrategy": {"type": "OnDelete"}})),
                pod("web-0"),
                pod("web-1"),
            ]),
            "notReady: statefulset/web has 1 of 2 pods in its newest revision web-2, because its \
             updateStrategy is OnDelete: a pod is replaced only when somebody deletes it.",
            &["OnDelete"],
        ),
        (
            "rolling update",
            "statefulsets.apps web",
            cluster([node("node-0"), with(revisions.clone(), json!({})), pod("web-0"), pod("web-1")]),
            "notReady: statefulset/web is being updated to revision web-2: 1 of 2 pods are of that \
             revision. The controller replaces one pod at a time, from the last ordinal to the first.",
            &[],
        ),
        (
            "stuck in an old revision",
            "statefulsets.apps web",
            cluster([node("node-0"), with(revisions, json!({})), old, pod("web-1")]),
            "notReady: statefulset/web has 2 of 2 pods ready: pod/web-0 is not ready. With \
             podManagementPolicy OrderedReady it makes no pod after pod/web-0, and updates and deletes \
             none, until that pod is ready. The pod is of revision web-1, not of the newest one, web-2: \
             if it never becomes ready, it has to be deleted by hand.",
            &[],
        ),
        (
            "scaled down",
            "statefulsets.apps web",
            {
                let set = with(ready(2), json!({}));
                cluster([
                    node("node-0"),
                    set.clone(),
                    pod("web-0"),
                    pod("web-1"),
                    owned(terminating(pod("web-2"), &["example.com/hold"]), &set),
                ])
            },
            "notReady: statefulset/web is being scaled down to 2 replicas: pod/web-2 is deleted before the \
             others.",
            &["pod/shop/web-2: pod/web-2 was marked for deletion"],
        ),
        (
            "not observed",
            "statefulsets.apps web",
            cluster([object(
                "StatefulSet",
                "web",
                json!({"metadata": {"generation": 3}, "status": {"observedGeneration": 2}}),
            )]),
            "notReady: statefulset/web was changed and its controller has not acted on that yet: \
             metadata.generation is 3, status.observedGeneration is 2. If that lasts, the controller does \
             not run or fails.",
            &["status.observedGeneration: 2"],
        ),
        (
            "complete",
            "statefulsets.apps web",
            cluster([node("node-0"), with(ready(2), json!({})), pod("web-0"), pod("web-1")]),
            "none",
            &[],
        ),
    ]);
}
