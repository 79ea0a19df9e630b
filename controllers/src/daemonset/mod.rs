//! daemonset-controller: keeps a pod on each node that a set selects.
//!
//! A set is reconciled when it, one of its pods or one of its revisions changes, when a node comes
//! or changes its labels or taints such that the set should have a pod there or not, and when a pod
//! has been ready for long enough:
//! 1. revisions and pods that match are adopted, others released; the template finds its place in
//!    the history (`history.rs`, `revisions.rs`);
//! 2. from the pods and the nodes (`eligibility.rs`) it is planned what is created and deleted
//!    (`plan/`); once each node has its pod, old ones are updated (`rollout.rs`);
//! 3. pods are created and deleted, the oldest revisions too, and the status is written
//!    (`status.rs`), also after a failure.
//!
//! The deletion of a node enqueues nothing: its pods are deleted by others, and those that wait for
//! it at the next reconciliation.

mod backoff;
mod eligibility;
mod history;
mod observed;
mod plan;
mod pods;
mod revisions;
mod rollout;
mod status;

use std::sync::Arc;

use coracle_clock::Clock;
use coracle_controller_runtime::cache::{Cache, Change, NamespacedName};
use coracle_controller_runtime::controller_ref::{candidates, claim_objects};
use coracle_controller_runtime::events::Recorder;
use coracle_controller_runtime::{Action, Controller, Error, Initialize, ReconcileContext, Sources};
use coracle_kinds::pods::node;
use coracle_object_meta::selector_matches;
use k8s_openapi::api::apps::v1::{ControllerRevision, DaemonSet};
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt;
use kube::core::Selector;
use parking_lot::Mutex;

use crate::settings::{Context, Settings};
use crate::timers::{DAEMON_SET_BACKOFF, MIN_READY};
use crate::workload::owners::owners_of;
use crate::workload::pod_control::PodControl;
use backoff::FailedPodsBackoff;
use eligibility::{Eligibility, Requirements};
use observed::Observed;
use plan::{Ended, plan};

pub struct DaemonSetController {
    clock: Clock,
    recorder: Recorder,
    pod_control: PodControl,
    backoff: Mutex<FailedPodsBackoff>,
    sets: Arc<Cache<DaemonSet>>,
    revisions: Arc<Cache<ControllerRevision>>,
    pods: Arc<Cache<Pod>>,
    nodes: Arc<Cache<Node>>,
}

impl Initialize<Settings> for DaemonSetController {
    fn new(context: &Context) -> DaemonSetController {
        let recorder = context.recorder("daemonset-controller");
        DaemonSetController {
            clock: context.clock.clone(),
            pod_control: PodControl::new(recorder.clone(), context.cache()),
            recorder,
            backoff: Mutex::default(),
            sets: context.cache(),
            revisions: context.cache(),
            pods: context.cache(),
            nodes: context.cache(),
        }
    }
}

impl Controller for DaemonSetController {
    const NAME: &'static str = "daemonset-controller";
    const QUEUE_NAME: &'static str = "daemonset";
    const WORKERS: usize = 2;
    type Key = NamespacedName;

    fn sources(&self, sources: &mut Sources<NamespacedName>) {
        let (of_pods, of_revisions) = (self.sets.clone(), self.sets.clone());
        let (sets, pods) = (self.sets.clone(), self.pods.clone());
        sources
            .on_each(&self.sets)
            .on(&self.pods, move |change, queue| {
                owners_of(change, &of_pods, selects).into_iter().for_each(|set| queue.add(set));
            })
            .on(&self.revisions, move |change, queue| {
                owners_of(change, &of_revisions, selects).into_iter().for_each(|set| queue.add(set));
            })
            .on(&self.nodes, move |change, queue| {
                if let Some(node) = changed_node(change) {
                    let concerned = sets.all().into_iter().filter(|set| is_concerned(set, node, &pods));
                    concerned.for_each(|set| queue.add(NamespacedName::of(set.as_ref())));
                }
            });
    }

    async fn reconcile(&self, name: &NamespacedName, ctx: &ReconcileContext) -> Result<Action, Error> {
        let Some(set) = self.sets.get(name) else { return Ok(Action::AwaitChange) };
        let Some(selector) = selector(&set) else { return Ok(Action::AwaitChange) };
        if selector.selects_all() {
            let message =
                "This daemon set is selecting all pods. A non-empty selector is required.".to_owned();
            self.recorder.warning(set.as_ref(), "SelectingAll", message);
            return Ok(Action::AwaitChange);
        }
        if set.metadata.deletion_timestamp.is_some() {
            return Ok(Action::AwaitChange);
        }
        let pods = self.claim_pods(&set, &selector, ctx).await?;
        let history = self.history(&set, &selector, ctx).await?;
        let current = self.current_revision(&set, &history, &pods, ctx).await?;
        let nodes = self.nodes.all();
        let hash = history::hash(&current).unwrap_or_default();
        let observed = Observed { set: &set, pods: &pods, nodes: &nodes, hash, now: self.clock.now() };
        let updated = self.update(&observed, ctx).await;
        let truncated = match &updated {
            Ok(_) => self.truncate_history(history.excess(&set, &pods), ctx).await,
            Err(_) => Ok(()),
        };
        let (status, until_available) = status::status(&observed);
        self.update_status(&set, status, ctx).await?;
        truncated?;
        let back_off = updated?.map(|left| DAEMON_SET_BACKOFF.after(left));
        let until_available = until_available.map(|left| MIN_READY.after(left));
        let after = back_off.into_iter().chain(until_available).min();
        Ok(after.map_or(Action::AwaitChange, Action::Requeue))
    }
}

impl DaemonSetController {
    async fn claim_pods(
        &self,
        set: &DaemonSet,
        selector: &Selector,
        ctx: &ReconcileContext,
    ) -> Result<Vec<Arc<Pod>>, Error> {
        let found = candidates(&set.metadata, &self.pods);
        let matches = |pod: &Pod| selector_matches(selector, &pod.metadata);
        claim_objects((&self.sets, set), &self.pods, found, matches, ctx).await
    }

    /// Creates and deletes pods. Returns when a failed pod may be deleted.
    async fn update(
        &self,
        observed: &Observed<'_>,
        ctx: &ReconcileContext,
    ) -> Result<Option<std::time::Duration>, Error> {
        let Observed { set, hash, now, .. } = *observed;
        let generation = set.status.as_ref().and_then(|status| status.observed_generation).unwrap_or(0);
        let uid = set.uid().unwrap_or_default();
        let plan = plan(observed, |node| {
            let mut backoff = self.backoff.lock();
            backoff.delay((uid.clone(), generation, node.to_owned()), now)
        });
        for (pod, node, ended) in &plan.ended {
            let pod = NamespacedName::of(pod.as_ref());
            match ended {
                Ended::Failed => {
                    let message =
                        format!("Found failed daemon pod {pod} on node {node}, will try to kill it");
                    self.recorder.warning(set, "FailedDaemonPod", message);
                }
                Ended::Succeeded => {
                    let message =
                        format!("Found succeeded daemon pod {pod} on node {node}, will try to delete it");
                    self.recorder.normal(set, "SucceededDaemonPod", message);
                }
            }
        }
        let created: Vec<Pod> =
            plan.create.iter().filter_map(|node| pods::new_pod(set, node, hash)).collect();
        let created = self.pod_control.create_pods(set, &created, ctx).await;
        let deleted = self.pod_control.delete_pods(set, &plan.delete, ctx).await;
        created?;
        deleted?;
        Ok(plan.requeue_after)
    }

    async fn update_status(
        &self,
        set: &DaemonSet,
        status: k8s_openapi::api::apps::v1::DaemonSetStatus,
        ctx: &ReconcileContext,
    ) -> Result<(), Error> {
        if set.status.as_ref() != Some(&status) {
            let changed = DaemonSet { status: Some(status), ..set.clone() };
            ctx.api(&self.sets).replace_status(&changed).await?;
        }
        Ok(())
    }
}

/// Returns the selector of a set. An invalid selector cannot become valid without a change, so this
/// is no reason to retry.
fn selector(set: &DaemonSet) -> Option<Selector> {
    Selector::try_from(set.spec.as_ref()?.selector.clone()).ok()
}

fn selects(set: &DaemonSet, meta: &ObjectMeta) -> bool {
    selector(set).is_some_and(|selector| selector_matches(&selector, meta))
}

/// Returns the node, if it is new or if its labels or taints changed.
fn changed_node(change: &Change<Node>) -> Option<&Node> {
    let taints = |node: &Node| node.spec.as_ref().and_then(|spec| spec.taints.clone());
    let decides = |node: &Node| (node.metadata.labels.clone(), taints(node));
    let node = change.new.as_deref()?;
    (change.old.is_none() || change.changed(decides)).then_some(node)
}

/// Returns `true` if a set may have to create or delete a pod on a node.
fn is_concerned(set: &DaemonSet, changed: &Node, pods: &Cache<Pod>) -> bool {
    let name = changed.metadata.name.as_deref();
    let bound = || {
        let own = candidates(&set.metadata, pods).into_iter();
        let own = own.filter(|pod| coracle_object_meta::is_controlled_by(&pod.metadata, set));
        own.into_iter().any(|pod| node(&pod) == name)
    };
    let misscheduled = set.status.as_ref().map_or(0, |status| status.number_misscheduled);
    match Requirements::of(set).eligibility(changed) {
        Eligibility::Run => !bound() || misscheduled > 0,
        Eligibility::Continue => misscheduled > 0 && bound(),
        Eligibility::Stop => bound(),
    }
}
