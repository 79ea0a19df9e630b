//! The plan for a pod: which status to write, which events to record, whether to delete it, and
//! when to reconcile again. Pure: from the pod, its state so far, and the time.

use std::borrow::Cow;

use coracle_behavior::PodBehavior;
use coracle_kinds::pods::containers;
use k8s_openapi::api::core::v1::{Container, EnvVar, Pod};
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
    let pod = &*with_addresses(pod, addresses);
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

/// Returns a pod whose status has its addresses, which are assigned before anything runs in it, if
/// its containers have variables of them.
fn with_addresses(pod: &Pod, addresses: Addresses) -> Cow<'_, Pod> {
    let is_address = |variable: &EnvVar| {
        let field = variable.value_from.as_ref().and_then(|source| source.field_ref.as_ref());
        field.is_some_and(|field| field.field_path.starts_with("status."))
    };
    let has_them = |container: Cow<'_, Container>| container.env.iter().flatten().any(is_address);
    let is_known = pod.status.as_ref().is_some_and(|status| status.pod_ip.is_some());
    if is_known || !containers(pod).any(|(_, container)| has_them(container)) {
        return Cow::Borrowed(pod);
    }
    let mut pod = pod.clone();
    status::set_addresses(pod.status.get_or_insert_default(), addresses);
    Cow::Owned(pod)
}

#[cfg(test)]
mod tests;
