//! Deployments on simulated nodes: upstream's end-to-end behaviors (`[sig-apps] Deployment`), their
//! cost at rest, and rollouts that a restart interrupts.

use std::time::Duration;

use anyhow::{Context, Result};
use coracle_e2e::cluster;
use coracle_e2e::cluster::Termination;
use coracle_e2e::json_client::{JsonClient, condition_reason};
use coracle_e2e::workloads::{
    controller, image, is_complete, is_ready, name, replicated, replication_controller, uid,
};
use serde_json::{Value, json};
use tempfile::TempDir;

const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";
const REPLICA_SETS: &str = "/apis/apps/v1/namespaces/default/replicasets";
const CONTROLLERS: &str = "/api/v1/namespaces/default/replicationcontrollers";
const PODS: &str = "/api/v1/namespaces/default/pods";
/// The period at rest in which no request may be sent.
const REST: Duration = Duration::from_secs(5);

/// Covers workloads in every kind of rest: complete, paused, without ready pods, past their
/// deadline.
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
        let has_begun = |web: &Value| {
            web["status"]["observedGeneration"] == web["metadata"]["generation"]
                && web["status"]["updatedReplicas"].as_u64() > Some(0)
        };
        client.until(&web, has_begun).await?;
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
    // Waits until the terminating pods are deleted.
    let pods = client.until_items(PODS, REPLICAS).await?;
    assert!(pods.iter().all(|pod| pod["spec"]["containers"][0]["image"] == "image:3"));
    Ok(())
}

/// Covers upstream's "RollingUpdateDeployment should delete old pods and create new ones",
/// "RecreateDeployment should delete old pods and create new ones", "deployment should support
/// rollover", "deployment should delete old replica sets".
#[tokio::test]
async fn each_strategy_replaces_all_pods_and_the_history_is_short() -> Result<()> {
    let cluster = cluster().start().await?;
    let mut client = JsonClient::new(&cluster.endpoint().await?).await?;
    for strategy in ["RollingUpdate", "Recreate"] {
        let web = format!("{DEPLOYMENTS}/web");
        let mut created = replicated("web", 3);
        created["spec"]["strategy"] = json!({"type": strategy});
        created["spec"]["revisionHistoryLimit"] = json!(0);
        client.create(DEPLOYMENTS, created).await?;
        client.until(&web, is_complete).await?;
        // The second rollout begins before the first one ends.
        client.patch(&web, image("image:2")).await?;
        client.patch(&web, image("image:3")).await?;
        client.until(&web, is_complete).await.with_context(|| strategy.to_owned())?;
        let pods = client.until_items(PODS, 3).await?;
        assert!(pods.iter().all(|pod| pod["spec"]["containers"][0]["image"] == "image:3"), "{strategy}");
        client.until_items(REPLICA_SETS, 1).await.with_context(|| strategy.to_owned())?;
        // Upstream: "deployment reaping should cascade to its replica sets and pods".
        client.delete(&web).await?;
        client.until_items(REPLICA_SETS, 0).await?;
        client.until_items(PODS, 0).await?;
    }
    Ok(())
}

/// Covers upstream's "test Deployment ReplicaSet orphaning and adoption regarding controllerRef".
#[tokio::test]
async fn orphaned_replica_sets_are_adopted_by_the_next_deployment() -> Result<()> {
    let cluster = cluster().start().await?;
    let mut client = JsonClient::new(&cluster.endpoint().await?).await?;
    let web = format!("{DEPLOYMENTS}/web");
    client.create(DEPLOYMENTS, replicated("web", 2)).await?;
    client.until(&web, is_complete).await?;
    let before = client.list(PODS).await?;
    client.delete(&format!("{web}?propagationPolicy=Orphan")).await?;
    client.until_deleted(&web).await?;
    let orphan = client.list(REPLICA_SETS).await?.pop().context("no set")?;
    assert_eq!(controller(&orphan), None);
    let second = client.create(DEPLOYMENTS, replicated("web", 2)).await?;
    client.until(&web, is_complete).await?;
    let adopted = client.until_items(REPLICA_SETS, 1).await?.pop().context("no set")?;
    assert_eq!((uid(&adopted), controller(&adopted)), (uid(&orphan), Some(uid(&second))));
    assert_eq!(client.list(PODS).await?.len(), before.len());
    // A ReplicaSet that no longer matches is released, and replaced by another.
    let name = format!("{REPLICA_SETS}/{}", name(&orphan));
    client.patch(&name, json!({"metadata": {"labels": {"app": "other"}}})).await?;
    client.until(&name, |set| controller(set).is_none()).await.map(drop)
}

/// Covers upstream's "deployment should support proportional scaling".
#[tokio::test]
async fn a_deployment_that_is_scaled_during_a_rollout_scales_all_its_sets() -> Result<()> {
    let cluster = cluster().start().await?;
    let mut client = JsonClient::new(&cluster.endpoint().await?).await?;
    let web = format!("{DEPLOYMENTS}/web");
    let mut created = replicated("web", 10);
    created["spec"]["strategy"] =
        json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 3, "maxUnavailable": 2}});
    client.create(DEPLOYMENTS, created).await?;
    client.until(&web, is_complete).await?;
    let mut bad = image("image:bad");
    bad["spec"]["template"]["metadata"] = json!({"annotations": {"sim.coracle.dev/never-ready": "true"}});
    client.patch(&web, bad).await?;
    let has_sizes = |want: [u64; 2]| {
        move |list: &Value| {
            let sets = list["items"].as_array().into_iter().flatten();
            let mut sizes: Vec<_> = sets.filter_map(|set| set["spec"]["replicas"].as_u64()).collect();
            sizes.sort_unstable();
            sizes == want
        }
    };
    client.until(REPLICA_SETS, has_sizes([5, 8])).await?;
    client.patch(&web, json!({"spec": {"replicas": 30}})).await?;
    client.until(REPLICA_SETS, has_sizes([13, 20])).await.map(drop)
}

/// Covers upstream's "Deployment should have a working scale subresource", "should validate
/// Deployment Status endpoints".
#[tokio::test]
async fn scale_and_status_of_a_deployment_are_read_and_written() -> Result<()> {
    let cluster = cluster().start().await?;
    let mut client = JsonClient::new(&cluster.endpoint().await?).await?;
    let web = format!("{DEPLOYMENTS}/web");
    client.create(DEPLOYMENTS, replicated("web", 1)).await?;
    client.until(&web, is_complete).await?;
    let scale = format!("{web}/scale");
    let read = client.get(&scale).await?;
    assert_eq!(read["status"], json!({"replicas": 1, "selector": "app=web"}));
    client.update(&scale, |scale| scale["spec"]["replicas"] = json!(2)).await?;
    client.until(&web, |web| web["spec"]["replicas"] == 2 && is_complete(web)).await?;
    let condition = json!({"type": "StatusUpdate", "status": "True", "reason": "E2E"});
    client.patch(&format!("{web}/status"), json!({"status": {"conditions": [condition]}})).await?;
    client
        .until(&web, |web| condition_reason(web, "Available") == Some("MinimumReplicasAvailable"))
        .await
        .map(drop)
}

/// Covers upstream's "iterative rollouts should eventually progress".
#[tokio::test]
async fn changes_in_quick_succession_end_in_a_complete_deployment() -> Result<()> {
    let cluster = cluster().start().await?;
    let mut client = JsonClient::new(&cluster.endpoint().await?).await?;
    let web = format!("{DEPLOYMENTS}/web");
    client.create(DEPLOYMENTS, replicated("web", 6)).await?;
    for round in 0..12 {
        let change = match round % 6 {
            0 | 3 => image(&format!("image:{round}")),
            1 => json!({"spec": {"replicas": 4 + round % 5}}),
            2 => json!({"spec": {"paused": true}}),
            4 => json!({"spec": {"paused": false}}),
            _ => {
                let pods = client.list(PODS).await?;
                if let Some(pod) = pods.iter().find(|pod| is_ready(pod)) {
                    client.send("DELETE", &format!("{PODS}/{}", name(pod)), None).await?;
                }
                continue;
            }
        };
        client.patch(&web, change).await?;
    }
    client.patch(&web, json!({"spec": {"paused": false}})).await?;
    client.until(&web, is_complete).await.map(drop)
}
