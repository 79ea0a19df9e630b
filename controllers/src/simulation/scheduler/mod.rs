//! default-scheduler: binds pods that have no node.
//!
//! One scheduling cycle handles all pods that wait, by priority:
//! 1. pods of other schedulers, gated ones, and terminating ones are left alone;
//! 2. a pod that was assumed before waits for the watch to report it, or for its claims to be bound;
//! 3. [`plan::Snapshot::schedule`] chooses a node, by filters and scores, or returns why none fits, and which pods of lower priority
//!    have to be deleted ([`preemption`]);
//! 4. pods are bound, claims annotated with the node, and what cannot be placed gets a condition and an event.
//!
//! A pod that could not be placed is tried again after a cluster event that could help it.
//! Until then the node that it is nominated for is kept free for it from pods of lower priority.

mod filter;
mod inter_pod;
mod plan;
mod preemption;
mod score;
mod volume_binding;

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use coracle_kinds::pods;
use coracle_kinds::storage::SELECTED_NODE;
use k8s_openapi::api::core::v1::{
    Namespace, Node, PersistentVolume, PersistentVolumeClaim, Pod, PodCondition,
};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};

use super::{is_finished, is_ignored};
use crate::persistentvolume_binder::bind;
use crate::runtime::batch::execute_all;
use crate::runtime::cache::{Cache, Cached, NamespacedName};
use crate::runtime::clock::Clock;
use crate::runtime::events::Recorder;
use crate::runtime::{
    Action, Controller, Error, ReconcileContext, Sources, ignore_conflict, ignore_not_found, uid_precondition,
};
use crate::{Context, Initialize, Settings};
use plan::{Decision, NodeInfo, Snapshot, nominated_node};
use preemption::priority;
use volume_binding::{Storage, VolumeBinding, selected_node};

const NAME: &str = "default-scheduler";
const MANAGER: &str = "kube-scheduler";
/// How many bindings are under way at once.
const BINDINGS: usize = 16;

pub struct Scheduler {
    client: Client,
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
    /// What was decided about pods that still have no node, by their uids.
    known: Mutex<HashMap<String, PodSchedulingState>>,
}

#[derive(Clone)]
enum PodSchedulingState {
    /// Bound, and the watch has not reported it yet; or to be bound when its claims are.
    Assumed { node: String, waits_for_claims: bool },
    /// Rejected in this move request cycle.
    Unschedulable(u64),
}

/// The one key: all pods that wait are scheduled together, since they compete for nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SchedulingCycle;

impl fmt::Display for SchedulingCycle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("pass")
    }
}

impl Initialize for Scheduler {
    fn is_possible(settings: &Settings) -> bool {
        settings.nodes.is_some()
    }

    fn new(context: &Context) -> Scheduler {
        Scheduler {
            client: context.client.clone(),
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
    const QUEUE: &'static str = "scheduler";
    const WORKERS: usize = 1;
    type Key = SchedulingCycle;

    fn sources(&self, sources: &mut Sources<SchedulingCycle>) {
        let move_request_cycle = self.move_request_cycle.clone();
        sources.on(&self.pods, move |change, queue| {
            let waits = |pod: &Option<Arc<Pod>>| pod.as_ref().is_some_and(|pod| pods::node(pod).is_none());
            let wait = waits(&change.new);
            let states = change.old.as_ref().zip(change.new.as_ref());
            let holds = |pod: &Option<Arc<Pod>>| pod.as_ref().is_some_and(|pod| occupies_node(pod));
            // A waiting pod may have got tolerations or lost a gate; one with a node may be added or deleted.
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
        sources.needs(&self.namespaces).needs(&self.budgets);
    }

    async fn reconcile(&self, _: &SchedulingCycle, ctx: &ReconcileContext) -> Result<Action, Error> {
        let move_request_cycle = self.move_request_cycle.load(Ordering::Relaxed);
        let (nodes, waiting) = self.observe();
        let namespaces = self.namespaces.all().into_iter().map(|namespace| {
            let meta = namespace.metadata.clone();
            (meta.name.unwrap_or_default(), meta.labels.unwrap_or_default())
        });
        let mut snapshot = Snapshot {
            nodes,
            namespaces: namespaces.collect(),
            budgets: self.budgets.all(),
            next_start: self.next_start.load(Ordering::Relaxed),
        };
        let mut decisions = Vec::new();
        for pod in plan::sort_by_priority(waiting) {
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
                Decision::Reject(message) => match self.report_unschedulable(&pod, &message, None).await {
                    Ok(Some(pod)) => ctx.record_write(&self.pods, &pod),
                    Ok(None) => {}
                    Err(error) => failures.push(error),
                },
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

    /// The nodes with what is on them or will be, and the pods that have no node. Forgets what is known of others.
    fn observe(&self) -> (Vec<NodeInfo>, Vec<Arc<Pod>>) {
        let mut nodes: Vec<NodeInfo> = self.nodes.all().into_iter().map(NodeInfo::new).collect();
        // The cache is ordered by name.
        let find = |nodes: &[NodeInfo], name: &str| nodes.binary_search_by(|node| node.name().cmp(name));
        let mut waiting = Vec::new();
        let mut known = self.known();
        let mut still_known = HashMap::new();
        for pod in self.pods.all() {
            let node = match (pods::node(&pod), known.remove_entry(uid(&pod))) {
                (Some(node), _) => Some(node.to_owned()).filter(|_| occupies_node(&pod)),
                (None, entry) if is_waiting(&pod) => {
                    let entry = entry.filter(|(_, known)| self.is_still_valid(&pod, known));
                    let node = match &entry {
                        Some((_, PodSchedulingState::Assumed { node, .. })) => Some(node.clone()),
                        _ => None,
                    };
                    still_known.extend(entry);
                    waiting.push(pod.clone());
                    node
                }
                _ => None,
            };
            let node = node.and_then(|node| find(&nodes, &node).ok());
            if let Some(node) = node.and_then(|index| nodes.get_mut(index)) {
                node.add_pod(pod);
            }
        }
        *known = still_known;
        (nodes, waiting)
    }

    /// A provisioner that cannot serve a node removes its name, and the pod has to be scheduled again.
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

    async fn bind(&self, pod: Arc<Pod>, node: String) -> Result<(), Error> {
        let name = NamespacedName::of(pod.as_ref());
        let api = Api::<Pod>::namespaced(self.client.clone(), &name.namespace);
        let binding = json!({
            "apiVersion": "v1", "kind": "Binding",
            "metadata": {"namespace": name.namespace, "name": name.name, "uid": pod.metadata.uid},
            "target": {"kind": "Node", "name": node},
        });
        let post = PostParams { field_manager: Some(MANAGER.to_owned()), ..PostParams::default() };
        let bound = api.create_subresource::<_, Value>("binding", &name.name, &post, &binding).await;
        match bound {
            Ok(_) => {
                let message = format!("Successfully assigned {name} to {node}");
                self.recorder.normal(pod.as_ref(), "Scheduled", message);
                Ok(())
            }
            Err(error) => {
                self.known().remove(uid(&pod));
                match error {
                    // Deleted, terminating, or bound by another scheduler: the watch will report it.
                    kube::Error::Api(status) if matches!(status.code, 404 | 409) => Ok(()),
                    error => Err(error.into()),
                }
            }
        }
    }

    /// Binds a volume to a claim from its side, or annotates the claim with the node for the provisioner; the binder does the rest.
    async fn bind_volume(
        &self,
        binding: &VolumeBinding,
        node: &str,
        ctx: &ReconcileContext,
    ) -> Result<(), Error> {
        let VolumeBinding { claim, volume } = binding;
        if let Some(volume) = volume {
            if let Some(changed) = bind::volume_to_claim(volume, claim) {
                let api = Api::<PersistentVolume>::all(self.client.clone());
                let post = PostParams { field_manager: Some(MANAGER.to_owned()), ..PostParams::default() };
                ctx.record_write(
                    &self.storage.volumes,
                    &api.replace(&volume.name_any(), &post, &changed).await?,
                );
            }
            return Ok(());
        }
        if selected_node(claim) == Some(node) {
            return Ok(());
        }
        let name = NamespacedName::of(claim.as_ref());
        let api = Api::<PersistentVolumeClaim>::namespaced(self.client.clone(), &name.namespace);
        let patch = Patch::Merge(json!({
            "metadata": {"uid": claim.metadata.uid, "annotations": {SELECTED_NODE: node}}
        }));
        let claim = api.patch(&name.name, &PatchParams::apply(MANAGER), &patch).await?;
        ctx.record_write(&self.storage.claims, &claim);
        Ok(())
    }

    /// Deletes the victims of a preemption, and nominates the pod for their node.
    async fn preempt(
        &self,
        pod: &Pod,
        message: &str,
        node: &str,
        victims: &[Arc<Pod>],
        ctx: &ReconcileContext,
    ) -> Result<(), Error> {
        for victim in victims {
            // Another preemption may have got it.
            if !pods::is_terminating(victim) {
                self.evict(pod, node, victim, ctx).await?;
            }
        }
        let reported = self.report_unschedulable(pod, message, Some(node)).await?;
        reported.iter().for_each(|pod| ctx.record_write(&self.pods, pod));
        // Those of lower priority that were nominated for the node have to look for another one.
        for other in self.pods.all() {
            if nominated_node(&other) == Some(node) && is_waiting(&other) && priority(&other) < priority(pod)
            {
                let name = NamespacedName::of(other.as_ref());
                let api = Api::<Pod>::namespaced(self.client.clone(), &name.namespace);
                let patch =
                    json!({"metadata": {"uid": other.metadata.uid}, "status": {"nominatedNodeName": null}});
                let params = PatchParams::apply(MANAGER);
                let answer = api.patch_status(&name.name, &params, &Patch::Strategic(patch)).await;
                if let Some(other) = ignore_not_found(ignore_conflict(answer))?.flatten() {
                    ctx.record_write(&self.pods, &other);
                }
            }
        }
        Ok(())
    }

    /// Deletes a pod in favour of another one.
    async fn evict(
        &self,
        preemptor: &Pod,
        node: &str,
        victim: &Pod,
        ctx: &ReconcileContext,
    ) -> Result<(), Error> {
        let name = NamespacedName::of(victim);
        let api = Api::<Pod>::namespaced(self.client.clone(), &name.namespace);
        let condition = PodCondition {
            type_: "DisruptionTarget".to_owned(),
            status: "True".to_owned(),
            reason: Some(preemption::REASON.to_owned()),
            message: Some(format!("{NAME}: preempting to accommodate a higher priority pod")),
            observed_generation: victim.metadata.generation,
            last_transition_time: Some(Time(self.clock.now())),
            ..PodCondition::default()
        };
        let patch = json!({"metadata": {"uid": victim.metadata.uid}, "status": {"conditions": [condition]}});
        let params = PatchParams::apply(MANAGER);
        let answer = api.patch_status(&name.name, &params, &Patch::Strategic(patch)).await;
        if ignore_not_found(ignore_conflict(answer))?.flatten().is_none() {
            return Ok(());
        }
        let deleted = api.delete(&name.name, &uid_precondition(victim)).await;
        if ignore_not_found(ignore_conflict(deleted))?.flatten().is_some() {
            ctx.record_delete(&self.pods, victim);
            let uid = preemptor.metadata.uid.as_deref().unwrap_or_default();
            self.recorder.normal(victim, "Preempted", format!("Preempted by pod {uid} on node {node}"));
        }
        Ok(())
    }

    /// Writes the condition and the event of a pod that no node fits, unless it has them; and the node that it is nominated for.
    async fn report_unschedulable(
        &self,
        pod: &Pod,
        message: &str,
        nominated: Option<&str>,
    ) -> Result<Option<Pod>, Error> {
        let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
        let known = conditions.into_iter().find(|condition| condition.type_ == "PodScheduled");
        let is_written = |c: &PodCondition| c.status == "False" && c.message.as_deref() == Some(message);
        let is_nominated = nominated.is_none_or(|node| nominated_node(pod) == Some(node));
        if known.is_some_and(is_written) && is_nominated {
            return Ok(None);
        }
        self.recorder.warning(pod, "FailedScheduling", message);
        let since = known.filter(|condition| condition.status == "False");
        let since = since.and_then(|condition| condition.last_transition_time.clone());
        let condition = PodCondition {
            type_: "PodScheduled".to_owned(),
            status: "False".to_owned(),
            reason: Some("Unschedulable".to_owned()),
            message: Some(message.to_owned()),
            observed_generation: pod.metadata.generation,
            last_transition_time: since.or(Some(Time(self.clock.now()))),
            ..PodCondition::default()
        };
        let name = NamespacedName::of(pod);
        let api = Api::<Pod>::namespaced(self.client.clone(), &name.namespace);
        let mut status = json!({"conditions": [condition]});
        if let Some(node) = nominated {
            status["nominatedNodeName"] = json!(node);
        }
        let patch = json!({"metadata": {"uid": pod.metadata.uid}, "status": status});
        let params = PatchParams::apply(MANAGER);
        let answer = api.patch_status(&name.name, &params, &Patch::Strategic(patch)).await;
        Ok(ignore_not_found(ignore_conflict(answer))?.flatten())
    }

    fn known(&self) -> MutexGuard<'_, HashMap<String, PodSchedulingState>> {
        // No code that can panic runs under the lock.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What the place of a pod depends on; a status is no part of it.
fn asks_for(pod: &Pod) -> (Option<i64>, Option<&BTreeMap<String, String>>) {
    (pod.metadata.generation, pod.metadata.labels.as_ref())
}

fn uid(pod: &Pod) -> &str {
    pod.metadata.uid.as_deref().unwrap_or_default()
}

/// Whether a pod occupies its node.
fn occupies_node(pod: &Pod) -> bool {
    pods::node(pod).is_some() && !is_finished(pod)
}

/// Whether a pod without a node is ours to node.
fn is_waiting(pod: &Pod) -> bool {
    let spec = pod.spec.as_ref();
    let scheduler = spec.and_then(|spec| spec.scheduler_name.as_deref()).unwrap_or(NAME);
    let is_gated =
        spec.and_then(|spec| spec.scheduling_gates.as_ref()).is_some_and(|gates| !gates.is_empty());
    let is_terminating = pod.metadata.deletion_timestamp.is_some();
    scheduler == NAME && !is_gated && !is_terminating && !is_finished(pod) && !is_ignored(pod)
}
