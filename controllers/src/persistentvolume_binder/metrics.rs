//! kube-controller-manager's metrics of volumes: durations and failures of operations, and numbers
//! of objects.

use std::collections::HashMap;
use std::sync::Arc;

use coracle_clock::Clock;
use coracle_controller_runtime::cache::{Cache, NamespacedName};
use coracle_kinds::storage::{ClaimExt, VolumeExt};
use coracle_volumes::migration::HOST_PATH;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::jiff::Timestamp;
use parking_lot::Mutex;
use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use prometheus::{Counter, CounterVec, GaugeVec, HistogramVec, Opts};

use crate::settings::Context;

/// The label value for an unknown property.
pub const UNKNOWN: &str = "N/A";

/// Kubernetes' buckets for storage operations, in seconds.
const SECONDS: [f64; 13] = [0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 15.0, 25.0, 50.0, 120.0, 300.0, 600.0];

/// The operations on volumes, by Kubernetes' names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// From the assignment of a claim to a provisioner until it is bound.
    Provision,
    /// From the release of a volume with the policy Delete until it is deleted.
    Delete,
}

impl Operation {
    fn name(self) -> &'static str {
        match self {
            Operation::Provision => "provision",
            Operation::Delete => "delete",
        }
    }
}

/// The end-to-end operations of one kind that are in progress.
pub struct EndToEnd {
    operation: Operation,
    clock: Clock,
    seconds: HistogramVec,
    began: Mutex<HashMap<NamespacedName, (String, Timestamp)>>,
}

impl EndToEnd {
    pub fn new(context: &Context, operation: Operation) -> EndToEnd {
        let help = "Storage operation end to end duration in seconds";
        let labels = ["plugin_name", "operation_name"];
        let seconds = context.metrics.histogram("volume_operation_total_seconds", help, &SECONDS, &labels);
        EndToEnd { operation, clock: context.clock.clone(), seconds, began: Mutex::default() }
    }

    /// Begins an operation, if it has not begun.
    pub fn begin(&self, name: &NamespacedName, plugin: &str) {
        let mut began = self.began.lock();
        began.entry(name.clone()).or_insert_with(|| (plugin.to_owned(), self.clock.now()));
    }

    /// Ends an operation and records its duration.
    pub fn end(&self, name: &NamespacedName) {
        if let Some((plugin, began)) = self.take(name) {
            let seconds = self.clock.now().duration_since(began).as_secs_f64();
            self.seconds.with_label_values(&[plugin.as_str(), self.operation.name()]).observe(seconds);
        }
    }

    /// Drops an operation that will not complete.
    pub fn forget(&self, name: &NamespacedName) {
        self.take(name);
    }

    fn take(&self, name: &NamespacedName) -> Option<(String, Timestamp)> {
        self.began.lock().remove(name)
    }
}

/// The attempts of a plugin.
pub struct Attempts {
    operation: Operation,
    plugin: &'static str,
    seconds: HistogramVec,
    errors: [CounterVec; 2],
}

impl Attempts {
    pub fn new(context: &Context, operation: Operation, plugin: &'static str) -> Attempts {
        let errors = |name| {
            let labels = ["plugin_name", "operation_name"];
            context.metrics.counter(name, "Total volume operation errors", &labels)
        };
        Attempts {
            operation,
            plugin,
            seconds: context.metrics.histogram(
                "storage_operation_duration_seconds",
                "Storage operation duration",
                &SECONDS,
                &["volume_plugin", "operation_name", "status", "migrated"],
            ),
            errors: [errors("volume_operation_errors_total"), errors("volume_operation_total_errors")],
        }
    }

    /// Records an attempt that ended.
    pub fn observe(&self, seconds: f64, is_success: bool) {
        let (name, status) = (self.operation.name(), if is_success { "success" } else { "fail-unknown" });
        let labels = [self.plugin, &format!("volume_{name}"), status, "false"];
        self.seconds.with_label_values(&labels).observe(seconds);
        if !is_success {
            self.errors.iter().for_each(|errors| errors.with_label_values(&[self.plugin, name]).inc());
        }
    }
}

/// Counts the claims that were assigned a default class after their creation.
pub struct Retroactive {
    total: Counter,
    errors: Counter,
}

impl Retroactive {
    pub fn new(context: &Context) -> Retroactive {
        let counter = |name, help| context.metrics.counter(name, help, &[]).with_label_values::<&str>(&[]);
        Retroactive {
            total: counter(
                "retroactive_storageclass_total",
                "Total number of retroactive StorageClass assignments to persistent volume claim",
            ),
            errors: counter(
                "retroactive_storageclass_errors_total",
                "Total number of failed retroactive StorageClass assignments to persistent volume claim",
            ),
        }
    }

    pub fn observe(&self, is_success: bool) {
        self.total.inc();
        if !is_success {
            self.errors.inc();
        }
    }
}

/// Counts volumes and claims when the metrics are collected.
struct Inventory {
    volumes: Arc<Cache<PersistentVolume>>,
    claims: Arc<Cache<PersistentVolumeClaim>>,
    /// The empty metrics, for their descriptions.
    shape: [GaugeVec; 5],
}

/// Exports the numbers of volumes and claims.
pub fn show_inventory(context: &Context) {
    let inventory = Inventory { volumes: context.cache(), claims: context.cache(), shape: gauges() };
    // If a restarted controller has registered one before, that one exports the same numbers.
    let _ = context.metrics.registry().register(Box::new(inventory));
}

/// Creates the gauges, without values.
fn gauges() -> [GaugeVec; 5] {
    let of_claims = ["namespace", "storage_class", "volume_attributes_class"];
    [
        ("total_pv_count", "total number of persistent volumes", &["plugin_name", "volume_mode"] as &[_]),
        ("bound_pv_count", "number of persistent volume currently bound", &["storage_class"]),
        ("unbound_pv_count", "number of persistent volume currently unbound", &["storage_class"]),
        ("bound_pvc_count", "number of persistent volume claim currently bound", &of_claims),
        ("unbound_pvc_count", "number of persistent volume claim currently unbound", &of_claims),
    ]
    .map(|(name, help, labels)| {
        let options = Opts::new(format!("pv_collector_{name}"), format!("Gauge measuring {help}"));
        // Names and labels are the constants above.
        #[allow(clippy::unwrap_used)]
        GaugeVec::new(options, labels).unwrap()
    })
}

impl Collector for Inventory {
    fn desc(&self) -> Vec<&Desc> {
        self.shape.iter().flat_map(Collector::desc).collect()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        count(&self.volumes.all(), &self.claims.all())
    }
}

fn count(volumes: &[Arc<PersistentVolume>], claims: &[Arc<PersistentVolumeClaim>]) -> Vec<MetricFamily> {
    let gauges = gauges();
    let [total, bound_volumes, unbound_volumes, bound_claims, unbound_claims] = &gauges;
    for volume in volumes {
        total.with_label_values(&[plugin(volume), volume.volume_mode()]).inc();
        let by_phase = if volume.phase() == "Bound" { bound_volumes } else { unbound_volumes };
        let class = volume.spec.as_ref().and_then(|spec| spec.storage_class_name.as_deref());
        by_phase.with_label_values(&[class.unwrap_or_default()]).inc();
    }
    for claim in claims {
        let by_phase = if claim.phase() == "Bound" { bound_claims } else { unbound_claims };
        let namespace = claim.metadata.namespace.as_deref().unwrap_or_default();
        by_phase.with_label_values(&[namespace, claim.class(), claim.attributes_class()]).inc();
    }
    gauges.iter().flat_map(Collector::collect).collect()
}

/// Returns the plugin of a volume, if kube-controller-manager has a plugin that could provision,
/// delete or recycle it.
fn plugin(volume: &PersistentVolume) -> &'static str {
    match &volume.spec {
        Some(spec) if spec.host_path.is_some() => HOST_PATH,
        Some(spec) if spec.nfs.is_some() => "kubernetes.io/nfs",
        _ => UNKNOWN,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use prometheus::TextEncoder;
    use serde_json::json;

    #[test]
    fn what_there_is() {
        let volume = |source: &str, class: &str, phase: &str| {
            let spec = json!({source: {"path": "/", "server": "s", "driver": "d", "volumeHandle": "h"},
                "storageClassName": class, "volumeMode": "Filesystem"});
            Arc::new(serde_json::from_value(json!({"spec": spec, "status": {"phase": phase}})).unwrap())
        };
        let claim = |class: &str, phase: &str| {
            let claim = json!({"metadata": {"namespace": "ns"}, "spec": {"storageClassName": class},
                "status": {"phase": phase}});
            Arc::new(serde_json::from_value(claim).unwrap())
        };
        let volumes = [
            volume("hostPath", "fast", "Bound"),
            volume("csi", "fast", "Bound"),
            volume("nfs", "", "Available"),
        ];
        let claims = [claim("fast", "Bound"), claim("fast", "Pending"), claim("fast", "Lost")];
        let text = TextEncoder::new().encode_to_string(&count(&volumes, &claims)).unwrap();
        let mut shown: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
        shown.sort_unstable();
        assert_eq!(
            shown,
            [
                r#"pv_collector_bound_pv_count{storage_class="fast"} 2"#,
                r#"pv_collector_bound_pvc_count{namespace="ns",storage_class="fast",volume_attributes_class=""} 1"#,
                r#"pv_collector_total_pv_count{plugin_name="N/A",volume_mode="Filesystem"} 1"#,
                r#"pv_collector_total_pv_count{plugin_name="kubernetes.io/host-path",volume_mode="Filesystem"} 1"#,
                r#"pv_collector_total_pv_count{plugin_name="kubernetes.io/nfs",volume_mode="Filesystem"} 1"#,
                r#"pv_collector_unbound_pv_count{storage_class=""} 1"#,
                r#"pv_collector_unbound_pvc_count{namespace="ns",storage_class="fast",volume_attributes_class=""} 2"#,
            ]
        );
    }
}
