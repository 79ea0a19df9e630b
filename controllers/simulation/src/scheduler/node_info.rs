//! A node as the scheduler sees it.

use std::sync::Arc;

use coracle_kinds::resources::{amount, requests, resource_list};
use coracle_pod_resources::{ResourceList, add_resource_list};
use k8s_openapi::api::core::v1::{Container, Node, Pod, PodSpec};

use super::affinity_terms::{has_affinity, required_anti_affinity_terms};

/// CPU in thousandths and memory in bytes: what the scores compare.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuAndMemory(pub [i64; 2]);

impl CpuAndMemory {
    /// Returns the amounts in a list of resources.
    pub fn of(list: &ResourceList) -> CpuAndMemory {
        CpuAndMemory([amount(list, "cpu").milli_value(), amount(list, "memory").value()])
    }

    /// Returns the assumed use of a pod with these requests: a container without a request uses
    /// something too.
    pub fn with_defaults(self, spec: &PodSpec) -> CpuAndMemory {
        const DEFAULT: [i64; 2] = [100, 200 << 20];
        let lacking = |resource: &str| {
            let lacks = |container: &&Container| {
                let requests = container.resources.as_ref().and_then(|resources| resources.requests.as_ref());
                requests.is_none_or(|requests| !requests.contains_key(resource))
            };
            i64::try_from(spec.containers.iter().filter(lacks).count()).unwrap_or(i64::MAX)
        };
        let [cpu, memory] = DEFAULT;
        self.plus(CpuAndMemory([
            cpu.saturating_mul(lacking("cpu")),
            memory.saturating_mul(lacking("memory")),
        ]))
    }

    /// Returns the sum of two amounts.
    pub fn plus(self, CpuAndMemory([more_cpu, more_memory]): CpuAndMemory) -> CpuAndMemory {
        let CpuAndMemory([cpu, memory]) = self;
        CpuAndMemory([cpu.saturating_add(more_cpu), memory.saturating_add(more_memory)])
    }

    /// Returns the difference of two amounts.
    pub fn minus(self, CpuAndMemory([less_cpu, less_memory]): CpuAndMemory) -> CpuAndMemory {
        let CpuAndMemory([cpu, memory]) = self;
        CpuAndMemory([cpu.saturating_sub(less_cpu), memory.saturating_sub(less_memory)])
    }
}

/// A node with its pods, its allocatable resources, and the requests of its pods (kube-scheduler's
/// NodeInfo).
pub struct NodeInfo {
    pub node: Arc<Node>,
    pub allocatable: ResourceList,
    pub used: ResourceList,
    /// The allocatable CPU and memory, in the units of the scores.
    pub capacity: CpuAndMemory,
    /// The requests of its pods.
    pub requested: CpuAndMemory,
    /// The assumed use of its pods.
    pub non_zero_requested: CpuAndMemory,
    pub pods: Vec<Arc<Pod>>,
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
            pods_with_anti_affinity: Vec::new(),
            pods_with_affinity: Vec::new(),
            node,
        }
    }

    pub fn name(&self) -> &str {
        self.node.metadata.name.as_deref().unwrap_or_default()
    }

    /// Adds a pod to the node.
    pub fn add_pod(&mut self, pod: Arc<Pod>) {
        if let Some(spec) = &pod.spec {
            let requests = requests(spec);
            add_resource_list(&mut self.used, &requests);
            let requested = CpuAndMemory::of(&requests);
            self.requested = self.requested.plus(requested);
            self.non_zero_requested = self.non_zero_requested.plus(requested.with_defaults(spec));
        }
        if required_anti_affinity_terms(&pod).next().is_some() {
            self.pods_with_anti_affinity.push(pod.clone());
        }
        if has_affinity(&pod) {
            self.pods_with_affinity.push(pod.clone());
        }
        self.pods.push(pod);
    }

    /// Removes a pod from the node.
    pub fn remove_pod(&mut self, pod: &Arc<Pod>) {
        let is_other = |other: &Arc<Pod>| !Arc::ptr_eq(other, pod);
        let count = self.pods.len();
        self.pods.retain(is_other);
        self.pods_with_anti_affinity.retain(is_other);
        self.pods_with_affinity.retain(is_other);
        let Some(spec) = pod.spec.as_ref().filter(|_| self.pods.len() < count) else { return };
        let requests = requests(spec);
        let requested = CpuAndMemory::of(&requests);
        self.requested = self.requested.minus(requested);
        self.non_zero_requested = self.non_zero_requested.minus(requested.with_defaults(spec));
        for (name, quantity) in requests {
            if let Some(used) = self.used.get_mut(&name) {
                *used = used.minus(&quantity);
            }
        }
    }
}
