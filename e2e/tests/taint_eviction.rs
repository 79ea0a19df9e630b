//! Taints that evict: upstream's end-to-end behaviors (`[sig-node] NoExecuteTaintManager`). The
//! node is tainted by a client.

use std::time::Duration;

use anyhow::{Result, ensure};
use coracle_e2e::json_client::{JsonClient, condition_reason};
use coracle_e2e::workloads::{is_ready, pods, template};
use coracle_e2e::{Cluster, cluster};
use serde_json::{Value, json};

const NODE: &str = "/api/v1/nodes/node-0";
const DEFAULT: &str = "default";
const FINALIZERS: &str = "example.com/observed";

async fn start() -> Result<(Cluster, JsonClient)> {
    start_with("real").await
}

async fn start_with(clock: &str) -> Result<(Cluster, JsonClient)> {
    let cluster = cluster().flag("--clock", clock).with_service_account().start().await?;
    let client = JsonClient::new(&cluster.endpoint().await?).await?;
    Ok((cluster, client))
}

fn path(name: &str) -> String {
    format!("{}/{name}", pods(DEFAULT))
}

/// Creates a pod that tolerates the taint forever, for some seconds, or not at all, and waits until
/// it is ready.
async fn create(client: &mut JsonClient, name: &str, tolerates: Option<Option<u32>>) -> Result<()> {
    let mut pod = template("taints", json!({}));
    pod["metadata"]["name"] = json!(name);
    pod["spec"]["terminationGracePeriodSeconds"] = json!(0);
    if let Some(seconds) = tolerates {
        let mut toleration =
            json!({"key": "e2e", "operator": "Equal", "value": "evict", "effect": "NoExecute"});
        if let Some(seconds) = seconds {
            toleration["tolerationSeconds"] = json!(seconds);
        }
        pod["spec"]["tolerations"] = json!([toleration]);
    }
    client.create(&pods(DEFAULT), pod).await?;
    client.until(&path(name), is_ready).await.map(drop)
}

async fn taint(client: &mut JsonClient, is_tainted: bool) -> Result<()> {
    let taints = is_tainted.then(|| json!([{"key": "e2e", "value": "evict", "effect": "NoExecute"}]));
    client.patch(NODE, json!({"spec": {"taints": taints}})).await.map(drop)
}

/// Covers upstream's "doesn't evict pod with tolerations from tainted nodes", "eventually evict pod
/// with finite tolerations from tainted nodes", "only evicts pods without tolerations from tainted
/// nodes", "evicts pods with minTolerationSeconds".
#[tokio::test]
async fn pods_are_evicted_when_their_tolerations_end() -> Result<()> {
    let (_cluster, mut client) = start().await?;
    for (name, tolerates) in
        [("none", None), ("short", Some(Some(1))), ("long", Some(Some(600))), ("forever", Some(None))]
    {
        create(&mut client, name, tolerates).await?;
    }
    let began = std::time::Instant::now();
    taint(&mut client, true).await?;
    client.until_deleted(&path("none")).await?;
    client.until_deleted(&path("short")).await?;
    ensure!(began.elapsed() >= Duration::from_millis(900), "after {:?}", began.elapsed());
    let left = client.list(&pods(DEFAULT)).await?;
    ensure!(left.len() == 2 && left.iter().all(is_ready), "{left:?}");
    Ok(())
}

/// Covers upstream's "removing taint cancels eviction".
#[tokio::test]
async fn a_taint_that_is_removed_in_time_evicts_nothing() -> Result<()> {
    let (cluster, mut client) = start_with("manual").await?;
    create(&mut client, "kept", Some(Some(6))).await?;
    create(&mut client, "witness", None).await?;
    taint(&mut client, true).await?;
    cluster.advance("5s").await?;
    client.until_deleted(&path("witness")).await?;
    taint(&mut client, false).await?;
    let events = format!("/api/v1/namespaces/{DEFAULT}/events?fieldSelector=involvedObject.name%3Dkept");
    let is_cancelled = |list: &Value| {
        let events = list["items"].as_array().into_iter().flatten();
        let mut messages = events.filter_map(|event| event["message"].as_str());
        messages.any(|message| message == "Cancelling deletion of Pod default/kept")
    };
    client.until(&events, is_cancelled).await?;
    cluster.advance("1h").await?;
    client.until(&path("kept"), is_ready).await.map(drop)
}

/// Covers upstream's "pods evicted from tainted nodes have pod disruption condition".
#[tokio::test]
async fn an_evicted_pod_has_the_condition_of_a_disruption() -> Result<()> {
    let (_cluster, mut client) = start().await?;
    create(&mut client, "held", None).await?;
    client.patch(&path("held"), json!({"metadata": {"finalizers": [FINALIZERS]}})).await?;
    taint(&mut client, true).await?;
    let evicted = client.until(&path("held"), |pod| pod["metadata"]["deletionTimestamp"].is_string()).await?;
    assert_eq!(condition_reason(&evicted, "DisruptionTarget"), Some("DeletionByTaintManager"));
    client.patch(&path("held"), json!({"metadata": {"finalizers": null}})).await?;
    client.until_deleted(&path("held")).await
}
