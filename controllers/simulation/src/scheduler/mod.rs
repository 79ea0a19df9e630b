//! default-scheduler: binds pods that have no node.
//!
//! One scheduling cycle handles all waiting pods, by priority:
//! 1. pods of other schedulers, gated pods and terminating pods are skipped;
//! 2. a pod that was assumed before waits for the watch to report it, or for its claims to be
//!    bound;
//! 3. [`plan::Snapshot::schedule`] chooses a node by filters and scores, or returns why none fits
//!    and which pods of lower priority have to be deleted ([`preemption`]);
//! 4. pods are bound, claims are annotated with the node, and pods that cannot be placed get a
//!    condition and an event.
//!
//! A pod that could not be placed is retried after a cluster event that could help it
//! ([`cluster_events`]). Until then its nominated node is kept free from pods of no higher
//! priority.

mod affinity_terms;
mod candidate;
mod cluster_events;
mod executor;
mod filter;
mod inter_pod;
mod node_info;
mod plan;
mod pod_info;
mod preemption;
mod requests;
mod score;
mod topology_spread;
mod volume_binding;
mod volume_filters;

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use coracle_clock::Clock;
use coracle_controller_runtime::batch::execute_all;
use coracle_controller_runtime::cache::{Cache, Cached, Index, NamespacedName};
use coracle_controller_runtime::events::Recorder;
use coracle_controller_runtime::{Action, Controller, Error, Initialize, ReconcileContext, Sources};
use coracle_kinds::pods;
use k8s_openapi::api::core::v1::{Namespace, Node, Pod};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::Client;
use parking_lot::{Mutex, MutexGuard};

use crate::settings::{Context, Settings};
use cluster_events::{Effect, EventCounter, MoveRequestCycle, effect_of_node, effect_of_pod};
use executor::Nomination;
use node_info::NodeInfo;
use plan::{Decision, Snapshot, nominees};
use pod_info::{NAME, is_waiting, may_be_nominated, occupies_node, uid, wants_neighbors};
use volume_binding::Storage;

/// The largest number of concurrent bindings.
const BINDINGS: usize = 16;

pub struct Scheduler {
    /// The client of bindings, whose response has no revision of the pod. `known` keeps a binding
    /// until the watch reports the node.
    unrecorded: Client,
    clock: Clock,
    recorder: Recorder,
    pods: Arc<Cache<Pod>>,
    nodes: Arc<Cache<Node>>,
    namespaces: Arc<Cache<Namespace>>,
    budgets: Arc<Cache<PodDisruptionBudget>>,
    storage: Storage,
    /// Counts the cluster events that may help pods that were rejected.
    events: Arc<EventCounter>,
    /// The node that the next cycle begins with.
    next_start: AtomicUsize,
    /// The decisions about pods that have no node yet, by their uids.
    known: Mutex<HashMap<String, PodSchedulingState>>,
}

#[derive(Clone)]
enum PodSchedulingState {
    /// Bound, and the watch has not reported it yet; or to be bound when its claims are.
    Assumed { node: String, waits_for_claims: bool },
    /// Rejected in this move request cycle.
    Unschedulable(MoveRequestCycle),
}

impl PodSchedulingState {
    fn waits_for_claims(&self) -> bool {
        matches!(self, PodSchedulingState::Assumed { waits_for_claims: true, .. })
    }
}

/// Finds the pods that are not bound to a node.
struct Unassigned;

impl Unassigned {
    fn key() -> NamespacedName {
        NamespacedName::new("", "")
    }
}

impl Index<Pod> for Unassigned {
    fn keys(pod: &Pod) -> Vec<NamespacedName> {
        pods::node(pod).is_none().then(Unassigned::key).into_iter().collect()
    }
}

/// The one key: all pods that wait are scheduled together, since they compete for nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SchedulingCycle;

impl fmt::Display for SchedulingCycle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("pass")
    }
}

impl Initialize<Settings> for Scheduler {
    fn is_possible(settings: &Settings) -> bool {
        settings.nodes.is_some()
    }

    fn new(context: &Context) -> Scheduler {
        Scheduler {
            unrecorded: context.unrecorded.clone(),
            clock: context.clock.clone(),
            recorder: context.recorder(NAME),
            pods: context.cache(),
            nodes: context.cache(),
            namespaces: context.cache(),
            budgets: context.cache(),
            storage: Storage::new(context),
            events: Arc::default(),
            next_start: AtomicUsize::new(0),
            known: Mutex::default(),
        }
    }
}

impl Controller for Scheduler {
    const NAME: &'static str = "kube-scheduler";
    const QUEUE_NAME: &'static str = "scheduler";
    const WORKERS: usize = 1;
    const PAUSE_FACTOR: u32 = 0;
    type Key = SchedulingCycle;

    fn sources(&self, sources: &mut Sources<SchedulingCycle>) {
        let events = self.events.clone();
        sources.on(&self.pods, move |change, queue| {
            let effect = effect_of_pod(change.old.as_deref(), change.new.as_deref());
            events.count(effect);
            if effect != Effect::None {
                queue.add(SchedulingCycle);
            }
        });
        let events = self.events.clone();
        sources.on(&self.nodes, move |change, queue| {
            let effect = effect_of_node(change.old.as_deref(), change.new.as_deref());
            events.count(effect);
            if effect != Effect::None {
                queue.add(SchedulingCycle);
            }
        });
        self.on_cluster_event(sources, &self.storage.claims);
        self.on_cluster_event(sources, &self.storage.volumes);
        self.on_cluster_event(sources, &self.storage.classes);
    }

    async fn reconcile(&self, _: &SchedulingCycle, ctx: &ReconcileContext) -> Result<Action, Error> {
        // Before the pods are read: an event in between counts for the next cycle.
        let cycle = self.events.now();
        let mut unassigned = self.pods.by::<Unassigned>(&Unassigned::key());
        unassigned.retain(|pod| may_be_nominated(pod));
        let mut waiting = unassigned.clone();
        waiting.retain(|pod| is_waiting(pod));
        let cycle = match self.forget_all_but(&waiting) {
            true => {
                self.events.count(Effect::OnAll);
                cycle.next()
            }
            false => cycle,
        };
        if !waiting.iter().any(|pod| self.is_undecided(pod, cycle)) {
            return Ok(Action::AwaitChange);
        }
        let namespaces = self.namespaces.all().into_iter().map(|namespace| {
            let meta = namespace.metadata.clone();
            (meta.name.unwrap_or_default(), meta.labels.unwrap_or_default())
        });
        let mut snapshot = Snapshot {
            nodes: self.nodes(),
            namespaces: namespaces.collect(),
            budgets: self.budgets.all(),
            next_start: self.next_start.load(Ordering::Relaxed),
            nominees: self.nominees(&unassigned),
        };
        let mut decisions = Vec::new();
        for pod in pod_info::sort_by_priority(waiting) {
            let known = self.known().get(uid(&pod)).cloned();
            let decision = match known {
                Some(PodSchedulingState::Unschedulable(_)) if !self.is_undecided(&pod, cycle) => continue,
                Some(PodSchedulingState::Assumed { node, waits_for_claims: true }) => {
                    match self.storage.are_claims_bound(&pod) {
                        true => Decision::Bind(node),
                        false => continue,
                    }
                }
                Some(PodSchedulingState::Assumed { .. }) => continue,
                _ => snapshot.schedule(&pod, self.storage.of(&pod)),
            };
            self.remember(&pod, &decision, cycle);
            decisions.push((pod, decision));
        }
        self.next_start.store(snapshot.next_start, Ordering::Relaxed);
        let (mut bindings, mut failures) = (Vec::new(), Vec::new());
        for (pod, decision) in decisions {
            match decision {
                Decision::Bind(node) => bindings.push(self.bind(pod, node)),
                Decision::BindVolumes(node, served) => {
                    for binding in &served {
                        failures.extend(self.bind_volume(binding, &node, ctx).await.err());
                    }
                }
                Decision::Preempt { message, node, victims } => {
                    failures.extend(self.preempt(&pod, &message, &node, &victims, ctx).await.err());
                }
                Decision::Reject { message, keeps_nomination } => {
                    let nomination = if keeps_nomination { Nomination::Unchanged } else { Nomination::Ends };
                    failures.extend(self.report_unschedulable(&pod, &message, nomination, ctx).await.err());
                }
            }
        }
        let bound: Vec<_> = execute_all(bindings, BINDINGS).await;
        failures.extend(bound.into_iter().filter_map(Result::err));
        failures.into_iter().next().map_or(Ok(Action::AwaitChange), Err)
    }
}

impl Scheduler {
    fn on_cluster_event<T: Cached>(&self, sources: &mut Sources<SchedulingCycle>, cache: &Arc<Cache<T>>) {
        let events = self.events.clone();
        sources.on(cache, move |_, queue| {
            events.count(Effect::OnAll);
            queue.add(SchedulingCycle);
        });
    }

    /// Drops the state of all pods but these, and wrong assumptions. Returns `true` if the node of
    /// an assumed pod is free again: claims cannot be bound there, or the pod is gone.
    fn forget_all_but(&self, waiting: &[Arc<Pod>]) -> bool {
        let mut known = self.known();
        let mut is_node_free = false;
        let still_known = waiting.iter().filter_map(|pod| {
            let (uid, state) = known.remove_entry(uid(pod))?;
            let is_valid = self.is_still_valid(pod, &state);
            is_node_free |= !is_valid;
            is_valid.then_some((uid, state))
        });
        let still_known = still_known.collect();
        is_node_free |= known.values().any(PodSchedulingState::waits_for_claims);
        *known = still_known;
        is_node_free
    }

    /// Returns `true` if a pod needs a decision or a binding. Most changes of pods only reflect an
    /// earlier decision.
    fn is_undecided(&self, pod: &Pod, cycle: MoveRequestCycle) -> bool {
        match self.known().get(uid(pod)) {
            Some(PodSchedulingState::Unschedulable(then)) => cycle.may_help(*then, wants_neighbors(pod)),
            Some(PodSchedulingState::Assumed { waits_for_claims, .. }) => *waits_for_claims,
            None => true,
        }
    }

    /// Returns the nominated ones of these pods.
    fn nominees(&self, unassigned: &[Arc<Pod>]) -> Vec<Arc<Pod>> {
        let known = self.known();
        nominees(unassigned, |uid| matches!(known.get(uid), Some(PodSchedulingState::Assumed { .. })))
    }

    /// Returns the nodes with their bound and assumed pods.
    fn nodes(&self) -> Vec<NodeInfo> {
        let mut nodes: Vec<NodeInfo> = self.nodes.all().into_iter().map(NodeInfo::new).collect();
        let known = self.known();
        for pod in self.pods.all() {
            let node = match (pods::node(&pod), known.get(uid(&pod))) {
                (Some(node), _) => Some(node).filter(|_| occupies_node(&pod)),
                (None, Some(PodSchedulingState::Assumed { node, .. })) => {
                    Some(node.as_str()).filter(|_| is_waiting(&pod))
                }
                _ => None,
            };
            // The cache is ordered by name.
            let index = node.and_then(|name| nodes.binary_search_by(|node| node.name().cmp(name)).ok());
            if let Some(node) = index.and_then(|index| nodes.get_mut(index)) {
                node.add_pod(pod);
            }
        }
        nodes
    }

    /// Returns `true` if the assumed node of a pod is still valid. If a provisioner cannot serve
    /// the node, it removes the node's name from the claim, and the pod has to be scheduled again.
    fn is_still_valid(&self, pod: &Pod, known: &PodSchedulingState) -> bool {
        match known {
            PodSchedulingState::Assumed { node, waits_for_claims: true } => {
                let info = self.nodes.get(&NamespacedName::new("", node));
                info.is_some_and(|info| self.storage.may_bind_on(pod, &info))
            }
            _ => true,
        }
    }

    fn remember(&self, pod: &Pod, decision: &Decision, cycle: MoveRequestCycle) {
        let known = match decision {
            Decision::Bind(node) => {
                PodSchedulingState::Assumed { node: node.clone(), waits_for_claims: false }
            }
            Decision::BindVolumes(node, _) => {
                PodSchedulingState::Assumed { node: node.clone(), waits_for_claims: true }
            }
            Decision::Reject { .. } | Decision::Preempt { .. } => PodSchedulingState::Unschedulable(cycle),
        };
        self.known().insert(uid(pod).to_owned(), known);
    }

    fn known(&self) -> MutexGuard<'_, HashMap<String, PodSchedulingState>> {
        self.known.lock()
    }
}
