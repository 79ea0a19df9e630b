//! Workloads: how long Deployments, Jobs and their pods take, how often a Service's slices are
//! written, and what pods cost at rest.
//!
//! ```text
//! cargo bench -p coracle-e2e --bench workloads                    all
//! cargo bench -p coracle-e2e --bench workloads -- jobs nodes      some: deployment, jobs, service, rest, nodes
//! PEER_KUBECONFIG=FILE cargo bench -p coracle-e2e --bench workloads      the first three on another cluster
//! ```

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use coracle_e2e::http::{self, Endpoint};
use coracle_e2e::json_client::{JsonClient, condition, items};
use coracle_e2e::workloads::{apps, batch, image, is_complete, job, pods, replicated};
use coracle_e2e::{Cluster, cluster};
use futures::future::try_join_all;
use serde_json::{Value, json};

/// The pods of a Deployment.
const REPLICAS: usize = 1000;
/// Jobs, and the pods of each.
const JOBS: (usize, usize) = (200, 5);
/// Deployments, and the pods of each, that are left alone.
const AT_REST: (usize, usize) = (5, 1000);
/// Simulated nodes, and the pods that are scheduled to them.
const NODES: (usize, usize) = (1000, 10_000);
const CONNECTIONS: usize = 8;
const IDLE_TIME: Duration = Duration::from_secs(10);
const DEADLINE: Duration = Duration::from_secs(600);

fn main() -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let named: Vec<String> = std::env::args().skip(1).filter(|arg| !arg.starts_with("--")).collect();
    let is_selected = |name: &str| named.is_empty() || named.iter().any(|one| one == name);
    runtime.block_on(async {
        if let Some(file) = std::env::var_os("PEER_KUBECONFIG") {
            println!("the peer:");
            return scenarios(&Endpoint::new(&http::config(Path::new(&file)).await?)?, &is_selected).await;
        }
        let cluster = cluster().durable().start().await?;
        cluster.settle().await?;
        scenarios(&cluster.endpoint().await?, &is_selected).await?;
        drop(cluster);
        if is_selected("rest") {
            at_rest().await?;
        }
        if is_selected("nodes") {
            nodes().await?;
        }
        Ok(())
    })
}

async fn scenarios(endpoint: &Endpoint, is_selected: &impl Fn(&str) -> bool) -> Result<()> {
    JsonClient::new(endpoint).await?.until_ready().await?;
    if is_selected("deployment") {
        deployment(endpoint).await?;
    }
    if is_selected("jobs") {
        jobs(endpoint).await?;
    }
    if is_selected("service") {
        service(endpoint).await?;
    }
    Ok(())
}

fn print(what: &str, value: f64, unit: &str) {
    println!("{what:<58}{value:>9.2} {unit}");
}

/// Measures the time from the create until all pods are available, of a rollout, and from the
/// delete until no pod is left.
async fn deployment(endpoint: &Endpoint) -> Result<()> {
    let mut client = JsonClient::new(endpoint).await?;
    let namespace = client.namespace().await?;
    let deployments = apps(&namespace, "deployments");
    let web = format!("{deployments}/web");
    let began = Instant::now();
    client.create(&deployments, replicated("web", REPLICAS)).await?;
    client.until_within(&web, DEADLINE, is_complete).await?;
    print(&format!("a Deployment of {REPLICAS}, up"), began.elapsed().as_secs_f64(), "s");
    let began = Instant::now();
    client.patch(&web, image("registry.example/app:2")).await?;
    client.until_within(&web, DEADLINE, is_complete).await?;
    print(&format!("a Deployment of {REPLICAS}, rolled over"), began.elapsed().as_secs_f64(), "s");
    // Pods of the first template may still terminate.
    client.until_within(&pods(&namespace), DEADLINE, |list| count(list) == REPLICAS).await?;
    let began = Instant::now();
    client.delete(&web).await?;
    until_no_pods(&mut client, &namespace).await?;
    print(&format!("a Deployment of {REPLICAS}, deleted"), began.elapsed().as_secs_f64(), "s");
    Ok(())
}

/// Measures the time from the first create until all Jobs are complete.
async fn jobs(endpoint: &Endpoint) -> Result<()> {
    let (count, pods) = JOBS;
    let mut client = JsonClient::new(endpoint).await?;
    let namespace = client.namespace().await?;
    let jobs = batch(&namespace, "jobs");
    let began = Instant::now();
    fill(endpoint, &jobs, count, |i| {
        let mut job = job(&format!("j{i}"), json!({"sim.coracle.dev/exit-after": "0s"}));
        job["spec"]["completions"] = json!(pods);
        job["spec"]["parallelism"] = json!(pods);
        job
    })
    .await?;
    let is_complete = |job: &Value| condition(job, "Complete") == Some("True");
    client
        .until_within(&jobs, DEADLINE, |list| items(list).is_some_and(|jobs| jobs.iter().all(is_complete)))
        .await?;
    print(&format!("{count} Jobs of {pods} pods, complete"), began.elapsed().as_secs_f64(), "s");
    client.delete(&format!("{jobs}?propagationPolicy=Background")).await?;
    until_no_pods(&mut client, &namespace).await
}

/// Counts the writes of EndpointSlices while the pods of a Service are replaced.
async fn service(endpoint: &Endpoint) -> Result<()> {
    const WRITES: [&str; 4] = ["POST", "PUT", "PATCH", "DELETE"];
    let mut client = JsonClient::new(endpoint).await?;
    let namespace = client.namespace().await?;
    let deployments = apps(&namespace, "deployments");
    let web = format!("{deployments}/web");
    let service =
        json!({"metadata": {"name": "web"}, "spec": {"selector": {"app": "web"}, "ports": [{"port": 80}]}});
    client.create(&format!("/api/v1/namespaces/{namespace}/services"), service).await?;
    let before = client.requests_of(&["endpointslices"], &WRITES).await?;
    client.create(&deployments, replicated("web", REPLICAS)).await?;
    client.until_within(&web, DEADLINE, is_complete).await?;
    until_ready_endpoints(&mut client, &namespace, REPLICAS).await?;
    let up = client.requests_of(&["endpointslices"], &WRITES).await?;
    client.patch(&web, image("registry.example/app:2")).await?;
    client.until_within(&web, DEADLINE, is_complete).await?;
    client.until_within(&pods(&namespace), DEADLINE, |list| count(list) == REPLICAS).await?;
    until_ready_endpoints(&mut client, &namespace, REPLICAS).await?;
    let over = client.requests_of(&["endpointslices"], &WRITES).await?;
    let number = |count: u64| u32::try_from(count).map_or(f64::INFINITY, f64::from);
    print(&format!("slice writes, {REPLICAS} endpoints come"), number(up - before), "");
    print(&format!("slice writes, {REPLICAS} endpoints are replaced"), number(over - up), "");
    client.delete(&web).await?;
    until_no_pods(&mut client, &namespace).await
}

/// Waits until a Service has this number of endpoints, all of them ready.
async fn until_ready_endpoints(client: &mut JsonClient, namespace: &str, wanted: usize) -> Result<()> {
    let slices = format!("/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices");
    let endpoints = |list: &Value| {
        let slices = items(list).into_iter().flatten();
        let endpoints = slices.flat_map(|slice| slice["endpoints"].as_array().into_iter().flatten());
        let ready: Vec<bool> = endpoints.map(|endpoint| endpoint["conditions"]["ready"] == true).collect();
        ready.len() == wanted && ready.iter().all(|ready| *ready)
    };
    client.until_within(&slices, DEADLINE, endpoints).await.map(drop)
}

/// Measures processor time and memory while many pods run and nothing changes.
async fn at_rest() -> Result<()> {
    let (deployments, replicas) = AT_REST;
    // A node has room for fewer pods.
    let cluster = cluster().durable().flag("--nodes", deployments.to_string()).start().await?;
    let mut client = JsonClient::new(&cluster.endpoint().await?).await?;
    let namespace = client.namespace().await?;
    let path = apps(&namespace, "deployments");
    for i in 0..deployments {
        client.create(&path, replicated(&format!("d{i}"), replicas)).await?;
    }
    let all_complete = |list: &Value| items(list).is_some_and(|list| list.iter().all(is_complete));
    client.until_within(&path, DEADLINE, all_complete).await?;
    // Events of the load are still written.
    while cpu_usage(&cluster, Duration::from_secs(1)).await? > 0.02 {}
    let what = format!("{} pods at rest", deployments * replicas);
    print(&format!("{what}, processor"), cpu_usage(&cluster, IDLE_TIME).await? * 100.0, "%");
    print(&format!("{what}, resident"), cluster.resident()?, "MB");
    Ok(())
}

/// Measures the time until pods are scheduled to many nodes, and the memory then.
async fn nodes() -> Result<()> {
    let (nodes, replicas) = NODES;
    let cluster = cluster().durable().flag("--nodes", nodes.to_string()).start().await?;
    let mut client = JsonClient::new(&cluster.endpoint().await?).await?;
    let began = Instant::now();
    client.until_within("/api/v1/nodes", DEADLINE, |list| count(list) == nodes).await?;
    print(&format!("{nodes} nodes, registered"), began.elapsed().as_secs_f64(), "s");
    let namespace = client.namespace().await?;
    let began = Instant::now();
    let path = apps(&namespace, "deployments");
    for i in 0..10 {
        client.create(&path, replicated(&format!("d{i}"), replicas / 10)).await?;
    }
    let all_complete = |list: &Value| items(list).is_some_and(|list| list.iter().all(is_complete));
    client.until_within(&path, DEADLINE, all_complete).await?;
    let unscheduled = format!("{}?fieldSelector=spec.nodeName%3D&limit=1", pods(&namespace));
    client.until_within(&unscheduled, DEADLINE, |list| count(list) == 0).await?;
    print(&format!("{replicas} pods on {nodes} nodes, running"), began.elapsed().as_secs_f64(), "s");
    print(&format!("{replicas} pods on {nodes} nodes, resident"), cluster.resident()?, "MB");
    print(&format!("{replicas} pods on {nodes} nodes, most resident"), cluster.most_resident()?, "MB");
    while cpu_usage(&cluster, Duration::from_secs(1)).await? > 0.1 {}
    print(
        &format!("{replicas} pods on {nodes} nodes, processor at rest"),
        cpu_usage(&cluster, IDLE_TIME).await? * 100.0,
        "%",
    );
    Ok(())
}

async fn until_no_pods(client: &mut JsonClient, namespace: &str) -> Result<()> {
    let one = format!("{}?limit=1", pods(namespace));
    client.until_within(&one, DEADLINE, |list| count(list) == 0).await.map(drop)
}

fn count(list: &Value) -> usize {
    items(list).map_or(0, Vec::len)
}

async fn fill(endpoint: &Endpoint, path: &str, count: usize, object: impl Fn(usize) -> Value) -> Result<()> {
    let next = AtomicUsize::new(0);
    try_join_all((0..CONNECTIONS).map(async |_| {
        let mut client = JsonClient::new(endpoint).await?;
        loop {
            let i = next.fetch_add(1, Ordering::Relaxed);
            if i >= count {
                return anyhow::Ok(());
            }
            client.create(path, object(i)).await?;
        }
    }))
    .await?;
    Ok(())
}

/// Measures the share of one processor that the server uses during a time.
async fn cpu_usage(cluster: &Cluster, time: Duration) -> Result<f64> {
    let before = cluster.processor_time().context("processor time")?;
    tokio::time::sleep(time).await;
    let used = cluster.processor_time().context("processor time")? - before;
    Ok(used.as_secs_f64() / time.as_secs_f64())
}
