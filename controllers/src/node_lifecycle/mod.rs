//! node-lifecycle-controller: notices nodes whose kubelet is silent, and taints nodes by their conditions.
//!
//! Every five seconds all nodes are checked ([`health`]); a node is observed to live when its status or its Lease changes, and
//! the time of that is the observer's:
//! 1. a node that was silent for too long gets conditions of the status Unknown;
//! 2. the pods of a node that is not ready any more are marked as not ready;
//! 3. such a node gets a taint that evicts its pods, as soon as the rate of its zone permits ([`zones`]);
//! 4. if all zones are down, none of the nodes has such a taint: more likely the observer is cut off.
//!
//! Taints that only keep pods from being scheduled follow the conditions of a node at once ([`taints`]).

mod health;
pub mod pods_on_node;
mod taints;
mod zones;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use coracle_kinds::pods;
use coracle_kinds::taints::{NO_EXECUTE, NOT_READY, UNREACHABLE, has_taint};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, NodeCondition, ObjectReference, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client, Resource, ResourceExt};
use prometheus::{CounterVec, GaugeVec, HistogramVec};
use serde_json::json;
use tokio::sync::Notify;

use crate::runtime::batch::execute_all;
use crate::runtime::cache::{Cache, NamespacedName};
use crate::runtime::clock::Clock;
use crate::runtime::events::{EventType, Recorder};
use crate::runtime::{
    Action, Controller, Error, ReconcileContext, Sources, ignore_conflict, ignore_not_found,
};
use crate::{Context, Initialize};
pub use health::ready_status;

use health::NodeHealth;
use pods_on_node::ByNode;
use taints::NodeChange;
use zones::{Disruption, Zones, zone_of};

const LEASES: &str = "kube-node-lease";
/// kube-controller-manager's `--node-monitor-period`.
const MONITOR_PERIOD: Duration = Duration::from_secs(5);
/// How many nodes are checked at the same time.
const CONCURRENT_CHECKS: usize = 8;
/// How often a write of taints is tried when others write to the node too.
const TRIES: usize = 5;

pub struct NodeLifecycleController {
    client: Client,
    clock: Clock,
    recorder: Recorder,
    nodes: Arc<Cache<Node>>,
    leases: Arc<Cache<Lease>>,
    pods: Arc<Cache<Pod>>,
    state: Mutex<State>,
    /// Notified when a node waits for a taint.
    queued: Arc<Notify>,
    metrics: NodeMetrics,
}

#[derive(Default)]
struct State {
    /// The nodes that were registered, by name.
    known: BTreeMap<String, ObjectReference>,
    health: HashMap<String, NodeHealth>,
    /// Nodes some pods of which could not be marked yet.
    unmarked: BTreeSet<String>,
    zones: Zones,
}

struct NodeMetrics {
    zone_health: GaugeVec,
    zone_size: GaugeVec,
    unhealthy_nodes: GaugeVec,
    evictions: CounterVec,
    node_duration: HistogramVec,
    all_nodes_duration: HistogramVec,
}

/// What is reconciled.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Key {
    /// The health of all nodes.
    Health,
    /// The nodes that wait for a taint that evicts.
    Evictions,
    /// The labels of a node, and its taints that do not evict.
    Node(String),
    /// A pod that has come to its node.
    Pod(NamespacedName),
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Key::Health => f.write_str("health of nodes"),
            Key::Evictions => f.write_str("evictions"),
            Key::Node(name) => write!(f, "node {name}"),
            Key::Pod(name) => write!(f, "pod {name}"),
        }
    }
}

impl Initialize for NodeLifecycleController {
    fn new(context: &Context) -> NodeLifecycleController {
        let gauge = |name, help| context.metrics.gauge(name, help, &["zone"]);
        let histogram = |name, help, buckets: &[f64]| context.metrics.histogram(name, help, buckets, &[]);
        NodeLifecycleController {
            client: context.client.clone(),
            clock: context.clock.clone(),
            recorder: context.recorder("node-controller"),
            nodes: context.cache(),
            leases: context.cache(),
            pods: context.cache(),
            state: Mutex::default(),
            queued: Arc::default(),
            metrics: NodeMetrics {
                zone_health: gauge(
                    "node_collector_zone_health",
                    "Gauge measuring percentage of healthy nodes per zone.",
                ),
                zone_size: gauge(
                    "node_collector_zone_size",
                    "Gauge measuring number of registered Nodes per zones.",
                ),
                unhealthy_nodes: gauge(
                    "node_collector_unhealthy_nodes_in_zone",
                    "Gauge measuring number of not Ready Nodes per zones.",
                ),
                evictions: context.metrics.counter(
                    "node_collector_evictions_total",
                    "Number of Node evictions that happened since current instance of NodeController started.",
                    &["zone"],
                ),
                node_duration: histogram(
                    "node_collector_update_node_health_duration_seconds",
                    "Duration in seconds for NodeController to update the health of a single node.",
                    &[0.001, 0.004, 0.016, 0.064, 0.256, 1.024, 4.096, 16.384],
                ),
                all_nodes_duration: histogram(
                    "node_collector_update_all_nodes_health_duration_seconds",
                    "Duration in seconds for NodeController to update the health of all nodes.",
                    &[0.01, 0.04, 0.16, 0.64, 2.56, 10.24, 40.96, 163.84],
                ),
            },
        }
    }
}

impl Controller for NodeLifecycleController {
    const NAME: &'static str = "node-lifecycle-controller";
    const QUEUE: &'static str = "node_lifecycle_controller";
    const WORKERS: usize = 8;
    type Key = Key;

    fn sources(&self, sources: &mut Sources<Key>) {
        sources.needs(&self.leases).every(MONITOR_PERIOD, &self.clock, Key::Health);
        sources.on(&self.nodes, |change, queue| {
            let name = change.new.as_ref().and_then(|node| node.metadata.name.clone());
            name.into_iter().for_each(|name| queue.add(Key::Node(name)));
        });
        sources.on(&self.pods, |change, queue| {
            let is_bound = change.new.as_ref().is_some_and(|pod| pods::node(pod).is_some());
            if is_bound && change.changed(|pod| pods::node(pod).map(str::to_owned)) {
                change.name().into_iter().for_each(|name| queue.add(Key::Pod(name)));
            }
        });
        let queued = self.queued.clone();
        sources.beside(|queue| async move {
            loop {
                queued.notified().await;
                queue.add(Key::Evictions);
            }
        });
    }

    async fn reconcile(&self, key: &Key, ctx: &ReconcileContext) -> Result<Action, Error> {
        match key {
            Key::Health => {
                let _timer = self.metrics.all_nodes_duration.with_label_values::<&str>(&[]).start_timer();
                self.monitor(ctx).await?;
            }
            Key::Evictions => return self.taint_queued(ctx).await,
            Key::Node(name) => {
                if let Some(node) = self.node(name) {
                    self.change(&node, taints::follow_conditions, ctx).await?;
                }
            }
            Key::Pod(name) => {
                let pod = self.pods.get(name);
                let node = pod.as_deref().and_then(pods::node).and_then(|node| self.node(node));
                let is_not_ready = |node: &Arc<Node>| {
                    self.state().health.contains_key(&node.name_any())
                        && ready_status(node).is_some_and(|status| status != "True")
                };
                if let (Some(pod), Some(_)) = (pod, node.filter(is_not_ready)) {
                    self.mark_not_ready(&[pod], ctx).await?;
                }
            }
        }
        Ok(Action::AwaitChange)
    }
}

impl NodeLifecycleController {
    /// Checks all nodes.
    async fn monitor(&self, ctx: &ReconcileContext) -> Result<(), Error> {
        let nodes = self.nodes.all();
        for node in self.register(&nodes) {
            self.change(&node, taints::make_reachable, ctx).await?;
        }
        let checks = nodes.iter().map(|node| self.check(node, ctx));
        let mut ready_by_zone: BTreeMap<String, Vec<bool>> = BTreeMap::new();
        for is_ready in execute_all(checks, CONCURRENT_CHECKS).await.into_iter().flatten() {
            ready_by_zone.entry(is_ready.0).or_default().push(is_ready.1);
        }
        let now = self.clock.now();
        self.report_zones(&ready_by_zone);
        let disruption = self.state().zones.observe(&ready_by_zone, now);
        match disruption {
            Disruption::Unchanged => {}
            Disruption::Begins => {
                for node in &nodes {
                    self.change(node, taints::make_reachable, ctx).await?;
                }
            }
            // Whatever was silent gets another chance.
            Disruption::Ends => self.state().health.values_mut().for_each(|health| health.probe = now),
        }
        if self.state().zones.has_queued() {
            self.queued.notify_one();
        }
        Ok(())
    }

    /// Records which nodes were added and deleted since the last time, and returns the former.
    fn register(&self, nodes: &[Arc<Node>]) -> Vec<Arc<Node>> {
        let mut added = Vec::new();
        let mut deleted = std::mem::take(&mut self.state().known);
        let mut known = BTreeMap::new();
        for node in nodes {
            let (name, about) = (node.name_any(), reference(node));
            match deleted.remove(&name) {
                Some(_) => {}
                None => {
                    let message = format!("Node {name} event: Registered Node {name} in Controller");
                    self.recorder.event(about.clone(), EventType::Normal, "RegisteredNode", message);
                    added.push(node.clone());
                }
            }
            known.insert(name, about);
        }
        let mut state = self.state();
        state.known = known;
        for (name, about) in deleted {
            let message = format!("Node {name} event: Removing Node {name} from Controller");
            self.recorder.event(about, EventType::Normal, "RemovingNode", message);
            state.health.remove(&name);
            state.unmarked.remove(&name);
            state.zones.remove(&name);
        }
        added
    }

    /// Checks one node. Returns its zone and whether it is ready; None if it does not count.
    async fn check(&self, node: &Arc<Node>, ctx: &ReconcileContext) -> Option<(String, bool)> {
        let _timer = self.metrics.node_duration.with_label_values::<&str>(&[]).start_timer();
        let (name, now) = (node.name_any(), self.clock.now());
        let lease = self.leases.get(&NamespacedName::new(LEASES, &name));
        let health = {
            let mut state = self.state();
            let health = NodeHealth::observe(state.health.get(&name), node, lease.as_deref(), now);
            state.health.insert(name.clone(), health.clone());
            health
        };
        let observed = ready_status(node).unwrap_or("Unknown").to_owned();
        let mut node = node.clone();
        if let Some(conditions) = health.overdue(&node, now) {
            let patch = json!({
                "metadata": {"resourceVersion": node.metadata.resource_version},
                "status": {"conditions": conditions},
            });
            let nodes = Api::<Node>::all(self.client.clone());
            let params = PatchParams::default();
            match nodes.patch_status(&name, &params, &Patch::Strategic(patch)).await {
                Ok(written) => {
                    ctx.record_write(&self.nodes, &written);
                    node = Arc::new(written);
                }
                Err(error) => {
                    tracing::info!(node = name, %error, "the health of the node is not updated");
                    return None;
                }
            }
        }
        let current = ready_status(&node).map(str::to_owned);
        if let Some(current) = &current {
            if let Err(error) = self.follow_readiness(&node, current, ctx).await {
                tracing::info!(node = name, %error, "the taints of the node are not updated");
            }
            self.mark_pods(&node, &observed, current, ctx).await;
        }
        let counts = !node.labels().contains_key("node.kubernetes.io/exclude-disruption");
        counts.then(|| (zone_of(&node), current.as_deref() == Some("True")))
    }

    /// Gives a node the taint that evicts, exchanges it, or takes it away.
    async fn follow_readiness(
        &self,
        node: &Arc<Node>,
        status: &str,
        ctx: &ReconcileContext,
    ) -> Result<(), Error> {
        let Some((wanted, opposite)) = evicting_taints(status) else {
            self.state().zones.remove(&node.name_any());
            return self.change(node, taints::make_reachable, ctx).await.map(|_| ());
        };
        if has_taint(node, opposite, NO_EXECUTE) {
            return self.change(node, taints::swap(wanted, opposite), ctx).await.map(|_| ());
        }
        if !has_taint(node, wanted, NO_EXECUTE) {
            self.state().zones.enqueue(&zone_of(node), &node.name_any(), self.clock.now());
        }
        Ok(())
    }

    /// Marks the pods of a node that has just become unready, and what was left of it before.
    async fn mark_pods(&self, node: &Node, observed: &str, current: &str, ctx: &ReconcileContext) {
        let name = node.name_any();
        let is_new = observed == "True" && current != "True";
        if is_new {
            let message = format!("Node {name} status is now: NodeNotReady");
            self.recorder.event(reference(node), EventType::Normal, "NodeNotReady", message);
        }
        if !is_new && (observed == "True" || !self.state().unmarked.contains(&name)) {
            return;
        }
        let marked = self.mark_not_ready(&self.pods.by::<ByNode>(&ByNode::key(&name)), ctx).await;
        let mut state = self.state();
        match marked {
            Ok(()) => {
                state.unmarked.remove(&name);
            }
            Err(error) => {
                tracing::info!(node = name, %error, "not all pods of the node are marked as not ready");
                state.unmarked.insert(name);
            }
        }
    }

    /// Sets the condition Ready of pods to False, where they have one. Its reason and message stay.
    async fn mark_not_ready(&self, pods: &[Arc<Pod>], ctx: &ReconcileContext) -> Result<(), Error> {
        let now = self.clock.now();
        for pod in pods {
            let ready = pods::conditions(pod).find(|condition| condition.type_ == "Ready");
            if ready.is_none_or(|ready| ready.status == "False") {
                continue;
            }
            let name = NamespacedName::of(pod.as_ref());
            let condition = json!({"type": "Ready", "status": "False", "lastTransitionTime": Time(now)});
            let patch = json!({"metadata": {"uid": pod.metadata.uid}, "status": {"conditions": [condition]}});
            let api = Api::<Pod>::namespaced(self.client.clone(), &name.namespace);
            let params = PatchParams::default();
            let answer = api.patch_status(&name.name, &params, &Patch::Strategic(patch)).await;
            if let Some(written) = ignore_not_found(ignore_conflict(answer))?.flatten() {
                ctx.record_write(&self.pods, &written);
                self.recorder.warning(pod.as_ref(), "NodeNotReady", "Node is not ready");
            }
        }
        Ok(())
    }

    /// Taints the nodes whose turn it is.
    async fn taint_queued(&self, ctx: &ReconcileContext) -> Result<Action, Error> {
        loop {
            let now = self.clock.now();
            let next = self.state().zones.next(now);
            let Some((zone, name)) = next else { break };
            let Some(node) = self.node(&name) else { continue };
            // It may have become ready.
            let taints = ready_status(&node).and_then(evicting_taints);
            let Some((wanted, opposite)) = taints else { continue };
            match self.change(&node, taints::swap(wanted, opposite), ctx).await {
                Ok(is_changed) if is_changed => {
                    self.metrics.evictions.with_label_values(&[zone.as_str()]).inc();
                }
                Ok(_) => {}
                Err(error) => tracing::info!(node = name, %error, "the node is not tainted"),
            }
        }
        let wait = self.state().zones.wait(self.clock.now());
        Ok(wait.map_or(Action::AwaitChange, Action::Requeue))
    }

    /// Changes a node, if it has to be. Returns whether it was changed.
    async fn change(
        &self,
        node: &Arc<Node>,
        plan: impl Fn(&Node, Time) -> Option<NodeChange>,
        ctx: &ReconcileContext,
    ) -> Result<bool, Error> {
        let (nodes, name) = (Api::<Node>::all(self.client.clone()), node.name_any());
        let mut node = node.clone();
        for _ in 0..TRIES {
            let Some(change) = plan(&node, Time(self.clock.now())) else { return Ok(false) };
            let patch = Patch::Merge(change.patch(&node));
            let answer = nodes.patch(&name, &PatchParams::default(), &patch).await;
            match ignore_not_found(ignore_conflict(answer))? {
                None => return Ok(false),
                Some(Some(written)) => {
                    ctx.record_write(&self.nodes, &written);
                    return Ok(true);
                }
                Some(None) => {}
            }
            let Some(newer) = ignore_not_found(nodes.get(&name).await)? else { return Ok(false) };
            if newer.metadata.uid != node.metadata.uid {
                return Ok(false);
            }
            node = Arc::new(newer);
        }
        Err(Error::Unfinished(format!("node {name} is being changed by others")))
    }

    fn report_zones(&self, ready_by_zone: &BTreeMap<String, Vec<bool>>) {
        let NodeMetrics { zone_health, zone_size, unhealthy_nodes, .. } = &self.metrics;
        let mut gone: Vec<String> = self.state().zones.names().cloned().collect();
        gone.retain(|zone| !ready_by_zone.contains_key(zone));
        for zone in gone {
            zone_health.with_label_values(&[zone.as_str()]).set(100.0);
            zone_size.with_label_values(&[zone.as_str()]).set(0.0);
            unhealthy_nodes.with_label_values(&[zone.as_str()]).set(0.0);
        }
        for (zone, ready) in ready_by_zone {
            let count = |count: usize| u32::try_from(count).map_or(f64::MAX, f64::from);
            let (all, healthy) = (count(ready.len()), count(ready.iter().filter(|ready| **ready).count()));
            zone_health.with_label_values(&[zone.as_str()]).set(100.0 * healthy / all);
            zone_size.with_label_values(&[zone.as_str()]).set(all);
            unhealthy_nodes.with_label_values(&[zone.as_str()]).set(all - healthy);
        }
    }

    fn node(&self, name: &str) -> Option<Arc<Node>> {
        self.nodes.get(&NamespacedName::new("", name))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // No code that can panic runs under the lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The taint that a node gets for the status of its condition Ready, and that which it must not have then.
fn evicting_taints(status: &str) -> Option<(&'static str, &'static str)> {
    match status {
        "False" => Some((NOT_READY, UNREACHABLE)),
        "Unknown" => Some((UNREACHABLE, NOT_READY)),
        _ => None,
    }
}

/// Whether a condition of a node says that its kubelet was given up.
pub fn is_given_up(condition: &NodeCondition) -> bool {
    let reason = condition.reason.as_deref();
    condition.status == "Unknown"
        && (reason == Some(health::STATUS_UNKNOWN) || reason == Some(health::STATUS_NEVER_UPDATED))
}

fn reference(node: &Node) -> ObjectReference {
    node.object_ref(&())
}
