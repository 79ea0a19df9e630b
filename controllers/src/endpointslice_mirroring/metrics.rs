//! The metrics of kube-controller-manager's `endpoint_slice_mirroring_controller`.

use coracle_controller_runtime::metrics;
use prometheus::{CounterVec, DEFAULT_BUCKETS, Histogram};

use super::plan::Totals;
use crate::service_endpoints::gauges::{Gauges, Names};

pub struct Metrics {
    pub changes: CounterVec,
    pub gauges: Gauges,
    pub duration: Histogram,
    added: Histogram,
    updated: Histogram,
    removed: Histogram,
    skipped: Histogram,
}

impl Metrics {
    pub fn new(metrics: &metrics::Metrics) -> Metrics {
        let none: &[&str] = &[];
        let buckets: Vec<f64> = (0..15).map(|power| f64::from(2 << power)).collect();
        let per_sync = |name, help| metrics.histogram(name, help, &buckets, &[]).with_label_values(none);
        Metrics {
            changes: metrics.counter(
                "endpoint_slice_mirroring_controller_changes",
                "Number of EndpointSlice changes",
                &["operation"],
            ),
            gauges: Gauges::new(
                metrics,
                Names {
                    endpoints: "endpoint_slice_mirroring_controller_endpoints_desired",
                    slices: "endpoint_slice_mirroring_controller_num_endpoint_slices",
                    desired_slices: "endpoint_slice_mirroring_controller_desired_endpoint_slices",
                },
            ),
            duration: metrics
                .histogram(
                    "endpoint_slice_mirroring_controller_endpoints_sync_duration",
                    "Duration of syncEndpoints() in seconds",
                    DEFAULT_BUCKETS,
                    &[],
                )
                .with_label_values(none),
            added: per_sync(
                "endpoint_slice_mirroring_controller_endpoints_added_per_sync",
                "Number of endpoints added on each Endpoints sync",
            ),
            updated: per_sync(
                "endpoint_slice_mirroring_controller_endpoints_updated_per_sync",
                "Number of endpoints updated on each Endpoints sync",
            ),
            removed: per_sync(
                "endpoint_slice_mirroring_controller_endpoints_removed_per_sync",
                "Number of endpoints removed on each Endpoints sync",
            ),
            skipped: per_sync(
                "endpoint_slice_mirroring_controller_addresses_skipped_per_sync",
                "Number of addresses skipped on each Endpoints sync due to being invalid or exceeding the limit",
            ),
        }
    }

    pub fn planned(&self, totals: &Totals) {
        let all = [
            (&self.added, totals.added),
            (&self.updated, totals.updated),
            (&self.removed, totals.removed),
            (&self.skipped, totals.skipped),
        ];
        all.into_iter().for_each(|(histogram, total)| histogram.observe(total as f64));
    }
}
