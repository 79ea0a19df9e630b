//! Objects that are gone.

use serde_json::{Value, json};

use super::check;
use super::fake::{
    alice, claim, cluster, collector, condition, manager, node, object, owned, pod, stateful_set,
    terminating, unready, volume, writer,
};

fn with(mut object: Value, pointer: &str, value: Value) -> Value {
    let (parent, member) = pointer.rsplit_once('/').unwrap();
    object.pointer_mut(parent).unwrap()[member] = value;
    object
}

#[test]
fn deleted_by_a_client() {
    let widget = || object("Widget", "w", json!({}));
    let held = || terminating(widget(), &["example.com/hold"]);
    check(vec![
        (
            "by a request",
            "widgets.example.com w",
            cluster([]).deleted("10:04:00", alice(), widget()),
            "gone: widget.example.com/w is gone: it was deleted by alice with kubectl at 10:04:00Z (60 \
             seconds ago).",
            &[
                "widget.example.com/shop/w: request: delete; by alice with kubectl; since 2026-11-27T10:04:00Z",
            ],
        ),
        (
            "by a request for a list",
            "widgets.example.com w",
            cluster([]).deleted(
                "10:04:00",
                writer("bob", "operator.test/v0.0.0", "deletecollection"),
                widget(),
            ),
            "gone: widget.example.com/w is gone: it was deleted by bob with operator.test at 10:04:00Z (60 \
             seconds ago), by a request that deletes all objects of a list.",
            &[],
        ),
        (
            "when its finalizer was removed",
            "widgets.example.com w",
            cluster([])
                .deleted("10:04:00", writer("op", "my-operator/v1", "update"), held())
                .version("10:03:00", alice(), held())
                .version("10:01:00", alice(), widget()),
            "gone: widget.example.com/w is gone: it was deleted by alice with kubectl at 10:03:00Z (2 \
             minutes ago). It was removed at 10:04:00Z (60 seconds ago), when op with my-operator removed \
             its last finalizer, example.com/hold.",
            &["request: delete; by alice with kubectl; since 2026-11-27T10:03:00Z"],
        ),
        (
            "its deletion was not recorded",
            "widgets.example.com w",
            cluster([]).version("10:01:00", alice(), widget()),
            "gone: widget.example.com/w is gone: its last known version was written at 10:01:00Z (4 minutes \
             ago), and its deletion was not recorded.",
            &[],
        ),
        (
            "a day ago",
            "widgets.example.com w",
            {
                let mut cluster = cluster([]).deleted("10:04:00", alice(), widget());
                cluster.set_time("2026-11-25T10:04:00Z");
                cluster
            },
            "gone: widget.example.com/w is gone: it was deleted by alice with kubectl at \
             2026-11-25T10:04:00Z (2 days ago).",
            &[],
        ),
    ]);
}

#[test]
fn deleted_by_cascade_or_with_the_namespace() {
    let deployment = object("Deployment", "web", json!({}));
    let set = owned(object("ReplicaSet", "web-1", json!({})), &deployment);
    let dependent = owned(pod("web-1-x"), &set);
    let stateful = stateful_set("web", 1, json!({}));
    let namespace = || object("Namespace", "shop", json!({}));
    check(vec![
        (
            "a chain of owners",
            "pods web-1-x",
            cluster([])
                .deleted("10:04:00", collector(), dependent.clone())
                .deleted("10:03:30", collector(), set.clone())
                .deleted("10:03:00", alice(), deployment.clone()),
            "gone: pod/web-1-x is gone: it was deleted by the garbage collector at 10:04:00Z (60 seconds \
             ago), because its owner replicaset/web-1 was deleted.",
            &[
                "pod/shop/web-1-x: request: delete; by the garbage collector",
                "replicaset.apps/shop/web-1: replicaset/web-1 is gone",
                "deployment.apps/shop/web: deployment/web is gone: it was deleted by alice with kubectl",
            ],
        ),
        (
            "a controller manager that does not say which controller",
            "pods web-1-x",
            cluster([]).deleted("10:04:00", manager(), dependent).deleted("10:03:00", alice(), set),
            "gone: pod/web-1-x is gone: it was deleted by the controller manager at 10:04:00Z (60 seconds \
             ago), because its owner replicaset/web-1 was deleted.",
            &["replicaset.apps/shop/web-1"],
        ),
        (
            "a claim of a StatefulSet",
            "persistentvolumeclaims data-web-0",
            cluster([])
                .deleted("10:04:00", manager(), owned(claim("data-web-0", "Bound"), &stateful))
                .deleted("10:03:00", alice(), stateful),
            "gone: persistentvolumeclaim/data-web-0 is gone: it was deleted by the controller manager at \
             10:04:00Z (60 seconds ago), because its owner statefulset/web was deleted and its \
             persistentVolumeClaimRetentionPolicy.whenDeleted is Delete.",
            &["statefulset.apps/shop/web"],
        ),
        (
            "a claim of a pod that was scaled away",
            "persistentvolumeclaims data-web-1",
            cluster([])
                .deleted("10:04:00", manager(), owned(claim("data-web-1", "Bound"), &pod("web-1")))
                .deleted("10:03:00", manager(), pod("web-1")),
            "gone: persistentvolumeclaim/data-web-1 is gone: it was deleted by the controller manager at \
             10:04:00Z (60 seconds ago), because its owner pod/web-1 was deleted and \
             persistentVolumeClaimRetentionPolicy.whenScaled of its StatefulSet is Delete.",
            &["pod/shop/web-1"],
        ),
        (
            "a namespace that is gone",
            "configmaps c",
            cluster([]).deleted("10:04:00", manager(), object("ConfigMap", "c", json!({}))).deleted(
                "10:04:30",
                alice(),
                namespace(),
            ),
            "gone: configmap/c is gone: it was deleted by the controller manager at 10:04:00Z (60 seconds \
             ago), because its namespace shop was deleted.",
            &["namespace/shop: namespace/shop is gone"],
        ),
        (
            "a namespace that is being deleted",
            "configmaps c",
            cluster([terminating(namespace(), &[])]).deleted(
                "10:04:00",
                writer(
                    "system:serviceaccount:kube-system:namespace-controller",
                    "kube-controller-manager/v1.36",
                    "deletecollection",
                ),
                object("ConfigMap", "c", json!({})),
            ),
            "gone: configmap/c is gone: it was deleted by the namespace controller at 10:04:00Z (60 seconds \
             ago), by a request that deletes all objects of a list, because its namespace shop was deleted.",
            &["namespace/shop: namespace/shop was marked for deletion"],
        ),
    ]);
}

#[test]
fn deleted_by_their_controllers() {
    let set = stateful_set("web", 2, json!({"updateRevision": "web-2"}));
    let deployment = object("Deployment", "web", json!({}));
    let revision = |name: &str, revision: &str, replicas: i64| {
        let annotations = json!({"deployment.kubernetes.io/revision": revision});
        owned(
            object(
                "ReplicaSet",
                name,
                json!({"metadata": {"annotations": annotations}, "spec": {"replicas": replicas}}),
            ),
            &deployment,
        )
    };
    let of_set = |name: &str, revision: &str| {
        owned(with(pod(name), "/metadata/labels", json!({"controller-revision-hash": revision})), &set)
    };
    let old = revision("web-1", "1", 0);
    let cron = object("CronJob", "nightly", json!({"spec": {}}));
    let finished = |spec: Value, name: &str| {
        object(
            "Job",
            "nightly-1",
            json!({"spec": spec, "status": {"conditions": [condition(name, "True", "", "")]}}),
        )
    };
    let disrupted = |reason: &str| {
        unready(
            "web-0",
            "Failed",
            json!({"conditions": [condition("DisruptionTarget", "True", reason, "details")]}),
        )
    };
    let job = object("Job", "count", json!({"spec": {"suspend": true}}));
    let daemons = object("DaemonSet", "agent", json!({}));
    check(vec![
        (
            "scaled down",
            "pods web-2",
            cluster([set.clone()]).deleted("10:04:00", manager(), of_set("web-2", "web-2")),
            "gone: pod/web-2 is gone: it was deleted by the controller manager at 10:04:00Z (60 seconds \
             ago), because statefulset/web was scaled to 2 replicas, the ordinals 0 to 1.",
            &[],
        ),
        (
            "rolling update",
            "pods web-1",
            cluster([set.clone()]).deleted("10:04:00", manager(), of_set("web-1", "web-1")),
            "gone: pod/web-1 is gone: it was deleted by the controller manager at 10:04:00Z (60 seconds \
             ago), because statefulset/web was updated to revision web-2, and replaces the pods of older \
             ones.",
            &[],
        ),
        (
            "rollout",
            "pods web-1-x",
            cluster([deployment.clone(), old.clone(), revision("web-2", "2", 2)]).deleted(
                "10:04:00",
                manager(),
                owned(pod("web-1-x"), &old),
            ),
            "gone: pod/web-1-x is gone: it was deleted by the controller manager at 10:04:00Z (60 seconds \
             ago), because deployment/web replaced it in a rollout: pods of replicaset/web-2 take the place \
             of those of replicaset/web-1.",
            &[],
        ),
        (
            "a Deployment scaled down",
            "pods web-1-x",
            cluster([deployment.clone(), revision("web-1", "1", 1)]).deleted(
                "10:04:00",
                manager(),
                owned(pod("web-1-x"), &old),
            ),
            "gone: pod/web-1-x is gone: it was deleted by the controller manager at 10:04:00Z (60 seconds \
             ago), because replicaset/web-1 was scaled to 1 replica.",
            &[],
        ),
        (
            "an old ReplicaSet",
            "replicasets.apps web-1",
            cluster([deployment.clone()]).deleted("10:04:00", manager(), old),
            "gone: replicaset/web-1 is gone: it was deleted by the controller manager at 10:04:00Z (60 \
             seconds ago), because deployment/web keeps 10 old ReplicaSets (revisionHistoryLimit).",
            &[],
        ),
        (
            "time to live",
            "jobs.batch nightly-1",
            cluster([]).deleted(
                "10:04:00",
                manager(),
                finished(json!({"ttlSecondsAfterFinished": 30}), "Complete"),
            ),
            "gone: job/nightly-1 is gone: it was deleted by the controller manager at 10:04:00Z (60 seconds \
             ago), because it was complete, and Jobs like it are deleted 30 seconds later \
             (spec.ttlSecondsAfterFinished).",
            &[],
        ),
        (
            "history of a CronJob",
            "jobs.batch nightly-1",
            cluster([cron.clone()]).deleted(
                "10:04:00",
                manager(),
                owned(finished(json!({}), "Failed"), &cron),
            ),
            "gone: job/nightly-1 is gone: it was deleted by the controller manager at 10:04:00Z (60 seconds \
             ago), because cronjob/nightly keeps 1 failed Job (failedJobsHistoryLimit).",
            &[],
        ),
        (
            "a suspended Job",
            "pods count-a",
            cluster([job.clone()]).deleted("10:04:00", manager(), owned(pod("count-a"), &job)),
            "gone: pod/count-a is gone: it was deleted by the controller manager at 10:04:00Z (60 seconds \
             ago), because job/count was suspended.",
            &[],
        ),
        (
            "evicted",
            "pods web-0",
            cluster([node("node-0")]).deleted(
                "10:04:00",
                writer("alice", "kubectl/v1.36", "create"),
                disrupted("EvictionByEvictionAPI"),
            ),
            "gone: pod/web-0 is gone: it was deleted by alice with kubectl at 10:04:00Z (60 seconds ago), \
             because it was evicted by a request for its eviction (such as kubectl drain).",
            &[],
        ),
        (
            "a taint",
            "pods web-0",
            cluster([node("node-0")]).deleted("10:04:00", manager(), disrupted("DeletionByTaintManager")),
            "gone: pod/web-0 is gone: it was deleted by the controller manager at 10:04:00Z (60 seconds \
             ago), because node/node-0 has a taint with the effect NoExecute that it does not tolerate (any \
             longer).",
            &[],
        ),
        (
            "preempted",
            "pods web-0",
            cluster([node("node-0")]).deleted(
                "10:04:00",
                writer("system:kube-scheduler", "kube-scheduler/v1.36", "delete"),
                disrupted("PreemptionByScheduler"),
            ),
            "gone: pod/web-0 is gone: it was deleted by the scheduler at 10:04:00Z (60 seconds ago), \
             because the scheduler needed its place on node/node-0 for a pod of higher priority: details.",
            &[],
        ),
        (
            "its node is gone",
            "pods web-0",
            cluster([]).deleted("10:04:00", manager(), disrupted("DeletionByPodGC")).deleted(
                "10:03:00",
                alice(),
                node("node-0"),
            ),
            "gone: pod/web-0 is gone: it was deleted by the controller manager at 10:04:00Z (60 seconds \
             ago), because its node/node-0 does not exist any more, or is out of service: details.",
            &["node/node-0: node/node-0 is gone"],
        ),
        (
            "a DaemonSet's node is gone",
            "pods agent-x",
            cluster([daemons.clone()]).deleted("10:04:00", manager(), owned(pod("agent-x"), &daemons)),
            "gone: pod/agent-x is gone: it was deleted by the controller manager at 10:04:00Z (60 seconds \
             ago), because its node/node-0 does not exist any more.",
            &[],
        ),
        (
            "a pod that its kubelet removed",
            "pods web-0",
            cluster([node("node-0")])
                .deleted(
                    "10:04:10",
                    writer("system:node:node-0", "kubelet/v1.36", "delete"),
                    terminating(pod("web-0"), &[]),
                )
                .version("10:04:00", alice(), terminating(pod("web-0"), &[])),
            "gone: pod/web-0 is gone: it was deleted by alice with kubectl at 10:04:00Z (60 seconds ago). \
             It was removed at 10:04:10Z (50 seconds ago), after its containers had stopped.",
            &[],
        ),
        (
            "a volume whose claim was deleted",
            "persistentvolumes pv-1",
            cluster([])
                .deleted(
                    "10:04:00",
                    writer("system:admin", "coracle.csi", "delete"),
                    volume("pv-1", "Released", "Delete"),
                )
                .deleted("10:03:00", alice(), claim("data", "Bound")),
            "gone: persistentvolume/pv-1 is gone: it was deleted by system:admin with coracle.csi at \
             10:04:00Z (60 seconds ago), because its claim persistentvolumeclaim/shop/data was deleted, and \
             its reclaim policy is Delete.",
            &["persistentvolumeclaim/shop/data"],
        ),
    ]);
}

/// Verifies that controllers that may not have deleted the object are not mentioned.
#[test]
fn deleted_by_nobody_knows_whom() {
    let set = |replicas| stateful_set("web", replicas, json!({}));
    let replica_set = || object("ReplicaSet", "web-1", json!({"spec": {"replicas": 3}}));
    let namespace = || object("Namespace", "shop", json!({}));
    check(vec![
        (
            "a pod that its StatefulSet still wants",
            "pods web-0",
            cluster([set(3)]).deleted("10:04:00", alice(), owned(pod("web-0"), &set(3))).without_writers(),
            "gone: pod/web-0 is gone: it was deleted. If it is still needed, statefulset/web makes it again.",
            &[],
        ),
        (
            "a pod that its StatefulSet does not want",
            "pods web-2",
            cluster([set(2)]).deleted("10:04:00", manager(), owned(pod("web-2"), &set(2))).without_writers(),
            "gone: pod/web-2 is gone: it was deleted, because statefulset/web was scaled to 2 replicas, the \
             ordinals 0 to 1.",
            &[],
        ),
        (
            "a pod of a ReplicaSet",
            "pods web-1-x",
            cluster([replica_set()])
                .deleted("10:04:00", alice(), owned(pod("web-1-x"), &replica_set()))
                .without_writers(),
            "gone: pod/web-1-x is gone: it was deleted. If it is still needed, replicaset/web-1 makes another \
             one under a new name.",
            &[],
        ),
        (
            "an object whose namespace was deleted later",
            "widgets.example.com w",
            cluster([])
                .deleted("10:04:00", manager(), namespace())
                .deleted("10:03:00", alice(), object("Widget", "w", json!({})))
                .without_writers(),
            "gone: widget.example.com/w is gone: it was deleted.",
            &[],
        ),
        (
            "an object whose namespace was deleted before",
            "widgets.example.com w",
            cluster([])
                .deleted("10:04:00", manager(), namespace())
                .deleted("10:03:00", manager(), object("Widget", "w", json!({})))
                .version("10:02:00", alice(), terminating(namespace(), &[]))
                .without_writers(),
            "gone: widget.example.com/w is gone: it was deleted, because its namespace shop was deleted.",
            &[],
        ),
    ]);
}

#[test]
fn writers_are_named_by_their_role() {
    use crate::deletion::{Role, describe, role};
    const ACCOUNT: &str = "system:serviceaccount:kube-system:";
    for (user, agent, want) in [
        ("alice", "kubectl/v1.36.0 (linux/amd64)", "alice with kubectl"),
        ("alice", "", "alice"),
        ("", "operator.test", "an unknown user with operator.test"),
        ("alice", "my-garbage-collector/v1", "alice with my-garbage-collector"),
        (
            "system:serviceaccount:shop:namespace-controller",
            "op",
            "system:serviceaccount:shop:namespace-controller with op",
        ),
        (
            "system:kube-controller-manager",
            "kube-controller-manager/v1.36 coracle/0.1.0",
            "the controller manager",
        ),
        ("system:kube-controller-manager", "generic-garbage-collector", "the garbage collector"),
        (
            "system:kube-controller-manager",
            "kube-controller-manager/v1.36/system:serviceaccount:kube-system:namespace-controller",
            "the namespace controller",
        ),
        (&format!("{ACCOUNT}job-controller"), "kube-controller-manager/v1.36", "the job-controller"),
        (&format!("{ACCOUNT}my-app"), "op/v1", "system:serviceaccount:kube-system:my-app with op"),
        ("system:kube-scheduler", "kube-scheduler/v1.36", "the scheduler"),
        ("system:node:node-0", "kubelet/v1.36", "the kubelet of node/node-0"),
    ] {
        assert_eq!(describe(&writer(user, agent, "delete")), want);
    }
    assert_eq!(role(&collector()), Role::GarbageCollector);
}
