//! CronJobs: upstream's end-to-end behaviors (`[sig-apps] CronJob`), and times that come while a
//! server is not there.
//!
//! No test waits for a minute to begin: a CronJob is late if its last time was long ago, and its Job
//! is created at once.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use coracle_e2e::cluster::Termination;
use coracle_e2e::json_client::{JsonClient, condition};
use coracle_e2e::workloads::{batch, controller, cron_job, name, pods, uid};
use coracle_e2e::{Cluster, cluster};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use tempfile::TempDir;

const DEFAULT: &str = "default";

async fn start() -> Result<(Cluster, JsonClient)> {
    let cluster = cluster().start().await?;
    let client = JsonClient::new(&cluster.endpoint().await?).await?;
    Ok((cluster, client))
}

fn cron_jobs() -> String {
    batch(DEFAULT, "cronjobs")
}

fn one() -> String {
    format!("{}/one", cron_jobs())
}

fn jobs() -> String {
    batch(DEFAULT, "jobs")
}

/// Returns an hourly schedule: its last time is some minutes ago, and its next one is far away.
fn hourly() -> String {
    let minute = (Timestamp::now() - SignedDuration::from_mins(5)).strftime("%M").to_string();
    format!("{} * * * *", minute.parse::<u8>().unwrap_or_default())
}

/// Returns another hourly schedule.
fn another_hourly() -> String {
    let minute = (Timestamp::now() - SignedDuration::from_mins(3)).strftime("%M").to_string();
    format!("{} * * * *", minute.parse::<u8>().unwrap_or_default())
}

fn hours_ago(hours: i64) -> String {
    (Timestamp::now() - SignedDuration::from_hours(hours)).strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// Makes the controller believe that it has not looked at a CronJob for some hours.
async fn make_late(client: &mut JsonClient, hours: i64) -> Result<()> {
    let patch = json!({"status": {"lastScheduleTime": hours_ago(hours)}});
    client.patch(&format!("{}/status", one()), patch).await.map(drop)
}

/// Returns the reasons of the warnings about CronJobs.
async fn warnings(client: &mut JsonClient) -> Result<Vec<Value>> {
    let events =
        "/api/v1/namespaces/default/events?fieldSelector=involvedObject.kind%3DCronJob,type%3DWarning";
    Ok(client.list(events).await?.iter().map(|event| event["reason"].clone()).collect())
}

fn active(cron_job: &Value) -> usize {
    cron_job["status"]["active"].as_array().map_or(0, Vec::len)
}

/// Covers upstream's "should set the cronjob-scheduled-timestamp annotation on a job", "should not
/// emit unexpected warnings", "should remove from active list jobs that have been deleted".
#[tokio::test]
async fn a_late_job_is_started_once_and_leaves_the_active_list() -> Result<()> {
    let (_cluster, mut client) = start().await?;
    client.create(&cron_jobs(), cron_job("one", &hourly(), json!({}))).await?;
    make_late(&mut client, 3).await?;
    let job = client.until_items(&jobs(), 1).await?.pop().context("no job")?;
    let cron_job = client.until(&one(), |one| active(one) == 1).await?;
    assert_eq!(controller(&job), Some(uid(&cron_job)));
    let scheduled = &job["metadata"]["annotations"]["batch.kubernetes.io/cronjob-scheduled-timestamp"];
    assert_eq!(scheduled, &cron_job["status"]["lastScheduleTime"]);
    assert_eq!(cron_job["status"]["active"][0]["uid"], uid(&job));
    assert_eq!(warnings(&mut client).await?, Vec::<Value>::new());

    client.delete(&format!("{}/{}?propagationPolicy=Background", jobs(), name(&job))).await?;
    client.until(&one(), |one| active(one) == 0).await?;
    client.until_items(&pods(DEFAULT), 0).await.map(drop)
}

/// Covers upstream's "should schedule multiple jobs concurrently", "should replace jobs when
/// ReplaceConcurrent", "should not schedule new jobs when ForbidConcurrent".
#[tokio::test]
async fn concurrency_policies_decide_about_jobs_that_run() -> Result<()> {
    let (_cluster, mut client) = start().await?;
    for (policy, jobs_after, replaced) in [("Allow", 2, false), ("Forbid", 1, false), ("Replace", 1, true)] {
        let mut created = cron_job("one", &hourly(), json!({}));
        created["spec"]["concurrencyPolicy"] = json!(policy);
        client.create(&cron_jobs(), created).await?;
        make_late(&mut client, 3).await?;
        let first = client.until_items(&jobs(), 1).await?;
        client.until(&one(), |one| active(one) == 1).await?;
        // Another time is due: that of another minute.
        client.patch(&one(), json!({"spec": {"schedule": another_hourly()}})).await?;
        make_late(&mut client, 2).await?;
        if policy == "Forbid" {
            let events = "/api/v1/namespaces/default/events?fieldSelector=reason%3DJobAlreadyActive";
            client
                .until(events, |list| list["items"].as_array().is_some_and(|items| !items.is_empty()))
                .await?;
        } else {
            let first = uid(&first[0]).to_owned();
            let is_another = |job: &Value| uid(job) != first;
            client
                .until(&jobs(), |list| list["items"].as_array().into_iter().flatten().any(is_another))
                .await?;
        }
        let after = client.until_items(&jobs(), jobs_after).await.with_context(|| policy.to_owned())?;
        ensure!(after.iter().all(|job| uid(job) != uid(&first[0])) == replaced, "{policy}: {after:?}");
        client.until(&one(), |one| active(one) == jobs_after).await.with_context(|| policy.to_owned())?;
        client.delete(&one()).await?;
        // Upstream: "should delete jobs and pods created by cronjob".
        client.until_items(&jobs(), 0).await?;
        client.until_items(&pods(DEFAULT), 0).await?;
    }
    Ok(())
}

/// Covers upstream's "should not schedule jobs when suspended", "should be able to schedule after
/// more than 100 missed schedule".
#[tokio::test]
async fn many_missed_times_are_one_job_once_it_is_resumed() -> Result<()> {
    let (_cluster, mut client) = start().await?;
    let mut created = cron_job("one", &hourly(), json!({}));
    created["spec"]["suspend"] = json!(true);
    client.create(&cron_jobs(), created).await?;
    make_late(&mut client, 24 * 10).await?;
    client.until_at_rest(&["cronjobs", "jobs"], std::time::Duration::from_secs(1)).await?;
    assert_eq!(client.list(&jobs()).await?, Vec::<Value>::new());
    client.patch(&one(), json!({"spec": {"suspend": false}})).await?;
    client.until(&one(), |one| active(one) == 1).await?;
    assert_eq!(client.list(&jobs()).await?.len(), 1);
    let events = "/api/v1/namespaces/default/events?fieldSelector=reason%3DTooManyMissedTimes";
    client.until_items(events, 1).await.map(drop)
}

/// Covers upstream's "should delete successful finished jobs with limit of one successful job",
/// "should delete failed finished jobs with limit of one job".
#[tokio::test]
async fn finished_jobs_beyond_the_limits_are_deleted() -> Result<()> {
    let (_cluster, mut client) = start().await?;
    let now = json!({"sim.coracle.dev/exit-after": "0s"});
    let failing = json!({"sim.coracle.dev/exit-after": "0s", "sim.coracle.dev/exit-code": "1"});
    for (annotations, r#type, limit) in
        [(now, "Complete", "successfulJobsHistoryLimit"), (failing, "Failed", "failedJobsHistoryLimit")]
    {
        let mut created = cron_job("one", &hourly(), annotations);
        created["spec"][limit] = json!(1);
        created["spec"]["jobTemplate"]["spec"]["backoffLimit"] = json!(0);
        client.create(&cron_jobs(), created).await?;
        make_late(&mut client, 3).await?;
        let is_finished = |job: &Value| condition(job, r#type) == Some("True");
        let first = client.until(&jobs(), |list| is_finished(&list["items"][0])).await?;
        client.until(&one(), |one| active(one) == 0 && one["status"]["lastScheduleTime"].is_string()).await?;
        client.patch(&one(), json!({"spec": {"schedule": another_hourly()}})).await?;
        make_late(&mut client, 2).await?;
        let first = uid(&first["items"][0]).to_owned();
        client
            .until(&jobs(), |list| {
                let jobs = list["items"].as_array();
                jobs.is_some_and(|jobs| jobs.len() == 1 && uid(&jobs[0]) != first && is_finished(&jobs[0]))
            })
            .await
            .context(r#type)?;
        client.delete(&one()).await?;
        client.until_items(&jobs(), 0).await?;
    }
    Ok(())
}

/// Covers upstream's "should support timezone".
#[tokio::test]
async fn a_schedule_is_read_in_its_time_zone() -> Result<()> {
    let (_cluster, mut client) = start().await?;
    let mut unknown = cron_job("unknown", "0 0 * * *", json!({}));
    unknown["spec"]["timeZone"] = json!("bad-zone");
    let (status, answer) = client.send("POST", &cron_jobs(), Some(unknown)).await?;
    ensure!(status == 422, "{answer}");
    // The time of day in Kolkata, half an hour off from all whole zones.
    let minute = Timestamp::now() - SignedDuration::from_mins(5) + SignedDuration::from_mins(330);
    let schedule = minute.strftime("%-M %-H * * *").to_string();
    let mut zoned = cron_job("one", &schedule, json!({}));
    zoned["spec"]["timeZone"] = json!("Asia/Kolkata");
    client.create(&cron_jobs(), zoned).await?;
    make_late(&mut client, 20).await?;
    client.until(&one(), |one| active(one) == 1).await?;
    let job = client.until_items(&jobs(), 1).await?.pop().context("no job")?;
    let scheduled =
        job["metadata"]["annotations"]["batch.kubernetes.io/cronjob-scheduled-timestamp"].as_str();
    ensure!(scheduled.is_some_and(|time| time.ends_with("+05:30")), "{scheduled:?}");
    Ok(())
}

async fn restarted(data: &Path) -> Result<(Cluster, JsonClient)> {
    let cluster = cluster().data_dir(data).flag("--durability", "sync").start().await?;
    let client = JsonClient::new(&cluster.endpoint().await?).await?;
    Ok((cluster, client))
}

/// Checks that a time has one Job, at whatever point the server stops: also if the Job was created
/// and the status was not written.
#[tokio::test]
async fn a_time_is_run_once_though_the_server_is_restarted() -> Result<()> {
    let data = TempDir::new()?;
    let (mut cluster, mut client) = restarted(data.path()).await?;
    let mut created = cron_job("one", &hourly(), json!({"sim.coracle.dev/exit-after": "0s"}));
    created["spec"]["jobTemplate"]["spec"]["parallelism"] = json!(0);
    client.create(&cron_jobs(), created).await?;
    for (round, termination) in (1..).zip([Termination::Crash, Termination::Stop]) {
        if round == 2 {
            client.patch(&one(), json!({"spec": {"schedule": another_hourly()}})).await?;
        }
        make_late(&mut client, 2).await?;
        client.until_items(&jobs(), round).await?;
        termination.apply(cluster).await?;
        (cluster, client) = restarted(data.path()).await?;
        let cron_job = client.until(&one(), |one| active(one) == 1).await?;
        // In the second round the Job may exist before `make_late` writes the status, which then
        // stays as that wrote it.
        if round == 1 {
            let time = cron_job["status"]["lastScheduleTime"].as_str();
            ensure!(time > Some(hours_ago(1).as_str()), "{cron_job}");
        }
        // Now its pod may run.
        let job = cron_job["status"]["active"][0]["name"].as_str().context("no name")?;
        client.patch(&format!("{}/{job}", jobs()), json!({"spec": {"parallelism": 1}})).await?;
        client
            .until(&one(), |one| active(one) == 0 && one["status"]["lastSuccessfulTime"].is_string())
            .await?;
        assert_eq!(client.list(&jobs()).await?.len(), round, "after a {termination:?}");
        // If it ended before the status was written, upstream's controller says that it forgot the
        // Job.
        let warnings = warnings(&mut client).await?;
        assert!(warnings.iter().all(|reason| reason == "UnexpectedJob"), "{warnings:?}");
    }
    Ok(())
}
