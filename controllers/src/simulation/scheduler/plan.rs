//! Which node a pod is bound to, or why none fits. Pure: from nodes, the pods on them, and the pod's claims.

use std::collections::BTreeMap;
use std::sync::Arc;

use coracle_kinds::resources::{amount, requests, resource_list};
use coracle_pod_resources::{ResourceList, add_resource_list};
use k8s_openapi::api::core::v1::{Node, Pod, PodSpec};

use super::filter::{Candidate, Rejection, rejection};
use super::inter_pod::{InterPodConstraints, Namespaces, required_anti_affinity_terms};
use super::volume_binding::{Claims, VolumeBinding};

/// A node, its pods, and what is left of its resources (kube-scheduler: NodeInfo).
pub struct NodeInfo {
    pub node: Arc<Node>,
    pub allocatable: ResourceList,
    pub used: ResourceList,
    pub pods: Vec<Arc<Pod>>,
    /// Those of the pods that do not want to be with certain others.
    pub pods_with_anti_affinity: Vec<Arc<Pod>>,
}

impl NodeInfo {
    pub fn new(node: Arc<Node>) -> NodeInfo {
        let allocatable = node.status.as_ref().and_then(|status| status.allocatable.as_ref());
        let (allocatable, used) = (resource_list(allocatable), ResourceList::new());
        NodeInfo { node, allocatable, used, pods: Vec::new(), pods_with_anti_affinity: Vec::new() }
    }

    pub fn name(&self) -> &str {
        self.node.metadata.name.as_deref().unwrap_or_default()
    }

    /// Adds a pod to the node.
    pub fn add_pod(&mut self, pod: Arc<Pod>) {
        if let Some(spec) = &pod.spec {
            add_resource_list(&mut self.used, &requests(spec));
        }
        if required_anti_affinity_terms(&pod).next().is_some() {
            self.pods_with_anti_affinity.push(pod.clone());
        }
        self.pods.push(pod);
    }
}

#[derive(Debug)]
pub enum Decision {
    /// To be bound to this node.
    Bind(String),
    /// To be bound to this node once these claims are bound there.
    BindVolumes(String, Vec<VolumeBinding>),
    /// No node fits, for this reason.
    Reject(String),
}

/// Chooses a node for one pod, and adds the pod to it.
pub fn decide(
    nodes: &mut [NodeInfo],
    pod: &Arc<Pod>,
    claims: Result<Claims, String>,
    namespaces: &Namespaces,
) -> Decision {
    if nodes.is_empty() {
        return Decision::Reject("no nodes available to schedule pods".to_owned());
    }
    let count = nodes.len();
    let claims = match claims {
        Ok(claims) => claims,
        // The last two words are an error of the scheduler's DynamicResources plugin.
        Err(reason) => {
            return Decision::Reject(format!("0/{count} nodes are available: {reason}. not found"));
        }
    };
    let nothing = PodSpec::default();
    let spec = pod.spec.as_ref().unwrap_or(&nothing);
    let candidate = Candidate { pod, spec, requests: requests(spec), claims };
    let inter_pod = InterPodConstraints::of(&candidate, nodes, namespaces);
    let rejections: Vec<_> = nodes.iter().map(|node| rejection(&candidate, node, &inter_pod)).collect();
    let fitting = nodes.iter_mut().zip(&rejections).filter(|(_, rejection)| rejection.is_none());
    // Of several the least occupied.
    let best = fitting.map(|(node, _)| node).min_by_key(|node| (node.pods.len(), amount(&node.used, "cpu")));
    let Some(node) = best else {
        return Decision::Reject(message(&rejections, spec));
    };
    node.add_pod(pod.clone());
    match candidate.claims.bindings_on(&node.node) {
        Some(served) if !served.is_empty() => Decision::BindVolumes(node.name().to_owned(), served),
        _ => Decision::Bind(node.name().to_owned()),
    }
}

/// The scheduler's message when no node fits: how many there are for each reason, then why nothing was preempted.
fn message(rejections: &[Option<Rejection>], spec: &PodSpec) -> String {
    let rejections = || rejections.iter().flatten();
    let why = rejections().flat_map(|rejection| rejection.reasons.iter().map(String::as_str));
    let preemption = match spec.preemption_policy.as_deref() {
        Some("Never") => "not eligible due to preemptionPolicy=Never.".to_owned(),
        _ => none_of(
            rejections().count(),
            rejections().map(|rejection| match rejection.is_resolvable {
                true => "No preemption victims found for incoming pod",
                false => "Preemption is not helpful for scheduling",
            }),
        ),
    };
    let filtered = none_of(rejections().count(), why);
    format!("{filtered} no new claims to deallocate, preemption: {preemption}")
}

fn none_of<'a>(count: usize, reasons: impl Iterator<Item = &'a str>) -> String {
    let mut histogram = BTreeMap::<&str, usize>::new();
    reasons.for_each(|reason| *histogram.entry(reason).or_default() += 1);
    let mut lines: Vec<String> =
        histogram.iter().map(|(reason, count)| format!("{count} {reason}")).collect();
    lines.sort_unstable();
    format!("0/{count} nodes are available: {}.", lines.join(", "))
}

/// The order in which pods are scheduled: by priority, then by age.
pub fn sort_by_priority(mut pods: Vec<Arc<Pod>>) -> Vec<Arc<Pod>> {
    let priority = |pod: &Pod| pod.spec.as_ref().and_then(|spec| spec.priority).unwrap_or(0);
    pods.sort_by_key(|pod| {
        (std::cmp::Reverse(priority(pod)), pod.metadata.creation_timestamp.as_ref().map(|time| time.0))
    });
    pods
}

#[cfg(test)]
mod tests;
