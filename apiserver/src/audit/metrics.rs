//! Metrics of auditing, as kube-apiserver names them.

use prometheus::{IntCounter, IntCounterVec, Registry};

use super::policy::Level;
use crate::telemetry::metrics::counters;

/// The metrics of audit events.
#[derive(Clone)]
pub struct AuditMetrics {
    events: IntCounter,
    errors: IntCounterVec,
    levels: IntCounterVec,
    rejected: IntCounter,
}

impl AuditMetrics {
    /// Creates the metrics, and registers them.
    pub fn new(registry: &Registry) -> AuditMetrics {
        let plain = |name, help| counters(registry, name, help, &[]).with_label_values::<&str>(&[]);
        AuditMetrics {
            events: plain("apiserver_audit_event_total", "Audit events that were generated."),
            errors: counters(
                registry,
                "apiserver_audit_error_total",
                "Audit events that were not recorded, by the plugin that failed.",
                &["plugin"],
            ),
            levels: counters(
                registry,
                "apiserver_audit_level_total",
                "Requests by the level at which the policy audits them.",
                &["level"],
            ),
            rejected: plain(
                "apiserver_audit_requests_rejected_total",
                "Requests that were refused since their audit event could not be recorded.",
            ),
        }
    }

    /// Counts a request at its level.
    pub fn level(&self, level: Level) {
        self.levels.with_label_values(&[level.name()]).inc();
    }

    /// Counts an event.
    pub fn event(&self) {
        self.events.inc();
    }

    /// Counts an event that is lost.
    ///
    /// - `plugin`: `log` for an error of the file, `buffered` for a full buffer.
    pub fn error(&self, plugin: &str) {
        self.errors.with_label_values(&[plugin]).inc();
    }

    /// Counts a request that was refused because of auditing.
    pub fn rejected(&self) {
        self.rejected.inc();
    }
}
