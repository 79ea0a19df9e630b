//! The rolling update: selects the next pods of earlier templates to replace.
//!
//! Source: kube-controller-manager's `pkg/controller/daemon/update.go`.

use std::collections::BTreeMap;
use std::sync::Arc;

use coracle_kinds::pods::{is_available, is_terminating};
use k8s_openapi::api::apps::v1::{DaemonSet, RollingUpdateDaemonSet};
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::eligibility::Requirements;
use super::observed::Observed;
use super::pods::{by_node, is_updated};
use crate::workload::int_or_percent::{Round, scaled_value};

/// Returns `true` if the update strategy of a set is RollingUpdate.
pub fn is_rolling(set: &DaemonSet) -> bool {
    let strategy = set.spec.as_ref().and_then(|spec| spec.update_strategy.as_ref());
    strategy.and_then(|strategy| strategy.type_.as_deref()) == Some("RollingUpdate")
}

/// Returns `true` if a node may have one pod more during an update.
pub fn allows_surge(set: &DaemonSet) -> bool {
    limits(set, i32::MAX).1 > 0
}

fn rolling(set: &DaemonSet) -> Option<&RollingUpdateDaemonSet> {
    set.spec.as_ref()?.update_strategy.as_ref()?.rolling_update.as_ref().filter(|_| is_rolling(set))
}

/// Returns `maxUnavailable` and `maxSurge` as numbers of pods. Percentages are rounded up.
fn limits(set: &DaemonSet, desired: i32) -> (i32, i32) {
    let scaled = |value: Option<&IntOrString>| {
        let scaled = value.and_then(|value| scaled_value(value, desired, Round::Up));
        scaled.unwrap_or(0).max(0)
    };
    let rolling = rolling(set);
    let surge = scaled(rolling.and_then(|rolling| rolling.max_surge.as_ref()));
    match scaled(rolling.and_then(|rolling| rolling.max_unavailable.as_ref())) {
        0 if surge == 0 && desired > 0 => (1, 0),
        unavailable => (unavailable, surge),
    }
}

/// The pods of a node that count for the update.
enum OnNode<'a> {
    None,
    New(&'a Arc<Pod>),
    Old(&'a Arc<Pod>),
    Both {
        new: &'a Arc<Pod>,
        old: &'a Arc<Pod>,
    },
    /// Several of a kind, which are deleted first.
    Several,
}

fn on_node<'a>(set: &DaemonSet, pods: &[&'a Arc<Pod>], hash: &str) -> OnNode<'a> {
    let staying = pods.iter().copied().filter(|pod| !is_terminating(pod));
    let (new, old): (Vec<_>, Vec<_>) = staying.partition(|pod| is_updated(pod, set, hash));
    match (new.as_slice(), old.as_slice()) {
        ([], []) => OnNode::None,
        ([new], []) => OnNode::New(new),
        ([], [old]) => OnNode::Old(old),
        ([new], [old]) => OnNode::Both { new, old },
        _ => OnNode::Several,
    }
}

/// Returns the nodes on which the update creates pods, and the pods that it deletes.
pub fn plan(observed: &Observed<'_>) -> (Vec<String>, Vec<Arc<Pod>>) {
    let requirements = Requirements::of(observed.set);
    let mut nodes = by_node(observed.pods);
    let eligible: Vec<&str> = observed
        .nodes
        .iter()
        .filter(|node| requirements.should_run(node))
        .filter_map(|node| node.metadata.name.as_deref())
        .collect();
    for name in &eligible {
        nodes.entry(name).or_default();
    }
    let desired = i32::try_from(eligible.len()).unwrap_or(i32::MAX);
    let (unavailable, surge) = limits(observed.set, desired);
    match surge {
        0 => (Vec::new(), replace(observed, &nodes, unavailable)),
        surge => add(observed, &requirements, &nodes, surge, desired),
    }
}

/// Deletes old pods: unavailable ones always, available ones as long as enough are available.
fn replace(
    observed: &Observed<'_>,
    nodes: &BTreeMap<&str, Vec<&Arc<Pod>>>,
    most_unavailable: i32,
) -> Vec<Arc<Pod>> {
    let is_available = |pod: &Pod| is_available(pod, observed.min_ready_seconds(), observed.now);
    let (mut unavailable, mut replaced, mut candidates) = (0, Vec::new(), Vec::new());
    for pods in nodes.values() {
        match on_node(observed.set, pods, observed.hash) {
            OnNode::New(pod) if is_available(pod) => {}
            OnNode::Old(pod) if is_available(pod) => candidates.push(pod.clone()),
            OnNode::Old(pod) => {
                unavailable += 1;
                replaced.push(pod.clone());
            }
            OnNode::None | OnNode::New(_) | OnNode::Both { .. } | OnNode::Several => unavailable += 1,
        }
    }
    let room = usize::try_from(most_unavailable - unavailable).unwrap_or(0);
    replaced.extend(candidates.into_iter().take(room));
    replaced
}

/// Creates new pods in addition to old ones, and deletes old pods whose successor is available.
fn add(
    observed: &Observed<'_>,
    requirements: &Requirements<'_>,
    nodes: &BTreeMap<&str, Vec<&Arc<Pod>>>,
    most_surge: i32,
    desired: i32,
) -> (Vec<String>, Vec<Arc<Pod>>) {
    let is_available = |pod: &Pod| is_available(pod, observed.min_ready_seconds(), observed.now);
    let by_name: BTreeMap<&str, &Arc<Node>> =
        observed.nodes.iter().filter_map(|node| Some((node.metadata.name.as_deref()?, node))).collect();
    let (mut surge, mut available) = (0, 0);
    let (mut create, mut candidates) = (Vec::new(), Vec::new());
    let (mut delete, mut leaving) = (Vec::new(), Vec::new());
    for (name, pods) in nodes {
        match on_node(observed.set, pods, observed.hash) {
            OnNode::None => {}
            OnNode::Several => surge += 1,
            OnNode::New(new) => available += i32::from(is_available(new)),
            OnNode::Both { new, old } => {
                available += i32::from(is_available(old));
                match is_available(new) {
                    true => delete.push(old.clone()),
                    false => surge += 1,
                }
            }
            OnNode::Old(old) => {
                let (serves, stays) =
                    (is_available(old), by_name.get(name).is_some_and(|node| requirements.should_run(node)));
                available += i32::from(serves);
                match (serves, stays) {
                    (false, true) => create.push((*name).to_owned()),
                    (false, false) => delete.push(old.clone()),
                    (true, true) => candidates.push((*name).to_owned()),
                    (true, false) => leaving.push(old.clone()),
                }
            }
        }
    }
    create.extend(candidates.into_iter().take(usize::try_from(most_surge - surge).unwrap_or(0)));
    delete.extend(leaving.into_iter().take(usize::try_from(available - desired).unwrap_or(0)));
    (create, delete)
}
