//! The scheduler's filters, in upstream's order and with upstream's messages. The first one that
//! rejects a node for a pod counts.

use coracle_kinds::node_affinity::matches_node_affinity;
use coracle_kinds::pods::{host_ports, host_ports_conflict};
use coracle_kinds::resources::amount;
use coracle_kinds::taints::is_tolerated;
use k8s_openapi::api::core::v1::Taint;

use super::candidate::{Candidate, Rejection};
use super::inter_pod::InterPodConstraints;
use super::node_info::NodeInfo;
use super::volume_binding::reaches;

/// Returns the rejection if the pod does not fit the node.
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
        .or_else(|| inter_pod.claim_rejection())
        .or_else(|| unreachable_volumes(candidate, node))
        .or_else(|| inter_pod.rejection(&node.node))
}

fn unschedulable(candidate: &Candidate, node: &NodeInfo) -> Option<Rejection> {
    let is_unschedulable = node.node.spec.as_ref().is_some_and(|spec| spec.unschedulable == Some(true));
    if !is_unschedulable {
        return None;
    }
    let taint = Taint {
        key: "node.kubernetes.io/unschedulable".to_owned(),
        effect: "NoSchedule".to_owned(),
        ..Taint::default()
    };
    match !is_tolerated(&taint, candidate.spec.tolerations.as_deref()) {
        true => Rejection::unresolvable("node(s) were unschedulable"),
        false => None,
    }
}

fn untolerated_taint(candidate: &Candidate, node: &NodeInfo) -> Option<Rejection> {
    let mut taints = node.node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
    match taints.any(|taint| keeps_out(taint) && !is_tolerated(taint, candidate.spec.tolerations.as_deref()))
    {
        true => Rejection::unresolvable("node(s) had untolerated taint(s)"),
        false => None,
    }
}

fn keeps_out(taint: &Taint) -> bool {
    matches!(taint.effect.as_str(), "NoSchedule" | "NoExecute")
}

fn node_affinity_mismatch(candidate: &Candidate, node: &NodeInfo) -> Option<Rejection> {
    match matches_node_affinity(candidate.spec, &node.node) {
        true => None,
        false => Rejection::unresolvable("node(s) didn't match Pod's node affinity/selector"),
    }
}

fn port_conflict(candidate: &Candidate, node: &NodeInfo) -> Option<Rejection> {
    let mut wanted = host_ports(candidate.spec).peekable();
    wanted.peek()?;
    let taken: Vec<_> = node.pods.iter().filter_map(|pod| pod.spec.as_ref()).flat_map(host_ports).collect();
    match wanted.any(|port| taken.iter().any(|taken| host_ports_conflict(port, taken))) {
        true => Rejection::resolvable("node(s) didn't have free ports for the requested pod ports"),
        false => None,
    }
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

/// Rejects a node that the pod's volumes cannot be attached to, now or once they are provisioned.
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
