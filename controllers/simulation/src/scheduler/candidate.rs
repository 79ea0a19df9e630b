//! A pod that is being scheduled, and why a node does not take it.

use coracle_pod_resources::ResourceList;
use k8s_openapi::api::core::v1::{Pod, PodSpec};

use super::node_info::CpuAndMemory;
use super::volume_binding::Claims;

/// A pod that is being scheduled.
pub struct Candidate<'a> {
    pub pod: &'a Pod,
    pub spec: &'a PodSpec,
    /// Requests of all resources.
    pub requests: ResourceList,
    /// Requests of CPU and memory only.
    pub cpu_and_memory: CpuAndMemory,
    /// The same with the scheduler's defaults for containers without requests (upstream
    /// `NonZeroRequested`).
    pub non_zero_requested: CpuAndMemory,
    pub claims: Claims,
}

/// The reasons for which a node was rejected.
#[derive(Debug, PartialEq, Eq)]
pub struct Rejection {
    pub reasons: Vec<String>,
    /// Whether the pod could fit if fewer pods were on the node.
    pub is_resolvable: bool,
}

impl Rejection {
    /// Creates a rejection that preemption cannot resolve.
    pub fn unresolvable(reason: &str) -> Option<Rejection> {
        Some(Rejection { reasons: vec![reason.to_owned()], is_resolvable: false })
    }

    pub fn resolvable(reason: &str) -> Option<Rejection> {
        Some(Rejection { reasons: vec![reason.to_owned()], is_resolvable: true })
    }
}
