//! replicationcontroller-controller: replicaset-controller for ReplicationControllers, of which it
//! is the successor.
//!
//! They differ in this: the selector is a map of labels, terminating pods are not reported, and
//! waits for the caches not counted.

use k8s_openapi::api::apps::v1::{ReplicaSetCondition, ReplicaSetStatus};
use k8s_openapi::api::core::v1::{
    PodTemplateSpec, ReplicationController, ReplicationControllerCondition, ReplicationControllerStatus,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use crate::workload::replica_owner::ReplicaOwner;

impl ReplicaOwner for ReplicationController {
    const CONTROLLER: &'static str = "replicationcontroller-controller";
    const QUEUE_NAME: &'static str = "replicationmanager";
    const COMPONENT: &'static str = "replication-controller";
    const STALE_SKIPS: Option<&'static str> = None;
    const REPORTS_TERMINATING: bool = false;

    fn replicas(&self) -> i32 {
        self.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1)
    }

    fn min_ready_seconds(&self) -> i32 {
        self.spec.as_ref().and_then(|spec| spec.min_ready_seconds).unwrap_or(0)
    }

    fn label_selector(&self) -> Option<LabelSelector> {
        let labels = self.spec.as_ref()?.selector.clone();
        Some(LabelSelector { match_labels: labels, match_expressions: None })
    }

    fn template(&self) -> Option<&PodTemplateSpec> {
        self.spec.as_ref()?.template.as_ref()
    }

    fn status(&self) -> ReplicaSetStatus {
        let status = self.status.clone().unwrap_or_default();
        let condition = |condition: ReplicationControllerCondition| ReplicaSetCondition {
            type_: condition.type_,
            status: condition.status,
            reason: condition.reason,
            message: condition.message,
            last_transition_time: condition.last_transition_time,
        };
        ReplicaSetStatus {
            replicas: status.replicas,
            fully_labeled_replicas: status.fully_labeled_replicas,
            ready_replicas: status.ready_replicas,
            available_replicas: status.available_replicas,
            terminating_replicas: None,
            observed_generation: status.observed_generation,
            conditions: status.conditions.map(|all| all.into_iter().map(condition).collect()),
        }
    }

    fn with_status(&self, status: ReplicaSetStatus) -> ReplicationController {
        let condition = |condition: ReplicaSetCondition| ReplicationControllerCondition {
            type_: condition.type_,
            status: condition.status,
            reason: condition.reason,
            message: condition.message,
            last_transition_time: condition.last_transition_time,
        };
        let status = ReplicationControllerStatus {
            replicas: status.replicas,
            fully_labeled_replicas: status.fully_labeled_replicas,
            ready_replicas: status.ready_replicas,
            available_replicas: status.available_replicas,
            observed_generation: status.observed_generation,
            conditions: status.conditions.map(|all| all.into_iter().map(condition).collect()),
        };
        ReplicationController { status: Some(status), ..self.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_status_is_the_same_there_and_back() {
        let condition = json!({"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate"});
        let status = json!({
            "replicas": 3, "fullyLabeledReplicas": 2, "readyReplicas": 2, "availableReplicas": 1, "observedGeneration": 7,
            "conditions": [condition],
        });
        let controller: ReplicationController = serde_json::from_value(json!({"status": status})).unwrap();
        assert_eq!(json!(controller.with_status(controller.status()).status), status);
    }
}
