//! The metrics of nodes and zones.

use std::collections::BTreeMap;

use coracle_controller_runtime::metrics::Metrics;
use prometheus::{CounterVec, GaugeVec, HistogramVec};

/// kube-controller-manager's metrics of nodes and their zones.
pub struct NodeMetrics {
    zone_health: GaugeVec,
    zone_size: GaugeVec,
    unhealthy_nodes: GaugeVec,
    pub evictions: CounterVec,
    pub node_duration: HistogramVec,
    pub all_nodes_duration: HistogramVec,
}

impl NodeMetrics {
    /// Registers the metrics.
    pub fn new(metrics: &Metrics) -> NodeMetrics {
        let gauge = |name, help| metrics.gauge(name, help, &["zone"]);
        let histogram = |name, help, buckets: &[f64]| metrics.histogram(name, help, buckets, &[]);
        NodeMetrics {
            zone_health: gauge(
                "node_collector_zone_health",
                "Gauge measuring percentage of healthy nodes per zone.",
            ),
            zone_size: gauge(
                "node_collector_zone_size",
                "Gauge measuring number of registered Nodes per zones.",
            ),
            unhealthy_nodes: gauge(
                "node_collector_unhealthy_nodes_in_zone",
                "Gauge measuring number of not Ready Nodes per zones.",
            ),
            evictions: metrics.counter(
                "node_collector_evictions_total",
                "Number of Node evictions that happened since current instance of NodeController started.",
                &["zone"],
            ),
            node_duration: histogram(
                "node_collector_update_node_health_duration_seconds",
                "Duration in seconds for NodeController to update the health of a single node.",
                &[0.001, 0.004, 0.016, 0.064, 0.256, 1.024, 4.096, 16.384],
            ),
            all_nodes_duration: histogram(
                "node_collector_update_all_nodes_health_duration_seconds",
                "Duration in seconds for NodeController to update the health of all nodes.",
                &[0.01, 0.04, 0.16, 0.64, 2.56, 10.24, 40.96, 163.84],
            ),
        }
    }

    /// Sets the gauges of all zones.
    ///
    /// - `gone`: zones that have no nodes any more
    /// - `ready_by_zone`: of each node of a zone, whether it is ready
    pub fn report_zones(&self, gone: &[String], ready_by_zone: &BTreeMap<String, Vec<bool>>) {
        let NodeMetrics { zone_health, zone_size, unhealthy_nodes, .. } = self;
        for zone in gone {
            zone_health.with_label_values(&[zone.as_str()]).set(100.0);
            zone_size.with_label_values(&[zone.as_str()]).set(0.0);
            unhealthy_nodes.with_label_values(&[zone.as_str()]).set(0.0);
        }
        for (zone, ready) in ready_by_zone {
            let count = |count: usize| u32::try_from(count).map_or(f64::MAX, f64::from);
            let (all, healthy) = (count(ready.len()), count(ready.iter().filter(|ready| **ready).count()));
            zone_health.with_label_values(&[zone.as_str()]).set(100.0 * healthy / all);
            zone_size.with_label_values(&[zone.as_str()]).set(all);
            unhealthy_nodes.with_label_values(&[zone.as_str()]).set(all - healthy);
        }
    }
}
