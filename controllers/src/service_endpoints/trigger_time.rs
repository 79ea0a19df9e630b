//! The time of the change of a Service or its pods that is not yet reflected in the endpoints.
//!
//! Source: `k8s.io/endpointslice/util` (`TriggerTimeTracker`).

use std::collections::HashMap;
use std::sync::Arc;

use coracle_controller_runtime::cache::NamespacedName;
use coracle_kinds::pods::conditions;
use k8s_openapi::api::core::v1::{Pod, Service};
use k8s_openapi::jiff::Timestamp;
use parking_lot::Mutex;

/// The trigger times observed at the last reconciliation of each Service.
#[derive(Default)]
pub struct TriggerTimeTracker {
    services: Mutex<HashMap<NamespacedName, ObservedTimes>>,
}

#[derive(Default)]
struct ObservedTimes {
    service: Option<Timestamp>,
    pods: HashMap<String, Timestamp>,
}

impl TriggerTimeTracker {
    /// Records the creation of the Service and the last change of each pod's readiness. Returns the
    /// earliest of these times that is newer than at the last call, or `None` if none is. At the
    /// first call for a Service it returns the creation time.
    pub fn observe(&self, name: &NamespacedName, service: &Service, pods: &[Arc<Pod>]) -> Option<Timestamp> {
        let created = service.metadata.creation_timestamp.as_ref().map(|time| time.0);
        let times = pods.iter().filter_map(|pod| Some((pod.metadata.name.clone()?, ready_changed(pod)?)));
        let observed = ObservedTimes { service: created, pods: times.collect() };
        let mut services = self.services.lock();
        let known = services.get(name);
        let trigger = match known {
            None => created,
            Some(known) => {
                let of_pods = observed.pods.iter().filter(|(pod, at)| known.pods.get(*pod) < Some(at));
                let of_service = created.filter(|_| known.service < created);
                of_pods.map(|(_, at)| *at).chain(of_service).min()
            }
        };
        services.insert(name.clone(), observed);
        trigger
    }

    /// Removes the state of a deleted Service.
    pub fn forget(&self, name: &NamespacedName) {
        self.services.lock().remove(name);
    }
}

fn ready_changed(pod: &Pod) -> Option<Timestamp> {
    let ready = conditions(pod).find(|condition| condition.type_ == "Ready")?;
    ready.last_transition_time.as_ref().map(|time| time.0)
}

/// Formats a time as in the annotation.
pub fn format(time: Timestamp) -> String {
    time.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_earliest_new_time_counts() {
        let tracker = TriggerTimeTracker::default();
        let name = NamespacedName::new("n", "s");
        let created = json!({"metadata": {"creationTimestamp": "2026-01-01T00:00:00Z"}});
        let service: Service = serde_json::from_value(created).unwrap();
        for (case, times, want) in [
            ("the first time", &[5, 3][..], Some(0)),
            ("nothing new", &[5, 3], None),
            ("one changed", &[5, 7], Some(7)),
            ("the earlier of two", &[9, 8], Some(8)),
            ("one is gone", &[9], None),
            ("a new pod", &[9, 4], Some(4)),
        ] {
            let pod = |(index, second): (usize, &i32)| {
                let at = format!("2026-01-01T00:00:0{second}Z");
                let ready = json!({"type": "Ready", "status": "True", "lastTransitionTime": at});
                let pod = json!({"metadata": {"name": index.to_string()}, "status": {"conditions": [ready]}});
                Arc::new(serde_json::from_value(pod).unwrap())
            };
            let pods: Vec<Arc<Pod>> = times.iter().enumerate().map(pod).collect();
            let want = want.map(|second| format!("2026-01-01T00:00:0{second}Z"));
            assert_eq!(tracker.observe(&name, &service, &pods).map(super::format), want, "{case}");
        }
    }
}
