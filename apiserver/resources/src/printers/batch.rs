//! Jobs and CronJobs.

use coracle_apimachinery::render::age;
use coracle_apimachinery::render::columns::Text::{Field as Described, Literal};
use coracle_apimachinery::render::columns::{AGE, Column, NAME, Row, boolean, integer, string};
use serde_json::Value;

use super::template::{CONTAINERS, CRON_CONTAINERS, CRON_IMAGES, IMAGES, selector};

/// The columns of Job.
pub const JOB: &[Column] = &[
    NAME,
    string("Status", Literal("Status of the job."), status),
    string("Completions", Described("batch.v1.JobStatus.succeeded"), completions),
    string("Duration", Literal("Time required to complete the job."), duration),
    AGE,
    CONTAINERS,
    IMAGES,
    string("Selector", Described("batch.v1.JobSpec.selector"), |row| {
        selector(&row.get("spec.selector")).into()
    })
    .wide(),
];

/// The columns of CronJob.
pub const CRON_JOB: &[Column] = &[
    NAME,
    string("Schedule", Described("batch.v1.CronJobSpec.schedule"), |row| row.text("spec.schedule")),
    string("Timezone", Described("batch.v1.CronJobSpec.timeZone"), |row| {
        row.set_or("spec.timeZone", "<none>")
    }),
    boolean("Suspend", Described("batch.v1.CronJobSpec.suspend"), |row| {
        match row.get("spec.suspend").value().and_then(Value::as_bool) {
            Some(true) => "True".into(),
            Some(false) => "False".into(),
            None => "<unset>".into(),
        }
    }),
    integer("Active", Described("batch.v1.CronJobStatus.active"), |row| row.count("status.active")),
    string("Last Schedule", Described("batch.v1.CronJobStatus.lastScheduleTime"), |row| {
        row.since_or("status.lastScheduleTime", "<none>").into()
    }),
    AGE,
    CRON_CONTAINERS,
    CRON_IMAGES,
    string("Selector", Described("batch.v1.JobSpec.selector"), |row| {
        selector(&row.get("spec.jobTemplate.spec.selector")).into()
    })
    .wide(),
];

fn status(row: &Row<'_>) -> Value {
    let is = |condition_type: &str| {
        let mut conditions = row.get("status.conditions").items();
        let condition = conditions.find(|c| c.get("type").str() == condition_type);
        condition.is_some_and(|c| c.get("status").str() == "True")
    };
    let terminating = row.get("metadata.deletionTimestamp").exists();
    let states = [
        (is("Complete"), "Complete"),
        (is("Failed"), "Failed"),
        (terminating, "Terminating"),
        (is("Suspended"), "Suspended"),
        (is("FailureTarget"), "FailureTarget"),
        (is("SuccessCriteriaMet"), "SuccessCriteriaMet"),
    ];
    states.into_iter().find(|(holds, _)| *holds).map_or("Running", |(_, state)| state).into()
}

fn completions(row: &Row<'_>) -> Value {
    let succeeded = row.get("status.succeeded").int().unwrap_or(0);
    match (row.get("spec.completions").int(), row.get("spec.parallelism").int().unwrap_or(0)) {
        (Some(completions), _) => format!("{succeeded}/{completions}"),
        (None, parallelism) if parallelism > 1 => format!("{succeeded}/1 of {parallelism}"),
        (None, _) => format!("{succeeded}/1"),
    }
    .into()
}

fn duration(row: &Row<'_>) -> Value {
    let Some(start) = age::moment(&row.get("status.startTime")) else { return "".into() };
    let end = age::moment(&row.get("status.completionTime")).unwrap_or(row.now);
    age::since(start, end).into()
}
