//! The kinds that keep a number of pods, in the form that replicaset-controller uses.

use coracle_controller_runtime::cache::Cached;
use k8s_openapi::api::apps::v1::{ReplicaSet, ReplicaSetStatus};
use k8s_openapi::api::core::v1::PodTemplateSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::Resource;
use kube::core::NamespaceResourceScope;
use serde::Serialize;

/// A kind whose objects own a number of pods from a template: ReplicaSet or ReplicationController.
pub trait ReplicaOwner: Cached + Serialize + Resource<Scope = NamespaceResourceScope> {
    /// The controller's name in kube-controller-manager.
    const CONTROLLER: &'static str;
    /// The queue's name in the metrics.
    const QUEUE_NAME: &'static str;
    /// The source of events.
    const COMPONENT: &'static str;
    /// The counter of waits for the caches.
    const STALE_SKIPS: Option<&'static str>;
    /// Whether the status reports terminating pods.
    const REPORTS_TERMINATING: bool;

    /// Returns the desired number of pods.
    fn replicas(&self) -> i32;
    /// Returns the number of seconds for which a pod must be ready before it counts as available.
    fn min_ready_seconds(&self) -> i32;
    /// Returns the selector of the pods to adopt, or `None` if it is invalid.
    fn label_selector(&self) -> Option<LabelSelector>;
    /// Returns the template of the pods.
    fn template(&self) -> Option<&PodTemplateSpec>;
    /// Returns the stored status.
    fn status(&self) -> ReplicaSetStatus;
    /// Returns the object with this status.
    fn with_status(&self, status: ReplicaSetStatus) -> Self;
}

impl ReplicaOwner for ReplicaSet {
    const CONTROLLER: &'static str = "replicaset-controller";
    const QUEUE_NAME: &'static str = "replicaset";
    const COMPONENT: &'static str = "replicaset-controller";
    const STALE_SKIPS: Option<&'static str> = Some("replicaset_controller_stale_sync_skips_total");
    const REPORTS_TERMINATING: bool = true;

    fn replicas(&self) -> i32 {
        self.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1)
    }

    fn min_ready_seconds(&self) -> i32 {
        self.spec.as_ref().and_then(|spec| spec.min_ready_seconds).unwrap_or(0)
    }

    fn label_selector(&self) -> Option<LabelSelector> {
        Some(self.spec.as_ref()?.selector.clone())
    }

    fn template(&self) -> Option<&PodTemplateSpec> {
        self.spec.as_ref()?.template.as_ref()
    }

    fn status(&self) -> ReplicaSetStatus {
        self.status.clone().unwrap_or_default()
    }

    fn with_status(&self, status: ReplicaSetStatus) -> ReplicaSet {
        ReplicaSet { status: Some(status), ..self.clone() }
    }
}
