//! statefulset-controller: maintains pods that keep their names and claims.
//!
//! A set is reconciled when it or one of its pods changes, when a pod without a controller appears
//! that it selects, when a claim is deleted that a new pod waits for, and when a pod has been ready
//! for long enough:
//! 1. revisions and pods that match are adopted, pods that do not match any more are released
//!    (`coracle_controller_runtime::controller_ref`);
//! 2. the template finds its place in the history (`coracle_kinds::controller_revision`);
//! 3. from all that, the steps and the status are planned (`plan/`, with `identity.rs`,
//!    `retention.rs`, `rollout.rs` and `status.rs`);
//! 4. the steps are executed (`executor.rs`), and the status is written, also after a failure;
//! 5. the oldest revisions are deleted.
//!
//! Changes of claims enqueue nothing, but deletions do: a changed claim is observed in the next
//! reconciliation.

mod executor;
mod identity;
mod metrics;
#[cfg(test)]
mod model;
mod plan;
mod retention;
mod rollout;
mod status;

use std::sync::Arc;
use std::time::Duration;

use coracle_clock::Clock;
use coracle_controller_runtime::cache::{Cache, NamespacedName};
use coracle_controller_runtime::events::Recorder;
use coracle_controller_runtime::{
    Action, Controller, Error, Initialize, ReconcileContext, Sources, controller_ref, ignore_not_found,
    uid_precondition,
};
use coracle_kinds::controller_revision;
use coracle_kinds::controller_revision::RevisionMatch;
use coracle_object_meta::selector_matches;
use k8s_openapi::api::apps::v1::{ControllerRevision, StatefulSet, StatefulSetSpec, StatefulSetStatus};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt;
use kube::core::Selector;
use prometheus::CounterVec;

use crate::settings::{Context, Settings};
use crate::timers::{MIN_READY, STATEFUL_SET_CLAIM};
use crate::workload::controller_revision::create_revision;
use crate::workload::owners::owners_of;
use executor::Executor;
use metrics::{Delays, Gauges};
use plan::{Gates, Observed, Revision, plan};

/// The delay until a set is reconciled after the deletion of a claim for which it may have waited.
/// kube-controller-manager waits for another event, so that clients observe for a moment that the
/// claim is deleted.
const AFTER_A_CLAIM: Duration = Duration::from_secs(2);

pub struct StatefulSetController {
    clock: Clock,
    recorder: Recorder,
    gates: Gates,
    /// The gate StatefulSetSemanticRevisionComparison.
    compares_semantically: bool,
    gauges: Gauges,
    delays: Arc<Delays>,
    stale_skips: CounterVec,
    sets: Arc<Cache<StatefulSet>>,
    revisions: Arc<Cache<ControllerRevision>>,
    pods: Arc<Cache<Pod>>,
    claims: Arc<Cache<PersistentVolumeClaim>>,
}

impl Initialize<Settings> for StatefulSetController {
    fn new(context: &Context) -> StatefulSetController {
        let is_enabled = &context.settings.is_enabled;
        StatefulSetController {
            clock: context.clock.clone(),
            recorder: context.recorder("statefulset-controller"),
            gates: Gates {
                retention: is_enabled("StatefulSetAutoDeletePVC"),
                start: is_enabled("StatefulSetStartOrdinal"),
                max_unavailable: is_enabled("MaxUnavailableStatefulSet"),
            },
            compares_semantically: is_enabled("StatefulSetSemanticRevisionComparison"),
            gauges: Gauges::new(&context.metrics),
            delays: Arc::new(Delays::new(&context.metrics, context.clock.clone())),
            stale_skips: metrics::stale_skips(&context.metrics),
            sets: context.cache(),
            revisions: context.cache(),
            pods: context.cache(),
            claims: context.cache(),
        }
    }
}

impl Controller for StatefulSetController {
    const NAME: &'static str = "statefulset-controller";
    const QUEUE_NAME: &'static str = "statefulset";
    type Key = NamespacedName;

    fn sources(&self, sources: &mut Sources<NamespacedName>) {
        let (sets, delays) = (self.sets.clone(), self.delays.clone());
        sources
            .on(&self.sets, move |change, queue| {
                delays.observe(change);
                change.name().into_iter().for_each(|set| queue.add(set));
            })
            .on(&self.pods, move |change, queue| {
                owners_of(change, &sets, could_adopt).into_iter().for_each(|set| queue.add(set));
            })
            .on(&self.claims, |change, queue| {
                let gone = change.old.as_ref().filter(|_| change.new.is_none());
                let namespace = gone.and_then(|claim| claim.namespace()).unwrap_or_default();
                let pods = gone.iter().flat_map(|claim| retention::pods(claim));
                let sets = pods.filter_map(identity::parent_and_ordinal).map(|(set, _)| set);
                let delay = STATEFUL_SET_CLAIM.after(AFTER_A_CLAIM);
                sets.for_each(|set| queue.add_after(NamespacedName::new(&namespace, set), delay));
            });
    }

    async fn reconcile(&self, name: &NamespacedName, ctx: &ReconcileContext) -> Result<Action, Error> {
        let Some(set) = self.sets.get(name) else {
            self.gauges.forget(name);
            return Ok(Action::AwaitChange);
        };
        let selector = set.spec.as_ref().map(|spec| Selector::try_from(spec.selector.clone()));
        // An invalid selector cannot become valid without a change, so this is no reason to retry.
        let Some(Ok(selector)) = selector else { return Ok(Action::AwaitChange) };
        let revisions = self.list_revisions(&set, &selector, ctx).await?;
        let pods = self.claim_pods(&set, &selector, ctx).await?;
        self.perform_update(&set, &revisions, &pods, ctx).await
    }

    fn on_stale_cache(&self, group: &str, resource: &str) {
        self.stale_skips.with_label_values(&[group, resource]).inc();
    }
}

impl StatefulSetController {
    /// Lists the revisions from the oldest to the newest.
    async fn list_revisions(
        &self,
        set: &StatefulSet,
        selector: &Selector,
        ctx: &ReconcileContext,
    ) -> Result<Vec<Arc<ControllerRevision>>, Error> {
        let mut revisions = controller_ref::candidates(&set.metadata, &self.revisions);
        revisions.retain(|revision| selector_matches(selector, &revision.metadata));
        let (owner, all) = ((&self.sets, set), revisions.clone());
        // Orphans stay a part of the history of a terminating set.
        controller_ref::claim_objects(owner, &self.revisions, all, |_| true, ctx).await?;
        controller_revision::sort(&mut revisions);
        Ok(revisions)
    }

    async fn claim_pods(
        &self,
        set: &StatefulSet,
        selector: &Selector,
        ctx: &ReconcileContext,
    ) -> Result<Vec<Arc<Pod>>, Error> {
        let pods = controller_ref::candidates(&set.metadata, &self.pods);
        let matches = |pod: &Pod| selector_matches(selector, &pod.metadata) && identity::is_member(set, pod);
        controller_ref::claim_objects((&self.sets, set), &self.pods, pods, matches, ctx).await
    }

    async fn perform_update(
        &self,
        set: &StatefulSet,
        revisions: &[Arc<ControllerRevision>],
        pods: &[Arc<Pod>],
        ctx: &ReconcileContext,
    ) -> Result<Action, Error> {
        let old = set.status.clone().unwrap_or_default();
        let mut collisions = old.collision_count.unwrap_or(0);
        let Some(update) = self.update_revision(set, revisions, &mut collisions, ctx).await? else {
            return Ok(Action::AwaitChange);
        };
        let current = revisions.iter().find(|revision| revision.metadata.name == old.current_revision);
        let current = current.map_or(&update, AsRef::as_ref);
        let live = [current.name_any(), update.name_any()];
        let outcome = self.update_stateful_set(set, [current, &update], collisions, pods, ctx).await;
        let truncated = self.truncate_history(set, revisions, pods, &live, ctx).await;
        let next = outcome?;
        truncated.map(|()| next)
    }

    /// Returns the revision of the current template. For a terminating set none is created: its
    /// status needs only the name.
    async fn update_revision(
        &self,
        set: &StatefulSet,
        revisions: &[Arc<ControllerRevision>],
        collisions: &mut i32,
        ctx: &ReconcileContext,
    ) -> Result<Option<ControllerRevision>, Error> {
        let Some(spec) = &set.spec else { return Ok(None) };
        let revision = match controller_revision::match_template(set, &spec.template, revisions, *collisions)
        {
            RevisionMatch::Latest(last) => return Ok(Some(Arc::unwrap_or_clone(last))),
            RevisionMatch::Earlier(earlier, number) => {
                let last = ControllerRevision { revision: number, ..Arc::unwrap_or_clone(earlier) };
                ctx.api(&self.revisions).replace(&last).await?
            }
            RevisionMatch::New(new) if set.metadata.deletion_timestamp.is_some() => return Ok(Some(*new)),
            RevisionMatch::New(new) => match revisions.last() {
                Some(last) if self.is_semantically_equal(set, last, ctx).await? => {
                    return Ok(Some(last.as_ref().clone()));
                }
                _ => create_revision(&self.revisions, &set.name_any(), *new, collisions, ctx).await?,
            },
        };
        Ok(Some(revision))
    }

    /// Returns `true` if a revision differs from the template only in defaults that the API server
    /// has introduced since. It asks the server by a dry run.
    async fn is_semantically_equal(
        &self,
        set: &StatefulSet,
        revision: &ControllerRevision,
        ctx: &ReconcileContext,
    ) -> Result<bool, Error> {
        let (Some(spec), Ok(template)) = (&set.spec, controller_revision::template(revision)) else {
            return Ok(false);
        };
        if !self.compares_semantically {
            return Ok(false);
        }
        let restored =
            StatefulSet { spec: Some(StatefulSetSpec { template, ..spec.clone() }), ..set.clone() };
        match ctx.api(&self.sets).dry_run_replace(&restored).await {
            Ok(answer) => Ok(answer.spec.is_some_and(|answer| answer.template == spec.template)),
            // A rejected template is not the same. A conflict says nothing.
            Err(kube::Error::Api(status)) if status.code != 409 => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Plans, executes the plan, and writes the status.
    async fn update_stateful_set(
        &self,
        set: &StatefulSet,
        revisions: [&ControllerRevision; 2],
        collisions: i32,
        pods: &[Arc<Pod>],
        ctx: &ReconcileContext,
    ) -> Result<Action, Error> {
        let known = |revision: &ControllerRevision| {
            let name = revision.name_any();
            let template = controller_revision::template(revision);
            let template =
                template.map_err(|error| Error::Unfinished(format!("ControllerRevision {name}: {error}")));
            Ok::<_, Error>(Revision { name, template: Arc::new(template?) })
        };
        let [current, update] = revisions;
        let (current, update) = (known(current)?, known(update)?);
        let (gates, now) = (self.gates, self.clock.now());
        let namespace = set.namespace().unwrap_or_default();
        let find_claim = |name: &str| self.claims.get(&NamespacedName::new(&namespace, name));
        let plan =
            plan(&Observed { set, current, update, collisions, pods, find_claim: &find_claim, now, gates });
        let executor = Executor { controller: self, set, ctx };
        let (status, outcome) = executor.execute(&plan).await;
        let updated = self.update_status(set, status, ctx).await;
        outcome?;
        updated?;
        let until_available = plan.requeue_after.map(|left| MIN_READY.after(left));
        Ok(until_available.map_or(Action::AwaitChange, Action::Requeue))
    }

    async fn update_status(
        &self,
        set: &StatefulSet,
        status: StatefulSetStatus,
        ctx: &ReconcileContext,
    ) -> Result<(), Error> {
        let status = status::complete(set, status);
        self.gauges.update(set, &status, self.gates.max_unavailable);
        if status::has_changed(set, &status) {
            let changed = StatefulSet { status: Some(status), ..set.clone() };
            ctx.api(&self.sets).replace_status(&changed).await?;
        }
        Ok(())
    }

    /// Deletes the oldest revisions that are of no use.
    async fn truncate_history(
        &self,
        set: &StatefulSet,
        revisions: &[Arc<ControllerRevision>],
        pods: &[Arc<Pod>],
        live: &[String],
        ctx: &ReconcileContext,
    ) -> Result<(), Error> {
        let is_live = |name: &str| {
            live.iter().any(|l| l == name) || pods.iter().any(|pod| identity::revision(pod) == name)
        };
        let limit = set.spec.as_ref().and_then(|spec| spec.revision_history_limit).unwrap_or(10);
        for revision in controller_revision::excess(revisions, is_live, limit) {
            let this = uid_precondition(revision.as_ref());
            ignore_not_found(ctx.api(&self.revisions).delete(revision, &this).await)?;
        }
        Ok(())
    }
}

fn could_adopt(set: &StatefulSet, pod: &ObjectMeta) -> bool {
    let selector = set.spec.as_ref().map(|spec| Selector::try_from(spec.selector.clone()));
    selector.is_some_and(|selector| selector.is_ok_and(|selector| selector_matches(&selector, pod)))
}
