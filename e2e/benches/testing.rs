//! Settle and the clock: how long they take where little happens. Forks: how long they take, and how much memory.
//!
//! ```text
//! cargo bench -p coracle-e2e --bench testing
//! ```

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use coracle::{ControlPlane, SettleRequest};
use coracle_e2e::json_client::JsonClient;
use coracle_e2e::{Cluster, cluster, workloads};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, PostParams};
use serde_json::{Value, json};

const SETTLE: &str = "/coracle/v1alpha1/settle";
const CLOCK: &str = "/coracle/v1alpha1/clock";

fn main() -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    println!("| | median | longest |\n| --- | ---: | ---: |");
    runtime.block_on(async {
        let cluster = cluster().start().await?;
        let mut client = JsonClient::new(&cluster.endpoint().await?).await?;
        client.call("POST", SETTLE, Some(json!({}))).await?;
        measure("settle, idle", 500, &mut client, SETTLE, &json!({"quietFor": "0s"})).await?;
        drop(cluster);

        let (_cluster, mut client) = manual().await?;
        measure("an idle hour, two nodes", 50, &mut client, CLOCK, &json!({"advance": "1h"})).await?;
        let cron_job =
            workloads::cron_job("hourly", "0 * * * *", json!({"sim.coracle.dev/exit-after": "90s"}));
        client.create(&workloads::batch("default", "cronjobs"), cron_job).await?;
        measure(
            "a day with an hourly CronJob, two nodes",
            10,
            &mut client,
            CLOCK,
            &json!({"advance": "24h"}),
        )
        .await?;
        forks().await
    })
}

/// The objects of the template.
const OBJECTS: usize = 500;
/// The forks that are made at once, and of those the ones that work.
const FORKS: usize = 1000;
const AT_WORK: usize = 100;

/// Measures forks of a template, in the process that makes them.
async fn forks() -> Result<()> {
    let began = Instant::now();
    let template = ControlPlane::builder().ephemeral().start().await?;
    print("a control plane in a new process", began.elapsed());
    let began = Instant::now();
    let second = ControlPlane::builder().ephemeral().start().await?;
    print("another one in the process", began.elapsed());
    second.shutdown().await?;
    let maps = Api::<ConfigMap>::default_namespaced(template.client());
    for i in 0..OBJECTS {
        let map = json!({"metadata": {"name": format!("map-{i}")}, "data": {"text": "x".repeat(500)}});
        maps.create(&PostParams::default(), &serde_json::from_value(map)?).await?;
    }
    template.settle().await?;
    let (mut made, mut answered, mut settled) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..50 {
        let began = Instant::now();
        let fork = template.fork().await?;
        made.push(began.elapsed());
        Api::<ConfigMap>::default_namespaced(fork.client()).get("map-0").await?;
        answered.push(began.elapsed());
        let request = SettleRequest { quiet_for: Some("0s".to_owned()), ..SettleRequest::default() };
        fork.settle_by(&request).await?;
        settled.push(began.elapsed());
        fork.shutdown().await?;
    }
    for (name, times) in [("made", made), ("its first answer", answered), ("settled", settled)] {
        summarize(&format!("a fork of {OBJECTS} objects: {name}"), times);
    }
    let before = resident()?;
    let began = Instant::now();
    let mut forks = Vec::new();
    for _ in 0..FORKS {
        forks.push(template.fork().await?);
    }
    let patient = SettleRequest { timeout: Some("5m".to_owned()), ..SettleRequest::default() };
    for fork in &forks {
        fork.settle_by(&patient).await?;
    }
    print(&format!("{FORKS} forks, all settled"), began.elapsed());
    let each = (resident()? - before) / FORKS;
    println!("| memory of each | {} KB | |", each >> 10);
    let began = Instant::now();
    let work = forks.iter().take(AT_WORK).map(async |fork| {
        let deployments = Api::<Deployment>::default_namespaced(fork.client());
        let deployment = json!({"metadata": {"name": "web"}, "spec": {"replicas": 3, "selector": {"matchLabels": {"app": "web"}},
            "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": "app"}]}}}});
        deployments.create(&PostParams::default(), &serde_json::from_value(deployment)?).await?;
        anyhow::Ok(fork.settle().await.map(drop)?)
    });
    futures::future::try_join_all(work).await?;
    print(&format!("{AT_WORK} of them run a Deployment of 3 at once"), began.elapsed());
    Ok(())
}

/// The resident memory of this process in bytes.
fn resident() -> Result<usize> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS")?;
    Ok(line.trim().trim_end_matches(" kB").parse::<usize>()? << 10)
}

fn print(name: &str, time: Duration) {
    println!("| {name} | {:.2} ms | |", time.as_secs_f64() * 1e3);
}

async fn manual() -> Result<(Cluster, JsonClient)> {
    let cluster = cluster().flag("--clock", "manual").flag("--nodes", "2").start().await?;
    let mut client = JsonClient::new(&cluster.endpoint().await?).await?;
    client.call("POST", SETTLE, Some(json!({}))).await?;
    Ok((cluster, client))
}

/// Measures requests from the connection that sends them.
async fn measure(name: &str, count: usize, client: &mut JsonClient, path: &str, body: &Value) -> Result<()> {
    let mut times = Vec::new();
    for _ in 0..count {
        let began = Instant::now();
        client.call("POST", path, Some(body.clone())).await?;
        times.push(began.elapsed());
    }
    summarize(name, times);
    Ok(())
}

fn summarize(name: &str, mut times: Vec<Duration>) {
    times.sort_unstable();
    let [median, longest] = [times.len() / 2, times.len() - 1].map(|place| times[place]);
    let milliseconds = |time: Duration| time.as_secs_f64() * 1e3;
    println!("| {name} | {:.2} ms | {:.2} ms |", milliseconds(median), milliseconds(longest));
}
