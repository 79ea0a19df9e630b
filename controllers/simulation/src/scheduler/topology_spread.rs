//! Topology spread constraints: the nodes and pods that count for them, and the strict ones as a
//! filter. `score` has the others.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, LazyLock};

use coracle_kinds::node_affinity::{label, matches_node_affinity};
use coracle_kinds::taints::{is_tolerated, taints};
use k8s_openapi::api::core::v1::{Node, Pod, PodSpec, Taint, TopologySpreadConstraint};
use kube::core::{Selector, SelectorExt};

use super::candidate::{Candidate, Rejection};
use super::node_info::{NodeInfo, View};

const MISMATCH: &str = "node(s) didn't match pod topology spread constraints";

/// The effect of constraints that are a filter.
pub const STRICT: &str = "DoNotSchedule";
/// The effect of constraints that are a score.
pub const PREFERRED: &str = "ScheduleAnyway";

/// A topology spread constraint of a pod.
pub struct Rule<'a> {
    pub constraint: &'a TopologySpreadConstraint,
    /// The selected pods; None if no pod is.
    selector: Option<Selector>,
}

/// The constraints of pods that have none, by the selector of their Services and owner.
static DEFAULTS: LazyLock<[TopologySpreadConstraint; 2]> = LazyLock::new(|| {
    let constraint = |key: &str, max_skew: i32| TopologySpreadConstraint {
        topology_key: key.to_owned(),
        max_skew,
        when_unsatisfiable: PREFERRED.to_owned(),
        ..TopologySpreadConstraint::default()
    };
    [constraint("kubernetes.io/hostname", 3), constraint("topology.kubernetes.io/zone", 5)]
});

impl<'a> Rule<'a> {
    /// Returns the default constraints of a pod; none if it belongs to no other pods.
    pub fn defaults(candidate: &'a Candidate<'_>) -> Vec<Rule<'a>> {
        let siblings = candidate.siblings.iter();
        let of = |selector: &Selector| {
            let rule = |constraint| Rule { constraint, selector: Some(selector.clone()) };
            DEFAULTS.iter().map(rule).collect::<Vec<_>>()
        };
        siblings.flat_map(of).collect()
    }

    /// Returns the constraints of a pod with this effect.
    pub fn all(spec: &'a PodSpec, effect: &str) -> Vec<Rule<'a>> {
        let constraints = spec.topology_spread_constraints.iter().flatten();
        let constraints = constraints.filter(|constraint| constraint.when_unsatisfiable == effect);
        let rule = |constraint: &'a TopologySpreadConstraint| {
            let selector = constraint.label_selector.clone();
            Rule { constraint, selector: selector.and_then(|selector| Selector::try_from(selector).ok()) }
        };
        constraints.map(rule).collect()
    }

    pub fn key(&self) -> &'a str {
        &self.constraint.topology_key
    }

    /// Returns `true` if the policies of the constraint admit the pods of a node.
    pub fn includes(&self, candidate: &Candidate, node: &Node) -> bool {
        let honors = |policy: &Option<String>, default: &str| policy.as_deref().unwrap_or(default) == "Honor";
        let tolerations = candidate.spec.tolerations.as_deref();
        let keeps_out =
            |taint: &Taint| taint.effect != "PreferNoSchedule" && !is_tolerated(taint, tolerations);
        (!honors(&self.constraint.node_affinity_policy, "Honor")
            || matches_node_affinity(candidate.spec, node))
            && (!honors(&self.constraint.node_taints_policy, "Ignore") || !taints(node).iter().any(keeps_out))
    }

    /// Returns the number of matching pods on a node. A selector without requirements counts none,
    /// though it selects the pod itself ([`Rule::selects`]).
    pub fn pods_on(&self, candidate: &Candidate, node: &NodeInfo, view: View) -> usize {
        if self.selector.as_ref().is_none_or(Selector::selects_all) {
            return 0;
        }
        let is_counted = |pod: &&Arc<Pod>| {
            pod.metadata.namespace == candidate.pod.metadata.namespace
                && pod.metadata.deletion_timestamp.is_none()
                && self.selects(pod)
        };
        node.pods_in(view).filter(is_counted).count()
    }

    /// Returns `true` if the constraint selects a pod by its labels.
    pub fn selects(&self, pod: &Pod) -> bool {
        let none = BTreeMap::new();
        let labels = pod.metadata.labels.as_ref().unwrap_or(&none);
        self.selector.as_ref().is_some_and(|selector| selector.matches(labels))
    }
}

/// Returns `true` if a node has the labels of all constraints.
pub fn has_all(rules: &[Rule], node: &Node) -> bool {
    rules.iter().all(|rule| label(node, rule.key()).is_some())
}

/// A strict constraint with the pods of each domain.
pub struct Spread {
    key: String,
    most: i64,
    /// The number of matching pods by domain.
    counts: HashMap<String, i64>,
    least: i64,
    /// Whether the pod itself counts once it is on a node.
    is_counted: bool,
}

impl Spread {
    /// Returns the strict constraints of a pod.
    pub fn all(candidate: &Candidate, nodes: &[NodeInfo], view: View) -> Vec<Spread> {
        let rules = Rule::all(candidate.spec, STRICT);
        if rules.is_empty() {
            return Vec::new();
        }
        let spread = rules.iter().map(|rule| {
            let counted = nodes
                .iter()
                .filter(|node| has_all(&rules, &node.node) && rule.includes(candidate, &node.node));
            let mut counts = HashMap::new();
            for node in counted {
                let value = label(&node.node, rule.key()).unwrap_or_default();
                let here = rule.pods_on(candidate, node, view);
                *counts.entry(value.to_owned()).or_insert(0) += i64::try_from(here).unwrap_or(i64::MAX);
            }
            // Domains that are still missing count as empty ones.
            let wanted = rule.constraint.min_domains.unwrap_or(1);
            let has_enough = counts.len() >= usize::try_from(wanted).unwrap_or(0);
            let least = counts.values().copied().min().filter(|_| has_enough).unwrap_or(0);
            Spread {
                key: rule.key().to_owned(),
                most: rule.constraint.max_skew.into(),
                counts,
                least,
                is_counted: rule.selects(candidate.pod),
            }
        });
        spread.collect()
    }

    /// Returns the rejection if the pod would make a node's domain too full.
    pub fn rejection(&self, node: &Node) -> Option<Rejection> {
        let Some(value) = label(node, &self.key) else {
            return Rejection::unresolvable(&format!("{MISMATCH} (missing required label)"));
        };
        let here = self.counts.get(value).copied().unwrap_or(0) + i64::from(self.is_counted);
        match here - self.least > self.most {
            true => Rejection::resolvable(MISMATCH),
            false => None,
        }
    }
}
