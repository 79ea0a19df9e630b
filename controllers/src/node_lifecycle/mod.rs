//! node-lifecycle-controller: detects nodes with a silent kubelet, and taints nodes by their
//! conditions.
//!
//! Every five seconds all nodes are checked ([`health`]). A node is alive if its status or its
//! Lease changes, by the time of the observation:
//! 1. a node that was silent for too long gets conditions of the status Unknown;
//! 2. the pods of a node that is no longer ready are marked as not ready;
//! 3. such a node gets a taint that evicts its pods, as soon as the rate of its zone permits
//!    ([`zones`]);
//! 4. if all zones are down, no node has such a taint: it is more likely that the observer is
//!    disconnected.
//!
//! Taints that only prevent scheduling follow the conditions of a node at once ([`taints`]).

mod executor;
mod health;
mod metrics;
mod monitor;
mod taints;
mod unready_pods;
mod zones;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use coracle_clock::Clock;
use coracle_controller_runtime::cache::{Cache, NamespacedName};
use coracle_controller_runtime::events::Recorder;
use coracle_controller_runtime::queue::Queue;
use coracle_controller_runtime::{Action, Controller, Error, Initialize, ReconcileContext, Sources};
use coracle_kinds::nodes::ready_status;
use coracle_kinds::pods;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, ObjectReference, Pod};
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use parking_lot::{Mutex, MutexGuard};

use health::NodeHealth;
use metrics::NodeMetrics;
use zones::Zones;

use crate::settings::{Context, Settings};
use crate::timers::{NODE_CHANGE, NODE_GRACE_PERIOD, NODE_MONITOR};

const LEASES: &str = "kube-node-lease";
/// kube-controller-manager's `--node-monitor-period`.
const MONITOR_PERIOD: Duration = Duration::from_secs(5);
/// The shortest wait for the end of a grace period: a node that cannot be written is checked again
/// in time.
const MIN_WAIT: Duration = Duration::from_secs(1);

pub struct NodeLifecycleController {
    clock: Clock,
    goes_on: bool,
    recorder: Recorder,
    nodes: Arc<Cache<Node>>,
    leases: Arc<Cache<Lease>>,
    pods: Arc<Cache<Pod>>,
    state: Mutex<State>,
    /// The queue of this controller, once it runs.
    queue: OnceLock<Queue<Key>>,
    metrics: NodeMetrics,
}

#[derive(Default)]
struct State {
    /// Whether the nodes were checked at least once.
    has_registered: bool,
    /// The nodes that were registered, by name.
    known: BTreeMap<String, ObjectReference>,
    health: HashMap<String, NodeHealth>,
    /// The nodes with pods that could not be marked yet.
    unmarked: BTreeSet<String>,
    zones: Zones,
}

/// The key of a reconciliation.
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

impl Initialize<Settings> for NodeLifecycleController {
    fn new(context: &Context) -> NodeLifecycleController {
        NodeLifecycleController {
            clock: context.clock.clone(),
            goes_on: context.settings.goes_on,
            recorder: context.recorder("node-controller"),
            nodes: context.cache(),
            leases: context.cache(),
            pods: context.cache(),
            state: Mutex::default(),
            queue: OnceLock::new(),
            metrics: NodeMetrics::new(&context.metrics),
        }
    }
}

impl Controller for NodeLifecycleController {
    const NAME: &'static str = "node-lifecycle-controller";
    const QUEUE_NAME: &'static str = "node_lifecycle_controller";
    const WORKERS: usize = 8;
    type Key = Key;

    fn sources(&self, sources: &mut Sources<Key>) {
        sources.every(NODE_MONITOR.after(MONITOR_PERIOD), &self.clock, Key::Health);
        sources.on(&self.nodes, |change, queue| {
            let name = change.new.as_ref().and_then(|node| node.metadata.name.clone());
            name.into_iter().for_each(|name| queue.add(Key::Node(name)));
            let seen = |node: &Node| {
                let taints = node.spec.as_ref().and_then(|spec| spec.taints.clone());
                (ready_status(node).map(str::to_owned), taints, node.metadata.labels.clone())
            };
            if change.changed(seen) {
                queue.add_after(Key::Health, NODE_CHANGE.after(MONITOR_PERIOD));
            }
        });
        sources.on(&self.pods, |change, queue| {
            let is_bound = change.new.as_ref().is_some_and(|pod| pods::node(pod).is_some());
            if is_bound && change.changed(|pod| pods::node(pod).map(str::to_owned)) {
                change.name().into_iter().for_each(|name| queue.add(Key::Pod(name)));
            }
        });
        // A controller is started once.
        let _ = self.queue.set(sources.queue());
    }

    async fn reconcile(&self, key: &Key, ctx: &ReconcileContext) -> Result<Action, Error> {
        match key {
            Key::Health => {
                let _timer = self.metrics.all_nodes_duration.with_label_values::<&str>(&[]).start_timer();
                self.monitor(ctx).await?;
                let now = self.clock.now();
                let end = self.end_of_grace();
                let left = end.map(|end| Duration::try_from(end.duration_since(now)).unwrap_or_default());
                return Ok(left.map_or(Action::AwaitChange, |left| {
                    Action::Requeue(NODE_GRACE_PERIOD.after(left.max(MIN_WAIT)))
                }));
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
    /// Returns the time at which the next grace period of a node ends, if the node stays silent.
    fn end_of_grace(&self) -> Option<Timestamp> {
        let state = self.state();
        let ends = self.nodes.all().into_iter().filter_map(|node| {
            state.health.get(node.metadata.name.as_deref()?).and_then(|health| health.end_of_grace(&node))
        });
        ends.min()
    }

    fn node(&self, name: &str) -> Option<Arc<Node>> {
        self.nodes.get(&NamespacedName::new("", name))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}
