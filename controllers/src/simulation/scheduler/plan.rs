//! Which node a pod gets, or why it gets none. Pure: from nodes, the pods on them, and the pod's claims.

use std::collections::BTreeMap;
use std::sync::Arc;

use coracle_kinds::resources::{amount, requests, resource_list};
use coracle_pod_resources::{ResourceList, add_resource_list};
use k8s_openapi::api::core::v1::{Node, Pod, PodSpec};

use super::claims::{Claims, Serving};
use super::filter::{Candidate, Refusal, refusal};
use super::neighbours::{Namespaces, Neighbours, anti_terms};

/// A node and what is on it.
pub struct Place {
    pub node: Arc<Node>,
    pub allocatable: ResourceList,
    pub used: ResourceList,
    pub pods: Vec<Arc<Pod>>,
    /// Those of the pods that do not want to be with certain others.
    pub exclusive: Vec<Arc<Pod>>,
}

impl Place {
    pub fn new(node: Arc<Node>) -> Place {
        let allocatable = node.status.as_ref().and_then(|status| status.allocatable.as_ref());
        let (allocatable, used) = (resource_list(allocatable), ResourceList::new());
        Place { node, allocatable, used, pods: Vec::new(), exclusive: Vec::new() }
    }

    pub fn name(&self) -> &str {
        self.node.metadata.name.as_deref().unwrap_or_default()
    }

    /// Puts a pod here.
    pub fn take(&mut self, pod: Arc<Pod>) {
        if let Some(spec) = &pod.spec {
            add_resource_list(&mut self.used, &requests(spec));
        }
        if anti_terms(&pod).next().is_some() {
            self.exclusive.push(pod.clone());
        }
        self.pods.push(pod);
    }
}

#[derive(Debug)]
pub enum Decision {
    /// To be bound to this node.
    Bind(String),
    /// To be bound to this node once these claims are, which are to be served there.
    Serve(String, Vec<Serving>),
    /// No node takes it, for this reason.
    Refuse(String),
}

/// Decides about one pod, and puts it where it will be.
pub fn decide(
    places: &mut [Place],
    pod: &Arc<Pod>,
    claims: Result<Claims, String>,
    namespaces: &Namespaces,
) -> Decision {
    if places.is_empty() {
        return Decision::Refuse("no nodes available to schedule pods".to_owned());
    }
    let count = places.len();
    let claims = match claims {
        Ok(claims) => claims,
        // The last two words are what the scheduler's plugin for resource claims finds of its own state then.
        Err(reason) => {
            return Decision::Refuse(format!("0/{count} nodes are available: {reason}. not found"));
        }
    };
    let nothing = PodSpec::default();
    let spec = pod.spec.as_ref().unwrap_or(&nothing);
    let candidate = Candidate { pod, spec, requests: requests(spec), claims };
    let neighbours = Neighbours::of(&candidate, places, namespaces);
    let refusals: Vec<_> = places.iter().map(|place| refusal(&candidate, place, &neighbours)).collect();
    let fitting = places.iter_mut().zip(&refusals).filter(|(_, refusal)| refusal.is_none());
    // Of several the emptiest.
    let best =
        fitting.map(|(place, _)| place).min_by_key(|place| (place.pods.len(), amount(&place.used, "cpu")));
    let Some(place) = best else {
        return Decision::Refuse(message(&refusals, spec));
    };
    place.take(pod.clone());
    match candidate.claims.on(&place.node) {
        Some(served) if !served.is_empty() => Decision::Serve(place.name().to_owned(), served),
        _ => Decision::Bind(place.name().to_owned()),
    }
}

/// What the scheduler says when no node is left: how many there are for each reason, then why nothing was preempted.
fn message(refusals: &[Option<Refusal>], spec: &PodSpec) -> String {
    let refusals = || refusals.iter().flatten();
    let why = refusals().flat_map(|refusal| refusal.reasons.iter().map(String::as_str));
    let preemption = match spec.preemption_policy.as_deref() {
        Some("Never") => "not eligible due to preemptionPolicy=Never.".to_owned(),
        _ => none_of(
            refusals().count(),
            refusals().map(|refusal| match refusal.is_resolvable {
                true => "No preemption victims found for incoming pod",
                false => "Preemption is not helpful for scheduling",
            }),
        ),
    };
    let filtered = none_of(refusals().count(), why);
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

/// The order in which pods are looked at: the more important first, then the older.
pub fn in_order(mut pods: Vec<Arc<Pod>>) -> Vec<Arc<Pod>> {
    let priority = |pod: &Pod| pod.spec.as_ref().and_then(|spec| spec.priority).unwrap_or(0);
    pods.sort_by_key(|pod| {
        (std::cmp::Reverse(priority(pod)), pod.metadata.creation_timestamp.as_ref().map(|time| time.0))
    });
    pods
}

#[cfg(test)]
mod tests;
