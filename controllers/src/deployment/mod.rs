//! deployment-controller: rolls out the template of each Deployment by scaling its ReplicaSets.
//!
//! A Deployment is reconciled when it or one of its ReplicaSets changes, when a ReplicaSet without
//! a controller appears that it selects, and, with the strategy Recreate, when the last of its pods
//! is deleted:
//! 1. ReplicaSets that match are adopted, those that do not match any more are released
//!    (`coracle_controller_runtime::controller_ref`);
//! 2. a pause and its end are noted in the conditions;
//! 3. the new ReplicaSet is the one with the template (`replica_sets.rs`, `template.rs`); its
//!    revision and its annotations are brought up to date (`revision.rs`, `annotations.rs`);
//! 4. one of these is planned, and executed (`executor.rs`): a rollback to a former revision
//!    (`history.rs`), new sizes of a Deployment that was scaled or is paused (`scale.rs`), or a
//!    step of the rollout (`rolling/`);
//! 5. the oldest revisions are deleted (`history.rs`);
//! 6. the status is written (`status/`, `conditions.rs`).
//!
//! A step changes sizes in one direction only. What follows from it is planned after it was
//! observed.

mod annotations;
mod conditions;
mod executor;
mod history;
#[cfg(test)]
mod model;
mod replica_sets;
mod revision;
mod rolling;
mod scale;
mod status;
mod template;

use std::sync::Arc;

use coracle_clock::Clock;
use coracle_controller_runtime::cache::{Cache, Change, NamespacedName};
use coracle_controller_runtime::events::Recorder;
use coracle_controller_runtime::{
    Action, Controller, Error, Initialize, ReconcileContext, Sources, controller_ref,
};
use coracle_object_meta::selector_matches;
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use kube::core::Selector;

use crate::settings::{Context, Settings};
use crate::workload::owners::{controlling_owner, owners_of};
use executor::Executor;
use replica_sets::ReplicaSets;
use rolling::Step;

pub struct DeploymentController {
    clock: Clock,
    recorder: Recorder,
    /// The gate DeploymentReplicaSetTerminatingReplicas.
    reports_terminating: bool,
    deployments: Arc<Cache<Deployment>>,
    replica_sets: Arc<Cache<ReplicaSet>>,
    pods: Arc<Cache<Pod>>,
}

impl Initialize<Settings> for DeploymentController {
    fn new(context: &Context) -> DeploymentController {
        DeploymentController {
            clock: context.clock.clone(),
            recorder: context.recorder("deployment-controller"),
            reports_terminating: (context.settings.is_enabled)("DeploymentReplicaSetTerminatingReplicas"),
            deployments: context.cache(),
            replica_sets: context.cache(),
            pods: context.cache(),
        }
    }
}

impl Controller for DeploymentController {
    const NAME: &'static str = "deployment-controller";
    const QUEUE_NAME: &'static str = "deployment";
    const MAX_RETRIES: u32 = 15;
    type Key = NamespacedName;

    fn sources(&self, sources: &mut Sources<NamespacedName>) {
        let deployments = Arc::clone(&self.deployments);
        let (all_deployments, all_sets, pods) =
            (Arc::clone(&self.deployments), Arc::clone(&self.replica_sets), Arc::clone(&self.pods));
        sources
            .on_each(&self.deployments)
            .on(&self.replica_sets, move |change, queue| {
                owners_of(change, &deployments, selects).into_iter().for_each(|owner| queue.add(owner));
            })
            .on(&self.pods, move |change, queue| {
                let waiting = deployment_that_waits(change, &all_deployments, &all_sets, &pods);
                waiting.into_iter().for_each(|deployment| queue.add(deployment));
            });
    }

    async fn reconcile(&self, name: &NamespacedName, ctx: &ReconcileContext) -> Result<Action, Error> {
        let Some(deployment) = self.deployments.get(name) else { return Ok(Action::AwaitChange) };
        let Some(spec) = &deployment.spec else { return Ok(Action::AwaitChange) };
        let mut executor = Executor::new(self, deployment.as_ref().clone(), ctx);
        if spec.selector == LabelSelector::default() {
            return executor.refuse_to_select_all().await;
        }
        // An invalid selector cannot become valid without a change, so this is no reason to retry.
        let Ok(selector) = Selector::try_from(spec.selector.clone()) else { return Ok(Action::AwaitChange) };
        let sets = self.claim_replica_sets(&deployment, &selector, ctx).await?;
        let sets = ReplicaSets::of(spec, sets);
        if deployment.metadata.deletion_timestamp.is_some() {
            let sets = executor.sync_revision(sets).await?;
            return executor.sync_status(&sets).await;
        }
        executor.check_paused_conditions().await?;
        let is_paused = spec.paused == Some(true);
        let requested = history::rollback_to(&deployment);
        if let Some(revision) = requested.filter(|_| !is_paused) {
            return executor.roll_back(sets, revision).await;
        }
        let sets = executor.sync_revision(sets).await?;
        if is_paused || scale::is_scaling_event(&deployment, &sets) {
            executor.resize(&scale::plan(&deployment, &sets)).await?;
            if is_paused && requested.is_none() {
                executor.clean_up_history(&sets).await?;
            }
            return executor.sync_status(&sets).await;
        }
        self.roll_out(executor, sets).await
    }
}

impl DeploymentController {
    async fn claim_replica_sets(
        &self,
        deployment: &Deployment,
        selector: &Selector,
        ctx: &ReconcileContext,
    ) -> Result<Vec<Arc<ReplicaSet>>, Error> {
        let sets = controller_ref::candidates(&deployment.metadata, &self.replica_sets);
        let matches = |set: &ReplicaSet| selector_matches(selector, &set.metadata);
        let owner = (&self.deployments, deployment);
        controller_ref::claim_objects(owner, &self.replica_sets, sets, matches, ctx).await
    }

    /// Takes the next step of the rollout, or completes it.
    async fn roll_out(&self, mut executor: Executor<'_>, mut sets: ReplicaSets) -> Result<Action, Error> {
        if let Step::CreateNew = self.next_step(&executor.deployment, &sets) {
            let Some(created) = executor.create_new_replica_set(&sets).await? else {
                // The namespace is terminating.
                return Ok(Action::AwaitChange);
            };
            sets.new = Some(created);
        }
        match self.next_step(&executor.deployment, &sets) {
            Step::Resize(resizes) => {
                let is_growing = resizes.iter().any(|resize| resize.to > replica_sets::replicas(&resize.set));
                let resized = executor.resize(&resizes).await;
                // A failed scale down is planned again after the next change.
                if is_growing {
                    resized?
                } else {
                    resized.unwrap_or_else(|error| tracing::info!(%error, "not scaled down"))
                };
            }
            Step::CreateNew | Step::AwaitOldPods => {}
            Step::Rest => {
                let stored = executor.deployment.status.clone().unwrap_or_default();
                if status::is_complete(&executor.deployment, &stored) {
                    executor.clean_up_history(&sets).await?;
                }
            }
        }
        executor.sync_rollout_status(&sets).await
    }

    fn next_step(&self, deployment: &Deployment, sets: &ReplicaSets) -> Step {
        if rolling::is_rolling(deployment) {
            return rolling::rolling_update(deployment, sets);
        }
        let old_pods: Vec<_> =
            sets.old.iter().flat_map(|set| controller_ref::controlled(&set.metadata, &self.pods)).collect();
        rolling::recreate(deployment, sets, old_pods.iter().map(AsRef::as_ref))
    }
}

fn selects(deployment: &Deployment, set: &ObjectMeta) -> bool {
    let Some(spec) = &deployment.spec else { return false };
    let selector = Selector::try_from(spec.selector.clone());
    spec.selector != LabelSelector::default()
        && selector.is_ok_and(|selector| selector_matches(&selector, set))
}

/// Returns the Deployment that was waiting for the deletion of a pod, the last one of its old
/// ReplicaSets.
fn deployment_that_waits(
    change: &Change<Pod>,
    deployments: &Cache<Deployment>,
    replica_sets: &Cache<ReplicaSet>,
    pods: &Cache<Pod>,
) -> Option<NamespacedName> {
    let deleted = change.old.as_ref().filter(|_| change.new.is_none())?;
    let set = controlling_owner(&deleted.metadata, replica_sets)?;
    let deployment = controlling_owner(&set.metadata, deployments)?;
    let has_pods = |set: &Arc<ReplicaSet>| !controller_ref::controlled(&set.metadata, pods).is_empty();
    let mut sets = controller_ref::controlled(&deployment.metadata, replica_sets).into_iter();
    let waits = !rolling::is_rolling(&deployment) && !sets.any(|set| has_pods(&set));
    waits.then(|| NamespacedName::of(deployment.as_ref()))
}
