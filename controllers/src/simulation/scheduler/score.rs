//! Which of the nodes that take a pod suits it best: the scheduler's scores with its default weights. The locality of images is
//! left out, since all images are everywhere.

use std::collections::{BTreeMap, HashMap};

use coracle_kinds::node_affinity::{label, matches_node_affinity, term_selects};
use coracle_kinds::resources::{amount, requests};
use coracle_kinds::taints::{is_tolerated, taints};
use coracle_pod_resources::ResourceList;
use k8s_openapi::api::core::v1::{Pod, PodAffinityTerm, PodSpec, WeightedPodAffinityTerm};

use super::filter::Candidate;
use super::inter_pod::{Namespaces, is_selected_pod, required_affinity_terms, selects};
use super::plan::NodeInfo;

const HIGHEST: i64 = 100;
const HOSTNAME: &str = "kubernetes.io/hostname";
/// What a required affinity of an existing pod counts for one that matches it.
const HARD_POD_AFFINITY_WEIGHT: i64 = 1;

/// What a pod is taken to use of a node for its score, in thousandths of a CPU and in bytes: a container without a request
/// uses something too.
pub fn non_zero_requests(spec: &PodSpec) -> [i64; 2] {
    const DEFAULT: [i64; 2] = [100, 200 << 20];
    let requested = requests(spec);
    let own = [amount(&requested, "cpu").milli_value(), amount(&requested, "memory").value()];
    let without = |resource: &str| {
        let lacks =
            |list: &Option<BTreeMap<String, _>>| list.as_ref().is_none_or(|l| !l.contains_key(resource));
        let lacking = spec.containers.iter().filter(|container| {
            container.resources.as_ref().is_none_or(|resources| lacks(&resources.requests))
        });
        i64::try_from(lacking.count()).unwrap_or(i64::MAX)
    };
    let [cpu, memory] = own;
    [
        cpu.saturating_add(DEFAULT[0].saturating_mul(without("cpu"))),
        memory.saturating_add(DEFAULT[1].saturating_mul(without("memory"))),
    ]
}

/// The score of each of these nodes, by their indexes. Higher is better.
pub fn scores(
    candidate: &Candidate,
    nodes: &[NodeInfo],
    feasible: &[usize],
    namespaces: &Namespaces,
) -> Vec<i64> {
    let infos: Vec<&NodeInfo> = feasible.iter().filter_map(|index| nodes.get(*index)).collect();
    let mut totals: Vec<i64> = infos
        .iter()
        .map(|node| least_allocated(candidate, node) + balanced_allocation(candidate, node))
        .collect();
    let mut add = |scores: Option<Vec<i64>>, weight: i64| {
        for (total, score) in totals.iter_mut().zip(scores.into_iter().flatten()) {
            *total += weight * score;
        }
    };
    add(taint_toleration(candidate, &infos), 3);
    add(node_affinity(candidate, &infos), 2);
    add(inter_pod_affinity(candidate, nodes, &infos, namespaces), 2);
    add(topology_spread(candidate, nodes, &infos), 2);
    totals
}

/// The more is left of a node the better.
fn least_allocated(candidate: &Candidate, node: &NodeInfo) -> i64 {
    let own = non_zero_requests(candidate.spec);
    let capacity = capacity(&node.allocatable);
    let parts = own.iter().zip(&node.non_zero_used).zip(&capacity).filter(|(_, capacity)| **capacity > 0);
    let scores: Vec<i64> = parts
        .map(|((own, used), capacity)| {
            let left = capacity.saturating_sub(own.saturating_add(*used)).max(0);
            left.saturating_mul(HIGHEST) / capacity
        })
        .collect();
    let count = i64::try_from(scores.len()).unwrap_or(1).max(1);
    scores.iter().sum::<i64>() / count
}

/// The more evenly CPU and memory of a node are used the better.
fn balanced_allocation(candidate: &Candidate, node: &NodeInfo) -> i64 {
    let used = |name: &str| amount(&candidate.requests, name).plus(&amount(&node.used, name));
    let used = [used("cpu").milli_value(), used("memory").value()];
    let capacity = capacity(&node.allocatable);
    #[allow(clippy::cast_precision_loss)]
    let share = |(used, capacity): (&i64, &i64)| (*used as f64 / *capacity as f64).min(1.0);
    let shares: Vec<f64> =
        used.iter().zip(&capacity).filter(|(_, capacity)| **capacity > 0).map(share).collect();
    match shares.as_slice() {
        [cpu, memory] => rounded((1.0 - (cpu - memory).abs() / 2.0) * 100.0),
        _ => HIGHEST,
    }
}

fn capacity(allocatable: &ResourceList) -> [i64; 2] {
    [amount(allocatable, "cpu").milli_value(), amount(allocatable, "memory").value()]
}

/// Taints that only prefer that pods stay away: the fewer the better.
fn taint_toleration(candidate: &Candidate, nodes: &[&NodeInfo]) -> Option<Vec<i64>> {
    let tolerations = candidate.spec.tolerations.as_deref();
    let count = |node: &&NodeInfo| {
        let untolerated = taints(&node.node)
            .iter()
            .filter(|taint| taint.effect == "PreferNoSchedule" && !is_tolerated(taint, tolerations));
        i64::try_from(untolerated.count()).unwrap_or(i64::MAX)
    };
    let counts: Vec<i64> = nodes.iter().map(count).collect();
    let most = counts.iter().copied().max().filter(|most| *most > 0)?;
    Some(counts.into_iter().map(|count| HIGHEST - count * HIGHEST / most).collect())
}

/// Preferred node affinity.
fn node_affinity(candidate: &Candidate, nodes: &[&NodeInfo]) -> Option<Vec<i64>> {
    let affinity = candidate.spec.affinity.as_ref()?.node_affinity.as_ref()?;
    let preferred = affinity.preferred_during_scheduling_ignored_during_execution.as_deref()?;
    let sum = |node: &&NodeInfo| {
        let met = preferred.iter().filter(|term| term_selects(&term.preference, &node.node));
        met.map(|term| i64::from(term.weight)).sum::<i64>()
    };
    let sums: Vec<i64> = nodes.iter().map(sum).collect();
    let most = sums.iter().copied().max().filter(|most| *most > 0)?;
    Some(sums.into_iter().map(|sum| sum * HIGHEST / most).collect())
}

/// Preferred pod affinity and anti-affinity, of the pod and of those that are there.
fn inter_pod_affinity(
    candidate: &Candidate,
    all: &[NodeInfo],
    nodes: &[&NodeInfo],
    namespaces: &Namespaces,
) -> Option<Vec<i64>> {
    let mut by_domain: HashMap<(&str, &str), i64> = HashMap::new();
    let own: Vec<_> = preferred_terms(candidate.pod).collect();
    for node in all {
        let pods = if own.is_empty() { &[][..] } else { node.pods.as_slice() };
        for (term, weight) in &own {
            let Some(value) = label(&node.node, &term.topology_key) else { continue };
            let matching = pods.iter().filter(|pod| selects(term, candidate.pod, pod, namespaces));
            let matching = i64::try_from(matching.count()).unwrap_or(i64::MAX);
            if matching > 0 {
                *by_domain.entry((&term.topology_key, value)).or_default() += weight * matching;
            }
        }
        for pod in &node.pods_with_affinity {
            let hard = required_affinity_terms(pod).map(|term| (term, HARD_POD_AFFINITY_WEIGHT));
            for (term, weight) in preferred_terms(pod).chain(hard) {
                let Some(value) = label(&node.node, &term.topology_key) else { continue };
                if selects(term, pod, candidate.pod, namespaces) {
                    *by_domain.entry((&term.topology_key, value)).or_default() += weight;
                }
            }
        }
    }
    if by_domain.is_empty() {
        return None;
    }
    let sum = |node: &&NodeInfo| {
        let here = by_domain.iter().filter(|((key, value), _)| label(&node.node, key) == Some(*value));
        here.map(|(_, weight)| weight).sum::<i64>()
    };
    let sums: Vec<i64> = nodes.iter().map(sum).collect();
    let (least, most) = (sums.iter().copied().min()?, sums.iter().copied().max()?);
    (most > least).then(|| sums.iter().map(|sum| (sum - least) * HIGHEST / (most - least)).collect())
}

/// The preferred terms of a pod, those of anti-affinity with a negative weight.
fn preferred_terms(pod: &Pod) -> impl Iterator<Item = (&PodAffinityTerm, i64)> {
    fn weighted(
        terms: Option<&Vec<WeightedPodAffinityTerm>>,
        sign: i64,
    ) -> impl Iterator<Item = (&PodAffinityTerm, i64)> {
        terms.into_iter().flatten().map(move |term| (&term.pod_affinity_term, sign * i64::from(term.weight)))
    }
    let affinity = pod.spec.as_ref().and_then(|spec| spec.affinity.as_ref());
    let to = affinity.and_then(|affinity| affinity.pod_affinity.as_ref());
    let anti = affinity.and_then(|affinity| affinity.pod_anti_affinity.as_ref());
    let to = to.and_then(|to| to.preferred_during_scheduling_ignored_during_execution.as_ref());
    let anti = anti.and_then(|anti| anti.preferred_during_scheduling_ignored_during_execution.as_ref());
    weighted(to, 1).chain(weighted(anti, -1))
}

/// Whether a pod has terms that count for others.
pub fn has_affinity(pod: &Pod) -> bool {
    preferred_terms(pod).next().is_some() || required_affinity_terms(pod).next().is_some()
}

/// Topology spread that is wanted and not required: the fewer pods of the kind in the domain of a node the better, and the more
/// so the more domains there are.
fn topology_spread(candidate: &Candidate, all: &[NodeInfo], nodes: &[&NodeInfo]) -> Option<Vec<i64>> {
    let rules = candidate.spec.topology_spread_constraints.iter().flatten();
    let rules: Vec<_> = rules.filter(|rule| rule.when_unsatisfiable == "ScheduleAnyway").collect();
    if rules.is_empty() {
        return None;
    }
    let has_all = |node: &NodeInfo| rules.iter().all(|rule| label(&node.node, &rule.topology_key).is_some());
    let mut sums: Vec<Option<f64>> = nodes.iter().map(|node| has_all(node).then_some(0.0)).collect();
    for rule in &rules {
        let mut counts: HashMap<&str, u32> = HashMap::new();
        for node in nodes.iter().filter(|node| has_all(node)) {
            counts.extend(label(&node.node, &rule.topology_key).map(|value| (value, 0)));
        }
        let domains = match rule.topology_key.as_str() {
            HOSTNAME => sums.iter().flatten().count(),
            _ => counts.len(),
        };
        let counted =
            all.iter().filter(|node| has_all(node) && matches_node_affinity(candidate.spec, &node.node));
        for node in counted {
            let value = label(&node.node, &rule.topology_key).unwrap_or_default();
            let Some(count) = counts.get_mut(value) else { continue };
            let of_kind = node.pods.iter().filter(|pod| {
                pod.metadata.namespace == candidate.pod.metadata.namespace
                    && pod.metadata.deletion_timestamp.is_none()
                    && is_selected_pod(rule.label_selector.as_ref(), pod)
            });
            *count += u32::try_from(of_kind.count()).unwrap_or(u32::MAX);
        }
        let weight = (u32::try_from(domains).map_or(f64::MAX, f64::from) + 2.0).ln();
        for (sum, node) in sums.iter_mut().zip(nodes) {
            let value = label(&node.node, &rule.topology_key).unwrap_or_default();
            let count = counts.get(value).copied().unwrap_or(0);
            if let Some(sum) = sum {
                *sum += f64::from(count) * weight + f64::from(rule.max_skew - 1);
            }
        }
    }
    let counted = || sums.iter().flatten().map(|sum| rounded(*sum));
    let (least, most) = (counted().min()?, counted().max()?);
    let score = |sum: &Option<f64>| match sum {
        // It has no such domain.
        None => 0,
        Some(_) if most == 0 => HIGHEST,
        Some(sum) => HIGHEST * (most + least - rounded(*sum)) / most,
    };
    Some(sums.iter().map(score).collect())
}

/// The nearest whole number.
fn rounded(number: f64) -> i64 {
    #[allow(clippy::cast_possible_truncation)]
    let whole = number.round() as i64;
    whole
}
