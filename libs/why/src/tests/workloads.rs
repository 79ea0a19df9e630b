//! Deployments, DaemonSets and Jobs that do not have their pods.

use serde_json::{Value, json};

use super::check;
use super::fake::{cluster, condition, crashing, event, node, object, owned, pod, unready};

#[test]
fn deployments_and_replica_sets() {
    let deployment = |spec: Value, status: Value| {
        let mut deployment = object("Deployment", "web", json!({"spec": {"replicas": 2}, "status": status}));
        deployment["spec"].as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
        deployment
    };
    let counts = |conditions: Value| json!({"replicas": 2, "updatedReplicas": 2, "readyReplicas": 1, "availableReplicas": 1, "conditions": conditions});
    let set = |deployment: &Value, status: Value| {
        let annotations = json!({"deployment.kubernetes.io/revision": "1"});
        owned(
            object(
                "ReplicaSet",
                "web-1",
                json!({"metadata": {"annotations": annotations}, "spec": {"replicas": 2}, "status": status}),
            ),
            deployment,
        )
    };
    let plain = deployment(json!({}), counts(json!([])));
    let own = set(&plain, json!({"replicas": 2, "readyReplicas": 1, "availableReplicas": 1}));
    let refused = "pods \"web-1-x\" is forbidden: exceeded quota: small, requested: pods=1, used: pods=1, limited: pods=1";
    let failure = json!([condition("ReplicaFailure", "True", "FailedCreate", refused)]);
    check(vec![
        (
            "pods of a Deployment",
            "deployments.apps web",
            cluster([
                node("node-0"),
                plain.clone(),
                own.clone(),
                owned(crashing("web-1-a"), &own),
                owned(pod("web-1-b"), &own),
            ]),
            "notReady: deployment/web has 2 of 2 replicas updated, 1 ready, 1 available: the pods of \
             replicaset/web-1 are not all available.",
            &[
                "replicaset.apps/shop/web-1: replicaset/web-1 has 1 of 2 pods ready; not ready: pod/web-1-a",
                "pod/shop/web-1-a",
                "status.containerStatuses: app",
            ],
        ),
        (
            "deadline",
            "deployments.apps web",
            cluster([deployment(
                json!({"progressDeadlineSeconds": 60}),
                counts(json!([condition(
                    "Progressing",
                    "False",
                    "ProgressDeadlineExceeded",
                    "ReplicaSet \"web-1\" has timed out progressing."
                )])),
            )]),
            "notReady: deployment/web has 2 of 2 replicas updated, 1 ready, 1 available, and made no \
             progress for 60 seconds (progressDeadlineSeconds): its condition Progressing is False since \
             10:00:00Z (5 minutes ago): ProgressDeadlineExceeded: ReplicaSet \"web-1\" has timed out \
             progressing. Nothing is rolled back; it goes on as soon as its pods become ready.",
            &["Progressing=False"],
        ),
        (
            "paused",
            "deployments.apps web",
            cluster([deployment(
                json!({"paused": true}),
                json!({"replicas": 2, "updatedReplicas": 0, "readyReplicas": 2, "availableReplicas": 2}),
            )]),
            "notReady: deployment/web has 0 of 2 replicas updated, 2 ready, 2 available, and is paused: \
             changes of its template are not rolled out. To go on: kubectl rollout resume deployments.apps \
             web -n shop",
            &["spec.paused: true"],
        ),
        (
            "replica failure",
            "deployments.apps web",
            cluster([deployment(json!({}), counts(failure.clone()))]),
            "notReady: deployment/web has 2 of 2 replicas updated, 1 ready, 1 available: its condition \
             ReplicaFailure is True since 10:00:00Z (5 minutes ago): FailedCreate: pods \"web-1-x\" is \
             forbidden: exceeded quota: small, requested: pods=1, used: pods=1, limited: pods=1. The \
             controller tries again.",
            &["ReplicaFailure=True", "resourcequota/shop/small"],
        ),
        (
            "rollout",
            "deployments.apps web",
            cluster([
                deployment(
                    json!({"strategy": {"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}}),
                    json!({"replicas": 3, "updatedReplicas": 1, "readyReplicas": 2, "availableReplicas": 2}),
                ),
                own.clone(),
            ]),
            "notReady: deployment/web is being rolled out to replicaset/web-1: it has 1 of 2 replicas \
             updated, 2 ready, 2 available. Pods are replaced within maxSurge 1 and maxUnavailable 0.",
            &[],
        ),
        (
            "a refused ReplicaSet",
            "replicasets.apps web-1",
            cluster([
                plain.clone(),
                set(&plain, json!({"replicas": 1, "readyReplicas": 1, "conditions": failure})),
            ]),
            "notReady: replicaset/web-1 has 1 of 2 pods ready: pods cannot be created: pods \"web-1-x\" is \
             forbidden: exceeded quota: small, requested: pods=1, used: pods=1, limited: pods=1. The \
             controller tries again.",
            &["resourcequota/shop/small"],
        ),
        (
            "a ReplicationController",
            "replicationcontrollers web",
            cluster([object(
                "ReplicationController",
                "web",
                json!({"spec": {"replicas": 3}, "status": {"replicas": 1, "readyReplicas": 1}}),
            )]),
            "notReady: replicationcontroller/web has 1 of 3 pods ready; 2 pods to be made.",
            &[],
        ),
        (
            "a complete Deployment",
            "deployments.apps web",
            cluster([deployment(
                json!({"replicas": 1}),
                json!({"replicas": 1, "updatedReplicas": 1, "readyReplicas": 1, "availableReplicas": 1}),
            )]),
            "none",
            &[],
        ),
    ]);
}

#[test]
fn daemon_sets() {
    let set = |status: Value, template: Value| {
        object("DaemonSet", "agent", json!({"spec": {"template": {"spec": template}}, "status": status}))
    };
    let tainted = {
        let mut node = node("node-0");
        node["spec"]["taints"] = json!([{"key": "dedicated", "value": "db", "effect": "NoSchedule"}]);
        node
    };
    let cordoned = {
        let mut node = node("node-0");
        node["spec"]["taints"] = json!([{"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}]);
        node
    };
    let behind = set(
        json!({"desiredNumberScheduled": 2, "currentNumberScheduled": 1, "numberReady": 1, "numberAvailable": 1, "updatedNumberScheduled": 1}),
        json!({}),
    );
    let unready = set(
        json!({"desiredNumberScheduled": 1, "currentNumberScheduled": 1, "updatedNumberScheduled": 1}),
        json!({}),
    );
    check(vec![
        (
            "taints",
            "daemonsets.apps agent",
            cluster([tainted, set(json!({"desiredNumberScheduled": 0}), json!({}))]),
            "notReady: daemonset/agent runs on no node: every node has a taint that its pods do not \
             tolerate (spec.template.spec.tolerations).",
            &["status.desiredNumberScheduled: 0"],
        ),
        (
            "labels, and a cordoned node, which its pods tolerate",
            "daemonsets.apps agent",
            cluster([cordoned, set(json!({}), json!({"nodeSelector": {"gpu": "yes"}}))]),
            "notReady: daemonset/agent runs on no node: no node has the labels that \
             spec.template.spec.nodeSelector or its node affinity asks for.",
            &[],
        ),
        (
            "labels",
            "daemonsets.apps agent",
            cluster([node("node-0"), set(json!({}), json!({"nodeSelector": {"gpu": "yes"}}))]),
            "notReady: daemonset/agent runs on no node: no node has the labels that \
             spec.template.spec.nodeSelector or its node affinity asks for.",
            &[],
        ),
        (
            "a node without its pod",
            "daemonsets.apps agent",
            cluster([
                node("node-0"),
                behind.clone(),
                event(&behind, "FailedCreate", "Error creating: denied"),
            ]),
            "notReady: daemonset/agent has 1 of 2 pods ready; 1 node without its pod, because a pod could \
             not be made at 10:04:00Z (60 seconds ago): Error creating: denied.",
            &[],
        ),
        (
            "a pod of a DaemonSet",
            "daemonsets.apps agent",
            cluster([node("node-0"), owned(crashing("agent-x"), &unready), unready]),
            "notReady: daemonset/agent has 0 of 1 pods ready; not ready: pod/agent-x.",
            &["pod/shop/agent-x"],
        ),
    ]);
}

#[test]
fn jobs_and_cron_jobs() {
    let job = |spec: Value, status: Value| object("Job", "count", json!({"spec": spec, "status": status}));
    let failed = |reason: &str| json!({"failed": 3, "conditions": [condition("Failed", "True", reason, "")]});
    let cron =
        |spec: Value, status: Value| object("CronJob", "nightly", json!({"spec": spec, "status": status}));
    let active = job(json!({"completions": 2}), json!({"active": 1}));
    check(vec![
        (
            "backoff limit",
            "jobs.batch count",
            cluster([
                node("node-0"),
                job(json!({"backoffLimit": 2}), failed("BackoffLimitExceeded")),
                owned(
                    unready(
                        "count-a",
                        "Failed",
                        json!({"containerStatuses": [{"name": "c", "state": {"terminated": {"exitCode": 1}}}]}),
                    ),
                    &active,
                ),
            ]),
            "notReady: job/count has failed (0 active, 0 succeeded, 3 failed): its condition Failed is \
             True since 10:00:00Z (5 minutes ago): BackoffLimitExceeded. More pods failed than \
             spec.backoffLimit (2) allows. A Job that has failed is not started again: delete it and \
             create it anew.",
            &["Failed=True", "pod/shop/count-a"],
        ),
        (
            "deadline of a Job",
            "jobs.batch count",
            cluster([job(json!({"activeDeadlineSeconds": 60}), failed("DeadlineExceeded"))]),
            "notReady: job/count has failed (0 active, 0 succeeded, 3 failed): its condition Failed is \
             True since 10:00:00Z (5 minutes ago): DeadlineExceeded. It ran longer than \
             spec.activeDeadlineSeconds (60). A Job that has failed is not started again: delete it and \
             create it anew.",
            &[],
        ),
        (
            "failure policy",
            "jobs.batch count",
            cluster([job(json!({}), failed("PodFailurePolicy"))]),
            "notReady: job/count has failed (0 active, 0 succeeded, 3 failed): its condition Failed is \
             True since 10:00:00Z (5 minutes ago): PodFailurePolicy. A pod failed in a way for which \
             spec.podFailurePolicy says FailJob. A Job that has failed is not started again: delete it \
             and create it anew.",
            &[],
        ),
        (
            "suspended Job",
            "jobs.batch count",
            cluster([job(json!({"suspend": true}), json!({}))]),
            "notReady: job/count is not complete because it is suspended (spec.suspend). To start it: \
             kubectl patch jobs.batch count -n shop --type=merge -p '{\"spec\":{\"suspend\":false}}'",
            &["spec.suspend: true; remedy: kubectl patch jobs.batch count"],
        ),
        (
            "active",
            "jobs.batch count",
            cluster([node("node-0"), active.clone(), owned(crashing("count-a"), &active)]),
            "notReady: job/count is not complete (1 active, 0 succeeded, 0 failed): 2 of its pods have to \
             succeed.",
            &["status.succeeded", "pod/shop/count-a"],
        ),
        (
            "pods that cannot be made",
            "jobs.batch count",
            cluster([
                job(json!({}), json!({})),
                event(&active, "FailedCreate", "Error creating: denied by policy"),
            ]),
            "notReady: job/count is not complete (0 active, 0 succeeded, 0 failed): its pods cannot be \
             made: Error creating: denied by policy. That is tried again.",
            &[],
        ),
        (
            "managed by another",
            "jobs.batch count",
            cluster([job(json!({"managedBy": "example.com/jobs"}), json!({}))]),
            "notReady: job/count is not complete (0 active, 0 succeeded, 0 failed): it is managed by \
             example.com/jobs (spec.managedBy), and the job controller leaves it alone.",
            &["spec.managedBy: example.com/jobs"],
        ),
        (
            "suspended CronJob",
            "cronjobs.batch nightly",
            cluster([cron(json!({"schedule": "0 3 * * *", "suspend": true}), json!({}))]),
            "notReady: cronjob/nightly starts no Jobs because it is suspended (spec.suspend); it started \
             no Job yet. To go on: kubectl patch cronjobs.batch nightly -n shop --type=merge -p \
             '{\"spec\":{\"suspend\":false}}'",
            &["spec.suspend: true"],
        ),
        (
            "missed times",
            "cronjobs.batch nightly",
            {
                let cron = cron(
                    json!({"schedule": "* * * * *", "startingDeadlineSeconds": 10}),
                    json!({"lastScheduleTime": "2026-11-27T08:00:00Z"}),
                );
                cluster([event(&cron, "TooManyMissedTimes", "too many missed start times"), cron])
            },
            "notReady: cronjob/nightly could not start a Job by its schedule * * * * * (the last Job at \
             08:00:00Z (2 hours ago)): too many missed start times. A Job that cannot be started within \
             10 seconds (startingDeadlineSeconds) is skipped.",
            &["spec.schedule"],
        ),
        (
            "missed times before a Job",
            "cronjobs.batch nightly",
            {
                let cron = cron(json!({}), json!({"lastScheduleTime": "2026-11-27T10:04:00Z"}));
                let mut started = owned(job(json!({}), json!({})), &cron);
                started["metadata"]["creationTimestamp"] = json!("2026-11-27T10:04:00Z");
                cluster([event(&cron, "TooManyMissedTimes", "too many missed start times"), started, cron])
            },
            "none",
            &[],
        ),
        (
            "a Job that runs",
            "cronjobs.batch nightly",
            cluster([
                active.clone(),
                cron(
                    json!({"concurrencyPolicy": "Forbid"}),
                    json!({"active": [{"name": "count"}], "lastScheduleTime": "2026-11-27T10:00:00Z"}),
                ),
            ]),
            "notReady: cronjob/nightly starts no other Job while job/count runs (concurrencyPolicy: \
             Forbid), for 5 minutes now.",
            &["spec.concurrencyPolicy: Forbid", "job.batch/shop/count"],
        ),
        (
            "a complete Job",
            "jobs.batch count",
            cluster([job(json!({}), json!({"conditions": [condition("Complete", "True", "", "")]}))]),
            "none",
            &[],
        ),
    ]);
}
