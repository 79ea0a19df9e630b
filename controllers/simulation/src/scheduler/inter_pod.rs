//! Constraints on a pod's node by other pods: pod affinity, pod anti-affinity, and topology spread.
//!
//! All three use domains: the nodes with the same value of a label. The counts are gathered once
//! for a pod ([`InterPodConstraints::of`]) and then checked for each node.

use std::collections::{HashMap, HashSet};

use coracle_kinds::node_affinity::{label, matches_node_affinity};
use coracle_kinds::pods::pod_claims;
use coracle_kinds::taints::{is_tolerated, taints};
use k8s_openapi::api::core::v1::{Node, Pod, PodAffinityTerm, Taint};

use super::affinity_terms::{Namespaces, is_selected_pod, required_anti_affinity_terms, selects};
use super::candidate::{Candidate, Rejection};
use super::node_info::NodeInfo;

/// A label of nodes and one of its values.
type Domain = (String, String);

pub struct InterPodConstraints {
    /// For each required affinity term its topology key and the values of domains with matching
    /// pods. A node must be in one of them for each term. Empty if the pod may be the first of its
    /// group.
    together: Vec<(String, HashSet<String>)>,
    /// The domains of pods that match the pod's anti-affinity.
    apart: HashSet<Domain>,
    /// The domains of existing pods whose anti-affinity matches the pod.
    existing_anti_affinity: HashSet<Domain>,
    spread: Vec<Spread>,
    /// Whether another pod already uses a claim that only one pod may use at a time.
    is_claim_in_use: bool,
}

struct Spread {
    key: String,
    most: i64,
    /// The number of matching pods by domain.
    counts: HashMap<String, i64>,
    least: i64,
    /// Whether the pod itself counts once it is on a node.
    is_counted: bool,
}

impl InterPodConstraints {
    pub fn of(candidate: &Candidate, nodes: &[NodeInfo], namespaces: &Namespaces) -> InterPodConstraints {
        let affinity = candidate.spec.affinity.as_ref();
        let wanted = affinity.and_then(|affinity| affinity.pod_affinity.as_ref());
        let wanted = wanted.and_then(|a| a.required_during_scheduling_ignored_during_execution.as_ref());
        let matches = |term: &PodAffinityTerm, pod: &Pod| selects(term, candidate.pod, pod, namespaces);
        let domains = |term: &PodAffinityTerm| -> HashSet<String> {
            let with = nodes.iter().filter(|node| node.pods.iter().any(|pod| matches(term, pod)));
            with.filter_map(|node| label(&node.node, &term.topology_key)).map(str::to_owned).collect()
        };
        let wanted: Vec<_> = wanted.into_iter().flatten().map(|term| (term, domains(term))).collect();
        // The first pod of a group with affinity to itself matches no other pod.
        let is_first = wanted.iter().all(|(_, domains)| domains.is_empty())
            && wanted.iter().all(|(term, _)| matches(term, candidate.pod));
        let together =
            wanted.into_iter().filter(|_| !is_first).map(|(term, d)| (term.topology_key.clone(), d));
        let apart = required_anti_affinity_terms(candidate.pod)
            .flat_map(|term| domains(term).into_iter().map(|domain| (term.topology_key.clone(), domain)));
        let existing_anti_affinity = nodes.iter().flat_map(|node| {
            let terms = node
                .pods_with_anti_affinity
                .iter()
                .flat_map(|pod| required_anti_affinity_terms(pod).map(move |term| (pod, term)));
            let against = terms.filter(|(pod, term)| selects(term, pod, candidate.pod, namespaces));
            against.filter_map(|(_, term)| domain(&node.node, &term.topology_key))
        });
        InterPodConstraints {
            together: together.collect(),
            apart: apart.collect(),
            existing_anti_affinity: existing_anti_affinity.collect(),
            spread: spread(candidate, nodes),
            is_claim_in_use: is_claim_in_use(candidate, nodes),
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
        const IN_USE: &str =
            "node has pod using PersistentVolumeClaim with the same name and ReadWriteOncePod access mode";
        if self.is_claim_in_use { Rejection::resolvable(IN_USE) } else { None }
    }

    /// Returns the rejection from this node, if other pods exclude the pod from it.
    pub fn rejection(&self, node: &Node) -> Option<Rejection> {
        const SPREAD: &str = "node(s) didn't match pod topology spread constraints";
        for spread in &self.spread {
            let Some(value) = label(node, &spread.key) else {
                return Rejection::unresolvable(&format!("{SPREAD} (missing required label)"));
            };
            let here = spread.counts.get(value).copied().unwrap_or(0) + i64::from(spread.is_counted);
            if here - spread.least > spread.most {
                return Rejection::resolvable(SPREAD);
            }
        }
        let is_in = |domains: &HashSet<Domain>| {
            domains.iter().any(|(key, value)| label(node, key) == Some(value.as_str()))
        };
        let is_together = |(key, domains): &(String, HashSet<String>)| {
            label(node, key).is_some_and(|value| domains.contains(value))
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

fn spread(candidate: &Candidate, nodes: &[NodeInfo]) -> Vec<Spread> {
    let all = candidate.spec.topology_spread_constraints.iter().flatten();
    let strict: Vec<_> = all.filter(|rule| rule.when_unsatisfiable == "DoNotSchedule").collect();
    if strict.is_empty() {
        return Vec::new();
    }
    let has_all =
        |node: &&NodeInfo| strict.iter().all(|rule| label(&node.node, &rule.topology_key).is_some());
    let spread = strict.iter().map(|rule| {
        let is_admitted = |node: &&NodeInfo| {
            let honors =
                |policy: &Option<String>, default: &str| policy.as_deref().unwrap_or(default) == "Honor";
            let tolerations = candidate.spec.tolerations.as_deref();
            let keeps_out =
                |taint: &Taint| taint.effect != "PreferNoSchedule" && !is_tolerated(taint, tolerations);
            (!honors(&rule.node_affinity_policy, "Honor")
                || matches_node_affinity(candidate.spec, &node.node))
                && (!honors(&rule.node_taints_policy, "Ignore") || !taints(&node.node).iter().any(keeps_out))
        };
        let counted: Vec<&NodeInfo> = nodes.iter().filter(has_all).filter(is_admitted).collect();
        let selector = rule.label_selector.as_ref();
        let is_counted = |pod: &Pod| {
            pod.metadata.namespace == candidate.pod.metadata.namespace
                && pod.metadata.deletion_timestamp.is_none()
                && is_selected_pod(selector, pod)
        };
        let mut counts = HashMap::new();
        for node in &counted {
            let value = label(&node.node, &rule.topology_key).unwrap_or_default();
            let here = node.pods.iter().filter(|pod| is_counted(pod)).count();
            *counts.entry(value.to_owned()).or_insert(0) += i64::try_from(here).unwrap_or(i64::MAX);
        }
        // Domains that are still missing count as empty ones.
        let has_enough = counts.len() >= usize::try_from(rule.min_domains.unwrap_or(1)).unwrap_or(0);
        let least = counts.values().copied().min().filter(|_| has_enough).unwrap_or(0);
        Spread {
            key: rule.topology_key.clone(),
            most: rule.max_skew.into(),
            counts,
            least,
            is_counted: is_selected_pod(selector, candidate.pod),
        }
    });
    spread.collect()
}
