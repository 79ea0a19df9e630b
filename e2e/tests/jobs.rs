//! Jobs while the server is stopped and killed: each of their pods is counted exactly once.

use anyhow::{Context, Result, ensure};
use coracle_e2e::cluster;
use coracle_e2e::cluster::Termination;
use coracle_e2e::wait::until_object;
use k8s_openapi::api::batch::v1::{Job, JobStatus};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use tempfile::TempDir;

const COMPLETIONS: i32 = 40;

fn job(name: &str, spec: Value) -> Result<Job> {
    let template = json!({
        "metadata": {"annotations": {"sim.coracle.dev/exit-after": "200ms"}},
        "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "x"}]},
    });
    let mut job = json!({"metadata": {"name": name}, "spec": {
        "completions": COMPLETIONS, "parallelism": 5, "template": template,
    }});
    if let (Some(all), Some(more)) = (job["spec"].as_object_mut(), spec.as_object()) {
        all.extend(more.clone());
    }
    Ok(serde_json::from_value(job)?)
}

fn succeeded(job: &Job) -> i32 {
    job.status.as_ref().and_then(|status| status.succeeded).unwrap_or(0)
}

fn is_complete(job: &Job) -> bool {
    let conditions = job.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.into_iter().any(|condition| condition.type_ == "Complete" && condition.status == "True")
}

/// Checks that a Job whose pod is deleted replaces it, and does not complete.
#[tokio::test]
async fn a_job_is_not_completed_by_the_deletion_of_its_pod() -> Result<()> {
    let cluster = cluster().start().await?;
    let client = cluster.client().await?;
    let (jobs, pods) =
        (Api::<Job>::default_namespaced(client.clone()), Api::<Pod>::default_namespaced(client));
    let template = json!({"spec": {
        "restartPolicy": "Never", "containers": [{"name": "c", "image": "x", "command": ["sleep", "1000"]}],
    }});
    let spec = json!({"completions": 1, "parallelism": 1, "template": template});
    jobs.create(&PostParams::default(), &job("sleeping", spec)?).await?;
    cluster.settle().await?;
    for pod in pods.list(&ListParams::default().labels("job-name=sleeping")).await? {
        pods.delete(&pod.name_any(), &DeleteParams::default()).await?;
    }
    let failed = |job: &Job| job.status.as_ref().and_then(|status| status.failed) == Some(1);
    let job = until_object(jobs, "sleeping", |job| job.is_some_and(failed)).await?.context("a Job")?;
    ensure!(!is_complete(&job) && succeeded(&job) == 0, "{:?}", job.status);
    Ok(())
}

async fn jobs_are_completed_despite(terminations: &[Termination]) -> Result<()> {
    let data = TempDir::new()?;
    let start = || cluster().data_dir(data.path()).flag("--durability", "sync").start();
    let mut cluster = start().await?;
    let jobs = Api::<Job>::default_namespaced(cluster.client().await?);
    let indexed = json!({"completionMode": "Indexed"});
    for (name, spec) in [("plain", json!({})), ("indexed", indexed)] {
        jobs.create(&PostParams::default(), &job(name, spec)?).await?;
    }
    for (i, termination) in (1..).zip(terminations) {
        let jobs = Api::<Job>::default_namespaced(cluster.client().await?);
        until_object(jobs.clone(), "plain", |job| job.is_some_and(|job| succeeded(job) >= 8 * i)).await?;
        termination.apply(cluster).await?;
        cluster = start().await?;
    }
    let client = cluster.client().await?;
    let jobs = Api::<Job>::default_namespaced(client.clone());
    for name in ["plain", "indexed"] {
        let done = until_object(jobs.clone(), name, |job| job.is_some_and(is_complete)).await?;
        let JobStatus { succeeded, failed, active, .. } =
            done.and_then(|job| job.status).context("no status")?;
        ensure!(
            (succeeded, failed, active) == (Some(COMPLETIONS), None, None),
            "{name}: {succeeded:?} {failed:?}"
        );
    }
    let pods = Api::<Pod>::default_namespaced(client).list(&ListParams::default()).await?;
    let held = pods.items.iter().filter(|pod| pod.metadata.finalizers.is_some()).count();
    ensure!(held == 0, "{held} of {} pods keep their finalizers", pods.items.len());
    Ok(())
}

#[tokio::test]
async fn jobs_are_completed_though_the_server_is_stopped() -> Result<()> {
    jobs_are_completed_despite(&[Termination::Stop, Termination::Stop]).await
}

#[tokio::test]
async fn jobs_are_completed_though_the_server_is_killed() -> Result<()> {
    jobs_are_completed_despite(&[Termination::Crash, Termination::Crash, Termination::Crash]).await
}
