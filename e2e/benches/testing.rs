//! Settle and the clock: how long they take where little happens. Forks: how long they take, and
//! how much memory.
//!
//! ```text
//! cargo bench -p coracle-e2e --bench testing [-- forks]
//! ```

use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use coracle::{ControlPlane, SettleRequest};
use coracle_e2e::json_client::JsonClient;
use coracle_e2e::{Cluster, cluster, workloads};
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use tokio::task::JoinSet;

const SETTLE: &str = "/coracle/v1alpha1/settle";
const CLOCK: &str = "/coracle/v1alpha1/clock";
const FORKS_PATH: &str = "/coracle/v1alpha1/forks";
const DEFINITIONS_PATH: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

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
const REQUESTS: usize = 5000;

/// Measures forks of a template, in the process that makes them.
async fn forks() -> Result<()> {
    let began = Instant::now();
    let template = Arc::new(ControlPlane::builder().ephemeral().start().await?);
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
    drop(template);
    many().await
}

async fn fill(template: &ControlPlane) -> Result<()> {
    let definitions = Api::<CustomResourceDefinition>::all(template.client());
    for i in 0..DEFINITIONS {
        definitions.create(&PostParams::default(), &serde_json::from_value(definition(i))?).await?;
    }
    let maps = maps(template);
    for i in 0..OBJECTS {
        maps.create(&PostParams::default(), &serde_json::from_value(map(i))?).await?;
    }
    template.settle().await?;
    Ok(())
}

fn map(i: usize) -> Value {
    json!({"metadata": {"name": format!("map-{i}")}, "data": {"text": "x".repeat(500)}})
}

fn definition(i: usize) -> Value {
    let (plural, kind) = (format!("kinds{i}"), format!("Kind{i}"));
    json!({
        "metadata": {"name": format!("{plural}.example.com")},
        "spec": {"group": "example.com", "scope": "Namespaced",
            "names": {"plural": plural, "singular": format!("kind{i}"), "kind": kind, "listKind": format!("{kind}List")},
            "versions": [{"name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                    "spec": {"type": "object", "properties": {"size": {"type": "integer", "minimum": 1}}},
                    "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}}}]}})
}

async fn fork_for_ever(template: Arc<ControlPlane>) -> Result<Infallible> {
    loop {
        template.fork().await?.shutdown().await?;
    }
}

/// Measures writes to a control plane, alone and while forks of it are made and ended, one after
/// the other.
async fn parent_at_work(template: &Arc<ControlPlane>) -> Result<()> {
    for name in ["a write to the parent", "a write to the parent while forks are made"] {
        let maps = maps(template);
        let writing = tokio::spawn(async move {
            let mut times = Vec::new();
            for i in 0..REQUESTS {
                let began = Instant::now();
                let patch = Patch::Merge(json!({"data": {"text": i.to_string()}}));
                maps.patch("map-0", &PatchParams::default(), &patch).await?;
                times.push(began.elapsed());
            }
            anyhow::Ok(times)
        });
        let mut times = match name.ends_with("made") {
            false => writing.await??,
            true => {
                let mut forking = JoinSet::new();
                forking.spawn(fork_for_ever(template.clone()));
                tokio::select! {
                    times = writing => times??,
                    Some(ended) = forking.join_next() => match ended?? {},
                }
            }
        };
        times.sort_unstable();
        print(&format!("{name}: the 99th percentile"), times[times.len() * 99 / 100]);
        summarize(name, times);
    }
    Ok(())
}

/// Measures many forks of a server at once: their memory, their work, and what is left when they
/// have ended.
async fn many() -> Result<()> {
    let server = cluster().flag("--max-forks", FORKS.to_string()).start().await?;
    let endpoint = server.endpoint().await?;
    let mut client = JsonClient::new(&endpoint).await?;
    for i in 0..DEFINITIONS {
        client.create(DEFINITIONS_PATH, definition(i)).await?;
    }
    for i in 0..OBJECTS {
        client.create("/api/v1/namespaces/default/configmaps", map(i)).await?;
    }
    client.call("POST", SETTLE, Some(json!({}))).await?;
    let held = || anyhow::Ok((server.resident()?, server.open_files()?, server.threads()?));
    let before = held()?;
    let began = Instant::now();
    let mut forks = Vec::new();
    for _ in 0..FORKS {
        let fork = client.call("POST", FORKS_PATH, Some(json!({}))).await?;
        forks.push(fork["name"].as_str().context("a name")?.to_owned());
    }
    let below = |name: &str, path: &str| format!("/coracle/forks/{name}{path}");
    for name in &forks {
        client.call("POST", &below(name, SETTLE), Some(json!({"timeout": "5m"}))).await?;
    }
    print(&format!("{FORKS} forks in one process, all settled"), began.elapsed());
    let meanwhile = held()?;
    println!("| memory of each | {:.2} MB | |", (meanwhile.0 - before.0) / FORKS as f64);
    let began = Instant::now();
    let work = forks.iter().take(AT_WORK).map(async |name| {
        let mut client = JsonClient::new(&endpoint).await?;
        let deployments = below(name, &workloads::apps("default", "deployments"));
        client.create(&deployments, workloads::replicated("web", 3)).await?;
        client.call("POST", &below(name, SETTLE), Some(json!({}))).await.map(drop)
    });
    futures::future::try_join_all(work).await?;
    print(&format!("{AT_WORK} of them run a Deployment of 3 at once"), began.elapsed());
    let began = Instant::now();
    for name in &forks {
        client.call("DELETE", &format!("{FORKS_PATH}/{name}"), None).await?;
    }
    print("all of them end", began.elapsed());
    let after = held()?;
    println!(
        "| before, with the forks, and after: memory | {:.0}, {:.0}, {:.0} MB | |",
        before.0, meanwhile.0, after.0
    );
    println!("| open files | {}, {}, {} | |", before.1, meanwhile.1, after.1);
    println!("| threads | {}, {}, {} | |", before.2, meanwhile.2, after.2);
    Ok(())
}

fn maps(control_plane: &ControlPlane) -> Api<ConfigMap> {
    Api::default_namespaced(control_plane.client())
}

fn at_once() -> SettleRequest {
    SettleRequest { quiet_for: Some("0s".to_owned()), ..SettleRequest::default() }
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
