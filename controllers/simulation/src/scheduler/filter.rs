//! The scheduler's filters, in upstream's order and with upstream's messages. The first one that
//! rejects a node for a pod counts.

use std::collections::BTreeSet;

use coracle_kinds::node_affinity::matches_node_affinity;
use coracle_kinds::pods::{host_ports, host_ports_conflict};
use coracle_kinds::resources::amount;
use coracle_kinds::taints::is_tolerated;
use k8s_openapi::api::core::v1::{PodSpec, Taint};

use super::candidate::{Candidate, Rejection};
use super::declared_features::undeclared_feature;
use super::inter_pod::InterPodConstraints;
use super::node_info::NodeInfo;
use super::volume_filters;

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
        .or_else(|| volume_filters::disk_conflict(candidate, node))
        .or_else(|| inter_pod.claim_rejection())
        .or_else(|| candidate.volume_limits.rejection(candidate, node))
        .or_else(|| volume_filters::unreachable(candidate, &node.node))
        .or_else(|| volume_filters::other_zone(candidate, &node.node))
        .or_else(|| inter_pod.rejection(&node.node))
        .or_else(|| candidate.devices.rejection(node))
        .or_else(|| undeclared_feature(candidate, &node.node))
}

/// Returns the names of the only nodes that a pod's required node affinity admits, as that of a
/// DaemonSet's pod does; None if it does not name nodes. The names are empty if terms contradict
/// themselves.
pub fn named_nodes(spec: &PodSpec) -> Option<BTreeSet<&str>> {
    let affinity = spec.affinity.as_ref()?.node_affinity.as_ref()?;
    let required = affinity.required_during_scheduling_ignored_during_execution.as_ref()?;
    let mut names = BTreeSet::new();
    for term in &required.node_selector_terms {
        let fields = term.match_fields.iter().flatten();
        let mut of_term = fields
            .filter(|field| field.key == "metadata.name" && field.operator == "In")
            .map(|field| field.values.iter().flatten().map(String::as_str).collect::<BTreeSet<&str>>());
        // All fields have to match, and any term.
        let first = of_term.next()?;
        names.extend(of_term.fold(first, |all, more| &all & &more));
    }
    (!required.node_selector_terms.is_empty()).then_some(names)
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
    for (name, wanted) in candidate.requests.all.iter().filter(|(_, wanted)| wanted.is_positive()) {
        let all = amount(&node.allocatable, name);
        if !all.is_positive() && candidate.devices.delegates(name) {
            continue;
        }
        if *wanted > all.minus(&amount(&node.used, name)) {
            rejection.reasons.push(format!("Insufficient {name}"));
            rejection.is_resolvable &= *wanted <= all;
        }
    }
    (!rejection.reasons.is_empty()).then_some(rejection)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn affinity_to_names_admits_only_these_nodes() {
        let names = |names: &[&str]| json!({"key": "metadata.name", "operator": "In", "values": names});
        let term = |fields: &[Value]| json!({"matchFields": fields});
        let zone = json!({"matchExpressions": [{"key": "zone", "operator": "Exists"}]});
        let not = json!({"key": "metadata.name", "operator": "NotIn", "values": ["a"]});
        for (case, terms, want) in [
            ("no affinity", None, None),
            ("another term", Some(vec![zone.clone()]), None),
            ("one name", Some(vec![term(&[names(&["a"])])]), Some(vec!["a"])),
            ("any term", Some(vec![term(&[names(&["b"])]), term(&[names(&["a"])])]), Some(vec!["a", "b"])),
            ("all fields", Some(vec![term(&[names(&["a", "b"]), names(&["b", "c"])])]), Some(vec!["b"])),
            ("a contradiction", Some(vec![term(&[names(&["a"]), names(&["b"])])]), Some(vec![])),
            ("not all terms", Some(vec![term(&[names(&["a"])]), zone]), None),
            ("all but one", Some(vec![term(&[not])]), None),
        ] {
            let required = terms.map(|terms| json!({"nodeSelectorTerms": terms}));
            let affinity = json!({"requiredDuringSchedulingIgnoredDuringExecution": required});
            let spec: PodSpec =
                serde_json::from_value(json!({"containers": [], "affinity": {"nodeAffinity": affinity}}))
                    .unwrap();
            let got = named_nodes(&spec).map(|names| names.into_iter().collect::<Vec<_>>());
            assert_eq!(got, want, "{case}");
        }
    }
}
