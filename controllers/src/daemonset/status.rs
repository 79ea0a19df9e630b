//! The status of a set: each node counts by its first pod.

use std::time::Duration;

use coracle_kinds::pods::{is_available, is_ready, time_until_available};
use k8s_openapi::api::apps::v1::DaemonSetStatus;

use super::eligibility::Requirements;
use super::observed::Observed;
use super::pods::{by_node, is_updated, sort};

/// Returns the status, and the time until a ready pod becomes available.
pub fn status(observed: &Observed<'_>) -> (DaemonSetStatus, Option<Duration>) {
    let Observed { set, pods, nodes, hash, now } = observed;
    let (requirements, mut by_node) = (Requirements::of(set), by_node(pods));
    let min_ready = observed.min_ready_seconds();
    let (mut desired, mut current, mut misscheduled) = (0, 0, 0);
    let (mut ready, mut available, mut updated) = (0, 0, 0);
    let mut until_available: Option<Duration> = None;
    for node in nodes.iter() {
        let name = node.metadata.name.as_deref().unwrap_or_default();
        let on_node = by_node.get_mut(name);
        if !requirements.should_run(node) {
            misscheduled += i32::from(on_node.is_some());
            continue;
        }
        desired += 1;
        let Some(on_node) = on_node else { continue };
        current += 1;
        sort(on_node);
        let Some(pod) = on_node.first() else { continue };
        let serves = is_available(pod, min_ready, *now);
        ready += i32::from(is_ready(pod));
        available += i32::from(serves);
        updated += i32::from(is_updated(pod, set, hash));
        if let Some(left) = time_until_available(pod, min_ready, *now).filter(|_| !serves) {
            until_available = Some(until_available.map_or(left, |earlier| earlier.min(left)));
        }
    }
    if min_ready > 0 && ready != available {
        // Since when a pod is ready may not be known.
        let all = Duration::from_secs(u64::try_from(min_ready).unwrap_or(0));
        until_available = until_available.or(Some(all));
    }
    let unless_zero = |count: i32| Some(count).filter(|count| *count != 0);
    let old = set.status.clone().unwrap_or_default();
    let status = DaemonSetStatus {
        desired_number_scheduled: desired,
        current_number_scheduled: current,
        number_misscheduled: misscheduled,
        number_ready: ready,
        updated_number_scheduled: unless_zero(updated),
        number_available: unless_zero(available),
        number_unavailable: unless_zero(desired - available),
        observed_generation: set.metadata.generation,
        ..old
    };
    (status, until_available)
}
