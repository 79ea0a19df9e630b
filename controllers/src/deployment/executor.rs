//! Executes what was planned, and records events.

use std::collections::HashMap;

use coracle_controller_runtime::{
    Action, Error, ReconcileContext, RecordedApi, ignore_not_found, uid_precondition,
};
use k8s_openapi::api::apps::v1::{Deployment, DeploymentStatus, ReplicaSet};
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;

use super::conditions::{self, PROGRESSING, condition};
use super::history::{self, Rollback};
use super::replica_sets::{ReplicaSets, Resize, desired_replicas, replicas};
use super::{DeploymentController, annotations, rolling, status};
use crate::timers::PROGRESS_DEADLINE;

const PAUSED: &str = "DeploymentPaused";
const RESUMED: &str = "DeploymentResumed";

/// One reconciliation of a Deployment.
pub(super) struct Executor<'a> {
    pub controller: &'a DeploymentController,
    pub ctx: &'a ReconcileContext,
    /// As it was observed, or as the API server returned it after the last write.
    pub deployment: Deployment,
    /// ReplicaSets that were changed in this reconciliation, by name.
    changed: HashMap<String, ReplicaSet>,
}

impl<'a> Executor<'a> {
    pub fn new(
        controller: &'a DeploymentController,
        deployment: Deployment,
        ctx: &'a ReconcileContext,
    ) -> Executor<'a> {
        Executor { controller, ctx, deployment, changed: HashMap::new() }
    }

    /// Refuses to roll out a Deployment that selects everything.
    pub async fn refuse_to_select_all(&mut self) -> Result<Action, Error> {
        let message = "This deployment is selecting all pods. A non-empty selector is required.";
        self.controller.recorder.warning(&self.deployment, "SelectingAll", message);
        let mut status = self.status();
        if status.observed_generation.unwrap_or(0) < self.deployment.metadata.generation.unwrap_or(0) {
            status.observed_generation = self.deployment.metadata.generation;
            self.write_status(status).await?;
        }
        Ok(Action::AwaitChange)
    }

    /// Notes in the conditions that the Deployment was paused or resumed, so that the pause does
    /// not count as a lack of progress.
    pub async fn check_paused_conditions(&mut self) -> Result<(), Error> {
        let mut status = self.status();
        let reason = conditions::reason(&status, PROGRESSING);
        if status::progress_deadline(&self.deployment).is_none() || reason == Some(status::TIMED_OUT) {
            return Ok(());
        }
        let is_paused = self.deployment.spec.as_ref().is_some_and(|spec| spec.paused == Some(true));
        let (reason, message) = match (is_paused, reason == Some(PAUSED)) {
            (true, false) => (PAUSED, "Deployment is paused"),
            (false, true) => (RESUMED, "Deployment is resumed"),
            _ => return Ok(()),
        };
        let now = self.controller.clock.now();
        conditions::set(&mut status, condition(PROGRESSING, "Unknown", reason, message.to_owned(), now));
        self.write_status(status).await
    }

    /// Gives ReplicaSets their sizes, one after the other, and notes the size of the Deployment in
    /// each.
    pub async fn resize(&mut self, resizes: &[Resize]) -> Result<(), Error> {
        for resize in resizes {
            self.scale(resize).await?;
        }
        Ok(())
    }

    async fn scale(&mut self, resize: &Resize) -> Result<(), Error> {
        let name = resize.set.name_any();
        let mut set = self.changed.remove(&name).unwrap_or_else(|| resize.set.as_ref().clone());
        let (from, to) = (replicas(&set), resize.to);
        let (desired, max) = (desired_replicas(&self.deployment), rolling::max_replicas(&self.deployment));
        let is_annotated = annotations::set_sizes(&mut set, desired, max);
        if from == to && !is_annotated {
            return Ok(());
        }
        if let Some(spec) = &mut set.spec {
            spec.replicas = Some(to);
        }
        let written = self.replica_sets().replace(&set).await?;
        if from != to {
            self.record_scaling(&name, from, to);
        }
        self.changed.insert(name, written);
        Ok(())
    }

    pub fn record_scaling(&self, name: &str, from: i32, to: i32) {
        let direction = if to > from { "up" } else { "down" };
        let message = format!("Scaled {direction} replica set {name} from {from} to {to}");
        self.controller.recorder.normal(&self.deployment, "ScalingReplicaSet", message);
    }

    /// Rolls back to a former revision, and removes the request in any case.
    pub async fn roll_back(&mut self, sets: ReplicaSets, revision: i64) -> Result<Action, Error> {
        let mut sets = self.sync_revision(sets).await?;
        if sets.new.is_none() {
            let Some(created) = self.create_new_replica_set(&sets).await? else {
                return Ok(Action::AwaitChange);
            };
            sets.new = Some(created);
        }
        let recorder = &self.controller.recorder;
        let name = self.deployment.name_any();
        let (changed, revision) = match history::rollback(&self.deployment, revision, &sets) {
            Rollback::To(restored, revision) => (*restored, Some(revision)),
            Rollback::Unchanged => {
                let message = format!(
                    "The rollback revision contains the same template as current deployment {name:?}"
                );
                recorder.warning(&self.deployment, "DeploymentRollbackTemplateUnchanged", message);
                (history::without_request(self.deployment.clone()), None)
            }
            Rollback::NotFound(message) => {
                recorder.warning(&self.deployment, "DeploymentRollbackRevisionNotFound", message);
                (history::without_request(self.deployment.clone()), None)
            }
        };
        self.deployments().replace(&changed).await?;
        if let Some(revision) = revision {
            let message = format!("Rolled back deployment {name:?} to revision {revision}");
            recorder.normal(&self.deployment, "DeploymentRollback", message);
        }
        Ok(Action::AwaitChange)
    }

    /// Deletes the oldest revisions.
    pub async fn clean_up_history(&self, sets: &ReplicaSets) -> Result<(), Error> {
        for set in history::excess(&self.deployment, &sets.old) {
            ignore_not_found(self.replica_sets().delete(&set, &uid_precondition(set.as_ref())).await)?;
        }
        Ok(())
    }

    /// Writes the counts, if they have changed. The progress of the rollout is not judged.
    pub async fn sync_status(&mut self, sets: &ReplicaSets) -> Result<Action, Error> {
        let status = self.calculate_status(sets, self.controller.clock.now());
        self.write_status_if_changed(status).await?;
        Ok(Action::AwaitChange)
    }

    /// Writes the status, if it has changed, with the progress of the rollout.
    pub async fn sync_rollout_status(&mut self, sets: &ReplicaSets) -> Result<Action, Error> {
        let now = self.controller.clock.now();
        let status = self.calculate_status(sets, now);
        let status = status::with_progress(&self.deployment, sets, status, now);
        self.write_status_if_changed(status.clone()).await?;
        let recheck = status::recheck_after(&self.deployment, &status, now);
        Ok(recheck.map_or(Action::AwaitChange, |left| Action::Requeue(PROGRESS_DEADLINE.after(left))))
    }

    fn calculate_status(&self, sets: &ReplicaSets, now: Timestamp) -> DeploymentStatus {
        let mut status = status::calculate(&self.deployment, sets, now);
        if !self.controller.reports_terminating {
            status.terminating_replicas = None;
        }
        status
    }

    async fn write_status_if_changed(&mut self, status: DeploymentStatus) -> Result<(), Error> {
        if status == self.status() {
            return Ok(());
        }
        self.write_status(status).await
    }

    /// Writes a status, and the annotations with it: the subresource stores them too.
    pub async fn write_status(&mut self, status: DeploymentStatus) -> Result<(), Error> {
        let changed = Deployment { status: Some(status), ..self.deployment.clone() };
        self.deployment = self.deployments().replace_status(&changed).await?;
        Ok(())
    }

    /// Returns the stored status.
    pub fn status(&self) -> DeploymentStatus {
        self.deployment.status.clone().unwrap_or_default()
    }

    fn deployments(&self) -> RecordedApi<'a, Deployment> {
        self.ctx.api(&self.controller.deployments)
    }

    pub fn replica_sets(&self) -> RecordedApi<'a, ReplicaSet> {
        self.ctx.api(&self.controller.replica_sets)
    }
}
