//! Executes the plan of a Job: pods, status, finalizers, status again.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use coracle_controller_runtime::batch::{execute_all, slow_start};
use coracle_controller_runtime::cache::NamespacedName;
use coracle_controller_runtime::{Error, ReconcileContext, RecordedApi, ignore_conflict, ignore_not_found};
use coracle_kinds::jobs::{TRACKING_FINALIZER, is_tracked};
use coracle_kinds::pods;
use k8s_openapi::api::batch::v1::{Job, JobStatus};
use k8s_openapi::api::core::v1::Pod;
use kube::api::Patch;
use parking_lot::{Mutex, MutexGuard};
use serde_json::json;

use super::JobController;
use super::manage::{Creation, PodAction};
use super::plan::{Executed, Plan};
use super::pod_counts::{Observed, uid};
use super::pods::new_pods;
use super::tracking::{Tracking, track};
use super::verdict::{Outcome, Verdict};
use crate::workload::pod_control::BURST_REPLICAS;

/// The number of pods that are changed concurrently.
const CONCURRENT: usize = 64;

pub struct Executor<'a> {
    pub controller: &'a JobController,
    pub observed: &'a Observed<'a>,
    pub ctx: &'a ReconcileContext,
    /// The uids of the pods that have lost their finalizers.
    pub released: &'a Mutex<HashSet<String>>,
}

impl Executor<'_> {
    /// Executes the plan and writes the status, also after a failure.
    pub async fn execute(&self, plan: &Plan) -> Result<(), Error> {
        let (executed, outcome) = self.act(&plan.action).await;
        let settled = plan.settle(self.observed, executed);
        if let Some((reason, message)) = settled.event {
            self.controller.recorder.normal(self.observed.job, reason, message);
        }
        let tracking = track(self.observed, &plan.pod_counts, settled);
        self.update_tracking(plan, &tracking).await?;
        outcome
    }

    /// Creates or deletes pods.
    async fn act(&self, action: &PodAction) -> (Executed, Result<(), Error>) {
        match action {
            PodAction::None | PodAction::BackOff(_) => (Executed::default(), Ok(())),
            PodAction::Create(creation) => self.create(creation).await,
            PodAction::Terminate(pods) => self.delete(pods, false).await,
            PodAction::Remove(pods) => self.delete(pods, true).await,
        }
    }

    async fn create(&self, creation: &Creation) -> (Executed, Result<(), Error>) {
        let Observed { job, spec, .. } = *self.observed;
        let (pods, created) = (new_pods(job, spec, creation), AtomicUsize::new(0));
        let outcome = slow_start(&pods, BURST_REPLICAS, |pod| async {
            self.controller.pod_control.create_pod(job, pod, self.ctx).await?;
            created.fetch_add(1, Ordering::Relaxed);
            Ok(())
        })
        .await;
        let created = created.into_inner();
        self.controller.metrics.created(self.observed, creation, created);
        (Executed { created, ..Executed::default() }, outcome)
    }

    /// Deletes pods, all of them even if some fail.
    ///
    /// - `is_released`: whether they lose their finalizers before
    async fn delete(&self, pods: &[Arc<Pod>], is_released: bool) -> (Executed, Result<(), Error>) {
        let deletions = pods.iter().map(|pod| async move {
            if is_released && self.observed.is_tracked(pod) {
                self.release(pod).await.map_err(|error| (error, false))?;
            }
            // kube-controller-manager counts a ready pod even if it cannot be deleted.
            let was_ready = pods::is_ready(pod);
            let deleted = self.controller.pod_control.delete_pod(self.observed.job, pod, self.ctx).await;
            deleted.map(|_| was_ready).map_err(|error| (error, was_ready))
        });
        let (mut executed, mut outcome) = (Executed::default(), Ok(()));
        for deleted in execute_all(deletions, CONCURRENT).await {
            let was_ready = match deleted {
                Ok(was_ready) => {
                    executed.deleted += 1;
                    was_ready
                }
                Err((error, was_ready)) => {
                    outcome = Err(error);
                    was_ready
                }
            };
            executed.deleted_ready += usize::from(was_ready);
        }
        (executed, outcome)
    }

    async fn update_tracking(&self, plan: &Plan, tracking: &Tracking) -> Result<(), Error> {
        let (job, metrics) = (self.observed.job, &self.controller.metrics);
        let mut job = job.clone();
        if tracking.has_changed(self.observed) {
            job = self.update_status(job, tracking.status.clone()).await?;
            tracking.handled_by_policy.iter().for_each(|action| metrics.handled_by_policy(action));
        }
        self.controller.remember_backoff(&job, plan.pod_counts.backoff);
        let outcomes = execute_all(tracking.released.iter().map(|pod| self.release(pod)), CONCURRENT).await;
        let outcome: Result<(), Error> = outcomes.into_iter().collect();
        let stored = job.status.clone().unwrap_or_default();
        let released = self.released().clone();
        let concluded = tracking.conclude(&stored, &released, outcome.is_ok(), self.observed.now);
        if let Some((status, finished)) = concluded {
            job = self.update_status(job, status).await?;
            if let Some(verdict) = finished {
                self.report_end(&job, verdict);
            }
        }
        let before = self.observed.status();
        metrics.counted(&job, &before, job.status.as_ref().unwrap_or(&before));
        outcome
    }

    async fn update_status(&self, job: Job, status: JobStatus) -> Result<Job, Error> {
        let changed = Job { status: Some(status), ..job };
        Ok(self.ctx.api(&self.controller.jobs).replace_status(&changed).await?)
    }

    fn report_end(&self, job: &Job, verdict: &Verdict) {
        let recorder = &self.controller.recorder;
        self.controller.metrics.finished(job, verdict);
        if verdict.outcome == Outcome::Failure {
            return recorder.warning(job, &verdict.reason, verdict.message.clone());
        }
        let succeeded = job.status.as_ref().and_then(|status| status.succeeded);
        if self.observed.spec.completions.is_some() && succeeded > self.observed.spec.completions {
            let message = "Too many succeeded pods running after completion count reached";
            recorder.warning(job, "TooManySucceededPods", message);
        }
        recorder.normal(job, "Completed", "Job completed");
    }

    fn released(&self) -> MutexGuard<'_, HashSet<String>> {
        self.released.lock()
    }

    /// Removes the finalizer of a pod.
    async fn release(&self, pod: &Arc<Pod>) -> Result<(), Error> {
        remove_finalizer(&self.ctx.api(&self.controller.pods), pod, false).await?;
        self.released().insert(uid(pod).to_owned());
        Ok(())
    }
}

/// Removes the finalizer of a pod, unless the pod was deleted, or is another one by now.
///
/// - `only_unchanged`: whether nothing is done to a pod that has changed since
///
/// # Errors
/// The API refuses it.
pub async fn remove_finalizer(
    pods: &RecordedApi<'_, Pod>,
    pod: &Pod,
    only_unchanged: bool,
) -> Result<(), Error> {
    if !is_tracked(pod) {
        return Ok(());
    }
    let finalizers = json!([TRACKING_FINALIZER]);
    let mut meta = json!({"uid": uid(pod), "$deleteFromPrimitiveList/finalizers": finalizers});
    if only_unchanged {
        meta["resourceVersion"] = json!(pod.metadata.resource_version);
    }
    let patch = Patch::Strategic(json!({"metadata": meta}));
    let answer = pods.patch(&NamespacedName::of(pod), patch).await;
    ignore_not_found(ignore_conflict(answer))?;
    Ok(())
}
