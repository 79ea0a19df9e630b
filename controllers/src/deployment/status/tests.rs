use super::*;
use serde_json::{Value, json};

const NOW: &str = "2026-01-01T01:00:00Z";

/// Builds a Deployment of 4 replicas, of which 3 have to be available, with a deadline of 600 s.
fn deployment(status: Value) -> Deployment {
    let rolling = json!({"maxSurge": "25%", "maxUnavailable": "25%"});
    let spec = json!({
        "replicas": 4, "selector": {}, "template": {}, "progressDeadlineSeconds": 600,
        "strategy": {"type": "RollingUpdate", "rollingUpdate": rolling},
    });
    serde_json::from_value(
        json!({"metadata": {"name": "web", "generation": 2}, "spec": spec, "status": status}),
    )
    .unwrap()
}

fn set(name: &str, replicas: i32, status: Value) -> Arc<ReplicaSet> {
    let set =
        json!({"metadata": {"name": name}, "spec": {"replicas": replicas, "selector": {}}, "status": status});
    Arc::new(serde_json::from_value(set).unwrap())
}

fn counts(replicas: i32, ready: i32, available: i32, terminating: Option<i32>) -> Value {
    json!({
        "replicas": replicas, "readyReplicas": ready, "availableReplicas": available,
        "terminatingReplicas": terminating, "observedGeneration": 1,
    })
}

fn progressing(status: &str, reason: &str, updated: &str) -> Value {
    json!([{
        "type": "Progressing", "status": status, "reason": reason, "message": "as before", "lastUpdateTime": updated,
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }])
}

#[test]
fn counts_are_sums() {
    let sets = ReplicaSets {
        old: vec![set("old", 3, counts(3, 2, 2, Some(1)))],
        new: Some(set("new", 2, counts(2, 2, 1, Some(0)))),
    };
    let status = calculate(&deployment(json!({"collisionCount": 1})), &sets, NOW.parse().unwrap());
    let mut status = json!(status);
    assert_eq!(status["conditions"][0]["status"], "True");
    status.as_object_mut().unwrap().remove("conditions");
    let want = json!({
        "observedGeneration": 2, "replicas": 5, "updatedReplicas": 2, "readyReplicas": 4, "availableReplicas": 3,
        "unavailableReplicas": 2, "terminatingReplicas": 1, "collisionCount": 1,
    });
    assert_eq!(status, want);
}

#[test]
fn counts_that_are_not_reported_are_unknown() {
    for (case, terminating, observed, want) in [
        ("reported", json!(1), json!(1), json!(1)),
        ("not reconciled yet", json!(null), json!(null), json!(0)),
        ("not reported", json!(null), json!(1), json!(null)),
    ] {
        let status =
            json!({"replicas": 0, "terminatingReplicas": terminating, "observedGeneration": observed});
        let sets = ReplicaSets { old: Vec::new(), new: Some(set("new", 0, status)) };
        let status = calculate(&deployment(json!({})), &sets, NOW.parse().unwrap());
        assert_eq!(json!(status.terminating_replicas), want, "{case}");
        assert_eq!(find(&status, AVAILABLE).unwrap().status, "False", "{case}");
    }
}

#[test]
fn progress_is_reported() {
    let recently = "2026-01-01T00:55:00Z";
    let long_ago = "2026-01-01T00:40:00Z";
    let done = ("True", NEW_REPLICA_SET_AVAILABLE, NOW);
    for (case, old, new, old_counts, conditions, want) in [
        (
            "complete",
            counts(0, 0, 0, Some(0)),
            counts(4, 4, 4, Some(0)),
            [4, 4, 3, 3],
            progressing("True", "ReplicaSetUpdated", recently),
            done,
        ),
        (
            "complete at last",
            counts(0, 0, 0, Some(0)),
            counts(4, 4, 4, Some(0)),
            [4, 4, 3, 3],
            progressing("False", TIMED_OUT, long_ago),
            done,
        ),
        (
            "more updated",
            counts(3, 3, 3, Some(0)),
            counts(2, 0, 0, Some(0)),
            [4, 1, 3, 3],
            progressing("True", "NewReplicaSetCreated", recently),
            ("True", "ReplicaSetUpdated", NOW),
        ),
        (
            "less old",
            counts(2, 2, 2, Some(0)),
            counts(2, 0, 0, Some(0)),
            [5, 2, 3, 3],
            progressing("True", "ReplicaSetUpdated", recently),
            ("True", "ReplicaSetUpdated", NOW),
        ),
        (
            "after a time-out",
            counts(3, 3, 3, Some(0)),
            counts(2, 1, 1, Some(0)),
            [5, 2, 3, 3],
            progressing("False", TIMED_OUT, long_ago),
            ("True", "ReplicaSetUpdated", NOW),
        ),
        (
            "none yet",
            counts(3, 3, 3, Some(0)),
            counts(2, 0, 0, Some(0)),
            [5, 2, 3, 3],
            progressing("True", "ReplicaSetUpdated", recently),
            ("True", "ReplicaSetUpdated", recently),
        ),
        (
            "none for too long",
            counts(3, 3, 3, Some(0)),
            counts(2, 0, 0, Some(0)),
            [5, 2, 3, 3],
            progressing("True", "ReplicaSetUpdated", long_ago),
            ("False", TIMED_OUT, NOW),
        ),
        (
            "still none",
            counts(3, 3, 3, Some(0)),
            counts(2, 0, 0, Some(0)),
            [5, 2, 3, 3],
            progressing("False", TIMED_OUT, long_ago),
            ("False", TIMED_OUT, long_ago),
        ),
        (
            "lost later",
            counts(0, 0, 0, Some(0)),
            counts(4, 2, 2, Some(0)),
            [4, 4, 4, 4],
            progressing("True", NEW_REPLICA_SET_AVAILABLE, long_ago),
            ("True", NEW_REPLICA_SET_AVAILABLE, long_ago),
        ),
    ] {
        let [replicas, updated, ready, available] = old_counts;
        let deployment = deployment(json!({
            "replicas": replicas, "updatedReplicas": updated, "readyReplicas": ready, "availableReplicas": available,
            "conditions": conditions,
        }));
        let sets = ReplicaSets { old: vec![set("old", 3, old)], new: Some(set("new", 2, new)) };
        let now = NOW.parse().unwrap();
        let status = with_progress(&deployment, &sets, calculate(&deployment, &sets, now), now);
        let found = find(&status, PROGRESSING).unwrap();
        let updated = found.last_update_time.as_ref().unwrap().0.to_string();
        assert_eq!(
            (found.status.as_str(), found.reason.as_deref().unwrap(), updated.as_str()),
            want,
            "{case}"
        );
        let transition = found.last_transition_time.as_ref().unwrap().0.to_string();
        let is_kept = conditions[0]["status"] == found.status.as_str();
        assert_eq!(transition == "2026-01-01T00:00:00Z", is_kept, "{case}");
    }
}

#[test]
fn without_a_deadline_progress_is_not_reported() {
    let conditions = progressing("True", "ReplicaSetUpdated", NOW);
    let mut deployment = deployment(json!({"replicas": 4, "conditions": conditions}));
    deployment.spec.as_mut().unwrap().progress_deadline_seconds = Some(i32::MAX);
    let now = NOW.parse().unwrap();
    let status = with_progress(&deployment, &ReplicaSets::default(), deployment.status.clone().unwrap(), now);
    assert_eq!(find(&status, PROGRESSING), None);
    assert_eq!(recheck_after(&deployment, &status, now), None);
}

#[test]
fn progress_is_checked_after_the_deadline() {
    for (case, conditions, counts, want) in [
        ("in time", progressing("True", "ReplicaSetUpdated", "2026-01-01T00:55:00Z"), 0, Some(301)),
        ("late", progressing("True", "ReplicaSetUpdated", "2026-01-01T00:40:00Z"), 0, Some(1)),
        ("timed out", progressing("False", TIMED_OUT, "2026-01-01T00:40:00Z"), 0, None),
        ("complete", progressing("True", "ReplicaSetUpdated", "2026-01-01T00:55:00Z"), 4, None),
        ("completed before", progressing("True", NEW_REPLICA_SET_AVAILABLE, "2026-01-01T00:40:00Z"), 0, None),
        ("unknown", json!(null), 0, None),
    ] {
        let deployment = deployment(json!({
            "replicas": counts, "updatedReplicas": counts, "availableReplicas": counts, "observedGeneration": 2,
            "conditions": conditions,
        }));
        let status = deployment.status.clone().unwrap();
        let found = recheck_after(&deployment, &status, NOW.parse().unwrap());
        assert_eq!(found.map(|after| after.as_secs()), want, "{case}");
    }
}

#[test]
fn a_failure_of_the_new_replica_set_comes_first() {
    let failed = |message: &str| {
        let condition = json!({
            "type": REPLICA_FAILURE, "status": "True", "reason": "FailedCreate", "message": message, "lastTransitionTime": NOW,
        });
        json!({"replicas": 0, "conditions": [condition]})
    };
    let none = || json!({"replicas": 0});
    for (old, new, want) in [
        (failed("old"), failed("new"), Some("new")),
        (failed("old"), none(), Some("old")),
        (none(), none(), None),
    ] {
        let sets = ReplicaSets { old: vec![set("old", 1, old)], new: Some(set("new", 1, new)) };
        let deployment = deployment(json!({"conditions": [{"type": REPLICA_FAILURE, "status": "False"}]}));
        let now = NOW.parse().unwrap();
        let status = with_progress(&deployment, &sets, calculate(&deployment, &sets, now), now);
        let found = find(&status, REPLICA_FAILURE);
        assert_eq!(found.and_then(|failure| failure.message.as_deref()), want);
    }
}
