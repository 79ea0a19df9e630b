//! Creates and deletes the pods of an owner, and records events about it.
//!
//! Source: kube-controller-manager's `controller_utils.go` (`RealPodControl`).

use std::borrow::Borrow;
use std::sync::Arc;

use coracle_controller_runtime::batch::{execute_all, slow_start};
use coracle_controller_runtime::cache::Cache;
use coracle_controller_runtime::events::Recorder;
use coracle_controller_runtime::{
    Error, ReconcileContext, ignore_conflict, ignore_not_found, is_namespace_terminating, uid_precondition,
};
use k8s_openapi::api::core::v1::Pod;
use kube::{Resource, ResourceExt};

/// The largest number of pods that are created or deleted in one reconciliation of a ReplicaSet, a
/// ReplicationController or a Job.
pub const BURST_REPLICAS: usize = 500;

/// The number of concurrent deletions.
const CONCURRENT_DELETIONS: usize = 64;

/// Creates and deletes pods in the name of one controller.
#[derive(Clone)]
pub struct PodControl {
    recorder: Recorder,
    pods: Arc<Cache<Pod>>,
}

impl PodControl {
    /// Creates a control for pods. `recorder` is the controller's.
    pub fn new(recorder: Recorder, pods: Arc<Cache<Pod>>) -> PodControl {
        PodControl { recorder, pods }
    }

    /// Creates pods in batches of 1, 2, 4, ...: after a failure the batch is completed, and no
    /// other one follows.
    ///
    /// # Errors
    /// The first failure. A terminating namespace is not an error, since no later attempt could
    /// succeed.
    pub async fn create_pods<O: Resource<DynamicType = ()>>(
        &self,
        owner: &O,
        pods: &[impl Borrow<Pod>],
        ctx: &ReconcileContext,
    ) -> Result<(), Error> {
        slow_start(pods, BURST_REPLICAS, |pod| self.create_pod(owner, pod.borrow(), ctx)).await
    }

    /// Creates a pod from the template, as [`coracle_kinds::pods::from_template`] does, and records
    /// `SuccessfulCreate` or `FailedCreate`.
    ///
    /// # Errors
    /// As for [`PodControl::create_pods`].
    pub async fn create_pod<O: Resource<DynamicType = ()>>(
        &self,
        owner: &O,
        pod: &Pod,
        ctx: &ReconcileContext,
    ) -> Result<(), Error> {
        if pod.metadata.labels.as_ref().is_none_or(|labels| labels.is_empty()) {
            return Err(Error::Unfinished("unable to create pods, no labels".to_owned()));
        }
        match ctx.api(&self.pods).create_unread(pod).await {
            Ok(created) => {
                let message = format!("Created pod: {}", created.name());
                self.recorder.normal(owner, "SuccessfulCreate", message);
                Ok(())
            }
            Err(error) if is_namespace_terminating(&error) => Ok(()),
            Err(error) => {
                let error = Error::from(error);
                self.recorder.warning(owner, "FailedCreate", format!("Error creating: {}", error.message()));
                Err(error)
            }
        }
    }

    /// Deletes pods, all of them even if some fail.
    ///
    /// # Errors
    /// The first failure.
    pub async fn delete_pods<O: Resource<DynamicType = ()>>(
        &self,
        owner: &O,
        pods: &[Arc<Pod>],
        ctx: &ReconcileContext,
    ) -> Result<(), Error> {
        let deletions = pods.iter().map(|pod| self.delete_pod(owner, pod, ctx));
        execute_all(deletions, CONCURRENT_DELETIONS).await.into_iter().collect()
    }

    /// Deletes a pod with its own grace period, and records `SuccessfulDelete` or `FailedDelete`. A
    /// pod that does not exist, or is another one by now, is not deleted, and no failure.
    ///
    /// # Errors
    /// The API refuses it.
    pub async fn delete_pod<O: Resource<DynamicType = ()>>(
        &self,
        owner: &O,
        pod: &Arc<Pod>,
        ctx: &ReconcileContext,
    ) -> Result<(), Error> {
        let name = pod.name_any();
        let deleted = ctx.api(&self.pods).delete(pod, &uid_precondition(pod.as_ref())).await;
        match ignore_not_found(deleted).map(|deleted| deleted.is_some()).or_else(is_another) {
            Ok(true) => {
                self.recorder.normal(owner, "SuccessfulDelete", format!("Deleted pod: {name}"));
                Ok(())
            }
            Ok(false) => Ok(()),
            Err(error) => {
                let message = Error::from(error).message();
                self.recorder.warning(owner, "FailedDelete", format!("Error deleting: {message}"));
                Err(Error::Unfinished(format!("unable to delete pods: {message}")))
            }
        }
    }
}

/// Converts a failed precondition to false: the pod of this name is another one by now. Any other
/// error is returned.
fn is_another(error: kube::Error) -> kube::Result<bool> {
    ignore_conflict::<()>(Err(error)).map(|_| false)
}

#[cfg(test)]
mod tests;
