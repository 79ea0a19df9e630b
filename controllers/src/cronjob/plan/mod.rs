//! The decision about a CronJob: which of its finished Jobs exceed the history limits, and whether
//! to start a Job. Pure.

use std::sync::Arc;

use coracle_controller_runtime::events::EventType;
use coracle_kinds::jobs::finished;
use coracle_object_meta::{controller_ref, set_annotation};
use k8s_openapi::api::batch::v1::{CronJob, CronJobSpec, CronJobStatus, Job};
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::ResourceExt;

use super::schedule::{NeverDue, ScheduleError, ZonedSchedule};

/// The annotation with the scheduled time of a Job, in the time zone of the CronJob.
pub const SCHEDULED_TIMESTAMP: &str = "batch.kubernetes.io/cronjob-scheduled-timestamp";

/// An event about the CronJob.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CronJobEvent {
    pub r#type: EventType,
    pub reason: &'static str,
    pub message: String,
}

pub fn warning(reason: &'static str, message: String) -> CronJobEvent {
    CronJobEvent { r#type: EventType::Warning, reason, message }
}

pub fn normal(reason: &'static str, message: String) -> CronJobEvent {
    CronJobEvent { r#type: EventType::Normal, reason, message }
}

/// Returns the finished Jobs beyond the history limits, successful and failed ones each in the
/// order of their start.
pub fn surplus(spec: &CronJobSpec, jobs: &[Arc<Job>]) -> Vec<Arc<Job>> {
    let of = |condition: &str, limit: Option<i32>| {
        let is_of = |job: &&Arc<Job>| finished(job).is_some_and(|c| c.type_ == condition);
        let mut jobs: Vec<Arc<Job>> = jobs.iter().filter(is_of).cloned().collect();
        jobs.sort_by_key(|job| {
            let start = job.status.as_ref().and_then(|status| status.start_time.as_ref()).map(|time| time.0);
            (start.is_none(), start, job.name_any())
        });
        let kept = limit.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(0));
        let surplus = jobs.len().saturating_sub(kept);
        jobs.truncate(surplus);
        jobs
    };
    let mut surplus = of("Failed", spec.failed_jobs_history_limit);
    surplus.extend(of("Complete", spec.successful_jobs_history_limit));
    surplus
}

/// Returns `true` if the status lists a Job as active.
pub fn is_active(status: &CronJobStatus, uid: Option<&str>) -> bool {
    status.active.iter().flatten().any(|active| active.uid.as_deref() == uid)
}

/// Removes a Job from the list of active ones.
pub fn remove_active(status: &mut CronJobStatus, uid: Option<&str>) {
    if let Some(active) = &mut status.active {
        active.retain(|active| active.uid.as_deref() != uid);
    }
    status.active.take_if(|active| active.is_empty());
}

/// Takes note of the Jobs that have finished. Returns an event for each that was active.
pub fn note_finished(status: &mut CronJobStatus, jobs: &[Arc<Job>]) -> Vec<CronJobEvent> {
    let mut events = Vec::new();
    for (job, condition) in jobs.iter().filter_map(|job| Some((job, finished(job)?))) {
        let uid = job.metadata.uid.as_deref();
        if is_active(status, uid) {
            remove_active(status, uid);
            let message = format!("Saw completed job: {}, condition: {}", job.name_any(), condition.type_);
            events.push(normal("SawCompletedJob", message));
        }
        let completion = job.status.as_ref().and_then(|status| status.completion_time.clone());
        let is_later = |last: &Option<_>| *last < completion;
        if condition.type_ == "Complete" && is_later(&status.last_successful_time) {
            status.last_successful_time = completion;
        }
    }
    events
}

/// The next action for a CronJob.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Do nothing until the CronJob or a Job changes.
    Stop,
    /// Do nothing until this time.
    Wait(Option<Timestamp>),
    /// Start the Job of the scheduled time, and reconcile again at the next one.
    Start { scheduled: Timestamp, replaces_active: bool, next: Option<Timestamp> },
}

/// Decides the next action for a CronJob, and the events to record.
///
/// - `status`: its status, corrected for Jobs that have ended
pub fn decide(cron_job: &CronJob, status: &CronJobStatus, now: Timestamp) -> (Decision, Vec<CronJobEvent>) {
    let spec = &cron_job.spec;
    if cron_job.metadata.deletion_timestamp.is_some() {
        return (Decision::Stop, Vec::new());
    }
    let expression = &spec.schedule;
    let schedule = match ZonedSchedule::of(cron_job) {
        Err(ScheduleError::UnknownTimeZone(error)) => {
            let zone = spec.time_zone.as_deref().unwrap_or_default();
            let event = warning("UnknownTimeZone", format!("invalid timeZone: {zone:?}: {error}"));
            return (Decision::Stop, vec![event]);
        }
        _ if spec.suspend == Some(true) => return (Decision::Stop, Vec::new()),
        Err(ScheduleError::Unparseable(error)) => {
            let message = format!("unparseable schedule: {expression:?} : {error}");
            return (Decision::Stop, vec![warning("UnparseableSchedule", message)]);
        }
        Ok(schedule) => schedule,
    };
    let mut events = Vec::new();
    if expression.contains("TZ") {
        let message = format!(
            "CRON_TZ or TZ used in schedule {expression:?} is not officially supported, see \
             https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/ for more details"
        );
        events.push(warning("UnsupportedSchedule", message));
    }
    let cron_job = CronJob { status: Some(status.clone()), ..cron_job.clone() };
    let due = match schedule.due_time(&cron_job, now, true) {
        Err(NeverDue) => {
            let why = "time difference between two schedules is less than 1 second";
            events.push(warning("InvalidSchedule", format!("invalid schedule: {expression} : {why}")));
            return (Decision::Stop, events);
        }
        Ok(due) => due,
    };
    if due.is_too_many() {
        let message =
            "too many missed start times. Set or decrease .spec.startingDeadlineSeconds or check clock skew";
        events.push(warning("TooManyMissedTimes", message.to_owned()));
    }
    let next = schedule.next_after(&cron_job, now);
    let Some(scheduled) = due.most_recent else { return (Decision::Wait(next), events) };
    let deadline = spec.starting_deadline_seconds.map(|seconds| {
        scheduled.saturating_add(SignedDuration::from_secs(seconds)).unwrap_or(Timestamp::MAX)
    });
    if deadline.is_some_and(|deadline| deadline < now) {
        let time = scheduled.strftime("%a, %d %b %Y %H:%M:%S +0000");
        events.push(warning("MissSchedule", format!("Missed scheduled time to start a job: {time}")));
        return (Decision::Wait(next), events);
    }
    let name = job_name(&cron_job, scheduled);
    let mut active = status.active.iter().flatten();
    let is_started = active.any(|active| active.name.as_ref() == Some(&name));
    if is_started || status.last_schedule_time.as_ref().is_some_and(|last| last.0 == scheduled) {
        return (Decision::Wait(next), events);
    }
    let has_active = status.active.is_some();
    let policy = spec.concurrency_policy.as_deref();
    if policy == Some("Forbid") && has_active {
        let message = "Not starting job because prior execution is running and concurrency policy is Forbid";
        events.push(normal("JobAlreadyActive", message.to_owned()));
        return (Decision::Wait(next), events);
    }
    (Decision::Start { scheduled, replaces_active: policy == Some("Replace"), next }, events)
}

/// Returns the name of the Job for a scheduled time: the CronJob's name and the minutes since the
/// epoch. Each scheduled time has one name, and so at most one Job.
pub fn job_name(cron_job: &CronJob, scheduled: Timestamp) -> String {
    format!("{}-{}", cron_job.name_any(), scheduled.as_second().div_euclid(60))
}

/// Returns the Job for a scheduled time.
pub fn job(cron_job: &CronJob, scheduled: Timestamp) -> Job {
    let template = cron_job.spec.job_template.clone();
    let meta = template.metadata.unwrap_or_default();
    let mut metadata = ObjectMeta {
        name: Some(job_name(cron_job, scheduled)),
        namespace: cron_job.namespace(),
        labels: meta.labels,
        annotations: meta.annotations,
        owner_references: Some(vec![controller_ref(cron_job)]),
        ..ObjectMeta::default()
    };
    if let Ok(schedule) = ZonedSchedule::of(cron_job) {
        set_annotation(&mut metadata, SCHEDULED_TIMESTAMP, &schedule.local_time(scheduled));
    }
    Job { metadata, spec: template.spec, status: None }
}

/// Returns the reference to a Job for the status.
pub fn reference(job: &Job) -> ObjectReference {
    ObjectReference {
        api_version: Some("batch/v1".to_owned()),
        kind: Some("Job".to_owned()),
        namespace: job.namespace(),
        name: Some(job.name_any()),
        uid: job.uid(),
        resource_version: job.resource_version(),
        ..ObjectReference::default()
    }
}

#[cfg(test)]
mod tests;
