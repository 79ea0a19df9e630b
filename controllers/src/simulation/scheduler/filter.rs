//! Why a pod does not fit a node: the scheduler's filters in its order, with its messages. The first that fails counts.

use std::collections::BTreeMap;

use coracle_kinds::resources::amount;
use coracle_pod_resources::ResourceList;
use k8s_openapi::api::core::v1::{
    ContainerPort, Node, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, Pod, PodSpec, Taint,
    Toleration,
};

use super::inter_pod::InterPodConstraints;
use super::plan::NodeInfo;
use super::volume_binding::{Claims, reaches};

/// A pod that is being scheduled.
pub struct Candidate<'a> {
    pub pod: &'a Pod,
    pub spec: &'a PodSpec,
    pub requests: ResourceList,
    pub claims: Claims,
}

/// Why a node was rejected.
#[derive(Debug, PartialEq, Eq)]
pub struct Rejection {
    pub reasons: Vec<String>,
    /// Whether fewer pods on the node could change it.
    pub is_resolvable: bool,
}

impl Rejection {
    /// One that no preemption helps against.
    pub fn unresolvable(reason: &str) -> Option<Rejection> {
        Some(Rejection { reasons: vec![reason.to_owned()], is_resolvable: false })
    }

    pub fn resolvable(reason: &str) -> Option<Rejection> {
        Some(Rejection { reasons: vec![reason.to_owned()], is_resolvable: true })
    }
}

/// Why this pod cannot be here, if it cannot.
pub fn rejection(
    candidate: &Candidate,
    node: &NodeInfo,
    inter_pod: &InterPodConstraints,
) -> Option<Rejection> {
    unschedulable(candidate, node)
        .or_else(|| untolerated_taint(candidate, node))
        .or_else(|| node_affinity_mismatch(candidate, node))
        .or_else(|| port_conflict(candidate, node))
        .or_else(|| insufficient_resources(candidate, node))
        .or_else(|| unreachable_volumes(candidate, node))
        .or_else(|| inter_pod.rejection(&node.node))
}

fn unschedulable(candidate: &Candidate, node: &NodeInfo) -> Option<Rejection> {
    let is_unschedulable = node.node.spec.as_ref().is_some_and(|spec| spec.unschedulable == Some(true));
    let taint = Taint {
        key: "node.kubernetes.io/unschedulable".to_owned(),
        effect: "NoSchedule".to_owned(),
        ..Taint::default()
    };
    match is_unschedulable && !is_tolerated(candidate.spec, &taint) {
        true => Rejection::unresolvable("node(s) were unschedulable"),
        false => None,
    }
}

fn untolerated_taint(candidate: &Candidate, node: &NodeInfo) -> Option<Rejection> {
    let mut taints = node.node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
    match taints.any(|taint| keeps_out(taint) && !is_tolerated(candidate.spec, taint)) {
        true => Rejection::unresolvable("node(s) had untolerated taint(s)"),
        false => None,
    }
}

fn keeps_out(taint: &Taint) -> bool {
    matches!(taint.effect.as_str(), "NoSchedule" | "NoExecute")
}

fn is_tolerated(spec: &PodSpec, taint: &Taint) -> bool {
    spec.tolerations.iter().flatten().any(|toleration| tolerates(toleration, taint))
}

fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
    let is_any_or = |wanted: &Option<String>, value: &str| {
        wanted.as_deref().is_none_or(|wanted| wanted.is_empty() || wanted == value)
    };
    let values = (toleration.value.as_deref().unwrap_or(""), taint.value.as_deref().unwrap_or(""));
    is_any_or(&toleration.effect, &taint.effect)
        && is_any_or(&toleration.key, &taint.key)
        && match toleration.operator.as_deref() {
            Some("Exists") => true,
            None | Some("" | "Equal") => values.0 == values.1,
            Some(_) => false,
        }
}

fn node_affinity_mismatch(candidate: &Candidate, node: &NodeInfo) -> Option<Rejection> {
    match matches_node_affinity(candidate.spec, &node.node) {
        true => None,
        false => Rejection::unresolvable("node(s) didn't match Pod's node affinity/selector"),
    }
}

/// Whether a node is what a pod selects, by its node selector and its required node affinity.
pub fn matches_node_affinity(spec: &PodSpec, node: &Node) -> bool {
    let has = |(key, value)| label(node, key) == Some(value);
    let affinity = spec.affinity.as_ref().and_then(|affinity| affinity.node_affinity.as_ref());
    let required = affinity.and_then(|a| a.required_during_scheduling_ignored_during_execution.as_ref());
    spec.node_selector.iter().flatten().all(|(key, value)| has((key, value.as_str())))
        && required.is_none_or(|selector| selects(selector, node))
}

pub fn label<'a>(node: &'a Node, key: &str) -> Option<&'a str> {
    node.metadata.labels.as_ref()?.get(key).map(String::as_str)
}

pub fn selects(selector: &NodeSelector, node: &Node) -> bool {
    selector.node_selector_terms.iter().any(|term| term_selects(term, node))
}

/// A term that asks for nothing selects nothing.
fn term_selects(term: &NodeSelectorTerm, node: &Node) -> bool {
    let empty = Vec::new();
    let labels = term.match_expressions.as_ref().unwrap_or(&empty);
    let fields = term.match_fields.as_ref().unwrap_or(&empty);
    let name = node.metadata.name.as_deref();
    (!labels.is_empty() || !fields.is_empty())
        && labels.iter().all(|requirement| meets(requirement, label(node, &requirement.key)))
        && fields.iter().all(|requirement| requirement.key == "metadata.name" && meets(requirement, name))
}

fn meets(requirement: &NodeSelectorRequirement, value: Option<&str>) -> bool {
    let wanted = requirement.values.as_deref().unwrap_or_default();
    let is_in = value.is_some_and(|value| wanted.iter().any(|wanted| wanted == value));
    let number = |text: &str| text.parse::<i64>().ok();
    let compares = |with: fn(&i64, &i64) -> bool| {
        let limit = wanted.first().and_then(|text| number(text));
        value.and_then(number).zip(limit).is_some_and(|(value, limit)| with(&value, &limit))
    };
    match requirement.operator.as_str() {
        "In" => is_in,
        "NotIn" => !is_in,
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        "Gt" => compares(i64::gt),
        "Lt" => compares(i64::lt),
        _ => false,
    }
}

fn port_conflict(candidate: &Candidate, node: &NodeInfo) -> Option<Rejection> {
    let mut wanted = host_ports(candidate.spec).peekable();
    wanted.peek()?;
    let taken: Vec<_> = node.pods.iter().filter_map(|pod| pod.spec.as_ref()).flat_map(host_ports).collect();
    match wanted.any(|port| taken.iter().any(|taken| conflicts(port, taken))) {
        true => Rejection::resolvable("node(s) didn't have free ports for the requested pod ports"),
        false => None,
    }
}

fn host_ports(spec: &PodSpec) -> impl Iterator<Item = &ContainerPort> {
    let sidecars = spec.init_containers.iter().flatten().filter(|c| coracle_kinds::resources::is_sidecar(c));
    let ports = spec.containers.iter().chain(sidecars).flat_map(|container| container.ports.iter().flatten());
    ports.filter(|port| port.host_port.is_some_and(|number| number > 0))
}

fn conflicts(one: &ContainerPort, other: &ContainerPort) -> bool {
    let address = |port: &ContainerPort| port.host_ip.clone().filter(|ip| !ip.is_empty() && ip != "0.0.0.0");
    let protocol = |port: &ContainerPort| port.protocol.clone().unwrap_or("TCP".to_owned());
    let (here, there) = (address(one), address(other));
    one.host_port == other.host_port
        && protocol(one) == protocol(other)
        && (here.is_none() || there.is_none() || here == there)
}

fn insufficient_resources(candidate: &Candidate, node: &NodeInfo) -> Option<Rejection> {
    let mut rejection = Rejection { reasons: Vec::new(), is_resolvable: true };
    let pods = i64::try_from(node.pods.len()).unwrap_or(i64::MAX);
    if pods >= amount(&node.allocatable, "pods").value() {
        rejection.reasons.push("Too many pods".to_owned());
    }
    for (name, wanted) in candidate.requests.iter().filter(|(_, wanted)| wanted.is_positive()) {
        let all = amount(&node.allocatable, name);
        if *wanted > all.minus(&amount(&node.used, name)) {
            rejection.reasons.push(format!("Insufficient {name}"));
            rejection.is_resolvable &= *wanted <= all;
        }
    }
    (!rejection.reasons.is_empty()).then_some(rejection)
}

/// Volumes that are elsewhere, now or once they are made.
fn unreachable_volumes(candidate: &Candidate, node: &NodeInfo) -> Option<Rejection> {
    let Candidate { claims, .. } = candidate;
    if !claims.volumes.iter().all(|volume| reaches(volume, &node.node)) {
        return Rejection::unresolvable("node(s) didn't match PersistentVolume's node affinity");
    }
    match claims.can_bind_on(&node.node) {
        true => None,
        false => Rejection::unresolvable("node(s) didn't find available persistent volumes to bind"),
    }
}

/// The labels of a pod.
pub fn labels(pod: &Pod) -> BTreeMap<String, String> {
    pod.metadata.labels.clone().unwrap_or_default()
}
