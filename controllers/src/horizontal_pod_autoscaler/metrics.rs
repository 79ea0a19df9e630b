//! The metrics of kube-controller-manager's `horizontal_pod_autoscaler_controller`.

use std::collections::HashSet;

use coracle_controller_runtime::cache::NamespacedName;
use coracle_controller_runtime::metrics;
use parking_lot::Mutex;
use prometheus::{CounterVec, Gauge, GaugeVec, HistogramVec};

pub struct Metrics {
    reconciliations: CounterVec,
    durations: HistogramVec,
    desired: GaugeVec,
    count: Gauge,
    autoscalers: Mutex<HashSet<NamespacedName>>,
}

impl Metrics {
    pub fn new(metrics: &metrics::Metrics) -> Metrics {
        let none: &[&str] = &[];
        let labels = ["action", "error"];
        let buckets: Vec<f64> = (0..15).map(|power| 0.001 * f64::from(1 << power)).collect();
        Metrics {
            reconciliations: metrics.counter(
                "horizontal_pod_autoscaler_controller_reconciliations_total",
                "Number of reconciliations of HPA controller.",
                &labels,
            ),
            durations: metrics.histogram(
                "horizontal_pod_autoscaler_controller_reconciliation_duration_seconds",
                "The time(seconds) that the HPA controller takes to reconcile once.",
                &buckets,
                &labels,
            ),
            desired: metrics.gauge(
                "horizontal_pod_autoscaler_controller_desired_replicas",
                "Current desired replica count for HPA objects.",
                &["namespace", "hpa_name"],
            ),
            count: metrics
                .gauge(
                    "horizontal_pod_autoscaler_controller_num_horizontal_pod_autoscalers",
                    "Current number of controlled HPA objects.",
                    &[],
                )
                .with_label_values(none),
            autoscalers: Mutex::default(),
        }
    }

    pub fn observe(&self, autoscaler: &NamespacedName) {
        let mut autoscalers = self.autoscalers.lock();
        autoscalers.insert(autoscaler.clone());
        self.count.set(autoscalers.len() as f64);
    }

    pub fn forget(&self, autoscaler: &NamespacedName) {
        let mut autoscalers = self.autoscalers.lock();
        autoscalers.remove(autoscaler);
        self.count.set(autoscalers.len() as f64);
        // It may never have been reconciled.
        let _ = self.desired.remove_label_values(&[&autoscaler.namespace, &autoscaler.name]);
    }

    pub fn desired(&self, autoscaler: &NamespacedName, replicas: i32) {
        let labels = [autoscaler.namespace.as_str(), autoscaler.name.as_str()];
        self.desired.with_label_values(&labels).set(replicas.into());
    }

    pub fn reconciled(&self, action: &str, has_failed: bool, seconds: f64) {
        let labels = [action, if has_failed { "internal" } else { "none" }];
        self.reconciliations.with_label_values(&labels).inc();
        self.durations.with_label_values(&labels).observe(seconds);
    }
}
