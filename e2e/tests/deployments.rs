//! Deployments on simulated nodes: what they cost at rest, and rollouts that a restart interrupts.

use std::time::Duration;

use anyhow::{Context, Result};
use coracle_e2e::cluster;
use coracle_e2e::cluster::Termination;
use coracle_e2e::json_client::{JsonClient, condition_reason};
use coracle_e2e::workloads::{image, is_complete, replicated, replication_controller};
use serde_json::{Value, json};
use tempfile::TempDir;

const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";
const REPLICA_SETS: &str = "/apis/apps/v1/namespaces/default/replicasets";
const CONTROLLERS: &str = "/api/v1/namespaces/default/replicationcontrollers";
const PODS: &str = "/api/v1/namespaces/default/pods";
/// How long no request may be sent at rest.
const REST: Duration = Duration::from_secs(5);

/// Workloads in every state of rest: complete, paused, without ready pods, past their deadline.
#[tokio::test]
async fn workloads_at_rest_send_no_requests() -> Result<()> {
    let cluster = cluster().start().await?;
    let mut client = JsonClient::new(&cluster.endpoint().await?).await?;
    let never_ready = json!({"sim.coracle.dev/never-ready": "true"});
    let [mut unready, mut late, mut paused, mut recreated] =
        ["unready", "late", "paused", "recreated"].map(|name| replicated(name, 2));
    unready["spec"]["template"]["metadata"]["annotations"] = never_ready.clone();
    late["spec"]["template"]["metadata"]["annotations"] = never_ready;
    late["spec"]["progressDeadlineSeconds"] = json!(1);
    paused["spec"]["paused"] = json!(true);
    recreated["spec"]["strategy"] = json!({"type": "Recreate"});
    for deployment in [replicated("complete", 3), unready, late, paused, recreated] {
        client.create(DEPLOYMENTS, deployment).await?;
    }
    client.create(REPLICA_SETS, replicated("set", 2)).await?;
    client.create(CONTROLLERS, replication_controller("old", 2)).await?;

    for name in ["complete", "recreated"] {
        client.until(&format!("{DEPLOYMENTS}/{name}"), is_complete).await?;
    }
    let is_late = |late: &Value| condition_reason(late, "Progressing") == Some("ProgressDeadlineExceeded");
    client.until(&format!("{DEPLOYMENTS}/late"), is_late).await?;
    let resources = ["deployments", "replicasets", "replicationcontrollers", "pods", "events"];
    client.until_at_rest(&resources, REST).await
}

#[tokio::test]
async fn a_rollout_continues_after_a_restart() -> Result<()> {
    const REPLICAS: usize = 12;
    let web = format!("{DEPLOYMENTS}/web");
    let data = TempDir::new()?;
    let start = || cluster().data_dir(data.path()).flag("--durability", "sync").start();
    let mut cluster = start().await?;
    let mut client = JsonClient::new(&cluster.endpoint().await?).await?;
    let mut created = replicated("web", REPLICAS);
    created["spec"]["template"]["metadata"]["annotations"] = json!({"sim.coracle.dev/ready-after": "200ms"});
    client.create(DEPLOYMENTS, created).await?;
    client.until(&web, is_complete).await?;
    for (termination, new) in [(Termination::Stop, "image:2"), (Termination::Crash, "image:3")] {
        client.patch(&web, image(new)).await?;
        let is_halfway =
            |web: &Value| web["status"]["updatedReplicas"].as_u64().is_some_and(|updated| updated < 12);
        client.until(&web, is_halfway).await?;
        termination.apply(cluster).await?;
        cluster = start().await?;
        client = JsonClient::new(&cluster.endpoint().await?).await?;
        client.until(&web, is_complete).await.with_context(|| format!("after a {termination:?}"))?;
    }
    let sets = client.list(REPLICA_SETS).await?;
    let revision = |set: &Value| set["metadata"]["annotations"]["deployment.kubernetes.io/revision"].clone();
    let mut found: Vec<_> =
        sets.iter().map(|set| (revision(set).to_string(), set["spec"]["replicas"].clone())).collect();
    found.sort_by(|(one, _), (other, _)| one.cmp(other));
    let want = [("1", 0), ("2", 0), ("3", REPLICAS)];
    assert_eq!(found, want.map(|(revision, replicas)| (json!(revision).to_string(), json!(replicas))));
    // Those that terminate leave.
    let pods = client.until_items(PODS, REPLICAS).await?;
    assert!(pods.iter().all(|pod| pod["spec"]["containers"][0]["image"] == "image:3"));
    Ok(())
}
