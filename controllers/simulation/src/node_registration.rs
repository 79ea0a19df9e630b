//! Registration of the simulated nodes: Node objects, and the Leases that show that they are alive.
//!
//! For each node, at start and then every ten seconds:
//! 1. at the first pass the Node is created or, if it exists, gets its missing labels;
//! 2. its Lease is renewed, or created if it is missing;
//! 3. every five minutes the heartbeats of its conditions are updated; a node without a status gets
//!    all of it, and one of an earlier version the features that it lacks.
//!
//! A deleted Node stays deleted until the next start: a kubelet registers once, when it starts, and
//! an administrator removes a node on purpose. Its Lease is then no longer renewed either. A Node
//! that a client creates under the same name is served again. Labels, taints, conditions and
//! capacities that a client changed are kept. A node that is annotated as silent is not updated;
//! afterwards conditions that became unknown are reported again.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use coracle_clock::Clock;
use coracle_controller_runtime::cache::{Cache, NamespacedName};
use coracle_controller_runtime::events::{EventType, Recorder};
use coracle_controller_runtime::{
    Action, Controller, ControllerDescriptor, Error, ReconcileContext, RecordedApi, Sources, ignore_conflict,
    ignore_not_found, run,
};
use coracle_kinds::nodes::is_given_up;
use coracle_kinds::taints::{NOT_READY, taints};
use futures::FutureExt;
use futures::future::join;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::api::core::v1::{
    DaemonEndpoint, Node, NodeAddress, NodeCondition, NodeDaemonEndpoints, NodeSpec, NodeStatus,
    NodeSystemInfo, Taint,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, OwnerReference, Time};
use k8s_openapi::jiff::Timestamp;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::watch;

use super::node::SimulatedNode;
use crate::settings::{Context, Settings};
use crate::simulated::is_silent;
use crate::timers::NODE_HEARTBEAT;

/// The number of attempts of a write that conflicts with other writers of the node.
const TRIES: usize = 5;
const LEASES: &str = "kube-node-lease";
const MANAGER: &str = "kubelet";
const VERSION: &str = "v1.36.2";
/// The kubelet's `nodeLeaseDurationSeconds`; it renews four times as often.
const LEASE_SECONDS: i32 = 40;
const RENEWAL: Duration = Duration::from_secs(10);
/// The kubelet's `nodeStatusReportFrequency`.
const HEARTBEAT_SECONDS: i64 = 300;

pub struct NodeRegistration {
    /// The client of Leases. They are not cached, since no decision depends on their content.
    unrecorded: Client,
    clock: Clock,
    recorder: Recorder,
    count: usize,
    nodes: Arc<Cache<Node>>,
    /// The time of the last heartbeat of each registered node.
    heartbeats: Mutex<HashMap<SimulatedNode, Timestamp>>,
    /// The nodes that were cordoned when they were last looked at.
    cordoned: Mutex<HashSet<SimulatedNode>>,
    /// The nodes that are not there, as far as it is known, and that nothing was tried for yet.
    untried: watch::Sender<HashSet<SimulatedNode>>,
}

/// Registers the nodes of the settings.
pub const DESCRIPTOR: ControllerDescriptor<Settings> = ControllerDescriptor {
    name: NodeRegistration::NAME,
    start: |context, readiness| {
        let context = context.of_controller();
        let registration = NodeRegistration::new(&context);
        let mut untried = registration.untried.subscribe();
        let (nodes, unregistered, synced) =
            (registration.nodes.clone(), registration.untried.clone(), readiness.clone());
        let on_synced = move || {
            synced.synced(NodeRegistration::NAME);
            let is_missing =
                |node: &SimulatedNode| nodes.get(&NamespacedName::new("", node.name())).is_none();
            unregistered.send_modify(|untried| untried.retain(is_missing));
        };
        let registered = async move {
            // The sender ends with the controller, and then nothing is registered any more.
            let _ = untried.wait_for(HashSet::is_empty).await;
            readiness.ready(NodeRegistration::NAME);
        };
        join(run(context, registration, on_synced), registered).map(drop).boxed()
    },
    is_possible: |settings| settings.nodes > Some(0),
};

impl NodeRegistration {
    fn new(context: &Context) -> NodeRegistration {
        let count = context.settings.nodes.unwrap_or(0);
        NodeRegistration {
            unrecorded: context.unrecorded.clone(),
            clock: context.clock.clone(),
            recorder: context.recorder(MANAGER),
            count,
            nodes: context.cache(),
            heartbeats: Mutex::default(),
            cordoned: Mutex::default(),
            untried: watch::Sender::new(SimulatedNode::all(count).collect()),
        }
    }
}

impl Controller for NodeRegistration {
    const NAME: &'static str = "simulated-nodes";
    const QUEUE_NAME: &'static str = "simulated_nodes";
    /// The name of a node.
    type Key = String;

    fn sources(&self, sources: &mut Sources<String>) {
        let count = self.count;
        sources.on(&self.nodes, move |change, queue| {
            let is_ours = |name: &NamespacedName| SimulatedNode::named(&name.name, count).is_some();
            if change.old.is_some() && (change.changed(is_silent) || change.changed(is_cordoned)) {
                change.name().filter(is_ours).into_iter().for_each(|name| queue.add(name.name));
            }
        });
        for node in SimulatedNode::all(self.count) {
            sources.every(NODE_HEARTBEAT.after(RENEWAL), &self.clock, node.name());
        }
    }

    async fn reconcile(&self, name: &String, ctx: &ReconcileContext) -> Result<Action, Error> {
        let Some(simulated) = SimulatedNode::named(name, self.count) else { return Ok(Action::AwaitChange) };
        let outcome = self.keep_alive(simulated, ctx).await;
        self.untried.send_if_modified(|untried| untried.remove(&simulated) && untried.is_empty());
        outcome
    }
}

impl NodeRegistration {
    /// Registers a node, or renews its Lease and the heartbeats of its conditions when it is time.
    async fn keep_alive(&self, simulated: SimulatedNode, ctx: &ReconcileContext) -> Result<Action, Error> {
        let known = self.nodes.get(&NamespacedName::new("", simulated.name()));
        if known.as_deref().is_some_and(is_silent) {
            return Ok(Action::AwaitChange);
        }
        if let Some(node) = &known {
            self.report_cordon(simulated, node);
        }
        let now = self.clock.now();
        let was_known = known.is_some();
        let node = match (known, self.last_heartbeat(simulated)) {
            (None, Some(_)) => return Ok(Action::AwaitChange),
            (known, None) => {
                let mut node = self.register(simulated, known.as_deref(), now, ctx).await?;
                if (is_unknown(&node) || lacks_features(&node))
                    && let Some(reported) = self.report(simulated, &node, now, ctx).await?
                {
                    node = reported;
                }
                self.beat(simulated, now);
                if was_known && self.is_renewed(&node, now).await? {
                    return Ok(Action::AwaitChange);
                }
                node
            }
            (Some(node), Some(last))
                if is_bare(&node)
                    || is_unknown(&node)
                    || now.duration_since(last).as_secs() >= HEARTBEAT_SECONDS =>
            {
                let Some(node) = self.report(simulated, &node, now, ctx).await? else {
                    return Ok(Action::AwaitChange);
                };
                self.beat(simulated, now);
                node
            }
            (Some(node), Some(_)) => (*node).clone(),
        };
        self.renew(&node, now).await?;
        Ok(Action::AwaitChange)
    }

    /// Records that a node was cordoned or uncordoned, unless it was so at the start.
    fn report_cordon(&self, simulated: SimulatedNode, node: &Node) {
        let is_cordoned = is_cordoned(node);
        let has_changed = {
            let mut cordoned = self.cordoned.lock();
            if is_cordoned { cordoned.insert(simulated) } else { cordoned.remove(&simulated) }
        };
        if has_changed && self.last_heartbeat(simulated).is_some() {
            let reason = if is_cordoned { "NodeNotSchedulable" } else { "NodeSchedulable" };
            self.record(
                simulated,
                node,
                reason,
                format!("Node {} status is now: {reason}", simulated.name()),
            );
        }
    }

    fn record(&self, simulated: SimulatedNode, node: &Node, reason: &str, message: impl Into<String>) {
        // In a kubelet's events, a node's uid is its name.
        let mut about = kube::Resource::object_ref(node, &());
        about.uid = Some(simulated.name());
        self.recorder.on(&simulated.name()).event(about, EventType::Normal, reason, message);
    }

    async fn register(
        &self,
        simulated: SimulatedNode,
        known: Option<&Node>,
        now: Timestamp,
        ctx: &ReconcileContext,
    ) -> Result<Node, Error> {
        let (api, wanted) = (self.api(ctx), object(simulated, now));
        let node = match known {
            Some(known) => {
                let missing = missing_labels(&wanted, known);
                if missing.is_empty() {
                    return Ok(known.clone());
                }
                let patch = Patch::Merge(json!({"metadata": {"labels": missing}}));
                api.patch(&NamespacedName::of(&wanted), patch).await?
            }
            None => self.make_schedulable(api.create(&wanted).await?, ctx).await?,
        };
        self.record(simulated, &node, "Starting", "Starting kubelet.");
        Ok(node)
    }

    /// Removes the taint that admission adds to each new node until it is ready.
    async fn make_schedulable(&self, mut node: Node, ctx: &ReconcileContext) -> Result<Node, Error> {
        let (api, name) = (self.api(ctx), NamespacedName::of(&node));
        for _ in 0..TRIES {
            let all = taints(&node);
            let others: Vec<&Taint> = all.iter().filter(|taint| taint.key != NOT_READY).collect();
            if others.len() == all.len() {
                return Ok(node);
            }
            let patch = Patch::Merge(json!({
                "metadata": {"resourceVersion": node.metadata.resource_version},
                "spec": {"taints": (!others.is_empty()).then_some(others)},
            }));
            if let Some(node) = ignore_conflict(api.patch(&name, patch).await)? {
                return Ok(node);
            }
            // Controllers write to a new node too.
            let live = api.get(&name).await?;
            node = live.ok_or_else(|| Error::Unfinished(format!("node {name} is deleted")))?;
        }
        Err(Error::Unfinished(format!("node {name} is being changed by others")))
    }

    /// Writes the status of a node. None: it is deleted.
    async fn report(
        &self,
        simulated: SimulatedNode,
        node: &Node,
        now: Timestamp,
        ctx: &ReconcileContext,
    ) -> Result<Option<Node>, Error> {
        let patch = match is_bare(node) {
            true => json!({"status": status(simulated, now)}),
            false => heartbeat(node, now),
        };
        let name = NamespacedName::new("", simulated.name());
        match ignore_not_found(self.api(ctx).patch_status(&name, Patch::Strategic(patch)).await)? {
            Some(reported) if is_bare(node) => self.make_schedulable(reported, ctx).await.map(Some),
            reported => Ok(reported),
        }
    }

    async fn renew(&self, node: &Node, now: Timestamp) -> Result<(), Error> {
        let api = Api::<Lease>::namespaced(self.unrecorded.clone(), LEASES);
        let wanted = lease(node, now);
        let name = wanted.metadata.name.clone().unwrap_or_default();
        let patch = Patch::Merge(json!({"spec": wanted.spec}));
        let renewed = api.patch(&name, &PatchParams::apply(MANAGER), &patch).await;
        if ignore_not_found(renewed)?.is_none() {
            let post = PostParams { field_manager: Some(MANAGER.to_owned()), ..PostParams::default() };
            api.create(&post, &wanted).await?;
        }
        Ok(())
    }

    /// Returns `true` if the Lease of a node was renewed a moment ago, either before a restart or
    /// by the parent of a fork.
    async fn is_renewed(&self, node: &Node, now: Timestamp) -> Result<bool, Error> {
        let api = Api::<Lease>::namespaced(self.unrecorded.clone(), LEASES);
        let stored = api.get_opt(node.metadata.name.as_deref().unwrap_or_default()).await?;
        let renewed = stored.and_then(|lease| lease.spec?.renew_time);
        Ok(renewed.is_some_and(|MicroTime(at)| at <= now && now.duration_since(at).unsigned_abs() < RENEWAL))
    }

    fn api<'a>(&'a self, ctx: &'a ReconcileContext) -> RecordedApi<'a, Node> {
        ctx.api(&self.nodes).managed_by(MANAGER)
    }

    fn last_heartbeat(&self, node: SimulatedNode) -> Option<Timestamp> {
        self.heartbeats.lock().get(&node).copied()
    }

    fn beat(&self, node: SimulatedNode, now: Timestamp) {
        self.heartbeats.lock().insert(node, now);
    }
}

fn is_cordoned(node: &Node) -> bool {
    node.spec.as_ref().and_then(|spec| spec.unschedulable).unwrap_or_default()
}

fn object(simulated: SimulatedNode, now: Timestamp) -> Node {
    let mut node = Node::default();
    let name = simulated.name();
    let labels = [
        ("beta.kubernetes.io/arch", architecture()),
        ("beta.kubernetes.io/os", "linux"),
        ("kubernetes.io/arch", architecture()),
        ("kubernetes.io/hostname", &name),
        ("kubernetes.io/os", "linux"),
    ];
    node.metadata.labels = Some(labels.map(|(key, value)| (key.to_owned(), value.to_owned())).into());
    let annotation = "volumes.kubernetes.io/controller-managed-attach-detach";
    node.metadata.annotations = Some(BTreeMap::from([(annotation.to_owned(), "true".to_owned())]));
    node.metadata.name = Some(name);
    let range = simulated.pod_range();
    node.spec =
        Some(NodeSpec { pod_cidr: Some(range.clone()), pod_cidrs: Some(vec![range]), ..NodeSpec::default() });
    node.status = Some(status(simulated, now));
    node
}

/// The features that a kubelet of Kubernetes 1.36 declares by default.
const DECLARED_FEATURES: [&str; 4] = [
    "ExtendWebSocketsToKubelet",
    "InPlacePodLevelResourcesVerticalScaling",
    "InPlacePodVerticalScalingInitContainers",
    "RestartAllContainersOnContainerExits",
];

fn status(simulated: SimulatedNode, now: Timestamp) -> NodeStatus {
    let pods = SimulatedNode::PODS.to_string();
    let resources: BTreeMap<String, Quantity> = [
        ("cpu", "32"),
        ("ephemeral-storage", "1Ti"),
        ("hugepages-1Gi", "0"),
        ("hugepages-2Mi", "0"),
        ("memory", "64Gi"),
        ("pods", &pods),
    ]
    .map(|(name, amount)| (name.to_owned(), Quantity(amount.to_owned())))
    .into();
    let address = |r#type: &str, address: String| NodeAddress { type_: r#type.to_owned(), address };
    let id = format!("00000000-0000-4000-8000-{:012x}", simulated.address().to_bits());
    NodeStatus {
        addresses: Some(vec![
            address("InternalIP", simulated.address().to_string()),
            address("Hostname", simulated.name()),
        ]),
        allocatable: Some(resources.clone()),
        declared_features: Some(DECLARED_FEATURES.map(str::to_owned).into()),
        capacity: Some(resources),
        conditions: Some(conditions(now)),
        daemon_endpoints: Some(NodeDaemonEndpoints {
            kubelet_endpoint: Some(DaemonEndpoint { port: 10250 }),
        }),
        node_info: Some(NodeSystemInfo {
            architecture: architecture().to_owned(),
            boot_id: id.clone(),
            container_runtime_version: format!("coracle://{}", env!("CARGO_PKG_VERSION")),
            kernel_version: "simulated".to_owned(),
            kubelet_version: VERSION.to_owned(),
            machine_id: id.replace('-', ""),
            operating_system: "linux".to_owned(),
            os_image: "Coracle".to_owned(),
            system_uuid: id,
            ..NodeSystemInfo::default()
        }),
        ..NodeStatus::default()
    }
}

fn conditions(now: Timestamp) -> Vec<NodeCondition> {
    [
        ("MemoryPressure", "False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
        ("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
        ("PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
        ("Ready", "True", "KubeletReady", "kubelet is posting ready status"),
    ]
    .map(|(r#type, status, reason, message)| NodeCondition {
        last_heartbeat_time: Some(Time(now)),
        last_transition_time: Some(Time(now)),
        message: Some(message.to_owned()),
        reason: Some(reason.to_owned()),
        status: status.to_owned(),
        type_: r#type.to_owned(),
    })
    .into()
}

/// Returns the architecture of this machine, by Go's name.
fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

fn missing_labels<'a>(wanted: &'a Node, known: &Node) -> BTreeMap<&'a str, &'a str> {
    let has = |label: &str| known.metadata.labels.as_ref().is_some_and(|labels| labels.contains_key(label));
    let wanted = wanted.metadata.labels.iter().flatten();
    wanted.filter(|(key, _)| !has(key)).map(|(key, value)| (key.as_str(), value.as_str())).collect()
}

/// Returns `true` if no kubelet has written the status of a node yet: a client has just created it.
fn is_bare(node: &Node) -> bool {
    node.status.as_ref().is_none_or(|status| status.capacity.is_none())
}

/// Returns `true` if a condition became unknown while the node was silent.
fn is_unknown(node: &Node) -> bool {
    node.status.iter().flat_map(|status| status.conditions.iter().flatten()).any(is_given_up)
}

/// Returns `true` if an earlier version has written the status of a node, without its features.
fn lacks_features(node: &Node) -> bool {
    node.status.as_ref().is_some_and(|status| status.declared_features.is_none())
}

/// Updates the heartbeats of the existing conditions; a node without conditions of a kubelet gets
/// all of them. Missing features are added.
fn heartbeat(node: &Node, now: Timestamp) -> Value {
    let known = node.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    let ours = conditions(now);
    let beating: Vec<Value> = ours
        .iter()
        .map(|condition| {
            match known.iter().any(|known| known.type_ == condition.type_ && !is_given_up(known)) {
                true => json!({"type": condition.type_, "lastHeartbeatTime": condition.last_heartbeat_time}),
                false => json!(condition),
            }
        })
        .collect();
    let mut patch = json!({"status": {"conditions": beating}});
    if lacks_features(node) {
        patch["status"]["declaredFeatures"] = json!(DECLARED_FEATURES);
    }
    patch
}

fn lease(node: &Node, now: Timestamp) -> Lease {
    let mut lease = Lease::default();
    let name = node.metadata.name.clone().unwrap_or_default();
    lease.metadata.name = Some(name.clone());
    lease.metadata.owner_references = Some(vec![OwnerReference {
        api_version: "v1".to_owned(),
        kind: "Node".to_owned(),
        name: name.clone(),
        uid: node.metadata.uid.clone().unwrap_or_default(),
        ..OwnerReference::default()
    }]);
    lease.spec = Some(LeaseSpec {
        holder_identity: Some(name),
        lease_duration_seconds: Some(LEASE_SECONDS),
        renew_time: Some(MicroTime(now)),
        ..LeaseSpec::default()
    });
    lease
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_heartbeat_changes_nothing_that_a_client_set() {
        let now = Timestamp::UNIX_EPOCH;
        let node = object(SimulatedNode(0), now);
        let heartbeat_of = |node: &Node| heartbeat(node, now)["status"]["conditions"].clone();
        for condition in heartbeat_of(&node).as_array().unwrap() {
            let keys: Vec<_> = condition.as_object().unwrap().keys().collect();
            assert_eq!(keys, ["lastHeartbeatTime", "type"]);
        }
        assert!(heartbeat(&node, now)["status"]["declaredFeatures"].is_null());
        let mut old = node.clone();
        old.status.as_mut().unwrap().declared_features = None;
        assert_eq!(heartbeat(&old, now)["status"]["declaredFeatures"], json!(DECLARED_FEATURES));
        let bare = Node { status: None, ..node };
        assert_eq!(heartbeat_of(&bare)[3]["reason"], "KubeletReady");
    }

    #[test]
    fn labels_are_added_and_never_changed() {
        let wanted = object(SimulatedNode(0), Timestamp::UNIX_EPOCH);
        let mut known = wanted.clone();
        assert!(missing_labels(&wanted, &known).is_empty());
        let labels = known.metadata.labels.as_mut().unwrap();
        labels.insert("kubernetes.io/os".to_owned(), "other".to_owned());
        labels.remove("kubernetes.io/hostname");
        assert_eq!(missing_labels(&wanted, &known), BTreeMap::from([("kubernetes.io/hostname", "node-0")]));
    }
}
