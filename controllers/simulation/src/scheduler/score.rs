//! Scoring of the feasible nodes for a pod: the scheduler's scores with its default weights.

use std::collections::HashMap;

use coracle_kinds::node_affinity::{label, term_selects};
use coracle_kinds::taints::{is_tolerated, taints};

use super::affinity_terms::{Namespaces, preferred_terms, required_affinity_terms, selects};
use super::candidate::Candidate;
use super::images;
use super::node_info::{NodeInfo, View};
use super::requests::CpuAndMemory;
use super::topology_spread::{PREFERRED, Rule, has_all};

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
    add(devices(candidate, &infos), 2);
    add(images::scores(candidate, nodes, &infos), 1);
    totals
}

/// Scores a node by its remaining CPU and memory: the more, the better.
fn least_allocated(candidate: &Candidate, node: &NodeInfo) -> i64 {
    let CpuAndMemory(wanted) = candidate.requests.non_zero.plus(node.non_zero_requested);
    let CpuAndMemory(capacity) = node.capacity;
    let (mut sum, mut count) = (0, 0);
    for (wanted, capacity) in wanted.into_iter().zip(capacity).filter(|(_, capacity)| *capacity > 0) {
        sum += capacity.saturating_sub(wanted).max(0).saturating_mul(HIGHEST) / capacity;
        count += 1;
    }
    sum / count.max(1)
}

/// Scores the change of the balance of a node's used CPU and memory by the pod: 75 if there is
/// none, more if they become more even.
fn balanced_allocation(candidate: &Candidate, node: &NodeInfo) -> i64 {
    let wanted = candidate.requests.cpu_and_memory;
    // Pods without requests would all be drawn to the same node.
    if wanted == CpuAndMemory::default() {
        return 0;
    }
    let with_pod = balance(wanted.plus(node.requested), node.capacity);
    HIGHEST / 2 + (HIGHEST / 2 + with_pod - balance(node.requested, node.capacity)) / 2
}

/// Returns the balance of a node with these uses: 100 if the shares are equal, or if the node has
/// only one of the resources.
fn balance(CpuAndMemory(used): CpuAndMemory, CpuAndMemory(capacity): CpuAndMemory) -> i64 {
    #[allow(clippy::cast_precision_loss)]
    let share = |used: i64, capacity: i64| (used as f64 / capacity as f64).min(1.0);
    let ([cpu, memory], [all_cpu, all_memory]) = (used, capacity);
    if all_cpu <= 0 || all_memory <= 0 {
        return HIGHEST;
    }
    let deviation = ((share(cpu, all_cpu) - share(memory, all_memory)) / 2.0).abs();
    #[allow(clippy::cast_possible_truncation)]
    let truncated = ((1.0 - deviation) * 100.0) as i64;
    truncated
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

/// Scores the alternatives of prioritized lists of devices: the better the chosen ones, the higher.
fn devices(candidate: &Candidate, nodes: &[&NodeInfo]) -> Option<Vec<i64>> {
    let scores: Vec<i64> = nodes.iter().map(|node| candidate.devices.score(node.name())).collect();
    let most = scores.iter().copied().max().filter(|most| *most > 0)?;
    Some(scores.into_iter().map(|score| score * HIGHEST / most).collect())
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
        for (term, weight) in &own {
            let Some(value) = label(&node.node, &term.topology_key) else { continue };
            let pods = node.pods_in(View::Present);
            let matching = pods.filter(|pod| selects(term, candidate.pod, pod, namespaces));
            let matching = i64::try_from(matching.count()).unwrap_or(i64::MAX);
            if matching > 0 {
                *by_domain.entry((&term.topology_key, value)).or_default() += weight * matching;
            }
        }
        for pod in node.pods_with_affinity.iter().filter(|pod| node.counts(pod, View::Present)) {
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
    let own = candidate.spec.topology_spread_constraints.as_ref().is_some_and(|own| !own.is_empty());
    let rules = if own { Rule::all(candidate.spec, PREFERRED) } else { Rule::defaults(candidate) };
    if rules.is_empty() {
        return None;
    }
    // By default, a node without a zone is spread over by its name alone.
    let is_counted = |node: &NodeInfo| !own || has_all(&rules, &node.node);
    let mut sums: Vec<Option<f64>> = nodes.iter().map(|node| is_counted(node).then_some(0.0)).collect();
    for rule in &rules {
        // To count the pods of all nodes takes long.
        if !nodes.iter().any(|node| label(&node.node, rule.key()).is_some()) {
            continue;
        }
        let is_per_node = rule.key() == HOSTNAME;
        let counts = if is_per_node {
            HashMap::new()
        } else {
            pods_by_domain(candidate, rule, is_counted, all, nodes)
        };
        let domains = if is_per_node { sums.iter().flatten().count() } else { counts.len() };
        let weight = (u32::try_from(domains).map_or(f64::MAX, f64::from) + 2.0).ln();
        for (sum, node) in sums.iter_mut().zip(nodes) {
            let (Some(sum), Some(_)) = (sum, label(&node.node, rule.key())) else { continue };
            let count = match is_per_node {
                true => rule.pods_on(candidate, node, View::Present),
                false => {
                    let value = label(&node.node, rule.key()).unwrap_or_default();
                    counts.get(value).copied().unwrap_or(0)
                }
            };
            let count = u32::try_from(count).unwrap_or(u32::MAX);
            *sum += f64::from(count) * weight + f64::from(rule.constraint.max_skew - 1);
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

/// Returns the number of matching pods in each domain that one of the feasible `nodes` is in.
fn pods_by_domain<'a>(
    candidate: &Candidate,
    rule: &Rule,
    is_counted: impl Fn(&NodeInfo) -> bool,
    all: &[NodeInfo],
    nodes: &[&'a NodeInfo],
) -> HashMap<&'a str, usize> {
    let mut counts: HashMap<&str, usize> = HashMap::new();
    // Nodes without the label are a domain, too.
    for node in nodes.iter().filter(|node| is_counted(node)) {
        counts.insert(label(&node.node, rule.key()).unwrap_or_default(), 0);
    }
    let counted = all.iter().filter(|node| is_counted(node) && rule.includes(candidate, &node.node));
    for node in counted {
        if let Some(count) = counts.get_mut(label(&node.node, rule.key()).unwrap_or_default()) {
            *count += rule.pods_on(candidate, node, View::Present);
        }
    }
    counts
}

/// Rounds to the nearest integer.
fn rounded(number: f64) -> i64 {
    #[allow(clippy::cast_possible_truncation)]
    let whole = number.round() as i64;
    whole
}
