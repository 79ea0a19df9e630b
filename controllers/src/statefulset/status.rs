//! A set's status, from its pods.

use std::sync::Arc;

use coracle_kinds::pods;
use k8s_openapi::api::apps::v1::{StatefulSet, StatefulSetStatus};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;

use super::identity::{replicas, revision};
use super::rollout::is_rolling;

/// Computes the status from the pods. It has no conditions: those that clients wrote are dropped.
pub(super) fn count(
    set: &StatefulSet,
    (current, update): (&str, &str),
    collisions: i32,
    members: &[Arc<Pod>],
    now: Timestamp,
) -> StatefulSetStatus {
    let min_ready = set.spec.as_ref().and_then(|spec| spec.min_ready_seconds).unwrap_or(0);
    let number = |counts: &dyn Fn(&Pod) -> bool| {
        i32::try_from(members.iter().filter(|pod| counts(pod)).count()).unwrap_or(i32::MAX)
    };
    let is_created = |pod: &Pod| !pods::phase(pod).is_empty();
    let is_of =
        |pod: &Pod, name: &str| is_created(pod) && !pods::is_terminating(pod) && revision(pod) == name;
    StatefulSetStatus {
        observed_generation: set.metadata.generation,
        replicas: number(&is_created),
        ready_replicas: Some(number(&is_running_and_ready)),
        available_replicas: Some(number(&|pod| {
            is_running_and_ready(pod) && pods::is_available(pod, min_ready, now)
        })),
        current_replicas: Some(number(&|pod| is_of(pod, current))),
        updated_replicas: Some(number(&|pod| is_of(pod, update))),
        current_revision: Some(current.to_owned()),
        update_revision: Some(update.to_owned()),
        collision_count: Some(collisions),
        conditions: None,
    }
}

/// Updates the counts for a counted pod that was deleted afterwards. A pod that an update deletes
/// is not always of the current revision.
pub(super) fn deleted(status: &mut StatefulSetStatus, pod: &Pod) {
    if status.current_revision.as_deref() == Some(revision(pod)) {
        status.current_replicas = status.current_replicas.map(|count| count - 1);
    }
}

pub(super) fn is_running_and_ready(pod: &Pod) -> bool {
    pods::phase(pod) == "Running" && pods::is_ready(pod)
}

/// Completes an update once exactly the desired pods exist and are ready and of its revision: then
/// its revision is current.
pub(super) fn complete(set: &StatefulSet, mut status: StatefulSetStatus) -> StatefulSetStatus {
    let wanted = replicas(set);
    let counts = [status.replicas, status.ready_replicas.unwrap_or(0), status.updated_replicas.unwrap_or(0)];
    if is_rolling(set) && counts == [wanted; 3] {
        status.current_replicas = status.updated_replicas;
        status.current_revision.clone_from(&status.update_revision);
    }
    status
}

/// Returns `true` if a status has to be written. A change of the collision count alone is not
/// written.
pub(super) fn has_changed(set: &StatefulSet, status: &StatefulSetStatus) -> bool {
    fn reported(status: &StatefulSetStatus) -> ([i32; 5], [&str; 2]) {
        let counts = [
            status.replicas,
            status.ready_replicas.unwrap_or(0),
            status.available_replicas.unwrap_or(0),
            status.current_replicas.unwrap_or(0),
            status.updated_replicas.unwrap_or(0),
        ];
        let revisions = [&status.current_revision, &status.update_revision];
        (counts, revisions.map(|name| name.as_deref().unwrap_or_default()))
    }
    let old = set.status.clone().unwrap_or_default();
    status.observed_generation > old.observed_generation || reported(status) != reported(&old)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn set(spec: Value, status: Value) -> StatefulSet {
        let mut set = json!({"metadata": {"generation": 2}, "spec": {"selector": {}, "template": {}}, "status": status});
        let object = set["spec"].as_object_mut().unwrap();
        object.extend(spec.as_object().unwrap().clone());
        serde_json::from_value(set).unwrap()
    }

    fn pod(phase: &str, ready: bool, revision: &str, terminating: bool) -> Arc<Pod> {
        let mut pod = json!({
            "metadata": {"labels": {"controller-revision-hash": revision}},
            "status": {"phase": phase, "conditions": [
                {"type": "Ready", "status": if ready { "True" } else { "False" }, "lastTransitionTime": "2026-01-01T00:00:00Z"},
            ]},
        });
        if terminating {
            pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        }
        Arc::new(serde_json::from_value(pod).unwrap())
    }

    #[test]
    fn pods_are_counted() {
        let members = [
            pod("Running", true, "new", false),
            pod("Running", true, "old", true),
            pod("Running", false, "old", false),
            pod("Pending", false, "third", false),
            pod("Failed", false, "new", true),
        ];
        let now = "2026-01-01T00:00:05Z".parse().unwrap();
        for (min_ready, available) in [(0, 2), (5, 2), (6, 0)] {
            let set = set(json!({"minReadySeconds": min_ready}), json!({"replicas": 0}));
            let status = count(&set, ("old", "new"), 0, &members, now);
            let want = json!({
                "observedGeneration": 2, "replicas": 5, "readyReplicas": 2, "availableReplicas": available, "currentReplicas": 1,
                "updatedReplicas": 1, "currentRevision": "old", "updateRevision": "new", "collisionCount": 0,
            });
            assert_eq!(json!(status), want, "{min_ready}");
        }
    }

    #[test]
    fn only_current_pods_are_current_no_more() {
        for (of, want) in [("old", 1), ("new", 2), ("third", 2)] {
            let mut status = StatefulSetStatus {
                current_revision: Some("old".to_owned()),
                current_replicas: Some(2),
                ..StatefulSetStatus::default()
            };
            deleted(&mut status, &pod("Running", true, of, false));
            assert_eq!(status.current_replicas, Some(want), "{of}");
        }
    }

    #[test]
    fn an_update_ends_when_all_is_as_wanted() {
        for (case, spec, counts, want) in [
            (
                "all updated",
                json!({"replicas": 2, "updateStrategy": {"type": "RollingUpdate"}}),
                [2, 2, 2],
                "new",
            ),
            (
                "not all ready",
                json!({"replicas": 2, "updateStrategy": {"type": "RollingUpdate"}}),
                [2, 1, 2],
                "old",
            ),
            (
                "one too many",
                json!({"replicas": 1, "updateStrategy": {"type": "RollingUpdate"}}),
                [2, 2, 2],
                "old",
            ),
            (
                "nobody updates",
                json!({"replicas": 2, "updateStrategy": {"type": "OnDelete"}}),
                [2, 2, 2],
                "old",
            ),
        ] {
            let status = StatefulSetStatus {
                replicas: counts[0],
                ready_replicas: Some(counts[1]),
                updated_replicas: Some(counts[2]),
                current_revision: Some("old".to_owned()),
                update_revision: Some("new".to_owned()),
                ..StatefulSetStatus::default()
            };
            let status = complete(&set(spec, json!({"replicas": 0})), status);
            assert_eq!(status.current_revision.as_deref(), Some(want), "{case}");
        }
    }

    #[test]
    fn only_changes_are_written() {
        let stored = json!({"replicas": 1, "observedGeneration": 2, "currentRevision": "a"});
        let set = set(json!({}), stored.clone());
        for (case, change, want) in [
            ("nothing", json!({}), false),
            ("zeros", json!({"readyReplicas": 0}), false),
            ("an earlier generation", json!({"observedGeneration": 1}), false),
            ("a later one", json!({"observedGeneration": 3}), true),
            ("a count", json!({"readyReplicas": 1}), true),
            ("a revision", json!({"currentRevision": "b"}), true),
            ("a collision", json!({"collisionCount": 1}), false),
        ] {
            let mut status = stored.clone();
            status.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
            assert_eq!(has_changed(&set, &serde_json::from_value(status).unwrap()), want, "{case}");
        }
    }
}
