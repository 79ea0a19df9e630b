//! Jobs and CronJobs, and the finalizer of a Job's pods.

use serde_json::Value;

use crate::conditions::{self, is_true};
use crate::context::{Context, Target, event_time};
use crate::explanation::Cause;
use crate::finalizers::Wait;
use crate::kubectl;
use crate::owners::{self, Lookup, is_owned_by, look_up};
use crate::policies;
use crate::reason::Reason;
use crate::text::{count, items, plural, quoted, seconds_since, text, text_or_empty};

/// The resource of the Jobs.
pub const JOBS: &str = "jobs.batch";

/// The pods of a Job that are explained.
const MAX_PODS: usize = 3;

/// Explains the finalizer `batch.kubernetes.io/job-tracking` of a pod: its Job has to count it.
pub fn tracking(ctx: &Context, target: Target) -> Wait {
    let job = owners::controller(target.object).filter(|owner| owner.kind == "Job");
    let clause = match job.as_ref().map(|job| (job, look_up(ctx, target.namespace, job))) {
        Some((job, Lookup::Found(found))) => match text(&found["spec"]["managedBy"]) {
            Some(manager) if manager != "kubernetes.io/job-controller" => format!(
                "only for Jobs of its own, and {} is managed by {}, which has to remove it",
                job.short(),
                quoted(manager)
            ),
            _ => format!("once the pod has ended and is counted in the status of {}", job.short()),
        },
        Some((job, _)) => format!("at once, as its Job {} does not exist", job.short()),
        None => "at once, as no Job controls the pod".to_owned(),
    };
    Wait { clause, ..Wait::default() }
}

/// Explains why a Job is not complete.
pub fn job(ctx: &Context, target: Target) -> Option<Reason> {
    if is_true(target.object, "Complete").is_some() {
        return None;
    }
    let short = ctx.short_of(target);
    let status = target.status();
    let counted = format!(
        "{} active, {} succeeded, {} failed",
        count(&status["active"]),
        count(&status["succeeded"]),
        count(&status["failed"])
    );
    if let Some(failed) = is_true(target.object, "Failed").or_else(|| is_true(target.object, "FailureTarget"))
    {
        let word = text(&failed["reason"]).map_or_else(|| "Failed".to_owned(), quoted);
        let sentence = format!(
            "{short} has failed ({counted}): {}. {} A Job that has failed is not started again: delete it and create it anew.",
            conditions::describe(ctx, failed),
            meaning(target, &word)
        );
        return Some(
            Reason::failing(word, sentence)
                .because([conditions::cause(ctx, target, failed)])
                .because(pods(ctx, target)),
        );
    }
    let cause = Cause::of(ctx.reference_of(target));
    if target.spec()["suspend"] == true {
        let patch = serde_json::json!({"spec": {"suspend": false}});
        let remedy = kubectl::merge(JOBS, target.namespace, target.name, &patch);
        let sentence =
            format!("{short} is not complete because it is suspended (spec.suspend). To start it: {remedy}");
        return Some(
            Reason::progressing("suspended", sentence)
                .because([cause.field("spec.suspend: true").remedy(remedy)]),
        );
    }
    if let Some(manager) =
        text(&target.spec()["managedBy"]).filter(|manager| *manager != "kubernetes.io/job-controller")
    {
        let sentence = format!(
            "{short} is not complete ({counted}): it is managed by {} (spec.managedBy), and the job controller leaves it alone.",
            quoted(manager)
        );
        let field = format!("spec.managedBy: {}", quoted(manager));
        return Some(
            Reason::progressing("managed by another", sentence)
                .because([cause.field(field).waits_for(quoted(manager))]),
        );
    }
    if let Some(event) = ctx.last_event(target, &["FailedCreate"]).filter(|_| count(&status["active"]) == 0) {
        let message = text_or_empty(&event["message"]);
        let sentence = format!(
            "{short} is not complete ({counted}): its pods cannot be made: {}. That is tried again.",
            quoted(message)
        );
        let quotas = policies::quotas_in(ctx, target.namespace, message);
        return Some(
            Reason::failing("FailedCreate", sentence)
                .because([cause.waits_for(quoted(message))])
                .because(quotas),
        );
    }
    let wanted = match target.spec()["completions"].as_i64() {
        Some(completions) => format!("{} of its pods have to succeed", completions),
        None => "one of its pods has to succeed, and all have to end".to_owned(),
    };
    let sentence = format!("{short} is not complete ({counted}): {wanted}.");
    let pods = pods(ctx, target);
    let cause = cause.field("status.succeeded").waits_for(wanted);
    Some(Reason::progressing(counted, sentence).because([cause]).because(pods))
}

/// Returns the meaning of a Job's reason for its failure.
fn meaning(target: Target, reason: &str) -> String {
    let spec = target.spec();
    match reason {
        "BackoffLimitExceeded" => format!(
            "More pods failed than spec.backoffLimit ({}) allows.",
            spec["backoffLimit"].as_i64().unwrap_or(6)
        ),
        "DeadlineExceeded" => format!(
            "It ran longer than spec.activeDeadlineSeconds ({}).",
            count(&spec["activeDeadlineSeconds"])
        ),
        "PodFailurePolicy" => {
            "A pod failed in a way for which spec.podFailurePolicy says FailJob.".to_owned()
        }
        "FailedIndexes" => "Not all indexes succeeded (spec.backoffLimitPerIndex).".to_owned(),
        "MaxFailedIndexesExceeded" => "More indexes failed than spec.maxFailedIndexes allows.".to_owned(),
        _ => "Its status says no more.".to_owned(),
    }
}

/// Returns the causes of a Job's pods that have failed or are not ready.
fn pods(ctx: &Context, target: Target) -> Vec<Cause> {
    let list = ctx.list("pods", Some(target.namespace));
    let own = list.iter().filter(|pod| is_owned_by(pod, target.uid())).map(|pod| Target::listed("pods", pod));
    own.map(|pod| ctx.explain("pods", pod.namespace, pod.name))
        .filter(|causes| !causes.is_empty())
        .take(MAX_PODS)
        .flatten()
        .collect()
}

/// Explains why a CronJob starts no Job, or why its last one is not complete.
pub fn cron_job(ctx: &Context, target: Target) -> Option<Reason> {
    let short = ctx.short_of(target);
    let spec = target.spec();
    let schedule = quoted(text_or_empty(&spec["schedule"]));
    let cause = Cause::of(ctx.reference_of(target));
    let last = text(&target.status()["lastScheduleTime"]);
    let last =
        last.map_or_else(|| "no Job yet".to_owned(), |at| format!("the last Job at {}", ctx.moment(at)));
    if spec["suspend"] == true {
        let patch = serde_json::json!({"spec": {"suspend": false}});
        let remedy = kubectl::merge("cronjobs.batch", target.namespace, target.name, &patch);
        let sentence = format!(
            "{short} starts no Jobs because it is suspended (spec.suspend); it started {last}. To go on: {remedy}"
        );
        return Some(
            Reason::progressing("suspended", sentence)
                .because([cause.field("spec.suspend: true").remedy(remedy)]),
        );
    }
    let problems = [
        "UnparseableSchedule",
        "InvalidSchedule",
        "UnknownTimeZone",
        "TooManyMissedTimes",
        "FailedCreate",
        "MissSchedule",
        "FailedNeedsStart",
    ];
    // A Job by the schedule that was started since, or just after the event, has ended the problem.
    let has_started = |event: &Value| {
        let since = event_time(event);
        ctx.list(JOBS, Some(target.namespace)).iter().any(|job| {
            is_owned_by(job, target.uid())
                && job["metadata"]["annotations"]["cronjob.kubernetes.io/instantiate"] != "manual"
                && text(&job["metadata"]["creationTimestamp"]).is_some_and(|created| created >= since)
        })
    };
    if let Some(event) = ctx.last_event(target, &problems).filter(|event| !has_started(event)) {
        let message = quoted(text_or_empty(&event["message"]));
        let deadline = spec["startingDeadlineSeconds"].as_i64().map(|seconds| {
            format!(
                " A Job that cannot be started within {} (startingDeadlineSeconds) is skipped.",
                plural(seconds, "second")
            )
        });
        let sentence = format!(
            "{short} could not start a Job by its schedule {schedule} ({last}): {message}.{}",
            deadline.unwrap_or_default()
        );
        let word = quoted(text_or_empty(&event["reason"]));
        let cause = cause.field("spec.schedule").since(event_time(&event)).waits_for(message);
        return Some(Reason::failing(word, sentence).because([cause]));
    }
    let active: Vec<&Value> = items(&target.status()["active"]).collect();
    let first = text(&active.first()?["name"])?;
    if spec["concurrencyPolicy"] == "Forbid" {
        let since = seconds_since(ctx.now, &target.status()["lastScheduleTime"]).map(crate::text::duration);
        let sentence = format!(
            "{short} starts no other Job while {} runs (concurrencyPolicy: Forbid){}.",
            ctx.short(JOBS, first),
            since.map(|since| format!(", for {since} now")).unwrap_or_default()
        );
        let explained = ctx.explain(JOBS, target.namespace, first);
        return Some(
            Reason::progressing("active", sentence)
                .because([cause.field("spec.concurrencyPolicy: Forbid")])
                .because(explained),
        );
    }
    None
}
