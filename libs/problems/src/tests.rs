use kube::core::discovery::v2::APIGroupDiscovery;
use serde_json::{Value, json};

use crate::object::needs_content;
use crate::problems::{Findings, MAX_EVENTS, MAX_OBJECTS, MAX_OF_RESOURCE, MAX_OTHER_WARNINGS};
use crate::resource::{Resource, listable};

fn resource(group: &str, plural: &str, kind: &str) -> Resource {
    let [group, plural, kind] = [group, plural, kind].map(str::to_owned);
    Resource { group, version: "v1".to_owned(), plural, kind, is_namespaced: true }
}

fn pods() -> Resource {
    resource("", "pods", "Pod")
}

/// Builds an object of a name in the namespace `default`, with other members.
fn object(name: &str, members: Value) -> Value {
    let mut object = json!({"metadata": {"name": name, "namespace": "default", "uid": name}});
    for (member, value) in members.as_object().expect("members") {
        match member.as_str() {
            "metadata" => {
                let metadata = object["metadata"].as_object_mut().expect("metadata");
                metadata.extend(value.as_object().expect("metadata").clone());
            }
            _ => object[member] = value.clone(),
        }
    }
    object
}

fn condition(name: &str, status: &str, reason: &str, message: &str) -> Value {
    json!({"type": name, "status": status, "reason": reason, "message": message})
}

/// Returns the line that is reported of an object.
fn reported(resource: &Resource, object: &Value) -> Option<String> {
    let mut findings = Findings::default();
    findings.add_object(resource, object);
    findings.report().objects().first().cloned()
}

#[test]
fn objects_that_are_ready_or_done_are_not_reported() {
    let ready = json!([condition("Ready", "True", "", "")]);
    let apps = |plural, kind| resource("apps", plural, kind);
    for (resource, members) in [
        (pods(), json!({"status": {"phase": "Running", "conditions": ready}})),
        (pods(), json!({"status": {"phase": "Succeeded"}})),
        (
            resource("", "persistentvolumeclaims", "PersistentVolumeClaim"),
            json!({"status": {"phase": "Bound"}}),
        ),
        (resource("", "persistentvolumes", "PersistentVolume"), json!({"status": {"phase": "Available"}})),
        (
            resource("", "namespaces", "Namespace"),
            json!({"spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Active"}}),
        ),
        (resource("", "nodes", "Node"), json!({"status": {"conditions": ready}})),
        (resource("", "configmaps", "ConfigMap"), json!({"metadata": {"finalizers": ["example.com/hold"]}})),
        (apps("deployments", "Deployment"), json!({"spec": {"replicas": 0}, "status": {}})),
        (
            apps("deployments", "Deployment"),
            json!({"spec": {"paused": true}, "status": {
                "replicas": 1, "updatedReplicas": 1, "readyReplicas": 1, "availableReplicas": 1,
                "conditions": [condition("Progressing", "Unknown", "DeploymentPaused", "")],
            }}),
        ),
        // A rollout that a partition holds back.
        (
            apps("statefulsets", "StatefulSet"),
            json!({
                "spec": {"replicas": 3, "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 2}}},
                "status": {"replicas": 3, "readyReplicas": 3, "availableReplicas": 3, "updatedReplicas": 1,
                    "currentRevision": "a", "updateRevision": "b"},
            }),
        ),
        (apps("daemonsets", "DaemonSet"), json!({"status": {"desiredNumberScheduled": 0}})),
        // Its Deployment is reported.
        (
            apps("replicasets", "ReplicaSet"),
            json!({"metadata": {"ownerReferences": [{"kind": "Deployment", "controller": true}]}, "spec": {"replicas": 3}}),
        ),
        (
            resource("batch", "jobs", "Job"),
            json!({"status": {"conditions": [condition("Complete", "True", "", "")]}}),
        ),
        (resource("example.com", "boats", "Boat"), json!({"status": {"conditions": ready}})),
        // Members of other types than usual.
        (resource("example.com", "boats", "Boat"), json!({"status": "afloat", "spec": 7})),
        (resource("example.com", "boats", "Boat"), json!({"status": {"conditions": {"Ready": false}}})),
    ] {
        let object = object("web", members);
        assert_eq!(reported(&resource, &object), None, "{object}");
    }
}

#[test]
fn a_line_names_the_object_and_why_it_is_not_ready() {
    let apps = |plural, kind| resource("apps", plural, kind);
    let unschedulable =
        condition("PodScheduled", "False", "Unschedulable", "0/1 nodes are available:\n1 Insufficient cpu.");
    for (resource, members, expected) in [
        (pods(), json!({}), "pod/default/web: Pending"),
        (
            pods(),
            json!({"status": {"phase": "Pending", "conditions": [unschedulable]}}),
            "pod/default/web: Pending: Unschedulable: 0/1 nodes are available: 1 Insufficient cpu.",
        ),
        (
            pods(),
            json!({"status": {"phase": "Pending", "containerStatuses": [
                {"name": "app", "ready": false, "state": {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}},
            ]}}),
            "pod/default/web: Pending: container app: ImagePullBackOff: no such image",
        ),
        (
            pods(),
            json!({"status": {
                "phase": "Pending",
                "initContainerStatuses": [
                    {"name": "first", "state": {"terminated": {"exitCode": 0, "reason": "Completed"}}},
                    {"name": "second", "ready": false, "state": {"running": {}}},
                ],
                "containerStatuses": [{"name": "app", "ready": false, "state": {"waiting": {"reason": "PodInitializing"}}}],
            }}),
            "pod/default/web: Pending: container second: running, not ready",
        ),
        (
            pods(),
            json!({"status": {
                "phase": "Running",
                "conditions": [condition("Ready", "False", "ContainersNotReady", "containers with unready status: [app]")],
                "containerStatuses": [{
                    "name": "app", "ready": false, "restartCount": 3,
                    "state": {"waiting": {"reason": "CrashLoopBackOff"}}, "lastState": {"terminated": {"exitCode": 2}},
                }],
            }}),
            "pod/default/web: Running, not ready: container app: CrashLoopBackOff: last exit code 2 (3 restarts)",
        ),
        (
            pods(),
            json!({"status": {"phase": "Running", "conditions": [
                condition("Ready", "False", "ReadinessGatesNotReady", "corresponding condition of pod readiness gate \"a\" does not exist."),
            ]}}),
            "pod/default/web: Running, not ready: ReadinessGatesNotReady: corresponding condition of pod readiness gate \"a\" does not exist.",
        ),
        (
            pods(),
            json!({"status": {"phase": "Failed", "containerStatuses": [
                {"name": "app", "ready": false, "state": {"terminated": {"exitCode": 1, "reason": "Error"}}},
            ]}}),
            "pod/default/web: Failed: container app: Error: exit code 1",
        ),
        (
            pods(),
            json!({"status": {"phase": "Failed", "reason": "Evicted", "message": "low on memory"}}),
            "pod/default/web: Failed: Evicted: low on memory",
        ),
        (
            pods(),
            json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:30Z"}, "status": {"phase": "Running"}}),
            "pod/default/web: Terminating: deletionTimestamp 2026-01-01T00:00:30Z",
        ),
        (
            resource("", "configmaps", "ConfigMap"),
            json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["example.com/hold", "foregroundDeletion"]}}),
            "configmap/default/web: Terminating: deletionTimestamp 2026-01-01T00:00:00Z, finalizers example.com/hold, foregroundDeletion",
        ),
        (
            resource("", "persistentvolumeclaims", "PersistentVolumeClaim"),
            json!({"spec": {"storageClassName": "slow"}, "status": {"phase": "Pending"}}),
            "persistentvolumeclaim/default/web: Pending: storage class slow",
        ),
        (
            apps("statefulsets", "StatefulSet"),
            json!({"metadata": {"generation": 2}, "spec": {"replicas": 3}, "status": {
                "observedGeneration": 1, "replicas": 3, "readyReplicas": 2, "availableReplicas": 2,
            }}),
            "statefulset.apps/default/web: 3 desired, readyReplicas 2, availableReplicas 2: generation 2 is not observed",
        ),
        (
            apps("deployments", "Deployment"),
            json!({"status": {"replicas": 0, "conditions": [
                condition("Progressing", "True", "NewReplicaSetCreated", ""),
                condition("Available", "False", "MinimumReplicasUnavailable", "no minimum availability"),
                condition("ReplicaFailure", "True", "FailedCreate", "exceeded quota"),
            ]}}),
            "deployment.apps/default/web: 1 desired, updatedReplicas 0, readyReplicas 0, availableReplicas 0: \
             Available=False: MinimumReplicasUnavailable: no minimum availability; ReplicaFailure=True: FailedCreate: exceeded quota",
        ),
        (
            apps("daemonsets", "DaemonSet"),
            json!({"status": {"desiredNumberScheduled": 2, "updatedNumberScheduled": 2, "numberReady": 1, "numberAvailable": 1}}),
            "daemonset.apps/default/web: 2 desired, updatedNumberScheduled 2, numberReady 1, numberAvailable 1",
        ),
        (
            apps("replicasets", "ReplicaSet"),
            json!({"spec": {"replicas": 2}, "status": {"replicas": 3, "readyReplicas": 3, "availableReplicas": 3}}),
            "replicaset.apps/default/web: 2 desired, readyReplicas 3, availableReplicas 3",
        ),
        (
            resource("batch", "jobs", "Job"),
            json!({"status": {"failed": 7, "conditions": [condition("Failed", "True", "BackoffLimitExceeded", "limit reached")]}}),
            "job.batch/default/web: Failed: BackoffLimitExceeded: limit reached",
        ),
        (
            resource("batch", "jobs", "Job"),
            json!({"status": {"active": 1, "succeeded": 2}}),
            "job.batch/default/web: not complete, 1 active, 2 succeeded, 0 failed",
        ),
        (
            resource("example.com", "boats", "Boat"),
            json!({"status": {"conditions": [condition("Ready", "Unknown", "NotSeen", "")]}}),
            "boat.example.com/default/web: Ready=Unknown: NotSeen",
        ),
    ] {
        let object = object("web", members);
        assert_eq!(reported(&resource, &object).as_deref(), Some(expected), "{object}");
    }
}

#[test]
fn objects_without_a_namespace_are_named_without_one() {
    let namespace = json!({
        "metadata": {"name": "shop", "deletionTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"finalizers": ["kubernetes"]},
        "status": {"phase": "Terminating", "conditions": [
            condition("NamespaceDeletionContentFailure", "False", "ContentDeleted", "all"),
            condition("NamespaceContentRemaining", "True", "SomeResourcesRemain", "configmaps. has 1 resource instances"),
        ]},
    });
    assert_eq!(
        reported(&resource("", "namespaces", "Namespace"), &namespace).as_deref(),
        Some(
            "namespace/shop: Terminating: deletionTimestamp 2026-01-01T00:00:00Z, spec.finalizers kubernetes: \
             NamespaceContentRemaining=True: SomeResourcesRemain: configmaps. has 1 resource instances"
        )
    );
    let volume = json!({
        "metadata": {"name": "pv-1"},
        "spec": {"persistentVolumeReclaimPolicy": "Retain", "claimRef": {"namespace": "shop", "name": "data"}},
        "status": {"phase": "Released"},
    });
    assert_eq!(
        reported(&resource("", "persistentvolumes", "PersistentVolume"), &volume).as_deref(),
        Some("persistentvolume/pv-1: Released: reclaim policy Retain: claim shop/data")
    );
    let node = json!({"metadata": {"name": "node-0"}, "status": {"conditions": [condition("Ready", "Unknown", "NodeStatusUnknown", "")]}});
    assert_eq!(
        reported(&resource("", "nodes", "Node"), &node).as_deref(),
        Some("node/node-0: NotReady: Ready=Unknown: NodeStatusUnknown")
    );
}

#[test]
fn a_line_has_no_control_characters_and_a_bounded_length() {
    let message = format!("\u{1b}[31m{}", "é ".repeat(5_000));
    let pod = object("web", json!({"status": {"phase": "Failed", "reason": "Error", "message": message}}));
    let line = reported(&pods(), &pod).expect("a line");
    assert!(line.starts_with("pod/default/web: Failed: Error: [31mé é"), "{line}");
    assert!(line.ends_with("...") && line.chars().count() == 303, "{}", line.chars().count());
}

fn event(of: &str, class: &str, second: u32, reason: &str) -> Value {
    json!({
        "involvedObject": {"kind": "Pod", "apiVersion": "v1", "namespace": "default", "name": of, "uid": of},
        "type": class, "reason": reason, "message": "text", "lastTimestamp": format!("2026-01-01T00:00:{second:02}Z"),
    })
}

#[test]
fn events_are_those_of_reported_objects_warnings_first_and_others_where_there_are_none() {
    let mut findings = Findings::default();
    for name in ["web", "quiet"] {
        findings.add_object(&pods(), &object(name, json!({})));
    }
    let mut ready = condition("Ready", "True", "", "");
    ready["lastTransitionTime"] = "2026-01-01T00:00:03Z".into();
    let now_ready = json!({"status": {"phase": "Running", "conditions": [ready]}});
    // Its Deployment is reported, not itself; its warnings are.
    let owned = json!({"metadata": {"ownerReferences": [{"kind": "Deployment", "controller": true}]}});
    findings.add_object(&resource("apps", "replicasets", "ReplicaSet"), &object("owned", owned));
    findings.add_object(&pods(), &object("ready", now_ready));
    let mut repeated = event("web", "Warning", 5, "BackOff");
    repeated["count"] = json!(4);
    for event in [
        event("web", "Normal", 9, "Pulled"),
        event("web", "Warning", 1, "Failed"),
        repeated,
        event("quiet", "Normal", 3, "Scheduled"),
        event("quiet", "Normal", 4, "Pulling"),
        event("ready", "Normal", 8, "Started"),
        event("ready", "Warning", 2, "FailedScheduling"),
        event("ready", "Warning", 6, "Unhealthy"),
        event("owned", "Warning", 0, "FailedCreate"),
        event("deleted", "Warning", 7, "FailedScheduling"),
        json!({"involvedObject": {"kind": "Deployment", "apiVersion": "apps/v1", "namespace": "default", "name": "web", "uid": "quiet"},
            "type": "Normal", "reason": "Scaled", "eventTime": "2026-01-01T00:00:02.123456Z"}),
        json!({}),
    ] {
        findings.add_event(&event);
    }
    assert_eq!(
        findings.report().events(),
        [
            "00:00:05Z Warning pod/default/web: BackOff: text (4 times)",
            "00:00:01Z Warning pod/default/web: Failed: text",
            "00:00:07Z Warning pod/default/deleted: FailedScheduling: text",
            "00:00:06Z Warning pod/default/ready: Unhealthy: text",
            "00:00:00Z Warning pod/default/owned: FailedCreate: text",
            "00:00:04Z Normal pod/default/quiet: Pulling: text",
            "00:00:03Z Normal pod/default/quiet: Scheduled: text",
            "00:00:02Z Normal deployment.apps/default/web: Scaled",
        ]
    );
}

#[test]
fn a_report_is_bounded() {
    let mut findings = Findings::default();
    let kinds = ["boats", "cars", "trains", "planes", "bicycles"];
    for kind in kinds {
        let resource = resource("example.com", kind, kind);
        for i in 0..100 {
            let broken = json!({"status": {"conditions": [condition("Ready", "False", "", "")]}});
            findings.add_object(&resource, &object(&format!("{kind}-{i}"), broken));
        }
    }
    for i in 0..1_000 {
        findings.add_event(&event("bicycles-0", "Normal", i % 60, "Seen"));
        findings.add_event(&event("another", "Warning", i % 60, "Seen"));
    }
    (0..100).for_each(|_| findings.add_note("a note"));
    let problems = findings.report();
    assert_eq!(problems.objects().len(), MAX_OBJECTS);
    let of_first = problems.objects().iter().filter(|line| line.contains("bicycles-")).count();
    assert_eq!(of_first, MAX_OF_RESOURCE);
    assert_eq!(problems.events().len(), MAX_EVENTS);
    let warnings = problems.events().iter().filter(|line| line.contains("Warning")).count();
    assert_eq!(warnings, MAX_OTHER_WARNINGS);
    let text = problems.to_string();
    assert!(
        text.starts_with(
            "objects that are not ready (500):\n  bicycles.example.com/default/bicycles-0: Ready=False\n"
        ),
        "{text}"
    );
    assert!(text.contains("\n  and 460 more\nevents, warnings first, newest first:\n"), "{text}");
    assert!(text.ends_with("\n  a note\n  and 90 more\n"), "{text}");
    assert!(text.lines().count() < MAX_OBJECTS + MAX_EVENTS + 20, "{text}");
}

#[test]
fn nothing_is_reported_as_nothing() {
    let problems = Findings::default().report();
    assert!(problems.is_empty());
    assert_eq!(problems.to_string(), "");
}

#[test]
fn each_resource_is_read_once_and_secrets_without_their_content() {
    let served = |name: &str, verb: &str| {
        let scope = if name == "oars" { "Cluster" } else { "Namespaced" };
        json!({"resource": name, "responseKind": {"kind": "Kind"}, "scope": scope, "verbs": [verb]})
    };
    let groups: Vec<APIGroupDiscovery> = serde_json::from_value(json!([
        {"versions": [{"version": "v1", "resources": [served("pods", "list"), served("secrets", "list"), served("bindings", "create")]}]},
        {"metadata": {"name": "example.com"}, "versions": [
            {"version": "v2", "resources": [served("boats", "list")]},
            {"version": "v1", "resources": [served("boats", "list"), served("oars", "list")]},
        ]},
    ]))
    .expect("groups");
    let listed = listable(groups);
    let read: Vec<_> = listed.iter().map(|found| (found.path(None), needs_content(found))).collect();
    let expected = [
        ("/api/v1/pods", true),
        ("/api/v1/secrets", false),
        ("/apis/example.com/v2/boats", true),
        ("/apis/example.com/v1/oars", true),
    ];
    assert_eq!(read, expected.map(|(path, content)| (path.to_owned(), content)));
    let namespaced = listed.iter().filter(|found| found.is_namespaced);
    let read: Vec<_> = namespaced.map(|found| found.path(Some("a/b"))).collect();
    let expected = [
        "/api/v1/namespaces/a%2Fb/pods",
        "/api/v1/namespaces/a%2Fb/secrets",
        "/apis/example.com/v2/namespaces/a%2Fb/boats",
    ];
    assert_eq!(read, expected);
}
