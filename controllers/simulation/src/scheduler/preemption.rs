//! Preemption: chooses pods of lower priority to delete so that a pod fits a node. Pure.
//!
//! On each node where fewer pods could help, all pods of a lower priority are removed, and as many
//! as possible are added back, first those whose disruption a PodDisruptionBudget does not permit.
//! The node with the least loss is chosen.

use std::cmp::Reverse;
use std::collections::HashSet;
use std::sync::Arc;

use coracle_kinds::pods;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::jiff::Timestamp;
use kube::core::{Selector, SelectorExt};

use super::node_info::NodeInfo;
use super::pod_info::priority;

/// The reason of the condition DisruptionTarget of victims.
pub const REASON: &str = "PreemptionByScheduler";
/// The smallest number of nodes on which preemption is tried, and their smallest share in percent.
const MIN_CANDIDATES: usize = 100;
const CANDIDATES_PERCENT: usize = 10;

/// A node and the pods that have to go from it.
#[derive(Debug)]
pub struct Preemption {
    /// The index of the node.
    pub node: usize,
    /// The most important first.
    pub victims: Vec<Arc<Pod>>,
    /// The number of victims whose disruption a budget does not permit.
    violations: usize,
}

/// Returns `true` if preempted pods of a lower priority are still terminating on a node.
pub fn is_under_way(node: &NodeInfo, priority_of_pod: i32) -> bool {
    node.pods.iter().any(|pod| {
        let is_victim = pods::conditions(pod).any(|c| {
            c.type_ == "DisruptionTarget" && c.status == "True" && c.reason.as_deref() == Some(REASON)
        });
        priority(pod) < priority_of_pod && pods::is_terminating(pod) && is_victim
    })
}

/// Returns the best preemption for a pod.
///
/// - `resolvable`: the indexes of the nodes on which the pod could fit if they had fewer pods
/// - `fits`: returns `true` if the pod fits the node with this index
pub fn preempt(
    nodes: &mut [NodeInfo],
    resolvable: &[usize],
    priority_of_pod: i32,
    budgets: &[Arc<PodDisruptionBudget>],
    fits: impl Fn(&[NodeInfo], usize) -> bool,
) -> Option<Preemption> {
    let most = (nodes.len() * CANDIDATES_PERCENT / 100).max(MIN_CANDIDATES);
    let mut found = Vec::new();
    for index in resolvable {
        if found.len() == most {
            break;
        }
        found.extend(victims_on(nodes, *index, priority_of_pod, budgets, &fits));
    }
    found.into_iter().min_by_key(|preemption| {
        let victims = &preemption.victims;
        let highest = victims.first().map_or(i32::MIN, |pod| priority(pod));
        // Each counts for something, however low its priority.
        let sum: i64 = victims.iter().map(|pod| i64::from(priority(pod)) - i64::from(i32::MIN)).sum();
        let important = victims.iter().filter(|pod| priority(pod) == highest);
        let earliest = important.map(|pod| started(pod)).min();
        (preemption.violations, highest, sum, victims.len(), Reverse(earliest))
    })
}

fn victims_on(
    nodes: &mut [NodeInfo],
    index: usize,
    priority_of_pod: i32,
    budgets: &[Arc<PodDisruptionBudget>],
    fits: impl Fn(&[NodeInfo], usize) -> bool,
) -> Option<Preemption> {
    let mut lower: Vec<Arc<Pod>> =
        nodes.get(index)?.pods.iter().filter(|pod| priority(pod) < priority_of_pod).cloned().collect();
    if lower.is_empty() {
        return None;
    }
    lower.sort_by_key(|pod| (Reverse(priority(pod)), started(pod)));
    for pod in &lower {
        nodes.get_mut(index)?.remove_pod(pod);
    }
    let mut preemption = Preemption { node: index, victims: Vec::new(), violations: 0 };
    let is_possible = fits(nodes, index);
    if is_possible {
        let protected = protected(&lower, budgets);
        let is_protected =
            |pod: &&Arc<Pod>| protected.contains(pod.metadata.uid.as_deref().unwrap_or_default());
        let first = lower.iter().filter(is_protected);
        for pod in first.chain(lower.iter().filter(|pod| !is_protected(pod))) {
            nodes.get_mut(index)?.add_pod(pod.clone());
            if !fits(nodes, index) {
                nodes.get_mut(index)?.remove_pod(pod);
                preemption.violations += usize::from(is_protected(&pod));
                preemption.victims.push(pod.clone());
            }
        }
    }
    // The node is as it was before.
    let node = nodes.get_mut(index)?;
    let gone = if is_possible { &preemption.victims } else { &lower };
    gone.iter().for_each(|pod| node.add_pod(pod.clone()));
    preemption.victims.sort_by_key(|pod| (Reverse(priority(pod)), started(pod)));
    (is_possible && !preemption.victims.is_empty()).then_some(preemption)
}

/// Returns the uids of the pods whose disruption a budget does not permit, if all of these pods are
/// disrupted in this order.
fn protected<'a>(pods: &'a [Arc<Pod>], budgets: &[Arc<PodDisruptionBudget>]) -> HashSet<&'a str> {
    let mut allowed: Vec<(&PodDisruptionBudget, Selector, i32)> = budgets
        .iter()
        .filter_map(|budget| {
            let selector = budget.spec.as_ref()?.selector.clone()?;
            let allowed = budget.status.as_ref().and_then(|status| status.disruptions_allowed).unwrap_or(0);
            Some((budget.as_ref(), Selector::try_from(selector).ok()?, allowed))
        })
        .collect();
    let mut protected = HashSet::new();
    for pod in pods {
        let Some(labels) = pod.metadata.labels.as_ref().filter(|labels| !labels.is_empty()) else { continue };
        for (budget, selector, allowed) in &mut allowed {
            let disrupted = budget.status.as_ref().and_then(|status| status.disrupted_pods.as_ref());
            let is_counted = disrupted
                .is_some_and(|pods| pod.metadata.name.as_ref().is_some_and(|name| pods.contains_key(name)));
            if budget.metadata.namespace == pod.metadata.namespace && selector.matches(labels) && !is_counted
            {
                *allowed -= 1;
                if *allowed < 0 {
                    protected.extend(pod.metadata.uid.as_deref());
                }
            }
        }
    }
    protected
}

fn started(pod: &Pod) -> Option<Timestamp> {
    let start = pod.status.as_ref().and_then(|status| status.start_time.as_ref());
    start.or(pod.metadata.creation_timestamp.as_ref()).map(|time| time.0)
}
