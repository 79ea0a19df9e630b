//! The metrics of sets: kube-controller-manager's, and those of start ordinals (KEP-3335).

use std::collections::HashMap;

use coracle_clock::Clock;
use coracle_controller_runtime::cache::{Change, NamespacedName};
use coracle_controller_runtime::metrics::Metrics;
use k8s_openapi::api::apps::v1::{StatefulSet, StatefulSetStatus};
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use parking_lot::Mutex;
use prometheus::{CounterVec, DEFAULT_BUCKETS, GaugeVec, Histogram};

use super::{identity, rollout};

pub(super) struct Gauges {
    replicas: GaugeVec,
    status_replicas: GaugeVec,
    start: GaugeVec,
    max_unavailable: GaugeVec,
    unavailable: GaugeVec,
}

impl Gauges {
    pub fn new(metrics: &Metrics) -> Gauges {
        let plain = |name, help| metrics.gauge(name, help, &["namespace", "statefulset"]);
        let labels = ["statefulset_namespace", "statefulset_name", "pod_management_policy"];
        let own = |name, help| metrics.gauge(name, help, &labels);
        Gauges {
            replicas: plain("kube_statefulset_replicas", "Number of desired pods for a StatefulSet."),
            status_replicas: plain(
                "kube_statefulset_status_replicas",
                "The number of replicas per StatefulSet.",
            ),
            start: plain("kube_statefulset_ordinals_start", "Start ordinal of the StatefulSet."),
            max_unavailable: own(
                "statefulset_controller_statefulset_max_unavailable",
                "Maximum number of unavailable pods allowed during StatefulSet rolling updates",
            ),
            unavailable: own(
                "statefulset_controller_statefulset_unavailable_replicas",
                "Current number of unavailable pods in StatefulSet",
            ),
        }
    }

    /// Updates the gauges of a set. `unavailable` is only counted with the gate
    /// MaxUnavailableStatefulSet.
    pub fn update(&self, set: &StatefulSet, status: &StatefulSetStatus, counts_unavailable: bool) {
        let (namespace, name) = (set.namespace().unwrap_or_default(), set.name_any());
        let labels = [namespace.as_str(), name.as_str()];
        self.replicas.with_label_values(&labels).set(identity::replicas(set).into());
        self.status_replicas.with_label_values(&labels).set(status.replicas.into());
        match set.spec.as_ref().and_then(|spec| spec.ordinals.as_ref()) {
            Some(ordinals) => self.start.with_label_values(&labels).set(ordinals.start.unwrap_or(0).into()),
            // Most sets have no such metric.
            None => drop(self.start.remove_label_values(&labels)),
        }
        if counts_unavailable {
            let policy = set.spec.as_ref().and_then(|spec| spec.pod_management_policy.as_deref());
            let labels = [labels[0], labels[1], policy.unwrap_or("OrderedReady")];
            self.max_unavailable.with_label_values(&labels).set(rollout::max_unavailable(set).into());
            let unavailable = identity::replicas(set) - status.available_replicas.unwrap_or(0);
            self.unavailable.with_label_values(&labels).set(unavailable.max(0).into());
        }
    }

    pub fn forget(&self, set: &NamespacedName) {
        for gauge in [&self.replicas, &self.status_replicas, &self.start] {
            // Not every set has a value in each gauge.
            let _ = gauge.remove_label_values(&[&set.namespace, &set.name]);
        }
        for gauge in [&self.max_unavailable, &self.unavailable] {
            for policy in ["OrderedReady", "Parallel"] {
                let _ = gauge.remove_label_values(&[&set.namespace, &set.name, policy]);
            }
        }
    }
}

/// Counts how often a set had to wait for the caches. kube-controller-manager counts here the syncs
/// that it skips.
pub(super) fn stale_skips(metrics: &Metrics) -> CounterVec {
    let help = "Total number of StatefulSet syncs skipped due to a stale watch cache.";
    metrics.counter("statefulset_controller_stale_sync_skips_total", help, &["group", "resource"])
}

/// Measures the time from a change of a set's spec until its status has observed that generation.
pub(super) struct Delays {
    clock: Clock,
    seconds: Histogram,
    /// The times at which the specs of sets changed, until their status has observed it.
    since: Mutex<HashMap<NamespacedName, Timestamp>>,
}

impl Delays {
    pub fn new(metrics: &Metrics, clock: Clock) -> Delays {
        let help = "Seconds from a change of a StatefulSet until its status observes that generation.";
        let seconds = metrics.histogram("statefulset_reconcile_delay", help, DEFAULT_BUCKETS, &[]);
        Delays { clock, seconds: seconds.with_label_values::<&str>(&[]), since: Mutex::default() }
    }

    pub fn observe(&self, change: &Change<StatefulSet>) {
        let Some(name) = change.name() else { return };
        let mut since = self.since.lock();
        let observed = |set: &StatefulSet| set.status.as_ref().and_then(|status| status.observed_generation);
        match &change.new {
            None => drop(since.remove(&name)),
            Some(set) if observed(set) < set.metadata.generation => {
                since.entry(name).or_insert_with(|| self.clock.now());
            }
            Some(_) => {
                if let Some(since) = since.remove(&name) {
                    self.seconds.observe(self.clock.now().duration_since(since).as_secs_f64());
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use super::*;
    use serde_json::json;

    #[test]
    fn a_delay_ends_when_the_last_generation_is_observed() {
        let (clock, mock) = Clock::mock(Timestamp::UNIX_EPOCH);
        let delays = Delays::new(&Metrics::default(), clock);
        let state = |generation: i64, observed: i64| -> StatefulSet {
            let set = json!({
                "metadata": {"name": "web", "namespace": "n", "generation": generation},
                "spec": {"selector": {}, "template": {}},
                "status": {"replicas": 0, "observedGeneration": observed},
            });
            serde_json::from_value(set).unwrap()
        };
        for (case, set, want) in [
            ("at rest", state(1, 1), (0, 0.0)),
            ("changed", state(2, 1), (0, 0.0)),
            ("changed again", state(3, 1), (0, 0.0)),
            ("not all was seen", state(3, 2), (0, 0.0)),
            ("all was", state(3, 3), (1, 3.0)),
            ("nothing new", state(3, 3), (1, 3.0)),
        ] {
            delays.observe(&Change { old: None, new: Some(Arc::new(set)) });
            assert_eq!((delays.seconds.get_sample_count(), delays.seconds.get_sample_sum()), want, "{case}");
            mock.advance(Duration::from_secs(1));
        }
    }
}
