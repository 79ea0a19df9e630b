//! The plan for a pod: which status to write, which events to record, whether to delete it, and
//! when to reconcile again. Pure: from the pod, its state so far, and the time.

use coracle_behavior::PodBehavior;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;
use serde_json::Value;

use super::pod::waits_for_removal;
use super::runtime_state::{Obstacles, PodEvent, PodRuntimeState};
use super::status::{self, Addresses};

pub struct Observed<'a> {
    pub pod: &'a Pod,
    /// None: the pod has just come to its node.
    pub state: Option<&'a PodRuntimeState>,
    pub behavior: &'a PodBehavior,
    pub obstacles: &'a Obstacles,
    /// Whether the status must be replaced even if nothing happens, since the node was given up in
    /// the meantime or the pod has another generation.
    pub is_outdated: bool,
    pub addresses: Addresses,
    pub now: Timestamp,
}

#[derive(Debug)]
pub struct Plan {
    pub state: PodRuntimeState,
    /// A patch of the status, if anything happened.
    pub status: Option<Value>,
    pub events: Vec<PodEvent>,
    /// Whether to remove the pod, since none of its containers runs any more.
    pub is_deleted: bool,
    pub wake: Option<Timestamp>,
}

pub fn plan(observed: &Observed) -> Plan {
    let Observed { pod, state: known, behavior, obstacles, is_outdated, addresses, now } = *observed;
    let mut state = known.cloned().unwrap_or_else(|| PodRuntimeState::begin(pod, now));
    let progress = state.advance(pod, behavior, obstacles, now);
    let has_changed = known != Some(&state);
    Plan {
        status: (has_changed || is_outdated).then(|| status::patch(pod, &state, addresses, now)),
        events: progress.events,
        is_deleted: state.end.is_some() && waits_for_removal(pod),
        wake: progress.wake,
        state,
    }
}

#[cfg(test)]
mod tests;
