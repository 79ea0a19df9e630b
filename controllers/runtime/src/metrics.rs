//! The metrics of the controllers, under kube-controller-manager's names.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use prometheus::core::Collector;
use prometheus::{
    Counter, CounterVec, Gauge, GaugeVec, Histogram, HistogramOpts, HistogramVec, IntGauge, IntGaugeVec,
    Opts, Registry,
};

/// The metrics registry of the controllers, and the metrics shared by all of them.
#[derive(Clone)]
pub struct Metrics {
    registry: Registry,
    depth: IntGaugeVec,
    adds: CounterVec,
    retries: CounterVec,
    queue_duration: HistogramVec,
    work_duration: HistogramVec,
    unfinished_work: GaugeVec,
    longest_running: GaugeVec,
    pub(super) panics: CounterVec,
    counters: Arc<Mutex<HashMap<&'static str, CounterVec>>>,
    gauges: Arc<Mutex<HashMap<&'static str, GaugeVec>>>,
    histograms: Arc<Mutex<HashMap<&'static str, HistogramVec>>>,
}

/// The metrics of one queue.
pub struct QueueMetrics {
    /// The name of the queue.
    pub name: Box<str>,
    /// The number of keys in the queue.
    pub depth: IntGauge,
    /// The number of keys added.
    pub adds: Counter,
    /// The number of keys added after an error.
    pub retries: Counter,
    /// The time a key waits in the queue, in seconds.
    pub queue_duration: Histogram,
    /// The time a key is processed, in seconds.
    pub work_duration: Histogram,
    /// The total time that the keys in process have been processed so far, in seconds.
    pub unfinished_work: Gauge,
    /// The time that the oldest key in process has been processed so far, in seconds.
    pub longest_running: Gauge,
}

/// Ten buckets a power of ten apart, from ten nanoseconds.
const SECONDS: [f64; 10] = [1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 0.1, 1.0, 10.0];

impl Default for Metrics {
    /// Creates metrics in a registry of their own, which is not exposed.
    fn default() -> Metrics {
        Metrics::new(Registry::new())
    }
}

impl Metrics {
    /// Creates metrics that `registry` exposes.
    pub fn new(registry: Registry) -> Metrics {
        let histogram = |name: &str, help: &str| {
            let options = HistogramOpts::new(name, help).buckets(SECONDS.to_vec());
            register(&registry, HistogramVec::new(options, &["name"]))
        };
        let counter =
            |name: &str, help: &str| register(&registry, CounterVec::new(Opts::new(name, help), &["name"]));
        let gauge =
            |name: &str, help: &str| register(&registry, GaugeVec::new(Opts::new(name, help), &["name"]));
        Metrics {
            depth: register(
                &registry,
                IntGaugeVec::new(Opts::new("workqueue_depth", "Keys that wait to be looked at"), &["name"]),
            ),
            adds: counter("workqueue_adds_total", "Keys that were added"),
            retries: counter("workqueue_retries_total", "Keys that were added again after a failure"),
            queue_duration: histogram("workqueue_queue_duration_seconds", "How long a key waits"),
            work_duration: histogram("workqueue_work_duration_seconds", "How long a key is worked on"),
            unfinished_work: gauge(
                "workqueue_unfinished_work_seconds",
                "How long the keys now worked on have been worked on, together",
            ),
            longest_running: gauge(
                "workqueue_longest_running_processor_seconds",
                "How long the oldest key now worked on has been worked on",
            ),
            panics: counter(
                "coracle_controller_panics_total",
                "Panics after which a controller was started again",
            ),
            counters: Arc::default(),
            gauges: Arc::default(),
            histograms: Arc::default(),
            registry,
        }
    }

    /// Returns the registry, to which a controller can add its own collectors.
    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    /// Returns the metrics of the queue of this name.
    pub fn queue(&self, name: &str) -> QueueMetrics {
        let name = &[name];
        QueueMetrics {
            name: name[0].into(),
            depth: self.depth.with_label_values(name),
            adds: self.adds.with_label_values(name),
            retries: self.retries.with_label_values(name),
            queue_duration: self.queue_duration.with_label_values(name),
            work_duration: self.work_duration.with_label_values(name),
            unfinished_work: self.unfinished_work.with_label_values(name),
            longest_running: self.longest_running.with_label_values(name),
        }
    }

    /// Returns a counter of one controller. It continues after a restart of the controller.
    pub fn counter(&self, name: &'static str, help: &str, labels: &[&str]) -> CounterVec {
        let mut counters = self.counters.lock();
        let make = || register(&self.registry, CounterVec::new(Opts::new(name, help), labels));
        counters.entry(name).or_insert_with(make).clone()
    }

    /// Returns a gauge of one controller.
    pub fn gauge(&self, name: &'static str, help: &str, labels: &[&str]) -> GaugeVec {
        let mut gauges = self.gauges.lock();
        let make = || register(&self.registry, GaugeVec::new(Opts::new(name, help), labels));
        gauges.entry(name).or_insert_with(make).clone()
    }

    /// Returns a histogram of one controller.
    ///
    /// - `buckets`: upper bounds, in the unit of the observed values
    pub fn histogram(
        &self,
        name: &'static str,
        help: &str,
        buckets: &[f64],
        labels: &[&str],
    ) -> HistogramVec {
        let mut histograms = self.histograms.lock();
        let make = || {
            let options = HistogramOpts::new(name, help).buckets(buckets.to_vec());
            register(&self.registry, HistogramVec::new(options, labels))
        };
        histograms.entry(name).or_insert_with(make).clone()
    }
}

/// Registers a metric that is described by a constant.
fn register<C: Collector + Clone + 'static>(registry: &Registry, metric: prometheus::Result<C>) -> C {
    // Names and labels are constants of this crate.
    #[allow(clippy::unwrap_used)]
    let metric = metric.unwrap();
    if let Err(error) = registry.register(Box::new(metric.clone())) {
        tracing::warn!(%error, "a metric is not registered");
    }
    metric
}
