//! Settle and the clock: how long they take where little happens. Forks: how long they take, and how much memory.
//!
//! ```text
//! cargo bench -p coracle-e2e --bench testing [-- forks]
//! ```

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use coracle::{ControlPlane, SettleRequest};
use coracle_e2e::json_client::JsonClient;
use coracle_e2e::{Cluster, cluster, workloads};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

const SETTLE: &str = "/coracle/v1alpha1/settle";
const CLOCK: &str = "/coracle/v1alpha1/clock";

fn main() -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    println!("| | median | longest |\n| --- | ---: | ---: |");
    runtime.block_on(async {
        if std::env::args().any(|argument| argument == "forks") {
            return forks().await;
        }
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

/// The objects of the template, and its definitions.
const OBJECTS: usize = 500;
const DEFINITIONS: usize = 10;
/// The forks that are made at once, and of those the ones that work.
const FORKS: usize = 1000;
const AT_WORK: usize = 100;
/// The requests to the parent whose times are compared.
const REQUESTS: usize = 1000;

/// Measures forks of a template, in the process that makes them.
async fn forks() -> Result<()> {
    let began = Instant::now();
    let template = ControlPlane::builder().ephemeral().start().await?;
    print("a control plane in a new process", began.elapsed());
    let mut others = Vec::new();
    for _ in 0..10 {
        let began = Instant::now();
        let other = ControlPlane::builder().ephemeral().start().await?;
        others.push(began.elapsed());
        other.shutdown().await?;
    }
    summarize("another one in the process", others);
    fill(&template).await?;
    let (mut made, mut answered, mut settled) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..50 {
        let began = Instant::now();
        let fork = template.fork().await?;
        made.push(began.elapsed());
        maps(&fork).get("map-0").await?;
        answered.push(began.elapsed());
        fork.settle_by(&at_once()).await?;
        settled.push(began.elapsed());
        fork.shutdown().await?;
    }
    for (name, times) in [("made", made), ("its first answer", answered), ("settled", settled)] {
        summarize(&format!("a fork of {OBJECTS} objects, {DEFINITIONS} definitions: {name}"), times);
    }
    parent_at_work(&template).await?;
    many(&template).await
}

async fn fill(template: &ControlPlane) -> Result<()> {
    let definitions = Api::<CustomResourceDefinition>::all(template.client());
    for i in 0..DEFINITIONS {
        let plural = format!("kinds{i}");
        let definition = json!({
            "metadata": {"name": format!("{plural}.example.com")},
            "spec": {"group": "example.com", "scope": "Namespaced",
                "names": {"plural": plural, "singular": format!("kind{i}"), "kind": format!("Kind{i}"), "listKind": format!("Kind{i}List")},
                "versions": [{"name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                    "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                        "spec": {"type": "object", "properties": {"size": {"type": "integer", "minimum": 1}}},
                        "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}}}]}});
        definitions.create(&PostParams::default(), &serde_json::from_value(definition)?).await?;
    }
    let maps = maps(template);
    for i in 0..OBJECTS {
        let map = json!({"metadata": {"name": format!("map-{i}")}, "data": {"text": "x".repeat(500)}});
        maps.create(&PostParams::default(), &serde_json::from_value(map)?).await?;
    }
    template.settle().await?;
    Ok(())
}

async fn make_and_end(template: &ControlPlane) -> Result<()> {
    Ok(template.fork().await?.shutdown().await?)
}

/// Measures writes to a control plane, alone and while forks of it are made and ended, one after the other.
async fn parent_at_work(template: &ControlPlane) -> Result<()> {
    let maps = maps(template);
    for name in ["a write to the parent", "a write to the parent while forks are made"] {
        let forking = async {
            loop {
                if let Err(error) = make_and_end(template).await {
                    return Err(error);
                }
            }
        };
        let writing = async {
            let mut times = Vec::new();
            for i in 0..REQUESTS {
                let began = Instant::now();
                let patch = Patch::Merge(json!({"data": {"text": i.to_string()}}));
                maps.patch("map-0", &PatchParams::default(), &patch).await?;
                times.push(began.elapsed());
            }
            anyhow::Ok(times)
        };
        let mut times = match name.ends_with("made") {
            false => writing.await?,
            true => tokio::select! { times = writing => times?, failed = forking => return failed },
        };
        times.sort_unstable();
        print(&format!("{name}: the 99th percentile"), times[times.len() * 99 / 100]);
        summarize(name, times);
    }
    Ok(())
}

/// Measures many forks at once: their memory, their work, and what is left when they have ended.
async fn many(template: &ControlPlane) -> Result<()> {
    let before = Held::now()?;
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
    let meanwhile = Held::now()?;
    println!("| memory of each | {} KB | |", meanwhile.bytes.saturating_sub(before.bytes) / FORKS >> 10);
    println!("| threads for all of them | {} | |", meanwhile.threads.saturating_sub(before.threads));
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
    let began = Instant::now();
    futures::future::try_join_all(forks.into_iter().map(ControlPlane::shutdown)).await?;
    print("all of them end", began.elapsed());
    let after = Held::now()?;
    println!(
        "| files open before, with the forks, and after | {}, {}, {} | |",
        before.files, meanwhile.files, after.files
    );
    println!(
        "| memory before, with the forks, and after | {}, {}, {} MB | |",
        before.bytes >> 20,
        meanwhile.bytes >> 20,
        after.bytes >> 20
    );
    Ok(())
}

fn maps(control_plane: &ControlPlane) -> Api<ConfigMap> {
    Api::default_namespaced(control_plane.client())
}

fn at_once() -> SettleRequest {
    SettleRequest { quiet_for: Some("0s".to_owned()), ..SettleRequest::default() }
}

/// What this process holds of the machine.
struct Held {
    /// The resident memory, in bytes.
    bytes: usize,
    threads: usize,
    /// The files and sockets that are open.
    files: usize,
}

impl Held {
    fn now() -> Result<Held> {
        let status = std::fs::read_to_string("/proc/self/status")?;
        let field = |name: &str| -> Result<usize> {
            let line = status.lines().find_map(|line| line.strip_prefix(name)).context("no such field")?;
            Ok(line.trim_start_matches(':').trim().trim_end_matches(" kB").parse()?)
        };
        let files = std::fs::read_dir("/proc/self/fd")?.count();
        Ok(Held { bytes: field("VmRSS")? << 10, threads: field("Threads")?, files })
    }
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
