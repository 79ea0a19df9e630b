//! Metrics of admission webhooks and admission policies, as kube-apiserver names them.
//!
//! Source: `k8s.io/apiserver/pkg/admission/metrics`, `.../plugin/policy/validating/metrics`.

use std::time::Duration;

use prometheus::{HistogramVec, IntCounterVec, Registry};

use super::Operation;
use super::generic::operation_name;
use crate::telemetry::metrics::{counters, histograms};

const WEBHOOK_SECONDS: &[f64] = &[0.005, 0.025, 0.1, 0.5, 1.0, 2.5, 10.0, 25.0];
const STEP_SECONDS: &[f64] = &[0.005, 0.025, 0.1, 0.5, 1.0, 2.5];
const CONDITION_SECONDS: &[f64] = &[0.001, 0.005, 0.01, 0.025, 0.1, 0.2, 0.25];
const POLICY_SECONDS: &[f64] = &[0.0000005, 0.001, 0.01, 0.1, 1.0];
/// The value that larger status codes are counted as.
const MAX_CODE: u16 = 600;

/// The outcome of a webhook call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WebhookOutcome {
    /// The request was allowed.
    Allowed,
    /// The request was denied, with this code.
    Denied(u16),
    /// The call failed, and the failure policy rejects the request.
    CallFailed(u16),
    /// The call failed, and the failure policy ignores that.
    FailedOpen(u16),
    /// The server itself failed.
    InternalError,
}

/// The labels of a webhook.
#[derive(Clone, Copy)]
pub struct WebhookLabels<'a> {
    /// The webhook's name.
    pub name: &'a str,
    /// `admit` for mutating webhooks, `validating` for the others.
    pub step: &'static str,
    /// The operation of the request.
    pub operation: Operation,
}

/// The labels of a policy and its binding.
#[derive(Clone, Copy)]
pub struct PolicyLabels<'a> {
    /// The policy.
    pub policy: &'a str,
    /// The binding.
    pub binding: &'a str,
    /// The kind of error: `compile_error`, `out_of_budget`, `invalid_error`, or `no_error`.
    pub error_type: &'static str,
}

/// The metrics of admission: of its passes, webhooks and policies.
pub struct AdmissionMetrics {
    step_seconds: HistogramVec,
    webhook_seconds: HistogramVec,
    webhook_requests: IntCounterVec,
    webhook_rejections: IntCounterVec,
    webhook_fail_open: IntCounterVec,
    condition_errors: IntCounterVec,
    condition_exclusions: IntCounterVec,
    condition_seconds: HistogramVec,
    validating_checks: IntCounterVec,
    validating_seconds: HistogramVec,
    mutating_checks: IntCounterVec,
    mutating_seconds: HistogramVec,
}

impl Default for AdmissionMetrics {
    /// Creates metrics in a registry that is not exported.
    fn default() -> AdmissionMetrics {
        AdmissionMetrics::new(&Registry::new())
    }
}

impl AdmissionMetrics {
    /// Creates the metrics, and registers them.
    pub fn new(registry: &Registry) -> AdmissionMetrics {
        const CONDITION: &[&str] = &["name", "kind", "type", "operation"];
        const VALIDATING: &[&str] = &["policy", "policy_binding", "error_type", "enforcement_action"];
        const MUTATING: &[&str] = &["policy", "policy_binding", "error_type"];
        let counter = |name, help, labels| counters(registry, name, help, labels);
        let histogram = |name, help, labels, buckets| histograms(registry, name, help, labels, buckets);
        AdmissionMetrics {
            step_seconds: histogram(
                "apiserver_admission_step_admission_duration_seconds",
                "Time of a pass through all plugins.",
                &["type", "operation", "rejected"],
                STEP_SECONDS,
            ),
            webhook_seconds: histogram(
                "apiserver_admission_webhook_admission_duration_seconds",
                "Time that a webhook took.",
                &["name", "type", "operation", "rejected"],
                WEBHOOK_SECONDS,
            ),
            webhook_requests: counter(
                "apiserver_admission_webhook_request_total",
                "Calls of a webhook.",
                &["name", "type", "operation", "code", "rejected"],
            ),
            webhook_rejections: counter(
                "apiserver_admission_webhook_rejection_count",
                "Requests that were rejected by a webhook, or since it could not be called.",
                &["name", "type", "operation", "error_type", "rejection_code"],
            ),
            webhook_fail_open: counter(
                "apiserver_admission_webhook_fail_open_count",
                "Calls of a webhook that failed and were ignored.",
                &["name", "type"],
            ),
            condition_errors: counter(
                "apiserver_admission_match_condition_evaluation_errors_total",
                "Match conditions that could not be evaluated.",
                CONDITION,
            ),
            condition_exclusions: counter(
                "apiserver_admission_match_condition_exclusions_total",
                "Requests that match conditions excluded.",
                CONDITION,
            ),
            condition_seconds: histogram(
                "apiserver_admission_match_condition_evaluation_seconds",
                "Time to evaluate match conditions.",
                CONDITION,
                CONDITION_SECONDS,
            ),
            validating_checks: counter(
                "apiserver_validating_admission_policy_check_total",
                "Checks by a policy, and what its binding did about them.",
                VALIDATING,
            ),
            validating_seconds: histogram(
                "apiserver_validating_admission_policy_check_duration_seconds",
                "Time of the checks by a policy.",
                VALIDATING,
                POLICY_SECONDS,
            ),
            mutating_checks: counter(
                "apiserver_mutating_admission_policy_check_total",
                "Invocations of a policy.",
                MUTATING,
            ),
            mutating_seconds: histogram(
                "apiserver_mutating_admission_policy_check_duration_seconds",
                "Time of the invocations of a policy.",
                MUTATING,
                POLICY_SECONDS,
            ),
        }
    }

    /// Records a pass through all plugins.
    ///
    /// - `step`: `admit` or `validate`
    pub fn step(&self, step: &str, operation: Operation, took: Duration, is_rejected: bool) {
        let rejected = if is_rejected { "true" } else { "false" };
        let labels = [step, operation_name(operation), rejected];
        self.step_seconds.with_label_values(&labels).observe(took.as_secs_f64());
    }

    /// Records a call of a webhook.
    pub fn webhook(&self, labels: WebhookLabels<'_>, took: Duration, outcome: WebhookOutcome) {
        let WebhookLabels { name, step, operation } = labels;
        let operation = operation_name(operation);
        let (code, rejection) = match outcome {
            WebhookOutcome::Allowed => (200, None),
            WebhookOutcome::FailedOpen(code) => (code, None),
            WebhookOutcome::Denied(code) => (code, Some("no_error")),
            WebhookOutcome::CallFailed(code) => (code, Some("calling_webhook_error")),
            WebhookOutcome::InternalError => (0, Some("apiserver_internal_error")),
        };
        let code = code.min(MAX_CODE).to_string();
        let rejected = if rejection.is_some() { "true" } else { "false" };
        let seconds = self.webhook_seconds.with_label_values(&[name, step, operation, rejected]);
        seconds.observe(took.as_secs_f64());
        self.webhook_requests.with_label_values(&[name, step, operation, &code, rejected]).inc();
        if let Some(error_type) = rejection {
            let labels = [name, step, operation, error_type, &code];
            self.webhook_rejections.with_label_values(&labels).inc();
        }
        if let WebhookOutcome::FailedOpen(_) = outcome {
            self.webhook_fail_open.with_label_values(&[name, step]).inc();
        }
    }

    /// Records the evaluation of a webhook's match conditions.
    ///
    /// - `matches`: None if they could not be evaluated.
    pub fn match_conditions(&self, labels: WebhookLabels<'_>, took: Duration, matches: Option<bool>) {
        let WebhookLabels { name, step, operation } = labels;
        let step = if step == "admit" { "admit" } else { "validate" };
        let labels = [name, "webhook", step, operation_name(operation)];
        self.condition_seconds.with_label_values(&labels).observe(took.as_secs_f64());
        match matches {
            Some(true) => {}
            Some(false) => self.condition_exclusions.with_label_values(&labels).inc(),
            None => self.condition_errors.with_label_values(&labels).inc(),
        }
    }

    /// Records a check by a ValidatingAdmissionPolicy.
    ///
    /// - `action`: the resulting action: `allow`, `deny`, `audit` or `warn`.
    pub fn validating_policy(&self, labels: PolicyLabels<'_>, took: Duration, action: &str) {
        let labels = [labels.policy, labels.binding, labels.error_type, action];
        self.validating_checks.with_label_values(&labels).inc();
        self.validating_seconds.with_label_values(&labels).observe(took.as_secs_f64());
    }

    /// Records an invocation of a MutatingAdmissionPolicy.
    pub fn mutating_policy(&self, labels: PolicyLabels<'_>, took: Duration) {
        let labels = [labels.policy, labels.binding, labels.error_type];
        self.mutating_checks.with_label_values(&labels).inc();
        self.mutating_seconds.with_label_values(&labels).observe(took.as_secs_f64());
    }
}

/// Returns the type of an error of a policy, by the beginning of its text, as kube-apiserver does.
pub fn error_type(message: &str) -> &'static str {
    if message.starts_with("compilation") {
        "compile_error"
    } else if message.starts_with("validation failed due to running out of cost budget") {
        "out_of_budget"
    } else {
        "invalid_error"
    }
}

#[cfg(test)]
mod tests {
    use prometheus::TextEncoder;

    use super::*;

    #[test]
    fn passes_are_timed_by_their_outcome() {
        let registry = Registry::new();
        let metrics = AdmissionMetrics::new(&registry);
        metrics.step("admit", Operation::Create, Duration::from_millis(1), false);
        metrics.step("validate", Operation::Create, Duration::from_millis(1), true);
        let text = TextEncoder::new().encode_to_string(&registry.gather()).expect("text");
        for labels in [
            r#"operation="CREATE",rejected="false",type="admit""#,
            r#"operation="CREATE",rejected="true",type="validate""#,
        ] {
            let line = format!("apiserver_admission_step_admission_duration_seconds_count{{{labels}}} 1");
            assert!(text.contains(&line), "{line} in {text}");
        }
    }

    #[test]
    fn calls_of_webhooks_are_counted_by_their_outcome() {
        for (outcome, want) in [
            (
                WebhookOutcome::Allowed,
                &[
                    "webhook_request_total{code=\"200\",name=\"w\",operation=\"CREATE\",rejected=\"false\",type=\"admit\"} 1",
                ][..],
            ),
            (
                WebhookOutcome::Denied(700),
                &[
                    "webhook_rejection_count{error_type=\"no_error\",name=\"w\",operation=\"CREATE\",rejection_code=\"600\",type=\"admit\"} 1",
                    "webhook_request_total{code=\"600\",name=\"w\",operation=\"CREATE\",rejected=\"true\",type=\"admit\"} 1",
                ],
            ),
            (
                WebhookOutcome::CallFailed(503),
                &[
                    "webhook_rejection_count{error_type=\"calling_webhook_error\",name=\"w\",operation=\"CREATE\",rejection_code=\"503\",type=\"admit\"} 1",
                ],
            ),
            (
                WebhookOutcome::InternalError,
                &[
                    "webhook_rejection_count{error_type=\"apiserver_internal_error\",name=\"w\",operation=\"CREATE\",rejection_code=\"0\",type=\"admit\"} 1",
                ],
            ),
            (
                WebhookOutcome::FailedOpen(503),
                &[
                    "webhook_fail_open_count{name=\"w\",type=\"admit\"} 1",
                    "webhook_request_total{code=\"503\",name=\"w\",operation=\"CREATE\",rejected=\"false\",type=\"admit\"} 1",
                ],
            ),
        ] {
            let registry = Registry::new();
            let metrics = AdmissionMetrics::new(&registry);
            let labels = WebhookLabels { name: "w", step: "admit", operation: Operation::Create };
            metrics.webhook(labels, Duration::from_millis(1), outcome);
            let text = TextEncoder::new().encode_to_string(&registry.gather()).expect("text");
            for line in want {
                assert!(
                    text.contains(&format!("\napiserver_admission_{line}")),
                    "{outcome:?} {line}: {text}"
                );
            }
            let rejections = text.contains("webhook_rejection_count{");
            assert_eq!(rejections, want.iter().any(|line| line.contains("rejection_count")), "{outcome:?}");
        }
    }
}
