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

use super::candidate::Rejection;
use super::node_info::{NodeInfo, View};
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

/// Returns the best preemption for a pod, or for each node the reasons why there is none.
///
/// - `resolvable`: the indexes of the nodes on which the pod could fit if they had fewer pods
/// - `rejection`: returns why the pod does not fit the node with this index
pub fn preempt(
    nodes: &mut [NodeInfo],
    resolvable: &[usize],
    priority_of_pod: i32,
    budgets: &[Arc<PodDisruptionBudget>],
    rejection: impl Fn(&[NodeInfo], usize) -> Option<Rejection>,
) -> Result<Preemption, Vec<Vec<String>>> {
    let most = (nodes.len() * CANDIDATES_PERCENT / 100).max(MIN_CANDIDATES);
    let (mut found, mut reasons) = (Vec::new(), Vec::new());
    for index in resolvable {
        if found.len() == most {
            break;
        }
        match victims_on(nodes, *index, priority_of_pod, budgets, &rejection) {
            Ok(preemption) => found.push(preemption),
            Err(hopeless) => reasons.push(hopeless),
        }
    }
    let best = found.into_iter().min_by_key(|preemption| {
        let victims = &preemption.victims;
        let highest = victims.first().map_or(i32::MIN, |pod| priority(pod));
        // Each counts for something, however low its priority.
        let sum: i64 = victims.iter().map(|pod| i64::from(priority(pod)) - i64::from(i32::MIN)).sum();
        let important = victims.iter().filter(|pod| priority(pod) == highest);
        let earliest = important.map(|pod| started(pod)).min();
        (preemption.violations, highest, sum, victims.len(), Reverse(earliest))
    });
    best.ok_or(reasons)
}

fn victims_on(
    nodes: &mut [NodeInfo],
    index: usize,
    priority_of_pod: i32,
    budgets: &[Arc<PodDisruptionBudget>],
    rejection: impl Fn(&[NodeInfo], usize) -> Option<Rejection>,
) -> Result<Preemption, Vec<String>> {
    let is_lower = |pod: &&Arc<Pod>| priority(pod) < priority_of_pod;
    let pods = nodes.get(index).into_iter().flat_map(|node| node.pods_in(View::Present));
    let mut lower: Vec<Arc<Pod>> = pods.filter(is_lower).cloned().collect();
    if lower.is_empty() {
        return Err(vec!["No preemption victims found for incoming pod".to_owned()]);
    }
    lower.sort_by_key(|pod| (Reverse(priority(pod)), started(pod)));
    lower.iter().for_each(|pod| remove(nodes, index, pod));
    if let Some(rejection) = rejection(nodes, index) {
        lower.iter().for_each(|pod| add(nodes, index, pod));
        return Err(rejection.reasons);
    }
    let protected = protected(&lower, budgets);
    let is_protected = |pod: &&Arc<Pod>| protected.contains(pod.metadata.uid.as_deref().unwrap_or_default());
    let first = lower.iter().filter(is_protected);
    let mut preemption = Preemption { node: index, victims: Vec::new(), violations: 0 };
    for pod in first.chain(lower.iter().filter(|pod| !is_protected(pod))) {
        add(nodes, index, pod);
        if rejection(nodes, index).is_some() {
            remove(nodes, index, pod);
            preemption.violations += usize::from(is_protected(&pod));
            preemption.victims.push(pod.clone());
        }
    }
    // The node is as it was before.
    preemption.victims.iter().for_each(|pod| add(nodes, index, pod));
    preemption.victims.sort_by_key(|pod| (Reverse(priority(pod)), started(pod)));
    if preemption.victims.is_empty() { Err(Vec::new()) } else { Ok(preemption) }
}

fn add(nodes: &mut [NodeInfo], index: usize, pod: &Arc<Pod>) {
    nodes.get_mut(index).into_iter().for_each(|node| node.add_pod(pod.clone()));
}

fn remove(nodes: &mut [NodeInfo], index: usize, pod: &Arc<Pod>) {
    nodes.get_mut(index).into_iter().for_each(|node| node.remove_pod(pod));
}

/// Returns the uids of the pods whose disruption a budget does not permit, if all of these pods are
/// disrupted in this order.
fn protected<'a>(pods: &'a [Arc<Pod>], budgets: &[Arc<PodDisruptionBudget>]) -> HashSet<&'a str> {
    let mut allowed: Vec<(&PodDisruptionBudget, Selector, i32)> = budgets
        .iter()
        .filter_map(|budget| {
            let selector = budget.spec.as_ref()?.selector.clone()?;
            let allowed = budget.status.as_ref().and_then(|status| status.disruptions_allowed).unwrap_or(0);
            let selector = Selector::try_from(selector).ok()?;
            Some((budget.as_ref(), selector, allowed))
        })
        // To preemption, unlike to evictions, a budget with an empty selector matches no pod.
        .filter(|(_, selector, _)| !selector.selects_all())
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
