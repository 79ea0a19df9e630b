//! The metrics of Jobs, under kube-controller-manager's names.

use coracle_controller_runtime::metrics::Metrics;
use k8s_openapi::api::batch::v1::{Job, JobStatus};
use prometheus::{CounterVec, HistogramVec};

use super::manage::{Creation, PodAction};
use super::pod_counts::Observed;
use super::verdict::{Outcome, Verdict};

pub struct JobMetrics {
    sync_duration: HistogramVec,
    syncs: CounterVec,
    finished: CounterVec,
    pods_finished: CounterVec,
    policy: CounterVec,
    tracking: CounterVec,
    indexes: CounterVec,
    creations: CounterVec,
    external: CounterVec,
    pub stale_skips: CounterVec,
}

const SYNC_LABELS: [&str; 3] = ["completion_mode", "result", "action"];

impl JobMetrics {
    pub fn new(metrics: &Metrics) -> JobMetrics {
        let buckets: Vec<f64> = (0..15).map(|k| 0.004 * f64::from(1 << k)).collect();
        let counter = |name, help, labels: &[&str]| metrics.counter(name, help, labels);
        JobMetrics {
            sync_duration: metrics.histogram(
                "job_controller_job_sync_duration_seconds",
                "The time it took to sync a job",
                &buckets,
                &SYNC_LABELS,
            ),
            syncs: counter("job_controller_job_syncs_total", "The number of job syncs", &SYNC_LABELS),
            finished: counter(
                "job_controller_jobs_finished_total",
                "The number of finished jobs",
                &["completion_mode", "result", "reason"],
            ),
            pods_finished: counter(
                "job_controller_job_pods_finished_total",
                "The number of finished Pods that are fully tracked",
                &["completion_mode", "result"],
            ),
            policy: counter(
                "job_controller_pod_failures_handled_by_failure_policy_total",
                "The number of failed Pods handled by failure policy",
                &["action"],
            ),
            tracking: counter(
                "job_controller_terminated_pods_tracking_finalizer_total",
                "The number of terminated pods with the tracking finalizer that were added or deleted",
                &["event"],
            ),
            indexes: counter(
                "job_controller_job_finished_indexes_total",
                "The number of finished indexes",
                &["status", "backoffLimit"],
            ),
            creations: counter(
                "job_controller_job_pods_creation_total",
                "The number of Pods created by the Job controller",
                &["reason", "status"],
            ),
            external: counter(
                "job_controller_jobs_by_external_controller_total",
                "The number of Jobs managed by an external controller",
                &["controller_name"],
            ),
            stale_skips: counter(
                "job_controller_stale_sync_skips_total",
                "Total number of Job syncs skipped due to a stale watch cache.",
                &["group", "resource"],
            ),
        }
    }

    /// Counts a reconciliation.
    pub fn synced(&self, job: &Job, action: &PodAction, is_success: bool, seconds: f64) {
        let action = match action {
            PodAction::Create(_) | PodAction::BackOff(_) => "pods_created",
            PodAction::Terminate(_) | PodAction::Remove(_) => "pods_deleted",
            PodAction::None => "reconciling",
        };
        let result = if is_success { "success" } else { "error" };
        let labels = [completion_mode(job), result, action];
        self.sync_duration.with_label_values(&labels).observe(seconds);
        self.syncs.with_label_values(&labels).inc();
    }

    /// Counts the pods and indexes that are counted in the second status and were not in the first.
    pub fn counted(&self, job: &Job, before: &JobStatus, after: &JobStatus) {
        let mode = completion_mode(job);
        let is_per_index = job.spec.as_ref().is_some_and(|spec| spec.backoff_limit_per_index.is_some());
        let limit = if is_per_index { "perIndex" } else { "global" };
        let number = |number: Option<i32>| number.unwrap_or(0);
        let more = |before: Option<i32>, after: Option<i32>| {
            f64::from(number(after).saturating_sub(number(before)).max(0))
        };
        let succeeded = more(before.succeeded, after.succeeded);
        self.pods_finished.with_label_values(&[mode, "succeeded"]).inc_by(succeeded);
        self.pods_finished.with_label_values(&[mode, "failed"]).inc_by(more(before.failed, after.failed));
        if mode == "Indexed" {
            self.indexes.with_label_values(&["succeeded", limit]).inc_by(succeeded);
        }
        let indexes = |status: &JobStatus| {
            let completions = job.spec.as_ref().and_then(|spec| spec.completions).unwrap_or(0);
            let failed = status.failed_indexes.as_deref()?;
            Some(super::indexes::Indexes::parse(failed, completions).len())
        };
        if is_per_index {
            let failed = more(indexes(before), indexes(after));
            self.indexes.with_label_values(&["failed", limit]).inc_by(failed);
        }
    }

    pub fn finished(&self, job: &Job, verdict: &Verdict) {
        let result = match verdict.outcome {
            Outcome::Success => "succeeded",
            Outcome::Failure => "failed",
        };
        self.finished.with_label_values(&[completion_mode(job), result, &verdict.reason]).inc();
    }

    pub fn handled_by_policy(&self, action: &str) {
        self.policy.with_label_values(&[action]).inc();
    }

    /// Counts an ended pod that has a finalizer, when it ends, or has none any more.
    pub fn tracked(&self, event: &'static str) {
        self.tracking.with_label_values(&[event]).inc();
    }

    /// Counts pods that were created, and those that were not.
    pub fn created(&self, observed: &Observed, creation: &Creation, created: usize) {
        let has_failed = observed.pods.iter().any(|pod| observed.is_failed(pod));
        let reason = match (has_failed, observed.replaces_only_failed()) {
            (false, _) => "new",
            (true, true) => "recreate_failed",
            (true, false) => "recreate_terminating_or_failed",
        };
        let failed = creation.len().saturating_sub(created);
        for (status, count) in [("succeeded", created), ("failed", failed)] {
            self.creations
                .with_label_values(&[reason, status])
                .inc_by(f64::from(super::pod_counts::count(count)));
        }
    }

    pub fn managed_externally(&self, manager: &str) {
        self.external.with_label_values(&[manager]).inc();
    }
}

fn completion_mode(job: &Job) -> &'static str {
    match job.spec.as_ref().and_then(|spec| spec.completion_mode.as_deref()) {
        Some("Indexed") => "Indexed",
        _ => "NonIndexed",
    }
}
