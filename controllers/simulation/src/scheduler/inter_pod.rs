//! Constraints on a pod's node by other pods: pod affinity, pod anti-affinity, and topology spread.
//!
//! All three use domains: the nodes with the same value of a label. The counts are gathered once
//! for a pod ([`InterPodConstraints::of`]) and then checked for each node.

use std::collections::HashSet;

use coracle_kinds::node_affinity::label;
use coracle_kinds::pods::pod_claims;
use k8s_openapi::api::core::v1::{Node, Pod, PodAffinityTerm};

use super::affinity_terms::{Namespaces, required_affinity_terms, required_anti_affinity_terms, selects};
use super::candidate::{Candidate, Rejection};
use super::node_info::{NodeInfo, View};
use super::topology_spread::Spread;

/// A label of nodes and one of its values.
type Domain = (String, String);

pub struct InterPodConstraints {
    /// For each required affinity term its topology key and the values of domains with matching
    /// pods. A node must be in one of them for each term.
    together: Vec<(String, HashSet<String>)>,
    /// Whether the pod may be the first of its group: it matches its own affinity, and no other pod
    /// does. Any node with the labels will do.
    is_first: bool,
    /// The domains of pods that match the pod's anti-affinity.
    apart: HashSet<Domain>,
    /// The domains of existing pods whose anti-affinity matches the pod.
    existing_anti_affinity: HashSet<Domain>,
    spread: Vec<Spread>,
    /// Whether another pod already uses a claim that only one pod may use at a time.
    is_claim_in_use: bool,
    /// The same without the nominated pods, which may never arrive, if these could help the pod.
    without_nominated: Option<Box<InterPodConstraints>>,
}

impl InterPodConstraints {
    /// Returns the constraints of a pod. They have to be met both with the nominated pods and
    /// without them (upstream `RunFilterPluginsWithNominatedPods`).
    pub fn of(candidate: &Candidate, nodes: &[NodeInfo], namespaces: &Namespaces) -> InterPodConstraints {
        let mut constraints = InterPodConstraints::seen(candidate, nodes, namespaces, View::WithNominated);
        let may_be_helped = !constraints.together.is_empty() || !constraints.spread.is_empty();
        if may_be_helped && nodes.iter().any(|node| !node.nominated.is_empty()) {
            let without = InterPodConstraints::seen(candidate, nodes, namespaces, View::Present);
            constraints.without_nominated = Some(Box::new(without));
        }
        constraints
    }

    fn seen(
        candidate: &Candidate,
        nodes: &[NodeInfo],
        namespaces: &Namespaces,
        view: View,
    ) -> InterPodConstraints {
        let matches = |term: &PodAffinityTerm, pod: &Pod| selects(term, candidate.pod, pod, namespaces);
        let domains = |term: &PodAffinityTerm| -> HashSet<String> {
            let with = nodes.iter().filter(|node| node.pods_in(view).any(|pod| matches(term, pod)));
            with.filter_map(|node| label(&node.node, &term.topology_key)).map(str::to_owned).collect()
        };
        let together = together(candidate, nodes, namespaces, view);
        let is_first = together.iter().all(|(_, domains)| domains.is_empty())
            && required_affinity_terms(candidate.pod).all(|term| matches(term, candidate.pod));
        let apart = required_anti_affinity_terms(candidate.pod)
            .flat_map(|term| domains(term).into_iter().map(|domain| (term.topology_key.clone(), domain)));
        let existing_anti_affinity = nodes.iter().flat_map(|node| {
            let pods = node.pods_with_anti_affinity.iter().filter(move |pod| node.counts(pod, view));
            let terms = pods.flat_map(|pod| required_anti_affinity_terms(pod).map(move |term| (pod, term)));
            let against = terms.filter(|(pod, term)| selects(term, pod, candidate.pod, namespaces));
            against.filter_map(|(_, term)| domain(&node.node, &term.topology_key))
        });
        InterPodConstraints {
            together,
            is_first,
            apart: apart.collect(),
            existing_anti_affinity: existing_anti_affinity.collect(),
            spread: Spread::all(candidate, nodes, view),
            is_claim_in_use: is_claim_in_use(candidate, nodes),
            without_nominated: None,
        }
    }

    /// Returns `true` if other pods do not restrict the placement of the pod.
    pub fn is_trivial(&self) -> bool {
        self.together.is_empty()
            && self.apart.is_empty()
            && self.existing_anti_affinity.is_empty()
            && self.spread.is_empty()
            && !self.is_claim_in_use
    }

    /// Returns the rejection from all nodes, if a claim of the pod is in use.
    pub fn claim_rejection(&self) -> Option<Rejection> {
        const IN_USE: &str = "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod";
        if self.is_claim_in_use { Rejection::resolvable(IN_USE) } else { None }
    }

    /// Returns the rejection from this node, if other pods exclude the pod from it.
    pub fn rejection(&self, node: &Node) -> Option<Rejection> {
        let spread = self.spread.iter().find_map(|spread| spread.rejection(node));
        let without_nominated = || self.without_nominated.as_ref().and_then(|other| other.rejection(node));
        spread.or_else(|| self.affinity_rejection(node)).or_else(without_nominated)
    }

    fn affinity_rejection(&self, node: &Node) -> Option<Rejection> {
        let is_in = |domains: &HashSet<Domain>| {
            domains.iter().any(|(key, value)| label(node, key) == Some(value.as_str()))
        };
        let is_together = |(key, domains): &(String, HashSet<String>)| {
            label(node, key).is_some_and(|value| self.is_first || domains.contains(value))
        };
        if !self.together.iter().all(is_together) {
            return Rejection::unresolvable("node(s) didn't match pod affinity rules");
        }
        if is_in(&self.apart) {
            return Rejection::resolvable("node(s) didn't match pod anti-affinity rules");
        }
        match is_in(&self.existing_anti_affinity) {
            true => Rejection::resolvable("node(s) didn't satisfy existing pods anti-affinity rules"),
            false => None,
        }
    }
}

/// Returns the domains to be in for each required affinity term. Only pods that match all terms
/// count.
fn together(
    candidate: &Candidate,
    nodes: &[NodeInfo],
    namespaces: &Namespaces,
    view: View,
) -> Vec<(String, HashSet<String>)> {
    let terms: Vec<_> = required_affinity_terms(candidate.pod).collect();
    let mut together: Vec<_> = terms.iter().map(|term| (term.topology_key.clone(), HashSet::new())).collect();
    if terms.is_empty() {
        return together;
    }
    let matches = |pod: &Pod| terms.iter().all(|term| selects(term, candidate.pod, pod, namespaces));
    for node in nodes.iter().filter(|node| node.pods_in(view).any(|pod| matches(pod))) {
        for (key, domains) in &mut together {
            domains.extend(label(&node.node, key).map(str::to_owned));
        }
    }
    together
}

/// Returns `true` if another pod uses a ReadWriteOncePod claim of the pod.
fn is_claim_in_use(candidate: &Candidate, nodes: &[NodeInfo]) -> bool {
    let exclusive = &candidate.claims.exclusive;
    !exclusive.is_empty()
        && nodes.iter().flat_map(|node| &node.pods).any(|pod| {
            pod.metadata.namespace == candidate.pod.metadata.namespace
                && pod_claims(pod).any(|claim| exclusive.contains(&claim.name))
        })
}

fn domain(node: &Node, key: &str) -> Option<Domain> {
    label(node, key).map(|value| (key.to_owned(), value.to_owned()))
}
