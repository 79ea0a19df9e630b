//! ttl-after-finished-controller: deletes Jobs some time after they have finished.
//!
//! A Job is reconciled when it is new or changes, and when its time is over. Before it is deleted
//! it is read from the server: its time to live may have been prolonged.

use std::sync::Arc;
use std::time::Duration;

use coracle_clock::Clock;
use coracle_controller_runtime::cache::{Cache, NamespacedName};
use coracle_controller_runtime::{
    Action, Controller, Error, Initialize, ReconcileContext, Sources, ignore_conflict, ignore_not_found,
    uid_precondition,
};
use coracle_kinds::jobs::finished;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::api::{DeleteParams, PropagationPolicy};
use prometheus::Histogram;

use crate::settings::{Context, Settings};
use crate::timers::TTL_AFTER_FINISHED;

pub struct TtlAfterFinishedController {
    clock: Clock,
    jobs: Arc<Cache<Job>>,
    deletion_duration: Histogram,
}

impl Initialize<Settings> for TtlAfterFinishedController {
    fn new(context: &Context) -> TtlAfterFinishedController {
        let buckets: Vec<f64> = (0..14).map(|k| 0.1 * f64::from(1 << k)).collect();
        let deletion_duration = context.metrics.histogram(
            "ttl_after_finished_controller_job_deletion_duration_seconds",
            "The time it took to delete the job since it became eligible for deletion",
            &buckets,
            &[],
        );
        TtlAfterFinishedController {
            clock: context.clock.clone(),
            jobs: context.cache(),
            deletion_duration: deletion_duration.with_label_values::<&str>(&[]),
        }
    }
}

impl Controller for TtlAfterFinishedController {
    const NAME: &'static str = "ttl-after-finished-controller";
    const QUEUE_NAME: &'static str = "ttl_jobs_to_delete";
    type Key = NamespacedName;

    fn sources(&self, sources: &mut Sources<NamespacedName>) {
        sources.on_each_if(&self.jobs, |change| {
            change.new.as_ref().is_some_and(|job| expires_at(job).is_some())
        });
    }

    async fn reconcile(&self, name: &NamespacedName, ctx: &ReconcileContext) -> Result<Action, Error> {
        let Some(expiry) = self.jobs.get(name).and_then(|job| expires_at(&job)) else {
            return Ok(Action::AwaitChange);
        };
        if let Some(left) = self.time_until(expiry) {
            return Ok(Action::Requeue(TTL_AFTER_FINISHED.after(left)));
        }
        let api = ctx.api(&self.jobs);
        let Some(job) = api.get(name).await? else { return Ok(Action::AwaitChange) };
        let Some(expiry) = expires_at(&job) else { return Ok(Action::AwaitChange) };
        if let Some(left) = self.time_until(expiry) {
            return Ok(Action::Requeue(TTL_AFTER_FINISHED.after(left)));
        }
        let foreground = Some(PropagationPolicy::Foreground);
        let parameters = DeleteParams { propagation_policy: foreground, ..uid_precondition(&job) };
        let deleted = api.delete(&job, &parameters).await;
        // Deleted by another client, or replaced by another Job of the name.
        if ignore_not_found(ignore_conflict(deleted))?.flatten().is_some() {
            let late = self.clock.now().duration_since(expiry);
            self.deletion_duration.observe(late.as_secs_f64().max(0.0));
        }
        Ok(Action::AwaitChange)
    }
}

impl TtlAfterFinishedController {
    /// Returns the time until the expiry; None if it has passed.
    fn time_until(&self, expiry: Timestamp) -> Option<Duration> {
        let left = Duration::try_from(expiry.duration_since(self.clock.now())).ok()?;
        (!left.is_zero()).then_some(left)
    }
}

/// Returns the time at which a Job is to be deleted. Returns `None` if it is not to be deleted, or
/// is terminating already.
fn expires_at(job: &Job) -> Option<Timestamp> {
    let ttl = job.spec.as_ref()?.ttl_seconds_after_finished?;
    let since = finished(job)?.last_transition_time.as_ref()?.0;
    let is_terminating = job.metadata.deletion_timestamp.is_some();
    (!is_terminating)
        .then(|| since.saturating_add(SignedDuration::from_secs(ttl.into())).unwrap_or(Timestamp::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn jobs_expire_some_time_after_they_have_finished() {
        let condition = |r#type: &str, status: &str| -> Value {
            json!([{"type": r#type, "status": status, "lastTransitionTime": "2026-01-01T00:00:00Z"}])
        };
        for (case, ttl, conditions, deletion, want) in [
            ("complete", json!(60), condition("Complete", "True"), json!(null), Some("2026-01-01T00:01:00Z")),
            (
                "failed, at once",
                json!(0),
                condition("Failed", "True"),
                json!(null),
                Some("2026-01-01T00:00:00Z"),
            ),
            ("for ever", json!(null), condition("Complete", "True"), json!(null), None),
            ("not finished", json!(60), condition("Complete", "False"), json!(null), None),
            ("only decided", json!(60), condition("SuccessCriteriaMet", "True"), json!(null), None),
            ("terminating", json!(0), condition("Failed", "True"), json!("2026-01-01T00:00:00Z"), None),
        ] {
            let job: Job = serde_json::from_value(json!({
                "metadata": {"deletionTimestamp": deletion},
                "spec": {"ttlSecondsAfterFinished": ttl, "template": {}},
                "status": {"conditions": conditions},
            }))
            .unwrap();
            assert_eq!(expires_at(&job).map(|time| time.to_string()).as_deref(), want, "{case}");
        }
    }
}
