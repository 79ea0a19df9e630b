//! cronjob-controller: starts a Job whenever a schedule says so.
//!
//! A CronJob is reconciled when it or one of its Jobs changes, and at the next time of its
//! schedule:
//! 1. finished Jobs beyond the limits of the history are deleted;
//! 2. the list of active Jobs is corrected: what has finished or is missing leaves it;
//! 3. it is decided whether the last time that has come is to be run ([`plan`], [`schedule`]);
//! 4. active Jobs are replaced, if the policy says so, and the Job is created;
//! 5. the status is written once.

mod plan;
mod schedule;

use std::sync::Arc;
use std::time::Duration;

use coracle_clock::Clock;
use coracle_controller_runtime::cache::{Cache, Change, Index, NamespacedName};
use coracle_controller_runtime::events::{EventType, Recorder};
use coracle_controller_runtime::queue::Queue;
use coracle_controller_runtime::{
    Action, Controller, Error, Initialize, ReconcileContext, Sources, ignore_not_found,
    is_namespace_terminating,
};
use coracle_kinds::jobs::finished;
use coracle_object_meta::{controller_of, is_controlled_by};
use k8s_openapi::api::batch::v1::{CronJob, CronJobStatus, Job};
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use kube::api::DeleteParams;
use prometheus::Histogram;

use crate::settings::{Context, Settings};
use crate::timers::CRON_JOB_SCHEDULE;
use crate::workload::owners::owners_of;
use plan::{
    CronJobEvent, Decision, SCHEDULED_TIMESTAMP, decide, is_active, normal, note_finished, reference,
    remove_active, surplus, warning,
};
use schedule::ZonedSchedule;

/// kube-controller-manager's: how long after a time of the schedule it is looked at.
const SLACK: Duration = Duration::from_millis(100);

#[derive(Clone)]
pub struct CronJobController {
    clock: Clock,
    recorder: Recorder,
    cron_jobs: Arc<Cache<CronJob>>,
    jobs: Arc<Cache<Job>>,
    creation_skew: Histogram,
}

/// Finds Jobs by the name of their controller, of whatever kind: that is kube-controller-manager's
/// rule.
struct ByControllerName;

impl Index<Job> for ByControllerName {
    fn keys(job: &Job) -> Vec<NamespacedName> {
        let controller = controller_of(&job.metadata).into_iter();
        controller
            .map(|owner| NamespacedName::new(job.namespace().unwrap_or_default(), &owner.name))
            .collect()
    }
}

impl Initialize<Settings> for CronJobController {
    fn new(context: &Context) -> CronJobController {
        let buckets: Vec<f64> = (0..10).map(|k| f64::from(1 << k)).collect();
        let creation_skew = context.metrics.histogram(
            "cronjob_controller_job_creation_skew_duration_seconds",
            "Time between when a cronjob is scheduled to be run, and when the corresponding job is created",
            &buckets,
            &[],
        );
        CronJobController {
            clock: context.clock.clone(),
            recorder: context.recorder("cronjob-controller"),
            cron_jobs: context.cache(),
            jobs: context.cache(),
            creation_skew: creation_skew.with_label_values::<&str>(&[]),
        }
    }
}

impl Controller for CronJobController {
    const NAME: &'static str = "cronjob-controller";
    const QUEUE_NAME: &'static str = "cronjob";
    type Key = NamespacedName;

    fn sources(&self, sources: &mut Sources<NamespacedName>) {
        let (controller, cron_jobs) = (self.clone(), self.cron_jobs.clone());
        sources.on(&self.cron_jobs, move |change, queue| controller.enqueue(change, queue)).on(
            &self.jobs,
            move |change, queue| {
                owners_of(change, &cron_jobs, |_, _| false).into_iter().for_each(|owner| queue.add(owner));
            },
        );
    }

    async fn reconcile(&self, name: &NamespacedName, ctx: &ReconcileContext) -> Result<Action, Error> {
        let Some(cron_job) = self.cron_jobs.get(name) else { return Ok(Action::AwaitChange) };
        let jobs = self.jobs.by::<ByControllerName>(name);
        let before = cron_job.status.clone().unwrap_or_default();
        let mut status = before.clone();
        status.active.take_if(|active| active.is_empty());
        self.clean_up_history(&cron_job, &jobs, &mut status, ctx).await;
        let outcome = self.sync(&cron_job, &jobs, &mut status, ctx).await;
        // Also after a failure: what was deleted or created has to be noted.
        if status != before {
            let changed = CronJob { status: Some(status), ..cron_job.as_ref().clone() };
            ignore_not_found(ctx.api(&self.cron_jobs).replace_status(&changed).await)?;
        }
        let next = outcome?;
        let now = self.clock.now();
        let delay = next.map(|next| Duration::try_from(next.duration_since(now)).unwrap_or_default() + SLACK);
        Ok(delay.map_or(Action::AwaitChange, |left| Action::Requeue(CRON_JOB_SCHEDULE.after(left))))
    }
}

impl CronJobController {
    /// Enqueues a changed schedule at its next time, and every other change at once.
    fn enqueue(&self, change: &Change<CronJob>, queue: &Queue<NamespacedName>) {
        let Some(name) = change.name() else { return };
        let schedule = |cron_job: &CronJob| (cron_job.spec.schedule.clone(), cron_job.spec.time_zone.clone());
        let (Some(_), Some(new)) = (&change.old, &change.new) else { return queue.add(name) };
        if !change.changed(schedule) {
            return queue.add(name);
        }
        match ZonedSchedule::of(new) {
            Ok(schedule) => {
                let now = self.clock.now();
                // A schedule that never comes is reported at once.
                let Some(next) = schedule.next_after(new, now) else { return queue.add(name) };
                let delay = Duration::try_from(next.duration_since(now)).unwrap_or_default() + SLACK;
                queue.add_after(name, CRON_JOB_SCHEDULE.after(delay));
            }
            Err(_) => {
                let message = format!("unparseable schedule for cronjob: {}", new.spec.schedule);
                self.recorder.warning(new.as_ref(), "UnParseableCronJobSchedule", message);
            }
        }
    }

    async fn clean_up_history(
        &self,
        cron_job: &CronJob,
        jobs: &[Arc<Job>],
        status: &mut CronJobStatus,
        ctx: &ReconcileContext,
    ) {
        for job in
            surplus(&cron_job.spec, jobs).iter().filter(|job| job.metadata.deletion_timestamp.is_none())
        {
            // The next reconciliation tries again; an event has reported the failure.
            let _ = self.delete_job(cron_job, job, status, ctx).await;
        }
    }

    /// Starts what is due. Returns when to look at the CronJob again.
    async fn sync(
        &self,
        cron_job: &CronJob,
        jobs: &[Arc<Job>],
        status: &mut CronJobStatus,
        ctx: &ReconcileContext,
    ) -> Result<Option<Timestamp>, Error> {
        self.report_unexpected(cron_job, jobs, status, ctx).await?;
        self.record_all(cron_job, note_finished(status, jobs));
        self.remove_missing(cron_job, jobs, status, ctx).await?;
        let (decision, events) = decide(cron_job, status, self.clock.now());
        self.record_all(cron_job, events);
        match decision {
            Decision::Stop => Ok(None),
            Decision::Wait(next) => Ok(next),
            Decision::Start { scheduled, replaces_active, next } => {
                if replaces_active {
                    self.delete_active(cron_job, status, ctx).await?;
                }
                let is_started = self.start(cron_job, scheduled, status, ctx).await?;
                Ok(next.filter(|_| is_started))
            }
        }
    }

    /// Reports Jobs that run and are not in the list of active ones, also not in the newest one.
    async fn report_unexpected(
        &self,
        cron_job: &CronJob,
        jobs: &[Arc<Job>],
        status: &CronJobStatus,
        ctx: &ReconcileContext,
    ) -> Result<(), Error> {
        let is_unexpected =
            |job: &&Arc<Job>| finished(job).is_none() && !is_active(status, job.metadata.uid.as_deref());
        let unexpected: Vec<_> = jobs.iter().filter(is_unexpected).collect();
        if unexpected.is_empty() {
            return Ok(());
        }
        let live = ctx.api(&self.cron_jobs).get(&NamespacedName::of(cron_job)).await?;
        let Some(live) = live else { return Ok(()) };
        let live = live.status.unwrap_or_default();
        for job in unexpected.into_iter().filter(|job| !is_active(&live, job.metadata.uid.as_deref())) {
            let message =
                format!("Saw a job that the controller did not create or forgot: {}", job.name_any());
            self.record(cron_job, warning("UnexpectedJob", message));
        }
        Ok(())
    }

    /// Removes active Jobs that do not exist any more.
    async fn remove_missing(
        &self,
        cron_job: &CronJob,
        jobs: &[Arc<Job>],
        status: &mut CronJobStatus,
        ctx: &ReconcileContext,
    ) -> Result<(), Error> {
        for active in status.active.clone().into_iter().flatten() {
            if jobs.iter().any(|job| job.metadata.uid == active.uid) {
                continue;
            }
            let name = name_of(&active);
            if self.job(&name, ctx).await?.is_none() {
                let message = format!("Active job went missing: {}", name.name);
                self.record(cron_job, normal("MissingJob", message));
                remove_active(status, active.uid.as_deref());
            }
        }
        Ok(())
    }

    /// Reads a Job from the API; there is none without a namespace, which a client may have left
    /// out.
    async fn job(&self, name: &NamespacedName, ctx: &ReconcileContext) -> kube::Result<Option<Job>> {
        match name.namespace.is_empty() {
            true => Ok(None),
            false => ctx.api(&self.jobs).get(name).await,
        }
    }

    /// Deletes the active Jobs, for a new one to replace them.
    async fn delete_active(
        &self,
        cron_job: &CronJob,
        status: &mut CronJobStatus,
        ctx: &ReconcileContext,
    ) -> Result<(), Error> {
        for active in status.active.clone().into_iter().flatten() {
            let name = name_of(&active);
            let job = self.job(&name, ctx).await.map_err(Error::from);
            let job = job.and_then(|job| job.ok_or_else(|| not_found(&name))).inspect_err(|error| {
                self.record(cron_job, warning("FailedGet", format!("Get job: {}", error.message())));
            })?;
            self.delete_job(cron_job, &job, status, ctx).await?;
        }
        Ok(())
    }

    async fn delete_job(
        &self,
        cron_job: &CronJob,
        job: &Job,
        status: &mut CronJobStatus,
        ctx: &ReconcileContext,
    ) -> Result<(), Error> {
        match ctx.api(&self.jobs).delete(job, &DeleteParams::background()).await.map_err(Error::from) {
            Ok(()) => {
                remove_active(status, job.metadata.uid.as_deref());
                self.record(cron_job, normal("SuccessfulDelete", format!("Deleted job {}", job.name_any())));
                Ok(())
            }
            Err(error) => {
                self.record(cron_job, warning("FailedDelete", format!("Deleted job: {}", error.message())));
                Err(error)
            }
        }
    }

    /// Creates the Job of a time. Returns whether to go on with the next time.
    async fn start(
        &self,
        cron_job: &CronJob,
        scheduled: Timestamp,
        status: &mut CronJobStatus,
        ctx: &ReconcileContext,
    ) -> Result<bool, Error> {
        let new = plan::job(cron_job, scheduled);
        let api = ctx.api(&self.jobs);
        let created = match api.create(&new).await {
            Ok(created) => created,
            Err(error) if is_namespace_terminating(&error) => return Err(error.into()),
            Err(error) => {
                let error = Error::from(error);
                if error.is(409) {
                    // Made before a restart, whose status was not written.
                    let name = NamespacedName::of(&new);
                    let existing = api.get(&name).await?.ok_or_else(|| not_found(&name))?;
                    let scheduled_at = existing.annotations().get(SCHEDULED_TIMESTAMP);
                    let is_own = is_controlled_by(&existing.metadata, cron_job)
                        && scheduled_at.is_some()
                        && scheduled_at == new.annotations().get(SCHEDULED_TIMESTAMP);
                    if is_own && finished(&existing).is_none() {
                        self.note_started(status, &existing, scheduled);
                        return Ok(true);
                    }
                    return Err(error);
                }
                self.record(
                    cron_job,
                    warning("FailedCreate", format!("Error creating job: {}", error.message())),
                );
                return Err(error);
            }
        };
        if let Some(time) = &created.metadata.creation_timestamp {
            self.creation_skew.observe(time.0.duration_since(scheduled).as_secs_f64());
        }
        self.record(cron_job, normal("SuccessfulCreate", format!("Created job {}", created.name_any())));
        self.note_started(status, &created, scheduled);
        Ok(true)
    }

    fn note_started(&self, status: &mut CronJobStatus, job: &Job, scheduled: Timestamp) {
        status.active.get_or_insert_default().push(reference(job));
        status.last_schedule_time = Some(Time(scheduled));
    }

    fn record_all(&self, cron_job: &CronJob, events: Vec<CronJobEvent>) {
        events.into_iter().for_each(|event| self.record(cron_job, event));
    }

    fn record(&self, cron_job: &CronJob, CronJobEvent { r#type, reason, message }: CronJobEvent) {
        match r#type {
            EventType::Normal => self.recorder.normal(cron_job, reason, message),
            EventType::Warning => self.recorder.warning(cron_job, reason, message),
        }
    }
}

/// Returns the name of a Job in the list of active ones.
fn name_of(active: &ObjectReference) -> NamespacedName {
    NamespacedName::new(active.namespace.clone().unwrap_or_default(), active.name.clone().unwrap_or_default())
}

/// Returns an error with the API server's message for a Job that does not exist.
fn not_found(job: &NamespacedName) -> Error {
    Error::Unfinished(format!("jobs.batch {:?} not found", job.name))
}
