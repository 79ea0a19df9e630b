//! The metrics of kube-controller-manager's `endpoint_slice_controller`.

use coracle_controller_runtime::metrics;
use prometheus::{CounterVec, Histogram, HistogramVec};

use super::hints::TrafficDistribution;
use crate::service_endpoints::gauges::{Gauges, Names};

pub struct Metrics {
    pub changes: CounterVec,
    pub gauges: Gauges,
    syncs: CounterVec,
    added: Histogram,
    removed: Histogram,
    changed_per_sync: HistogramVec,
}

impl Metrics {
    pub fn new(metrics: &metrics::Metrics) -> Metrics {
        let none: &[&str] = &[];
        let counter = |name, help, label| metrics.counter(name, help, &[label]);
        let buckets: Vec<f64> = (0..15).map(|power| f64::from(2 << power)).collect();
        let per_sync = |name, help| metrics.histogram(name, help, &buckets, &[]).with_label_values(none);
        Metrics {
            changes: counter(
                "endpoint_slice_controller_changes",
                "Number of EndpointSlice changes",
                "operation",
            ),
            gauges: Gauges::new(
                metrics,
                Names {
                    endpoints: "endpoint_slice_controller_endpoints_desired",
                    slices: "endpoint_slice_controller_num_endpoint_slices",
                    desired_slices: "endpoint_slice_controller_desired_endpoint_slices",
                },
            ),
            syncs: counter("endpoint_slice_controller_syncs", "Number of EndpointSlice syncs", "result"),
            added: per_sync(
                "endpoint_slice_controller_endpoints_added_per_sync",
                "Number of endpoints added on each Service sync",
            ),
            removed: per_sync(
                "endpoint_slice_controller_endpoints_removed_per_sync",
                "Number of endpoints removed on each Service sync",
            ),
            changed_per_sync: metrics.histogram(
                "endpoint_slice_controller_endpointslices_changed_per_sync",
                "Number of EndpointSlices changed on each Service sync",
                prometheus::DEFAULT_BUCKETS,
                &["topology", "traffic_distribution"],
            ),
        }
    }

    pub fn synced(&self, succeeded: bool) {
        self.syncs.with_label_values(&[if succeeded { "success" } else { "error" }]).inc();
    }

    pub fn planned(&self, added: usize, removed: usize) {
        self.added.observe(added as f64);
        self.removed.observe(removed as f64);
    }

    pub fn changed(&self, has_topology: bool, distribution: TrafficDistribution, slices: usize) {
        let topology = if has_topology { "Auto" } else { "Disabled" };
        let distribution = match distribution {
            TrafficDistribution::None => "",
            TrafficDistribution::SameZone => "PreferSameZone",
            TrafficDistribution::SameNode => "PreferSameNode",
        };
        self.changed_per_sync.with_label_values(&[topology, distribution]).observe(slices as f64);
    }
}
