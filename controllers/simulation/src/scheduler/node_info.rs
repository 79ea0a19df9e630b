//! A node as the scheduler sees it.

use std::collections::HashMap;
use std::sync::Arc;

use coracle_kinds::resources::resource_list;
use coracle_pod_resources::{ResourceList, add_resource_list};
use k8s_openapi::api::core::v1::{Node, Pod};

use super::affinity_terms::{has_affinity, required_anti_affinity_terms};
use super::pod_info::uid;
use super::requests::{CpuAndMemory, PodRequests};

/// The pods of a node that count.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum View {
    /// All pods, also those that are only nominated for the node.
    WithNominated,
    /// The bound and the assumed pods.
    Present,
}

/// A node with its pods, its allocatable resources, and the requests of its pods (kube-scheduler's
/// NodeInfo).
pub struct NodeInfo {
    pub node: Arc<Node>,
    pub allocatable: ResourceList,
    /// The requests of all its pods, also of the nominated ones.
    pub used: ResourceList,
    /// The allocatable CPU and memory, in the units of the scores.
    pub capacity: CpuAndMemory,
    /// The requests of the pods that are present.
    pub requested: CpuAndMemory,
    /// The assumed use of the pods that are present.
    pub non_zero_requested: CpuAndMemory,
    /// Its pods, and those that are nominated for it.
    pub pods: Vec<Arc<Pod>>,
    /// The pods that are only nominated for the node, by uid.
    pub nominated: HashMap<String, Arc<Pod>>,
    /// The pods with required anti-affinity.
    pub pods_with_anti_affinity: Vec<Arc<Pod>>,
    /// The pods with required affinity, or with preferred affinity or anti-affinity.
    pub pods_with_affinity: Vec<Arc<Pod>>,
}

impl NodeInfo {
    pub fn new(node: Arc<Node>) -> NodeInfo {
        let allocatable = node.status.as_ref().and_then(|status| status.allocatable.as_ref());
        let allocatable = resource_list(allocatable);
        NodeInfo {
            capacity: CpuAndMemory::of(&allocatable),
            allocatable,
            used: ResourceList::new(),
            requested: CpuAndMemory::default(),
            non_zero_requested: CpuAndMemory::default(),
            pods: Vec::new(),
            nominated: HashMap::new(),
            pods_with_anti_affinity: Vec::new(),
            pods_with_affinity: Vec::new(),
            node,
        }
    }

    pub fn name(&self) -> &str {
        self.node.metadata.name.as_deref().unwrap_or_default()
    }

    /// Returns `true` if a pod counts in this view.
    pub fn counts(&self, pod: &Arc<Pod>, view: View) -> bool {
        view == View::WithNominated || self.nominated.is_empty() || !self.nominated.contains_key(uid(pod))
    }

    /// Iterates over the pods that count in a view.
    pub fn pods_in(&self, view: View) -> impl Iterator<Item = &Arc<Pod>> {
        self.pods.iter().filter(move |pod| self.counts(pod, view))
    }

    /// Adds a pod to the node.
    pub fn add_pod(&mut self, pod: Arc<Pod>) {
        let requests = PodRequests::of(&pod);
        self.requested = self.requested.plus(requests.cpu_and_memory);
        self.non_zero_requested = self.non_zero_requested.plus(requests.non_zero);
        self.hold(pod, &requests);
    }

    /// Keeps room for a pod that is nominated for the node. It does not count in scores.
    pub fn nominate(&mut self, pod: Arc<Pod>) {
        self.nominated.insert(uid(&pod).to_owned(), pod.clone());
        let requests = PodRequests::of(&pod);
        self.hold(pod, &requests);
    }

    /// Removes a pod from the node.
    pub fn remove_pod(&mut self, pod: &Arc<Pod>) {
        if let Some(requests) = self.let_go(pod) {
            self.requested = self.requested.minus(requests.cpu_and_memory);
            self.non_zero_requested = self.non_zero_requested.minus(requests.non_zero);
        }
    }

    /// Gives the room of a nominated pod back.
    pub fn release(&mut self, pod: &Pod) {
        if let Some(pod) = self.nominated.remove(uid(pod)) {
            self.let_go(&pod);
        }
    }

    fn hold(&mut self, pod: Arc<Pod>, requests: &PodRequests) {
        add_resource_list(&mut self.used, &requests.all);
        if required_anti_affinity_terms(&pod).next().is_some() {
            self.pods_with_anti_affinity.push(pod.clone());
        }
        if has_affinity(&pod) {
            self.pods_with_affinity.push(pod.clone());
        }
        self.pods.push(pod);
    }

    /// Removes a pod from the lists, and returns its requests if it was in them.
    fn let_go(&mut self, pod: &Arc<Pod>) -> Option<PodRequests> {
        let is_other = |other: &Arc<Pod>| !Arc::ptr_eq(other, pod);
        let count = self.pods.len();
        self.pods.retain(is_other);
        self.pods_with_anti_affinity.retain(is_other);
        self.pods_with_affinity.retain(is_other);
        if self.pods.len() == count {
            return None;
        }
        let requests = PodRequests::of(pod);
        for (name, quantity) in &requests.all {
            if let Some(used) = self.used.get_mut(name) {
                *used = used.minus(quantity);
            }
        }
        Some(requests)
    }
}
