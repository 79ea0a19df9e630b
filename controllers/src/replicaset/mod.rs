//! replicaset-controller: keeps the desired number of pods of each ReplicaSet running.
//!
//! A ReplicaSet is reconciled when it or one of its pods changes, when a pod without a controller
//! appears that it selects, and when a pod has been ready for long enough:
//! 1. active pods that match are adopted, those that do not match any more are released
//!    (`coracle_controller_runtime::controller_ref`);
//! 2. from those it is planned how many pods are created or which are deleted (`plan.rs`), and that
//!    is executed (`workload::pod_control`); pods that their kubelet rejects are replaced at a
//!    bounded rate (`workload::pacing`);
//! 3. the status of the pods as they were before is written (`status.rs`), also after a failure.
//!
//! All of it is generic over [`ReplicaOwner`]: replicationcontroller-controller is the same for
//! another kind.

mod plan;
mod status;

use std::sync::Arc;
use std::time::Duration;

use coracle_clock::Clock;
use coracle_controller_runtime::cache::{Cache, NamespacedName};
use coracle_controller_runtime::{
    Action, Controller, Error, Initialize, ReconcileContext, Sources, controller_ref,
};
use coracle_kinds::pods;
use coracle_object_meta::{controller_of, is_controlled_by, selector_matches};
use k8s_openapi::api::apps::v1::ReplicaSetStatus;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use kube::core::Selector;
use prometheus::{CounterVec, Histogram};

use crate::settings::{Context, Settings};
use crate::timers::{MIN_READY, REJECTED_PODS};
use crate::workload::owners::owners_of;
use crate::workload::pacing;
use crate::workload::pod_control::PodControl;

use crate::workload::replica_owner::ReplicaOwner;
use plan::Plan;

/// Keeps the number of pods that each object of kind `O` wants.
pub struct ReplicaSetController<O> {
    clock: Clock,
    pod_control: PodControl,
    owners: Arc<Cache<O>>,
    pods: Arc<Cache<Pod>>,
    /// The gate DeploymentReplicaSetTerminatingReplicas, for kinds that have it.
    reports_terminating: bool,
    /// The gate PodDeletionCost.
    has_deletion_cost: bool,
    deletion_age_ratio: Histogram,
    /// None for kinds whose waits for the caches are not counted.
    stale_skips: Option<CounterVec>,
}

impl<O: ReplicaOwner> Initialize<Settings> for ReplicaSetController<O> {
    fn new(context: &Context) -> ReplicaSetController<O> {
        let (metrics, is_enabled) = (&context.metrics, &context.settings.is_enabled);
        let help = "The ratio of chosen deleted pod's ages to the current youngest pod's age (at the time). Should be <2. \
                    The intent of this metric is to measure the rough efficacy of the LogarithmicScaleDown feature gate's effect on \
                    the sorting (and deletion) of pods when a replicaset scales down.";
        let ratio = "replicaset_controller_sorting_deletion_age_ratio";
        let buckets = [0.25, 0.5, 1.0, 2.0, 4.0, 8.0];
        let help_stale = "Total number of ReplicaSet syncs skipped due to a stale watch cache.";
        let pods = context.cache();
        ReplicaSetController {
            clock: context.clock.clone(),
            pod_control: PodControl::new(context.recorder(O::COMPONENT), Arc::clone(&pods)),
            owners: context.cache(),
            pods,
            reports_terminating: O::REPORTS_TERMINATING
                && is_enabled("DeploymentReplicaSetTerminatingReplicas"),
            has_deletion_cost: is_enabled("PodDeletionCost"),
            deletion_age_ratio: metrics.histogram(ratio, help, &buckets, &[]).with_label_values::<&str>(&[]),
            stale_skips: O::STALE_SKIPS.map(|name| metrics.counter(name, help_stale, &["group", "resource"])),
        }
    }
}

impl<O: ReplicaOwner> Controller for ReplicaSetController<O> {
    const NAME: &'static str = O::CONTROLLER;
    const QUEUE_NAME: &'static str = O::QUEUE_NAME;
    type Key = NamespacedName;

    fn sources(&self, sources: &mut Sources<NamespacedName>) {
        let owners = Arc::clone(&self.owners);
        sources.on_each(&self.owners).on(&self.pods, move |change, queue| {
            let selects = |owner: &O, pod: &_| selector(owner).is_some_and(|s| selector_matches(&s, pod));
            owners_of(change, &owners, selects).into_iter().for_each(|owner| queue.add(owner));
        });
    }

    async fn reconcile(&self, name: &NamespacedName, ctx: &ReconcileContext) -> Result<Action, Error> {
        let Some(owner) = self.owners.get(name) else { return Ok(Action::AwaitChange) };
        // An invalid selector cannot become valid without a change, so this is no reason to retry.
        let Some(selector) = selector(owner.as_ref()) else { return Ok(Action::AwaitChange) };
        let candidates = controller_ref::candidates(owner.meta(), &self.pods);
        let is_terminating = |pod: &Pod| {
            pods::is_terminating(pod)
                && !pods::is_terminal(pod)
                && is_controlled_by(&pod.metadata, owner.as_ref())
                && selector_matches(&selector, &pod.metadata)
        };
        let terminating = || candidates.iter().filter(|pod| is_terminating(pod)).count();
        let terminating = self.reports_terminating.then(terminating);
        let now = self.clock.now();
        let owned = candidates.iter().filter(|pod| is_controlled_by(&pod.metadata, owner.as_ref()));
        let replaceable = pacing::allowed_replacements(owned.map(AsRef::as_ref), now);
        let active = self.claim_active_pods(owner.as_ref(), &selector, candidates, ctx).await?;
        let outcome = self.manage_replicas(owner.as_ref(), &active, replaceable, now, ctx).await;
        let failure = outcome.as_ref().err().map(Error::message);
        let status = status::calculate(owner.as_ref(), &active, terminating, failure, now);
        let written = self.update_status(owner.as_ref(), status, ctx).await;
        outcome?;
        written?;
        let is_full = usize::try_from(owner.replicas()).is_ok_and(|wanted| wanted <= active.len());
        let is_limited = replaceable.is_some() && !is_full && owner.meta().deletion_timestamp.is_none();
        let replacements = is_limited.then_some(pacing::UNTIL_NEXT_REPLACEMENTS);
        let available = until_available(owner.as_ref(), &active, now);
        let next = [(available, &MIN_READY), (replacements, &REJECTED_PODS)]
            .into_iter()
            .filter_map(|(left, timer)| Some((left?, timer)))
            .min_by_key(|(left, _)| *left);
        Ok(next.map_or(Action::AwaitChange, |(left, timer)| Action::Requeue(timer.after(left))))
    }

    fn on_stale_cache(&self, group: &str, resource: &str) {
        if let Some(skips) = &self.stale_skips {
            skips.with_label_values(&[group, resource]).inc();
        }
    }
}

impl<O: ReplicaOwner> ReplicaSetController<O> {
    /// Returns the active pods that the owner controls, after adoption and release. Ended and
    /// terminating pods are left as they are.
    async fn claim_active_pods(
        &self,
        owner: &O,
        selector: &Selector,
        mut candidates: Vec<Arc<Pod>>,
        ctx: &ReconcileContext,
    ) -> Result<Vec<Arc<Pod>>, Error> {
        candidates.retain(|pod| pods::is_active(pod));
        let matches = |pod: &Pod| selector_matches(selector, &pod.metadata);
        controller_ref::claim_objects((&self.owners, owner), &self.pods, candidates, matches, ctx).await
    }

    async fn manage_replicas(
        &self,
        owner: &O,
        active: &[Arc<Pod>],
        replaceable: Option<usize>,
        now: Timestamp,
        ctx: &ReconcileContext,
    ) -> Result<(), Error> {
        match plan::plan(owner, active, replaceable, || self.related_pods(owner), self.has_deletion_cost, now)
        {
            Plan::Rest => Ok(()),
            Plan::Create(number) => {
                let Some(template) = owner.template() else { return Ok(()) };
                let pod = pods::from_template(template, owner);
                self.pod_control.create_pods(owner, &vec![&pod; number], ctx).await
            }
            Plan::Delete(victims) => {
                let ratios = plan::deletion_age_ratios(active, &victims, now);
                ratios.into_iter().for_each(|ratio| self.deletion_age_ratio.observe(ratio));
                self.pod_control.delete_pods(owner, &victims, ctx).await
            }
        }
    }

    /// Returns the pods that any object of the kind with the same controller selects, such as the
    /// other ReplicaSets of a Deployment.
    fn related_pods(&self, owner: &O) -> Vec<Arc<Pod>> {
        let Some(controller) = controller_of(owner.meta()) else { return Vec::new() };
        let namespace = owner.namespace().unwrap_or_default();
        let mut siblings = self.owners.in_namespace(&namespace);
        siblings.retain(|other| controller_of(other.meta()).is_some_and(|of| of.uid == controller.uid));
        let selectors: Vec<Selector> =
            siblings.iter().filter_map(|sibling| selector(sibling.as_ref())).collect();
        let mut related = self.pods.in_namespace(&namespace);
        related.retain(|pod| selectors.iter().any(|selector| selector_matches(selector, &pod.metadata)));
        related
    }

    /// Writes a status that has changed, once more if the object has changed meanwhile.
    async fn update_status(
        &self,
        owner: &O,
        status: ReplicaSetStatus,
        ctx: &ReconcileContext,
    ) -> Result<(), Error> {
        if status == owner.status() {
            return Ok(());
        }
        let api = ctx.api(&self.owners);
        if let Err(error) = api.replace_status(&owner.with_status(status.clone())).await {
            let Some(live) = api.get(&NamespacedName::of(owner)).await? else { return Err(error.into()) };
            api.replace_status(&live.with_status(status)).await?;
        }
        Ok(())
    }
}

/// Parses the selector of an owner; None if it is invalid.
fn selector<O: ReplicaOwner>(owner: &O) -> Option<Selector> {
    Selector::try_from(owner.label_selector()?).ok()
}

/// Returns the time until the next ready pod of an owner becomes available.
fn until_available<O: ReplicaOwner>(owner: &O, active: &[Arc<Pod>], now: Timestamp) -> Option<Duration> {
    let seconds = owner.min_ready_seconds();
    let waits = |pod: &&Arc<Pod>| pods::is_ready(pod) && !pods::is_available(pod, seconds, now);
    let whole = Duration::from_secs(seconds.unsigned_abs().into());
    let left = active.iter().filter(waits).map(|pod| {
        // A pod without a time may get one.
        pods::time_until_available(pod, seconds, now).unwrap_or(whole)
    });
    left.min()
}
