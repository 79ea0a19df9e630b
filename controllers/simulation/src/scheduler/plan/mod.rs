//! The scheduling decision for a pod: the node to bind it to, or why none fits and which pods to
//! preempt. Pure: a function of a snapshot of the cluster and the pod's claims.

mod nominees;

pub use nominees::nominees;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Pod, PodSpec};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::core::Selector;

use super::affinity_terms::Namespaces;
use super::candidate::{Candidate, Rejection};
use super::dynamic_resources::{Cleanup, DeviceBinding, DeviceSnapshot, NOTHING_TO_DEALLOCATE};
use super::filter::{named_nodes, rejection};
use super::inter_pod::InterPodConstraints;
use super::node_info::NodeInfo;
use super::pod_info::{nominated_node, priority};
use super::preemption::{Preemption, is_under_way, preempt};
use super::requests::PodRequests;
use super::score::scores;
use super::volume_binding::{Claims, VolumeBinding};
use super::volume_limits::VolumeLimits;

#[derive(Debug)]
pub enum Decision {
    /// The pod is bound to this node.
    Bind(String),
    /// The pod is bound to this node once these claims are bound there.
    BindVolumes(String, Vec<VolumeBinding>),
    /// The pod is bound to this node once its devices are reserved, and these claims are bound.
    BindDevices { node: String, volumes: Vec<VolumeBinding>, devices: DeviceBinding },
    /// The claims of a pod that was assumed could not be bound, for this reason.
    Fail(String),
    /// The attempt ended with this error, which is of no single node.
    Error(String),
    /// The search for devices took too long. The attempt is repeated after a while.
    TimeOut(String),
    /// The attempt is put off to the next cycle.
    Defer,
    /// No node fits, for this reason. The pod stays nominated for a node, or does not.
    Reject { message: String, keeps_nomination: bool },
    /// No node fits, for this reason; but this one will, once these pods of it are deleted.
    Preempt { message: String, node: String, victims: Vec<Arc<Pod>> },
}

/// The cluster in one scheduling cycle (kube-scheduler: Snapshot).
pub struct Snapshot {
    /// Ordered by name.
    pub nodes: Vec<NodeInfo>,
    pub namespaces: Namespaces,
    pub budgets: Vec<Arc<PodDisruptionBudget>>,
    /// The index of the node that is checked first; each pod continues after the nodes of the
    /// previous one.
    pub next_start: usize,
    /// The nominated pods that nothing is reserved for yet, the least important first.
    pub nominees: Vec<Arc<Pod>>,
    pub devices: DeviceSnapshot,
    pub volume_limits: Arc<VolumeLimits>,
    /// The claims that have to give their devices back, so that their pods can be scheduled.
    pub cleanups: Vec<Cleanup>,
}

/// Returns the number of feasible nodes to find before they are scored. A check of all nodes of a
/// large cluster would take too long.
///
/// Source: kube-scheduler's `numFeasibleNodesToFind` with the default of
/// `percentageOfNodesToScore`.
fn feasible_nodes_to_find(count: usize) -> usize {
    const MIN_NODES: usize = 100;
    const MIN_PERCENT: usize = 5;
    let percent = 50_usize.saturating_sub(count / 125).max(MIN_PERCENT);
    (count * percent / 100).max(MIN_NODES)
}

impl Snapshot {
    /// Chooses a node for one pod, and adds the pod to it. Pods are to be scheduled in the order of
    /// their priorities.
    ///
    /// - `siblings`: returns the pods that it is spread from by default
    pub fn schedule(
        &mut self,
        pod: &Arc<Pod>,
        claims: Result<Claims, String>,
        siblings: impl FnOnce() -> Option<Selector>,
    ) -> Decision {
        self.reserve_for_important(priority(pod));
        self.release(pod);
        let decision = self.decide(pod, claims, siblings);
        let nominated = match &decision {
            Decision::Preempt { node, .. } => Some(node.as_str()),
            Decision::Reject { keeps_nomination: true, .. } => nominated_node(pod),
            _ => None,
        };
        nominated.into_iter().for_each(|node| self.reserve(node, pod));
        decision
    }

    fn decide(
        &mut self,
        pod: &Arc<Pod>,
        claims: Result<Claims, String>,
        siblings: impl FnOnce() -> Option<Selector>,
    ) -> Decision {
        let mut devices = std::mem::take(&mut self.devices);
        let decision = self.decide_with(pod, claims, siblings, &devices);
        if let Decision::BindDevices { devices: binding, .. } = &decision {
            devices.reserve(binding);
        }
        self.devices = devices;
        decision
    }

    fn decide_with(
        &mut self,
        pod: &Arc<Pod>,
        claims: Result<Claims, String>,
        siblings: impl FnOnce() -> Option<Selector>,
        devices: &DeviceSnapshot,
    ) -> Decision {
        let count = self.nodes.len();
        let no_nodes = || Decision::Reject {
            message: "no nodes available to schedule pods".to_owned(),
            keeps_nomination: false,
        };
        if count == 0 {
            return no_nodes();
        }
        // The last two words are an error of the scheduler's DynamicResources plugin, which keeps
        // preemption from being tried.
        let rejected_by_all = |reason: &str| Decision::Reject {
            message: format!("0/{count} nodes are available: {reason}. not found"),
            keeps_nomination: true,
        };
        let nothing = PodSpec::default();
        let spec = pod.spec.as_ref().unwrap_or(&nothing);
        let named = named_nodes(spec);
        if named.as_ref().is_some_and(BTreeSet::is_empty) {
            return rejected_by_all("pod affinity terms conflict");
        }
        let claims = match claims {
            Ok(claims) => claims,
            Err(reason) => return rejected_by_all(&reason),
        };
        let requests = PodRequests::of(pod);
        let devices = match devices.devices_of(pod, &requests) {
            Ok(devices) => devices,
            Err(reason) => return self.reject_by_claims(spec, &reason),
        };
        let volume_limits = self.volume_limits.clone();
        let mut candidate =
            Candidate { pod, spec, requests, claims, devices, siblings: None, volume_limits: &volume_limits };
        let inter_pod = InterPodConstraints::of(&candidate, &self.nodes, &self.namespaces);
        let (feasible, rejections) = self.filter(&candidate, &inter_pod, named.as_ref());
        if let Some(error) = candidate.devices.error() {
            return if candidate.devices.has_timed_out() {
                Decision::TimeOut(error)
            } else {
                Decision::Error(error)
            };
        }
        if feasible.len() > 1 {
            candidate.siblings = siblings();
        }
        let Some(best) = self.best(&candidate, &feasible) else {
            return self.reject(&candidate, &inter_pod, &rejections);
        };
        let Some(node) = self.nodes.get_mut(best) else { return no_nodes() };
        let binding = match candidate.devices.binding(pod, node) {
            Ok(binding) => binding,
            Err(error) => return Decision::Error(error),
        };
        node.add_pod(pod.clone());
        let (name, volumes) = (node.name().to_owned(), candidate.claims.bindings_on(&node.node));
        let volumes = volumes.unwrap_or_default();
        match binding {
            Some(devices) => Decision::BindDevices { node: name, volumes, devices },
            None if volumes.is_empty() => Decision::Bind(name),
            None => Decision::BindVolumes(name, volumes),
        }
    }

    fn find(&self, name: &str) -> Option<usize> {
        self.nodes.binary_search_by(|node| node.name().cmp(name)).ok()
    }

    /// Returns the indexes of the nodes that the pod fits, and the rejections by the others. If the
    /// nominated node fits, no other node is checked.
    ///
    /// - `named`: the names of the nodes to check; None for all
    fn filter(
        &mut self,
        candidate: &Candidate,
        inter_pod: &InterPodConstraints,
        named: Option<&BTreeSet<&str>>,
    ) -> (Vec<usize>, Vec<(usize, Rejection)>) {
        let count = self.nodes.len();
        let (mut feasible, mut rejections) = (Vec::new(), Vec::new());
        let nominated = nominated_node(candidate.pod).and_then(|name| self.find(name));
        if let Some((index, node)) = nominated.and_then(|index| Some((index, self.nodes.get(index)?)))
            && rejection(candidate, node, inter_pod).is_none()
        {
            return (vec![index], rejections);
        }
        // Both the names and the nodes are sorted.
        let only: Option<Vec<usize>> =
            named.map(|names| names.iter().filter_map(|name| self.find(name)).collect());
        let eligible = only.as_ref().map_or(count, Vec::len);
        let wanted = feasible_nodes_to_find(count);
        let mut looked_at = 0;
        while looked_at < eligible && feasible.len() < wanted {
            let position = (self.next_start + looked_at) % eligible;
            looked_at += 1;
            let index = only.as_ref().map_or(Some(position), |only| only.get(position).copied());
            let Some((index, node)) = index.and_then(|index| Some((index, self.nodes.get(index)?))) else {
                break;
            };
            match rejection(candidate, node, inter_pod) {
                None => feasible.push(index),
                Some(rejection) => rejections.push((index, rejection)),
            }
            if candidate.devices.error().is_some() {
                break;
            }
        }
        self.next_start = (self.next_start + looked_at) % count;
        if let Some(only) = only.filter(|_| feasible.is_empty()) {
            let others = (0..count).filter(|index| only.binary_search(index).is_err());
            rejections.extend(others.filter_map(|index| Some((index, not_named()?))));
        }
        (feasible, rejections)
    }

    /// Returns the feasible node with the best score. Of equal nodes it returns the one with the
    /// fewest pods, then the first.
    fn best(&self, candidate: &Candidate, feasible: &[usize]) -> Option<usize> {
        if let [only] = feasible {
            return Some(*only);
        }
        let scores = scores(candidate, &self.nodes, feasible, &self.namespaces);
        let pods = |index: usize| self.nodes.get(index).map_or(0, |node| node.pods.len());
        let ranked = feasible.iter().zip(scores).map(|(index, score)| (Reverse(score), pods(*index), *index));
        ranked.min().map(|(.., index)| index)
    }

    fn reject(
        &mut self,
        candidate: &Candidate,
        inter_pod: &InterPodConstraints,
        rejections: &[(usize, Rejection)],
    ) -> Decision {
        let reasons =
            rejections.iter().flat_map(|(_, rejection)| rejection.reasons.iter().map(String::as_str));
        let filtered = none_of(rejections.len(), reasons);
        let (of_claims, cleanup) = candidate.devices.post_filter();
        self.cleanups.extend(cleanup);
        let rejected = |preemption: String, keeps_nomination: bool| Decision::Reject {
            message: format!("{filtered} {of_claims}, preemption: {preemption}"),
            keeps_nomination,
        };
        if candidate.spec.preemption_policy.as_deref() == Some("Never") {
            return rejected("not eligible due to preemptionPolicy=Never.".to_owned(), true);
        }
        let priority = priority(candidate.pod);
        let is_resolvable =
            |index: usize| rejections.iter().any(|(of, rejection)| *of == index && rejection.is_resolvable);
        let nominated = nominated_node(candidate.pod).and_then(|name| self.find(name));
        if nominated.is_some_and(|index| {
            is_resolvable(index) && self.nodes.get(index).is_some_and(|node| is_under_way(node, priority))
        }) {
            let reason = "not eligible due to a terminating pod on the nominated node.";
            return rejected(reason.to_owned(), true);
        }
        let resolvable: Vec<usize> = rejections
            .iter()
            .filter(|(_, rejection)| rejection.is_resolvable)
            .map(|(index, _)| *index)
            .collect();
        let namespaces = &self.namespaces;
        let still_rejected = |nodes: &[NodeInfo], index: usize| {
            let node = nodes.get(index)?;
            match inter_pod.is_trivial() {
                true => rejection(candidate, node, inter_pod),
                false => {
                    let inter_pod = InterPodConstraints::of(candidate, nodes, namespaces);
                    rejection(candidate, node, &inter_pod)
                }
            }
        };
        match preempt(&mut self.nodes, &resolvable, priority, &self.budgets, still_rejected) {
            Ok(Preemption { node, victims, .. }) => {
                let name = self.nodes.get(node).map(|node| node.name().to_owned()).unwrap_or_default();
                Decision::Preempt { message: filtered, node: name, victims }
            }
            Err(reasons) => {
                let helpless = rejections.iter().filter(|(_, rejection)| !rejection.is_resolvable);
                let helpless = helpless.map(|_| "Preemption is not helpful for scheduling");
                let reasons = reasons.iter().flatten().map(String::as_str);
                rejected(none_of(rejections.len(), helpless.chain(reasons)), false)
            }
        }
    }

    /// Rejects a pod because of its ResourceClaims, whatever the node.
    fn reject_by_claims(&self, spec: &PodSpec, reason: &str) -> Decision {
        let count = self.nodes.len();
        let is_eligible = spec.preemption_policy.as_deref() != Some("Never");
        let preemption = match is_eligible {
            true => {
                format!("0/{count} nodes are available: {count} Preemption is not helpful for scheduling.")
            }
            false => "not eligible due to preemptionPolicy=Never.".to_owned(),
        };
        Decision::Reject {
            message: format!(
                "0/{count} nodes are available: {reason}. {NOTHING_TO_DEALLOCATE}, preemption: {preemption}"
            ),
            keeps_nomination: !is_eligible,
        }
    }
}

/// Returns the rejection by a node that the pod's affinity to names of nodes leaves out.
fn not_named() -> Option<Rejection> {
    Rejection::unresolvable("node(s) didn't satisfy plugin(s) [NodeAffinity]")
}

fn none_of<'a>(count: usize, reasons: impl Iterator<Item = &'a str>) -> String {
    let mut histogram = BTreeMap::<&str, usize>::new();
    reasons.for_each(|reason| *histogram.entry(reason).or_default() += 1);
    let mut lines: Vec<String> =
        histogram.iter().map(|(reason, count)| format!("{count} {reason}")).collect();
    lines.sort_unstable();
    format!("0/{count} nodes are available: {}.", lines.join(", "))
}

#[cfg(test)]
mod tests;
