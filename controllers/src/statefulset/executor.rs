//! Executes a plan, and records events.

use std::sync::Arc;

use coracle_controller_runtime::batch::slow_start;
use coracle_controller_runtime::{Error, ReconcileContext, ignore_not_found, uid_precondition};
use k8s_openapi::api::apps::v1::{StatefulSet, StatefulSetStatus};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;

use super::plan::{ClaimOwners, Plan, PodClaims, Step};
use super::{StatefulSetController, identity, status};

/// kube-controller-manager's burst of replicas.
const MAX_BATCH: usize = 500;

#[derive(Clone, Copy, Debug)]
enum Verb {
    Create,
    Update,
    Delete,
}

/// Applies the plan of one reconciliation of a set.
pub(super) struct Executor<'a> {
    pub controller: &'a StatefulSetController,
    pub set: &'a StatefulSet,
    pub ctx: &'a ReconcileContext,
}

impl Executor<'_> {
    /// Executes the plan until something fails. Returns the planned status, as far as the plan was
    /// executed.
    pub async fn execute(&self, plan: &Plan) -> (StatefulSetStatus, Result<(), Error>) {
        let mut status = plan.status.clone();
        for stage in &plan.stages {
            if let Err(error) = self.stage(stage, plan.is_burst).await {
                return (status, Err(error));
            }
        }
        for pod in &plan.outdated {
            if let Err(error) = self.delete(pod).await {
                return (status, Err(error));
            }
            status::deleted(&mut status, pod);
        }
        (status, Ok(()))
    }

    async fn stage(&self, steps: &[Step], is_burst: bool) -> Result<(), Error> {
        let largest = if is_burst { MAX_BATCH } else { 1 };
        slow_start(steps, largest, |step| self.apply(step)).await
    }

    async fn apply(&self, step: &Step) -> Result<(), Error> {
        match step {
            Step::Create { pod, template, claims, owners } => {
                let ordinal = identity::ordinal(pod).unwrap_or_default();
                let pod = identity::pod(self.set, ordinal, template, identity::revision(pod));
                self.create(&pod, claims, owners).await
            }
            Step::ProvideClaims { pod, claims, owners } => {
                self.create_missing_claims(pod, claims).await?;
                let owned = self.update_claim_owners(owners).await;
                owned.inspect_err(|error| self.record_failure(Verb::Update, pod, error))
            }
            Step::Update { pod, claims, owners } => {
                let repaired = self.update(pod, claims, owners).await;
                self.record_outcome(Verb::Update, pod, &repaired);
                repaired
            }
            Step::UpdateClaimOwners(owners) => self.update_claim_owners(owners).await,
            Step::Delete(pod) => self.delete(pod).await,
        }
    }

    /// Creates the claims, then the pod, and then sets the owners of the claims.
    async fn create(&self, pod: &Pod, claims: &PodClaims, owners: &ClaimOwners) -> Result<(), Error> {
        self.create_missing_claims(pod, claims)
            .await
            .inspect_err(|error| self.record_failure(Verb::Create, pod, error))?;
        let created = self.ctx.api(&self.controller.pods).create(pod).await;
        if let Err(kube::Error::Api(status)) = &created
            && status.reason == "AlreadyExists"
        {
            // Another client's, or not observed yet.
            return created.map(|_| ()).map_err(Error::from);
        }
        self.update_claim_owners(owners)
            .await
            .inspect_err(|error| self.record_failure(Verb::Update, pod, error))?;
        let created = created.map(drop).map_err(Error::from);
        self.record_outcome(Verb::Create, pod, &created);
        created
    }

    async fn update(&self, pod: &Pod, claims: &PodClaims, owners: &ClaimOwners) -> Result<(), Error> {
        self.create_missing_claims(pod, claims).await?;
        self.update_claim_owners(owners).await?;
        self.ctx.api(&self.controller.pods).replace(pod).await?;
        Ok(())
    }

    async fn delete(&self, pod: &Arc<Pod>) -> Result<(), Error> {
        let pods = self.ctx.api(&self.controller.pods);
        let deleted = ignore_not_found(pods.delete(pod, &uid_precondition(pod.as_ref())).await);
        let deleted = deleted.map(drop).map_err(Error::from);
        self.record_outcome(Verb::Delete, pod, &deleted);
        deleted
    }

    /// Makes the claims that are missing, all that can be made.
    async fn create_missing_claims(&self, pod: &Pod, claims: &PodClaims) -> Result<(), Error> {
        let mut failures = Vec::new();
        for claim in &claims.missing {
            let name = claim.name_any();
            let (pod, set) = (pod.name_any(), self.set.name_any());
            match self.ctx.api(&self.controller.claims).create(claim).await {
                Ok(_) => {
                    let message = format!("Create Claim {name} Pod {pod} in StatefulSet {set} success");
                    self.controller.recorder.normal(self.set, "SuccessfulCreate", message);
                }
                Err(error) => {
                    let is_there =
                        matches!(&error, kube::Error::Api(status) if status.reason == "AlreadyExists");
                    let error = Error::from(error).message();
                    failures.push(format!("failed to create PVC {name}: {error}"));
                    if !is_there {
                        let message = format!(
                            "Create Claim {name} for Pod {pod} in StatefulSet {set} failed error: {error}"
                        );
                        self.controller.recorder.warning(self.set, "FailedCreate", message);
                    }
                }
            }
        }
        failures.extend(claims.terminating.iter().map(|name| format!("pvc {name} is being deleted")));
        match failures.as_slice() {
            [] => Ok(()),
            [one] => Err(Error::Unfinished(one.clone())),
            several => Err(Error::Unfinished(format!("[{}]", several.join(", ")))),
        }
    }

    async fn update_claim_owners(&self, owners: &ClaimOwners) -> Result<(), Error> {
        for (name, update) in owners {
            if update.has_conflicting_controller {
                let message = format!(
                    "PersistentVolumeClaim {name} has a conflicting OwnerReference that acts as a manging controller, \
                     the retention policy is ignored for this claim"
                );
                self.controller.recorder.warning(self.set, "ConflictingController", message);
            }
            if let Some(claim) = &update.change {
                self.ctx.api(&self.controller.claims).replace(claim).await?;
            }
        }
        Ok(())
    }

    fn record_outcome(&self, verb: Verb, pod: &Pod, outcome: &Result<(), Error>) {
        match outcome {
            Err(error) => self.record_failure(verb, pod, error),
            Ok(()) => {
                let message = format!(
                    "{verb:?} Pod {} in StatefulSet {} successful",
                    pod.name_any(),
                    self.set.name_any()
                );
                self.controller.recorder.normal(self.set, &format!("Successful{verb:?}"), message);
            }
        }
    }

    fn record_failure(&self, verb: Verb, pod: &Pod, error: &Error) {
        if error.is(409) {
            // The next reconciliation observes what this one did not.
            return;
        }
        let (pod, set) = (pod.name_any(), self.set.name_any());
        let message = format!("{verb:?} Pod {pod} in StatefulSet {set} failed error: {}", error.message());
        self.controller.recorder.warning(self.set, &format!("Failed{verb:?}"), message);
    }
}
