//! default-scheduler: binds pods that have no node.
//!
//! One scheduling cycle handles all waiting pods, by priority:
//! 1. pods of other schedulers, gated pods and terminating pods are skipped;
//! 2. a pod that was assumed before waits for the watch to report it, or for its claims to be
//!    bound;
//! 3. a pod waits without a condition until its ResourceClaims exist ([`dynamic_resources`]);
//! 4. [`plan::Snapshot::schedule`] chooses a node by filters and scores, or returns why none fits
//!    and which pods of lower priority have to be deleted ([`preemption`]);
//! 5. claims are annotated with the node or reserved, pods are bound, and pods that cannot be
//!    placed get a condition and an event ([`apply`]).
//!
//! A pod that could not be placed is retried after a cluster event that could help it
//! ([`cluster_events`]). Until then its nominated node is kept free from pods of no higher
//! priority.

mod affinity_terms;
mod apply;
mod candidate;
mod cluster_events;
mod declared_features;
mod dynamic_resources;
mod executor;
mod filter;
mod images;
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
mod volume_limits;
mod workloads;

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use coracle_clock::Clock;
use coracle_controller_runtime::cache::{Cache, Cached, Index, NamespacedName};
use coracle_controller_runtime::events::Recorder;
use coracle_controller_runtime::{Action, Controller, Error, Initialize, ReconcileContext, Sources};
use coracle_kinds::pods;
use k8s_openapi::api::core::v1::{Namespace, Node, Pod};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::storage::v1::CSINode;
use k8s_openapi::jiff::Timestamp;
use kube::Client;
use parking_lot::{Mutex, MutexGuard};

use crate::settings::{Context, Settings};
pub(crate) use dynamic_resources::is_extended;

use apply::Decided;
use cluster_events::{Effect, EventCounter, MoveRequestCycle, effect_of_node, effect_of_pod};
use dynamic_resources::{DeviceSnapshot, DynamicResources, Readiness, effect_of_claim, may_need_devices};
use node_info::NodeInfo;
use plan::{Decision, Snapshot, nominees};
use pod_info::{NAME, is_waiting, may_be_nominated, occupies_node, uid};
use volume_binding::Storage;
use workloads::Workloads;

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
    devices: DynamicResources,
    workloads: Workloads,
    /// Counts the cluster events that may help pods that were rejected.
    events: Arc<EventCounter>,
    /// The node that the next cycle begins with.
    next_start: AtomicUsize,
    /// The decisions about pods that have no node yet, by their uids.
    known: Mutex<HashMap<String, PodSchedulingState>>,
}

#[derive(Clone)]
enum PodSchedulingState {
    /// Bound, and the watch has not reported it yet; or to be bound when its claims are, and its
    /// devices are ready.
    Assumed { node: String, waits_for_claims: bool },
    /// Rejected in this move request cycle.
    Unschedulable(MoveRequestCycle),
    /// Its claims could not be reserved, or the search for its devices took too long, this often in
    /// a row. It is tried again at a time.
    BackingOff { until: Timestamp, failures: u32 },
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
            devices: DynamicResources::new(context),
            workloads: Workloads::new(context),
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
        let events = self.events.clone();
        sources.on(&self.devices.claims, move |change, queue| {
            let effect = effect_of_claim(change.old.as_deref(), change.new.as_deref());
            events.count(effect);
            if effect != Effect::None {
                queue.add(SchedulingCycle);
            }
        });
        self.on_cluster_event(sources, &self.devices.slices, Effect::Devices);
        self.on_cluster_event(sources, &self.devices.classes, Effect::Devices);
        self.on_cluster_event(sources, &self.storage.claims, Effect::OnAll);
        self.on_cluster_event(sources, &self.storage.volumes, Effect::OnAll);
        self.on_cluster_event(sources, &self.storage.classes, Effect::OnAll);
        self.on_cluster_event(sources, &self.storage.drivers, Effect::OnAll);
        let events = self.events.clone();
        sources.on(&self.storage.csi_nodes, move |change, queue| {
            let spec = |node: Option<&CSINode>| node.map(|node| node.spec.clone());
            if spec(change.old.as_deref()) != spec(change.new.as_deref()) {
                events.count(Effect::OnAll);
                queue.add(SchedulingCycle);
            }
        });
        let events = self.events.clone();
        sources.on(&self.storage.attachments, move |change, queue| {
            if change.new.is_none() {
                events.count(Effect::OnAll);
                queue.add(SchedulingCycle);
            }
        });
        self.on_cluster_event(sources, &self.storage.capacities, Effect::OnAll);
    }

    async fn reconcile(&self, _: &SchedulingCycle, ctx: &ReconcileContext) -> Result<Action, Error> {
        let now = self.clock.now();
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
            return Ok(self.next_cycle(now));
        }
        let namespaces = self.namespaces.all().into_iter().map(|namespace| {
            let meta = namespace.metadata.clone();
            (meta.name.unwrap_or_default(), meta.labels.unwrap_or_default())
        });
        let devices = match waiting.iter().any(|pod| may_need_devices(pod)) {
            true => self.devices.snapshot(now),
            false => DeviceSnapshot::default(),
        };
        let mut snapshot = Snapshot {
            nodes: self.nodes(),
            namespaces: namespaces.collect(),
            budgets: self.budgets.all(),
            next_start: self.next_start.load(Ordering::Relaxed),
            nominees: self.nominees(&unassigned),
            devices,
            volume_limits: Arc::new(self.storage.limits()),
            cleanups: Vec::new(),
        };
        let mut decisions = Vec::new();
        for pod in pod_info::sort_by_priority(waiting) {
            let known = self.known().get(uid(&pod)).cloned();
            let failures = match known {
                Some(PodSchedulingState::BackingOff { failures, .. }) => failures,
                _ => 0,
            };
            let decision = match known {
                Some(PodSchedulingState::Assumed { waits_for_claims: false, .. }) => continue,
                Some(PodSchedulingState::Assumed { node, .. }) => match self.devices.readiness(&pod, now) {
                    Readiness::Ready if self.storage.are_claims_bound(&pod) => Decision::Bind(node),
                    Readiness::Failed(error) => Decision::Fail(error),
                    _ => continue,
                },
                _ if !self.is_undecided(&pod, cycle) => continue,
                // It waits without a condition until its claims exist.
                _ if self.devices.claims_of(&pod).is_err() => {
                    self.known().insert(uid(&pod).to_owned(), PodSchedulingState::Unschedulable(cycle));
                    continue;
                }
                _ if snapshot.devices.is_exhausted() && may_need_devices(&pod) => Decision::Defer,
                _ => {
                    let siblings = || self.workloads.selector_of(&pod);
                    let decision = snapshot.schedule(&pod, self.storage.of(&pod), siblings);
                    if may_need_devices(&pod) {
                        // Searches are long; other tasks of this thread go on in between.
                        tokio::task::yield_now().await;
                    }
                    decision
                }
            };
            self.remember(&pod, &decision, cycle);
            decisions.push(Decided { pod, decision, failures });
        }
        self.next_start.store(snapshot.next_start, Ordering::Relaxed);
        self.apply(decisions, &snapshot.cleanups, now, ctx).await
    }
}

impl Scheduler {
    fn on_cluster_event<T: Cached>(
        &self,
        sources: &mut Sources<SchedulingCycle>,
        cache: &Arc<Cache<T>>,
        effect: Effect,
    ) {
        let events = self.events.clone();
        sources.on(cache, move |_, queue| {
            events.count(effect);
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
            Some(PodSchedulingState::Unschedulable(then)) => cycle.may_help(*then, pod),
            Some(PodSchedulingState::BackingOff { until, .. }) => *until <= self.clock.now(),
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
            Decision::BindDevices { node, volumes, devices } => {
                let waits_for_claims = !volumes.is_empty() || devices.has_conditions;
                PodSchedulingState::Assumed { node: node.clone(), waits_for_claims }
            }
            Decision::Reject { .. } | Decision::Preempt { .. } | Decision::Error(_) => {
                PodSchedulingState::Unschedulable(cycle)
            }
            // It keeps its state; a failure has one of its own.
            Decision::Defer | Decision::Fail(_) | Decision::TimeOut(_) => return,
        };
        self.known().insert(uid(pod).to_owned(), known);
    }

    fn known(&self) -> MutexGuard<'_, HashMap<String, PodSchedulingState>> {
        self.known.lock()
    }
}
