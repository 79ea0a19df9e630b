//! disruption-controller: computes the number of allowed disruptions of each PodDisruptionBudget.
//!
//! A budget is reconciled when it changes and when a pod that it selects does:
//! 1. the pods that it selects are listed and, if it has a percentage, the desired sizes of their
//!    owners (`scale.rs`);
//! 2. the status is computed from both (`plan/`), without the pods that are being evicted;
//! 3. the status is written if it differs, and checked again when an eviction should have been
//!    executed.
//!
//! If pods cannot be counted no disruption is allowed; the status has the reason. A pod is checked
//! two minutes after it was marked as about to be disrupted: if it still exists, the mark was
//! wrong.

mod plan;
mod scale;

use std::fmt;
use std::sync::Arc;

use coracle_clock::Clock;
use coracle_controller_runtime::cache::{Cache, Change, NamespacedName};
use coracle_controller_runtime::events::Recorder;
use coracle_controller_runtime::{Action, Controller, Error, Initialize, ReconcileContext, Sources};
use coracle_object_meta::selector_matches;
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::api::core::v1::{Pod, ReplicationController};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::Client;
use kube::core::Selector;

use crate::settings::{Context, Settings};
use crate::timers::DISRUPTED_POD;
use crate::timers::STALE_DISRUPTION;
use plan::{CountError, Counts};

pub struct DisruptionController {
    reader: Client,
    clock: Clock,
    recorder: Recorder,
    budgets: Arc<Cache<PodDisruptionBudget>>,
    pods: Arc<Cache<Pod>>,
    replica_sets: Arc<Cache<ReplicaSet>>,
    deployments: Arc<Cache<Deployment>>,
    stateful_sets: Arc<Cache<StatefulSet>>,
    replication_controllers: Arc<Cache<ReplicationController>>,
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Key {
    Budget(NamespacedName),
    /// A pod that was marked as about to be disrupted.
    Pod(NamespacedName),
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Key::Budget(name) => write!(f, "{name}"),
            Key::Pod(name) => write!(f, "pod {name}"),
        }
    }
}

impl Initialize<Settings> for DisruptionController {
    fn new(context: &Context) -> DisruptionController {
        DisruptionController {
            reader: context.unrecorded.clone(),
            clock: context.clock.clone(),
            recorder: context.recorder("controllermanager"),
            budgets: context.cache(),
            pods: context.cache(),
            replica_sets: context.cache(),
            deployments: context.cache(),
            stateful_sets: context.cache(),
            replication_controllers: context.cache(),
        }
    }
}

impl Controller for DisruptionController {
    const NAME: &'static str = "disruption-controller";
    const QUEUE_NAME: &'static str = "disruption";
    type Key = Key;

    fn sources(&self, sources: &mut Sources<Key>) {
        let (budgets, recorder, clock) = (self.budgets.clone(), self.recorder.clone(), self.clock.clone());
        sources
            .on(&self.budgets, |change, queue| {
                change.name().into_iter().for_each(|name| queue.add(Key::Budget(name)));
            })
            .on(&self.pods, move |change, queue| {
                budgets_of(change, &budgets, &recorder).into_iter().for_each(|b| queue.add(Key::Budget(b)));
                let stale = change.new.as_ref().and_then(|pod| plan::stale_after(pod, clock.now()));
                if let (Some(name), Some(delay)) = (change.name(), stale) {
                    queue.add_after(Key::Pod(name), STALE_DISRUPTION.after(delay));
                }
            });
    }

    async fn reconcile(&self, key: &Key, ctx: &ReconcileContext) -> Result<Action, Error> {
        match key {
            Key::Budget(name) => match self.budgets.get(name) {
                Some(budget) => self.reconcile_budget(&budget, ctx).await,
                None => Ok(Action::AwaitChange),
            },
            Key::Pod(name) => match self.pods.get(name) {
                Some(pod) => self.clear_stale_condition(&pod, ctx).await,
                None => Ok(Action::AwaitChange),
            },
        }
    }
}

impl DisruptionController {
    async fn reconcile_budget(
        &self,
        budget: &PodDisruptionBudget,
        ctx: &ReconcileContext,
    ) -> Result<Action, Error> {
        let now = self.clock.now();
        let (status, recheck) = match self.count(budget).await {
            Ok((pods, counts)) => {
                let plan = plan::plan(budget, &pods, counts, now);
                let namespace = budget.metadata.namespace.as_deref().unwrap_or_default();
                for pod in plan.not_deleted {
                    // The namespace in the place of the name is kube-controller-manager's.
                    let message = format!(
                        "Pod was expected by PDB {namespace}/{namespace} to be deleted but it wasn't"
                    );
                    self.recorder.warning(pod, "NotDeleted", message);
                }
                (plan.status, plan.recheck)
            }
            Err(why) => (plan::uncountable(budget, &why, now), None),
        };
        if budget.status.as_ref() != Some(&status) {
            let changed = PodDisruptionBudget { status: Some(status), ..budget.clone() };
            ctx.api(&self.budgets).replace_status(&changed).await?;
        }
        Ok(recheck.map_or(Action::AwaitChange, |left| Action::Requeue(DISRUPTED_POD.after(left))))
    }

    /// Returns the pods of a budget, and the expected and the desired number of them.
    async fn count(&self, budget: &PodDisruptionBudget) -> Result<(Vec<Arc<Pod>>, Counts), CountError> {
        let pods = self.pods_of(budget).inspect_err(|error| {
            self.recorder.warning(budget, "NoPods", format!("Failed to get pods: {error}"));
        })?;
        if pods.is_empty() {
            self.recorder.normal(budget, "NoPods", "No matching pods found");
        }
        let counts = self.expected(budget, &pods).await.inspect_err(|error| {
            let message = format!("Failed to calculate the number of expected pods: {error}");
            self.recorder.warning(budget, "CalculateExpectedPodCountFailed", message);
        })?;
        Ok((pods, counts))
    }

    fn pods_of(&self, budget: &PodDisruptionBudget) -> Result<Vec<Arc<Pod>>, CountError> {
        let Some(selector) = selector(budget).map_err(|error| error.to_string())? else {
            return Ok(Vec::new());
        };
        let mut pods = self.pods.in_namespace(budget.metadata.namespace.as_deref().unwrap_or_default());
        pods.retain(|pod| selector_matches(&selector, &pod.metadata));
        Ok(pods)
    }

    async fn expected(&self, budget: &PodDisruptionBudget, pods: &[Arc<Pod>]) -> Result<Counts, CountError> {
        let spec = budget.spec.clone().unwrap_or_default();
        let scale = if plan::needs_scale(&spec) {
            let scale = self.scale(pods).await?;
            if scale.unmanaged {
                self.recorder.warning(budget, "UnmanagedPods", unmanaged(&spec));
            }
            scale.wanted
        } else {
            i32::try_from(pods.len()).unwrap_or(i32::MAX)
        };
        plan::counts(&spec, scale)
    }

    /// Removes the mark that a pod is about to be disrupted, if it still exists.
    async fn clear_stale_condition(&self, pod: &Pod, ctx: &ReconcileContext) -> Result<Action, Error> {
        let now = self.clock.now();
        match plan::stale_after(pod, now) {
            None => Ok(Action::AwaitChange),
            Some(delay) if !delay.is_zero() => Ok(Action::Requeue(STALE_DISRUPTION.after(delay))),
            Some(_) => {
                ctx.api(&self.pods).replace_status(&plan::without_disruption(pod, now)).await?;
                Ok(Action::AwaitChange)
            }
        }
    }
}

/// Returns the selector of a budget. `None` selects no pods.
fn selector(budget: &PodDisruptionBudget) -> Result<Option<Selector>, kube::core::ParseExpressionError> {
    let selector = budget.spec.as_ref().and_then(|spec| spec.selector.clone());
    selector.map(Selector::try_from).transpose()
}

/// Returns the budgets that select a pod now, or selected it before the change.
fn budgets_of(
    change: &Change<Pod>,
    budgets: &Cache<PodDisruptionBudget>,
    recorder: &Recorder,
) -> Vec<NamespacedName> {
    let Some(pod) = change.object() else { return Vec::new() };
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    let (mut matching, mut matched) = (Vec::new(), Vec::new());
    for budget in budgets.in_namespace(namespace) {
        let Ok(Some(selector)) = selector(&budget) else { continue };
        if selector_matches(&selector, &pod.metadata) {
            matching.push(NamespacedName::of(budget.as_ref()));
        } else if change.old.as_ref().is_some_and(|old| selector_matches(&selector, &old.metadata)) {
            matched.push(NamespacedName::of(budget.as_ref()));
        }
    }
    if let [first, _, ..] = matching.as_slice() {
        let pod_name = pod.metadata.name.as_deref().unwrap_or_default();
        let message = format!(
            "Pod {namespace:?}/{pod_name:?} matches multiple PodDisruptionBudgets.  Chose {:?} arbitrarily.",
            first.name
        );
        recorder.warning(pod.as_ref(), "MultiplePodDisruptionBudgets", message);
    }
    matching.append(&mut matched);
    matching
}

fn unmanaged(spec: &k8s_openapi::api::policy::v1::PodDisruptionBudgetSpec) -> String {
    format!(
        "Pods selected by this PodDisruptionBudget (selector: {}) were found to be unmanaged. As a result, the status of the PDB \
         cannot be calculated correctly, which may result in undefined behavior. To account for these pods please set \
         \".spec.minAvailable\" field of the PDB to an integer value.",
        plan::printed(spec.selector.as_ref())
    )
}
