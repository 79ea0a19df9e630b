//! The decision about a set: the pods to create and delete, by node.
//!
//! Source: kube-controller-manager's `pkg/controller/daemon` (`manage`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use coracle_kinds::pods::{is_available, is_ready, is_terminating, node, phase};
use k8s_openapi::api::core::v1::{Node, Pod};

use super::eligibility::{Eligibility, Requirements};
use super::observed::Observed;
use super::pods::{by_node, has_hash, sort};
use super::rollout;

/// The maximum number of pods that are created, and deleted, in one reconciliation.
pub const BURST: usize = 250;

/// A pod that ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    Failed,
    Succeeded,
}

/// The changes to make.
#[derive(Debug, Default)]
pub struct Plan {
    /// The nodes on which pods are created.
    pub create: Vec<String>,
    pub delete: Vec<Arc<Pod>>,
    /// Pods that are deleted because they ended, and their nodes.
    pub ended: Vec<(Arc<Pod>, String, Ended)>,
    /// The time until a failed pod may be deleted.
    pub requeue_after: Option<Duration>,
}

impl Plan {
    fn is_empty(&self) -> bool {
        self.create.is_empty() && self.delete.is_empty()
    }
}

/// Plans the pods of a set: first each node gets its pod; once all have theirs, pods are updated.
///
/// - `backoff`: returns the time for which a failed pod on a node must stay
pub fn plan(observed: &Observed<'_>, backoff: impl FnMut(&str) -> Option<Duration>) -> Plan {
    let plan = manage(observed, backoff);
    let mut plan = match plan.is_empty() && rollout::is_rolling(observed.set) {
        true => {
            let (create, delete) = rollout::plan(observed);
            Plan { create, delete, ..plan }
        }
        false => plan,
    };
    plan.create.truncate(BURST);
    plan.delete.truncate(BURST);
    plan
}

fn manage(observed: &Observed<'_>, mut backoff: impl FnMut(&str) -> Option<Duration>) -> Plan {
    let Observed { set, pods, nodes, .. } = observed;
    let (requirements, by_node) = (Requirements::of(set), by_node(pods));
    let mut plan = Plan::default();
    for node in nodes.iter().filter_map(|node| Some((node, node.metadata.name.as_deref()?))) {
        let (node, name) = node;
        let there = by_node.get(name).map(Vec::as_slice).unwrap_or_default();
        match requirements.eligibility(node) {
            Eligibility::Run if there.is_empty() => plan.create.push(name.to_owned()),
            Eligibility::Stop => {
                plan.delete
                    .extend(there.iter().filter(|pod| !is_terminating(pod)).map(|pod| Arc::clone(pod)));
            }
            eligibility => {
                let running = remove_ended(there, name, &mut plan, &mut backoff);
                remove_surplus(observed, running, name, eligibility, &mut plan);
            }
        }
    }
    plan.delete.extend(without_node(&by_node, nodes));
    plan
}

/// Returns the running pods of a node, and plans the deletion of the ended ones; failed ones are
/// deleted with a backoff.
fn remove_ended<'a>(
    pods: &[&'a Arc<Pod>],
    node: &str,
    plan: &mut Plan,
    backoff: &mut impl FnMut(&str) -> Option<Duration>,
) -> Vec<&'a Arc<Pod>> {
    let mut running = Vec::new();
    for pod in pods.iter().copied().filter(|pod| !is_terminating(pod)) {
        let ended = match phase(pod) {
            "Failed" => Ended::Failed,
            "Succeeded" => Ended::Succeeded,
            _ => {
                running.push(pod);
                continue;
            }
        };
        if ended == Ended::Failed
            && let Some(delay) = backoff(node)
        {
            plan.requeue_after = Some(plan.requeue_after.map_or(delay, |earlier| earlier.min(delay)));
            continue;
        }
        plan.ended.push((pod.clone(), node.to_owned(), ended));
        plan.delete.push(pod.clone());
    }
    running
}

/// Marks the surplus pods of a node for deletion: all but one, or with surge all but one of the
/// current template and one of an earlier one that still serves.
fn remove_surplus(
    observed: &Observed<'_>,
    mut running: Vec<&Arc<Pod>>,
    node: &str,
    eligibility: Eligibility,
    plan: &mut Plan,
) {
    sort(&mut running);
    if !rollout::allows_surge(observed.set) {
        plan.delete.extend(running.into_iter().skip(1).cloned());
        return;
    }
    if running.is_empty() && eligibility == Eligibility::Run {
        plan.create.push(node.to_owned());
    }
    if running.len() < 2 {
        return;
    }
    let (new, old): (Vec<_>, Vec<_>) = running.into_iter().partition(|pod| has_hash(pod, observed.hash));
    plan.delete.extend(new.iter().skip(1).chain(old.iter().skip(1)).map(|pod| Arc::clone(pod)));
    if let (Some(new), Some(old)) = (new.first(), old.first())
        && (!is_ready(old) || is_available(new, observed.min_ready_seconds(), observed.now))
    {
        plan.delete.push(Arc::clone(old));
    }
}

/// Returns the pods of nodes that do not exist. No other controller deletes them.
fn without_node(by_node: &BTreeMap<&str, Vec<&Arc<Pod>>>, nodes: &[Arc<Node>]) -> Vec<Arc<Pod>> {
    let names: BTreeSet<&str> = nodes.iter().filter_map(|node| node.metadata.name.as_deref()).collect();
    let lost = by_node.iter().filter(|(name, _)| !names.contains(*name)).flat_map(|(_, pods)| pods);
    lost.filter(|pod| node(pod).is_none() && !is_terminating(pod)).map(|pod| Arc::clone(pod)).collect()
}

#[cfg(test)]
mod tests;
