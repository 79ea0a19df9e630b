//! Metrics of conversion webhooks, as kube-apiserver names them.

use std::time::Duration;

use prometheus::{HistogramVec, IntCounterVec, Registry};

use crate::telemetry::metrics::{counters, histograms};

const SECONDS: &[f64] =
    &[0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 45.0, 60.0];
const LABELS: &[&str] = &["result", "failure_type"];

/// The reason why a conversion failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConversionFailure {
    /// The webhook could not be called.
    Call,
    /// The response is invalid, or reports a failure.
    MalformedResponse,
    /// The webhook returned fewer or more objects than it was sent.
    PartialResponse,
    /// The webhook returned an object that does not have the requested version, or has other
    /// metadata.
    InvalidConvertedObject,
}

impl ConversionFailure {
    fn name(self) -> &'static str {
        match self {
            ConversionFailure::Call => "conversion_webhook_call_failure",
            ConversionFailure::MalformedResponse => "conversion_webhook_malformed_response_failure",
            ConversionFailure::PartialResponse => "conversion_webhook_partial_response_failure",
            ConversionFailure::InvalidConvertedObject => {
                "conversion_webhook_invalid_converted_object_failure"
            }
        }
    }
}

/// Counter and histogram of conversions by webhooks.
pub struct ConversionMetrics {
    requests: IntCounterVec,
    seconds: HistogramVec,
}

impl Default for ConversionMetrics {
    /// Creates metrics in a registry that is not exported.
    fn default() -> ConversionMetrics {
        ConversionMetrics::new(&Registry::new())
    }
}

impl ConversionMetrics {
    /// Creates and registers the metrics.
    pub fn new(registry: &Registry) -> ConversionMetrics {
        let name = "apiserver_conversion_webhook_request_total";
        let requests = counters(registry, name, "Calls of conversion webhooks.", LABELS);
        let name = "apiserver_conversion_webhook_duration_seconds";
        let seconds = histograms(registry, name, "Time that conversion webhooks took.", LABELS, SECONDS);
        ConversionMetrics { requests, seconds }
    }

    /// Records a conversion; None if it did not fail.
    pub fn conversion(&self, took: Duration, failure: Option<ConversionFailure>) {
        let labels = match failure {
            None => ["success", ""],
            Some(failure) => ["failure", failure.name()],
        };
        self.requests.with_label_values(&labels).inc();
        self.seconds.with_label_values(&labels).observe(took.as_secs_f64());
    }
}
