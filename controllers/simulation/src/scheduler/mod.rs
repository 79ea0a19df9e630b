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
//! A pod that could not be placed is retried after a cluster event that could help it. Until then
//! its nominated node is kept free from pods of lower priority.

mod affinity_terms;
mod candidate;
mod executor;
mod filter;
mod inter_pod;
mod node_info;
mod plan;
mod pod_info;
mod preemption;
mod score;
mod volume_binding;

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

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
use node_info::NodeInfo;
use plan::{Decision, Snapshot};
use pod_info::{NAME, asks_for, is_waiting, nominated_node, occupies_node, uid};
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
    /// Counts the cluster events that may help a pod that was rejected.
    move_request_cycle: Arc<AtomicU64>,
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
    Unschedulable(u64),
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
            move_request_cycle: Arc::default(),
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
        let move_request_cycle = self.move_request_cycle.clone();
        sources.on(&self.pods, move |change, queue| {
            let waits = |pod: &Option<Arc<Pod>>| pod.as_ref().is_some_and(|pod| pods::node(pod).is_none());
            let wait = waits(&change.new);
            let states = change.old.as_ref().zip(change.new.as_ref());
            let holds = |pod: &Option<Arc<Pod>>| pod.as_ref().is_some_and(|pod| occupies_node(pod));
            // A waiting pod may have got tolerations or lost a gate; one with a node may be added
            // or deleted.
            let is_other = wait && states.is_some_and(|(old, new)| asks_for(old) != asks_for(new));
            if is_other || holds(&change.old) != holds(&change.new) {
                move_request_cycle.fetch_add(1, Ordering::Relaxed);
                queue.add(SchedulingCycle);
            } else if wait {
                queue.add(SchedulingCycle);
            }
        });
        self.on_cluster_event(sources, &self.nodes);
        self.on_cluster_event(sources, &self.storage.claims);
        self.on_cluster_event(sources, &self.storage.volumes);
        self.on_cluster_event(sources, &self.storage.classes);
    }

    async fn reconcile(&self, _: &SchedulingCycle, ctx: &ReconcileContext) -> Result<Action, Error> {
        let move_request_cycle = self.move_request_cycle.load(Ordering::Relaxed);
        let waiting = self.waiting();
        if !waiting.iter().any(|pod| self.is_undecided(pod, move_request_cycle)) {
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
        };
        let mut decisions = Vec::new();
        for pod in pod_info::sort_by_priority(waiting) {
            let known = self.known().get(uid(&pod)).cloned();
            let decision = match known {
                Some(PodSchedulingState::Unschedulable(then)) if then == move_request_cycle => {
                    nominated_node(&pod).into_iter().for_each(|node| snapshot.reserve(node, pod.clone()));
                    continue;
                }
                Some(PodSchedulingState::Assumed { node, waits_for_claims: true }) => {
                    match self.storage.of(&pod) {
                        Ok(claims) if claims.waiting.is_empty() => Decision::Bind(node),
                        _ => continue,
                    }
                }
                Some(PodSchedulingState::Assumed { .. }) => continue,
                _ => snapshot.schedule(&pod, self.storage.of(&pod)),
            };
            let nominated = match &decision {
                Decision::Preempt { node, .. } => Some(node.as_str()),
                Decision::Reject(_) => nominated_node(&pod),
                _ => None,
            };
            nominated.into_iter().for_each(|node| snapshot.reserve(node, pod.clone()));
            self.remember(&pod, &decision, move_request_cycle);
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
                Decision::Reject(message) => {
                    failures.extend(self.report_unschedulable(&pod, &message, None, ctx).await.err());
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
        let move_request_cycle = self.move_request_cycle.clone();
        sources.on(cache, move |_, queue| {
            move_request_cycle.fetch_add(1, Ordering::Relaxed);
            queue.add(SchedulingCycle);
        });
    }

    /// Returns the pods that wait for a node, and drops the state of all others.
    fn waiting(&self) -> Vec<Arc<Pod>> {
        let mut waiting = self.pods.by::<Unassigned>(&Unassigned::key());
        waiting.retain(|pod| is_waiting(pod));
        let mut known = self.known();
        let still_known = waiting.iter().filter_map(|pod| {
            let entry = known.remove_entry(uid(pod))?;
            Some(entry).filter(|(_, known)| self.is_still_valid(pod, known))
        });
        let still_known = still_known.collect();
        *known = still_known;
        waiting
    }

    /// Returns `true` if a pod needs a decision or a binding. Most changes of pods only reflect an
    /// earlier decision.
    fn is_undecided(&self, pod: &Pod, move_request_cycle: u64) -> bool {
        match self.known().get(uid(pod)) {
            Some(PodSchedulingState::Unschedulable(then)) => *then != move_request_cycle,
            Some(PodSchedulingState::Assumed { waits_for_claims, .. }) => *waits_for_claims,
            None => true,
        }
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
                self.storage.of(pod).is_ok_and(|claims| claims.are_assigned_to(node))
            }
            _ => true,
        }
    }

    fn remember(&self, pod: &Pod, decision: &Decision, move_request_cycle: u64) {
        let known = match decision {
            Decision::Bind(node) => {
                PodSchedulingState::Assumed { node: node.clone(), waits_for_claims: false }
            }
            Decision::BindVolumes(node, _) => {
                PodSchedulingState::Assumed { node: node.clone(), waits_for_claims: true }
            }
            Decision::Reject(_) | Decision::Preempt { .. } => {
                PodSchedulingState::Unschedulable(move_request_cycle)
            }
        };
        self.known().insert(uid(pod).to_owned(), known);
    }

    fn known(&self) -> MutexGuard<'_, HashMap<String, PodSchedulingState>> {
        self.known.lock()
    }
}
