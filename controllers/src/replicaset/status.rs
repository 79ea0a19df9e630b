//! The status, from the pods and from what failed.

use std::collections::BTreeMap;
use std::sync::Arc;

use coracle_kinds::pods;
use k8s_openapi::api::apps::v1::{ReplicaSetCondition, ReplicaSetStatus};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;

use crate::workload::replica_owner::ReplicaOwner;

/// The type of the condition after a failed creation or deletion.
pub(super) const REPLICA_FAILURE: &str = "ReplicaFailure";

/// Computes the status from the observed pods. Counts of 0 are absent, as they are stored.
///
/// - `active`: the active pods of the owner
/// - `terminating`: how many of its pods are terminating, if that is reported
/// - `failure`: why pods could not be created or deleted
pub(super) fn calculate<O: ReplicaOwner>(
    owner: &O,
    active: &[Arc<Pod>],
    terminating: Option<usize>,
    failure: Option<String>,
    now: Timestamp,
) -> ReplicaSetStatus {
    let number = |counts: &dyn Fn(&Pod) -> bool| count(active.iter().filter(|pod| counts(pod)).count());
    let positive = |counts: &dyn Fn(&Pod) -> bool| Some(number(counts)).filter(|number| *number > 0);
    let labels = owner.template().and_then(|template| template.metadata.as_ref()?.labels.clone());
    let labels = labels.unwrap_or_default();
    ReplicaSetStatus {
        replicas: number(&|_| true),
        fully_labeled_replicas: positive(&|pod| has_labels(pod, &labels)),
        ready_replicas: positive(&pods::is_ready),
        available_replicas: positive(&|pod| pods::is_available(pod, owner.min_ready_seconds(), now)),
        terminating_replicas: terminating.map(count),
        observed_generation: owner.meta().generation,
        conditions: conditions(owner, active.len(), failure, now),
    }
}

fn count(number: usize) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}

fn has_labels(pod: &Pod, labels: &BTreeMap<String, String>) -> bool {
    let has =
        |(key, value)| pod.metadata.labels.as_ref().is_some_and(|labels| labels.get(key) == Some(value));
    labels.iter().all(has)
}

/// Returns the conditions. The condition of a failure keeps its first message until there is no
/// failure.
fn conditions<O: ReplicaOwner>(
    owner: &O,
    active: usize,
    failure: Option<String>,
    now: Timestamp,
) -> Option<Vec<ReplicaSetCondition>> {
    let mut conditions = owner.status().conditions.unwrap_or_default();
    match failure {
        None => conditions.retain(|condition| condition.type_ != REPLICA_FAILURE),
        Some(_) if conditions.iter().any(|condition| condition.type_ == REPLICA_FAILURE) => {}
        Some(message) => {
            let wanted = usize::try_from(owner.replicas()).unwrap_or(0);
            let reason = if active < wanted { "FailedCreate" } else { "FailedDelete" };
            conditions.push(ReplicaSetCondition {
                type_: REPLICA_FAILURE.to_owned(),
                status: "True".to_owned(),
                reason: Some(reason.to_owned()),
                message: Some(message),
                last_transition_time: Some(Time(now)),
            });
        }
    }
    Some(conditions).filter(|conditions| !conditions.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::apps::v1::ReplicaSet;
    use k8s_openapi::api::core::v1::ReplicationController;
    use serde_json::{Value, json};

    const NOW: &str = "2026-01-01T00:01:00Z";

    fn pod(labels: Value, ready_since: Option<&str>) -> Arc<Pod> {
        let conditions = ready_since
            .map(|since| json!([{"type": "Ready", "status": "True", "lastTransitionTime": since}]));
        let pod = json!({"metadata": {"labels": labels}, "status": {"conditions": conditions}});
        Arc::new(serde_json::from_value(pod).unwrap())
    }

    fn owner(conditions: Value) -> Value {
        let template = json!({"metadata": {"labels": {"app": "x", "v": "1"}}});
        let spec = json!({"replicas": 3, "minReadySeconds": 30, "selector": {}, "template": template});
        json!({"metadata": {"generation": 2}, "spec": spec, "status": {"replicas": 0, "conditions": conditions}})
    }

    #[test]
    fn pods_are_counted() {
        let full = json!({"app": "x", "v": "1", "more": "y"});
        let pods = [
            pod(full.clone(), Some("2026-01-01T00:00:00Z")),
            pod(full, Some(NOW)),
            pod(json!({"app": "x"}), None),
        ];
        let set: ReplicaSet = serde_json::from_value(owner(json!(null))).unwrap();
        let status = calculate(&set, &pods, Some(1), None, NOW.parse().unwrap());
        let want = json!({
            "replicas": 3, "fullyLabeledReplicas": 2, "readyReplicas": 2, "availableReplicas": 1, "terminatingReplicas": 1,
            "observedGeneration": 2,
        });
        assert_eq!(json!(status), want);
        let controller: ReplicationController = serde_json::from_value(owner(json!(null))).unwrap();
        let status = calculate(&controller, &[], None, None, NOW.parse().unwrap());
        assert_eq!(json!(status), json!({"replicas": 0, "observedGeneration": 2}));
    }

    #[test]
    fn a_failure_is_reported_until_it_is_over() {
        let failed = |reason: &str, message: &str| json!([{"type": "ReplicaFailure", "status": "True", "reason": reason, "message": message, "lastTransitionTime": NOW}]);
        for (case, old, active, failure, want) in [
            ("nothing failed", json!(null), 0, None, json!(null)),
            ("too few", json!(null), 2, Some("quota"), failed("FailedCreate", "quota")),
            ("too many", json!(null), 4, Some("webhook"), failed("FailedDelete", "webhook")),
            ("again", failed("FailedCreate", "first"), 2, Some("second"), failed("FailedCreate", "first")),
            ("over", failed("FailedCreate", "first"), 3, None, json!(null)),
        ] {
            let set: ReplicaSet = serde_json::from_value(owner(old)).unwrap();
            let pods = vec![pod(json!({}), None); active];
            let status = calculate(&set, &pods, Some(0), failure.map(str::to_owned), NOW.parse().unwrap());
            assert_eq!(json!(status.conditions), want, "{case}");
        }
    }
}
