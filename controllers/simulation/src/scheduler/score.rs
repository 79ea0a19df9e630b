//! Scoring of the feasible nodes for a pod: the scheduler's scores with its default weights. The
//! locality of images is left out, since every node has all images.

use std::collections::HashMap;

use coracle_kinds::node_affinity::{label, matches_node_affinity, term_selects};
use coracle_kinds::taints::{is_tolerated, taints};

use super::affinity_terms::{Namespaces, is_selected_pod, preferred_terms, required_affinity_terms, selects};
use super::candidate::Candidate;
use super::node_info::{CpuAndMemory, NodeInfo};

const HIGHEST: i64 = 100;
const HOSTNAME: &str = "kubernetes.io/hostname";
/// The weight of an existing pod's required affinity that matches the pod.
const HARD_POD_AFFINITY_WEIGHT: i64 = 1;

/// Returns the score of each of these nodes, which are given by their indexes. Higher is better.
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

/// Scores a node by its remaining CPU and memory: the more, the better.
fn least_allocated(candidate: &Candidate, node: &NodeInfo) -> i64 {
    let CpuAndMemory(wanted) = candidate.non_zero_requested.plus(node.non_zero_requested);
    let CpuAndMemory(capacity) = node.capacity;
    let (mut sum, mut count) = (0, 0);
    for (wanted, capacity) in wanted.into_iter().zip(capacity).filter(|(_, capacity)| *capacity > 0) {
        sum += capacity.saturating_sub(wanted).max(0).saturating_mul(HIGHEST) / capacity;
        count += 1;
    }
    sum / count.max(1)
}

/// Scores a node by the balance of its used CPU and memory: the more even, the better.
fn balanced_allocation(candidate: &Candidate, node: &NodeInfo) -> i64 {
    let CpuAndMemory(used) = candidate.cpu_and_memory.plus(node.requested);
    let CpuAndMemory(capacity) = node.capacity;
    #[allow(clippy::cast_precision_loss)]
    let share = |used: i64, capacity: i64| (used as f64 / capacity as f64).min(1.0);
    let ([cpu, memory], [all_cpu, all_memory]) = (used, capacity);
    if all_cpu <= 0 || all_memory <= 0 {
        return HIGHEST;
    }
    rounded((1.0 - (share(cpu, all_cpu) - share(memory, all_memory)).abs() / 2.0) * 100.0)
}

/// Scores `PreferNoSchedule` taints that are not tolerated: the fewer the better.
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

/// Scores preferred node affinity.
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

/// Scores preferred pod affinity and anti-affinity, of the pod and of the existing pods.
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

/// Scores topology spread that is preferred (`ScheduleAnyway`): a node scores higher the fewer
/// matching pods its domain has, weighted by the number of domains.
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
        // The node is in no such domain.
        None => 0,
        Some(_) if most == 0 => HIGHEST,
        Some(sum) => HIGHEST * (most + least - rounded(*sum)) / most,
    };
    Some(sums.iter().map(score).collect())
}

/// Rounds to the nearest integer.
fn rounded(number: f64) -> i64 {
    #[allow(clippy::cast_possible_truncation)]
    let whole = number.round() as i64;
    whole
}
