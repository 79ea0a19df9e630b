//! A pod that is being scheduled, and why a node does not take it.

use k8s_openapi::api::core::v1::{Pod, PodSpec};
use kube::core::Selector;

use super::dynamic_resources::PodDevices;
use super::requests::PodRequests;
use super::volume_binding::Claims;
use super::volume_limits::VolumeLimits;

/// A pod that is being scheduled.
pub struct Candidate<'a> {
    pub pod: &'a Pod,
    pub spec: &'a PodSpec,
    pub requests: PodRequests,
    pub claims: Claims,
    pub devices: PodDevices<'a>,
    /// The pods of the same Services and the same owner, from which it is spread by default.
    pub siblings: Option<Selector>,
    pub volume_limits: &'a VolumeLimits,
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
