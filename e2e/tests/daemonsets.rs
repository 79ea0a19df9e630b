//! DaemonSets on simulated nodes: upstream's end-to-end behaviors (`[sig-apps] Daemon set`), and
//! rollouts that a restart interrupts.

use std::path::Path;

use anyhow::{Context, Result};
use coracle_e2e::cluster::Termination;
use coracle_e2e::json_client::JsonClient;
use coracle_e2e::workloads::{apps, daemon_set, image, is_ready, is_rolled_out, name, pods, uid};
use coracle_e2e::{Cluster, cluster};
use serde_json::{Value, json};
use tempfile::TempDir;

const NODES: usize = 3;
const DEFAULT: &str = "default";
const NODE: &str = "/api/v1/nodes/node-1";

async fn start() -> Result<(Cluster, JsonClient)> {
    let cluster = cluster().flag("--nodes", NODES.to_string()).start().await?;
    let client = JsonClient::new(&cluster.endpoint().await?).await?;
    Ok((cluster, client))
}

fn sets() -> String {
    apps(DEFAULT, "daemonsets")
}

fn set() -> String {
    format!("{}/agent", sets())
}

fn images(pods: &[Value]) -> Vec<&str> {
    pods.iter().filter_map(|pod| pod["spec"]["containers"][0]["image"].as_str()).collect()
}

fn sorted_uids(pods: &[Value]) -> Vec<String> {
    let mut uids: Vec<_> = pods.iter().map(|pod| uid(pod).to_owned()).collect();
    uids.sort();
    uids
}

/// Covers upstream's "should run and stop simple daemon", "should list and delete a collection of
/// DaemonSets".
#[tokio::test]
async fn each_node_runs_one_pod_and_a_deleted_one_is_revived() -> Result<()> {
    let (_cluster, mut client) = start().await?;
    client.create(&sets(), daemon_set("agent")).await?;
    client.until(&set(), is_rolled_out).await?;
    let before = client.until_items(&pods(DEFAULT), NODES).await?;
    let mut nodes: Vec<_> = before.iter().map(|pod| pod["spec"]["nodeName"].to_string()).collect();
    nodes.sort();
    assert_eq!(nodes, ["\"node-0\"", "\"node-1\"", "\"node-2\""]);

    client.delete(&format!("{}/{}", pods(DEFAULT), name(&before[0]))).await?;
    let gone = uid(&before[0]).to_owned();
    client
        .until(&pods(DEFAULT), |list| {
            let pods = list["items"].as_array();
            pods.is_some_and(|pods| pods.len() == NODES && pods.iter().all(|pod| uid(pod) != gone))
        })
        .await?;
    client.until(&set(), is_rolled_out).await?;

    client.delete(&format!("{}?labelSelector=none", sets())).await?;
    assert_eq!(client.list(&sets()).await?.len(), 1);
    client.delete(&sets()).await?;
    client.until_deleted(&set()).await?;
    client.until_items(&pods(DEFAULT), 0).await.map(drop)
}

/// Covers upstream's "should run and stop complex daemon", "... with node affinity".
#[tokio::test]
async fn pods_follow_the_labels_of_nodes() -> Result<()> {
    let (_cluster, mut client) = start().await?;
    let blue = json!([{"key": "color", "operator": "In", "values": ["blue"]}]);
    let affinity = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
        "nodeSelectorTerms": [{"matchExpressions": blue}],
    }}});
    let mut agent = daemon_set("agent");
    agent["spec"]["template"]["spec"]["nodeSelector"] = json!({"color": "blue"});
    let mut affine = daemon_set("affine");
    affine["spec"]["template"]["spec"]["affinity"] = affinity;
    for set in [agent, affine] {
        client.create(&sets(), set).await?;
    }
    for (color, count) in [(json!("green"), 0), (json!("blue"), 2), (json!("green"), 0), (json!("blue"), 2)] {
        client.patch(NODE, json!({"metadata": {"labels": {"color": color}}})).await?;
        let are_placed = |list: &Value| {
            list["items"].as_array().is_some_and(|pods| {
                pods.len() == count && pods.iter().all(|pod| pod["spec"]["nodeName"].is_string())
            })
        };
        let placed = client.until(&pods(DEFAULT), are_placed).await?;
        let nodes = placed["items"].as_array().into_iter().flatten().map(|pod| &pod["spec"]["nodeName"]);
        assert!(nodes.into_iter().all(|node| node == "node-1"), "{placed}");
    }
    // The template follows the node.
    client
        .patch(&set(), json!({"spec": {"template": {"spec": {"nodeSelector": {"color": "green"}}}}}))
        .await?;
    client.until_items(&format!("{}?labelSelector=app%3Dagent", pods(DEFAULT)), 0).await?;
    client.patch(NODE, json!({"metadata": {"labels": {"color": "green"}}})).await?;
    client.until_items(&format!("{}?labelSelector=app%3Daffine", pods(DEFAULT)), 0).await?;
    client.until(&set(), is_rolled_out).await.map(drop)
}

/// Covers upstream's "should retry creating failed daemon pods".
#[tokio::test]
async fn a_failed_pod_is_replaced() -> Result<()> {
    let (_cluster, mut client) = start().await?;
    client.create(&sets(), daemon_set("agent")).await?;
    client.until(&set(), is_rolled_out).await?;
    let before = client.list(&pods(DEFAULT)).await?;
    let failed = format!("{}/{}", pods(DEFAULT), name(&before[0]));
    client.patch(&format!("{failed}/status"), json!({"status": {"phase": "Failed"}})).await?;
    client.until_deleted(&failed).await?;
    client.until_items(&pods(DEFAULT), NODES).await?;
    client.until(&set(), is_rolled_out).await?;
    let events = "/api/v1/namespaces/default/events?fieldSelector=reason%3DFailedDaemonPod";
    client.until(events, |list| list["items"].as_array().is_some_and(|events| !events.is_empty())).await?;
    Ok(())
}

/// Covers upstream's "should not update pod when spec was updated and update strategy is OnDelete".
#[tokio::test]
async fn on_delete_a_pod_is_updated_when_it_is_deleted() -> Result<()> {
    let (_cluster, mut client) = start().await?;
    let mut agent = daemon_set("agent");
    agent["spec"]["updateStrategy"] = json!({"type": "OnDelete"});
    client.create(&sets(), agent).await?;
    client.until(&set(), is_rolled_out).await?;
    let before = client.list(&pods(DEFAULT)).await?;
    client.patch(&set(), image("registry.example/app:2")).await?;
    let revisions = apps(DEFAULT, "controllerrevisions");
    client.until_items(&revisions, 2).await?;
    client
        .until(&set(), |set| {
            set["status"]["observedGeneration"] == 2 && set["status"]["updatedNumberScheduled"].is_null()
        })
        .await?;
    assert_eq!(sorted_uids(&client.list(&pods(DEFAULT)).await?), sorted_uids(&before));
    client.delete(&format!("{}/{}", pods(DEFAULT), name(&before[0]))).await?;
    client.until(&set(), |set| set["status"]["updatedNumberScheduled"] == 1).await?;
    Ok(())
}

/// Covers upstream's "should update pod when spec was updated and update strategy is
/// RollingUpdate", "should rollback without unnecessary restarts".
#[tokio::test]
async fn a_rollback_restarts_only_what_was_updated() -> Result<()> {
    let (_cluster, mut client) = start().await?;
    client.create(&sets(), daemon_set("agent")).await?;
    client.until(&set(), is_rolled_out).await?;
    client.patch(&set(), image("registry.example/app:2")).await?;
    client.until(&set(), is_rolled_out).await?;
    let before = client.until_items(&pods(DEFAULT), NODES).await?;
    assert_eq!(images(&before), ["registry.example/app:2"; NODES]);

    // One pod gets the bad template, and is never ready.
    let annotations = json!({"sim.coracle.dev/never-ready": "true"});
    client.patch(&set(), json!({"spec": {"template": {"metadata": {"annotations": annotations}}}})).await?;
    client.until(&set(), |set| set["status"]["updatedNumberScheduled"] == 1).await?;
    let annotations = json!({"sim.coracle.dev/never-ready": null});
    client.patch(&set(), json!({"spec": {"template": {"metadata": {"annotations": annotations}}}})).await?;
    client.until(&set(), is_rolled_out).await?;
    let after = client.until_items(&pods(DEFAULT), NODES).await?;
    let (before, after) = (sorted_uids(&before), sorted_uids(&after));
    assert_eq!(after.iter().filter(|uid| before.contains(uid)).count(), NODES - 1);
    // The revision that was current before is current again.
    let revisions = client.list(&apps(DEFAULT, "controllerrevisions")).await?;
    let mut numbers: Vec<_> = revisions.iter().filter_map(|revision| revision["revision"].as_i64()).collect();
    numbers.sort_unstable();
    assert_eq!(numbers, [1, 3, 4]);
    Ok(())
}

/// Covers upstream's "should surge pods onto nodes when spec was updated and update strategy is
/// RollingUpdate".
#[tokio::test]
async fn with_a_surge_an_old_pod_stays_until_the_new_one_is_available() -> Result<()> {
    let (_cluster, mut client) = start().await?;
    let mut agent = daemon_set("agent");
    agent["spec"]["updateStrategy"] =
        json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}});
    client.create(&sets(), agent).await?;
    client.until(&set(), is_rolled_out).await?;
    let annotations = json!({"sim.coracle.dev/never-ready": "true"});
    client.patch(&set(), json!({"spec": {"template": {"metadata": {"annotations": annotations}}}})).await?;
    let are_placed = |list: &Value| {
        list["items"].as_array().is_some_and(|pods| {
            pods.len() == NODES + 1 && pods.iter().all(|pod| pod["spec"]["nodeName"].is_string())
        })
    };
    let surged = client.until(&pods(DEFAULT), are_placed).await?;
    let surged = surged["items"].as_array().context("not a list")?;
    let new = surged.iter().find(|pod| !pod["metadata"]["annotations"].is_null()).context("no new pod")?;
    assert!(surged.iter().all(|pod| pod["metadata"]["deletionTimestamp"].is_null()));
    // Of two pods on a node the status counts the older one, or if they were created in the same
    // second, the one with the lesser name: so it says nothing here.
    assert_eq!(surged.iter().filter(|pod| is_ready(pod)).count(), NODES);
    // Once it is ready the rollout goes on.
    let ready = json!({"metadata": {"annotations": {"sim.coracle.dev/never-ready": null}}});
    client.patch(&format!("{}/{}", pods(DEFAULT), name(new)), ready).await?;
    let node = new["spec"]["nodeName"].clone();
    let uid_of_new = uid(new).to_owned();
    client
        .until(&pods(DEFAULT), |list| {
            let on_node = |pod: &&Value| pod["spec"]["nodeName"] == node;
            let left: Vec<_> = list["items"].as_array().into_iter().flatten().filter(on_node).collect();
            matches!(left[..], [pod] if uid(pod) == uid_of_new)
        })
        .await?;
    Ok(())
}

/// Covers upstream's "should verify changes to a daemon set status".
#[tokio::test]
async fn the_status_of_a_set_can_be_read_and_changed() -> Result<()> {
    let (_cluster, mut client) = start().await?;
    client.create(&sets(), daemon_set("agent")).await?;
    client.until(&set(), is_rolled_out).await?;
    let status = format!("{}/status", set());
    let condition = json!({"type": "StatusUpdate", "status": "True", "reason": "E2E"});
    client.patch(&status, json!({"status": {"conditions": [condition]}})).await?;
    // The controller keeps the conditions of others.
    client.patch(&set(), image("registry.example/app:2")).await?;
    let rolled_out = client.until(&set(), is_rolled_out).await?;
    assert_eq!(rolled_out["status"]["conditions"][0]["type"], "StatusUpdate");
    Ok(())
}

async fn restarted(data: &Path) -> Result<(Cluster, JsonClient)> {
    let builder = cluster().data_dir(data).flag("--durability", "sync");
    let cluster = builder.flag("--nodes", NODES.to_string()).start().await?;
    let client = JsonClient::new(&cluster.endpoint().await?).await?;
    Ok((cluster, client))
}

#[tokio::test]
async fn a_rollout_of_a_daemon_set_continues_after_a_restart() -> Result<()> {
    // Once the change is observed, the number is of the new template.
    let has_begun = |set: &Value| {
        set["status"]["observedGeneration"] == set["metadata"]["generation"]
            && set["status"]["updatedNumberScheduled"].as_u64() > Some(0)
    };
    let data = TempDir::new()?;
    let (mut cluster, mut client) = restarted(data.path()).await?;
    let mut agent = daemon_set("agent");
    agent["spec"]["template"]["metadata"]["annotations"] = json!({"sim.coracle.dev/ready-after": "300ms"});
    client.create(&sets(), agent).await?;
    client.until(&set(), is_rolled_out).await?;
    for (termination, new) in [(Termination::Stop, "app:2"), (Termination::Crash, "app:3")] {
        client.patch(&set(), image(new)).await?;
        client.until(&set(), has_begun).await?;
        termination.apply(cluster).await?;
        (cluster, client) = restarted(data.path()).await?;
        client.until(&set(), is_rolled_out).await.with_context(|| format!("after a {termination:?}"))?;
        let pods = client.until_items(&pods(DEFAULT), NODES).await?;
        assert_eq!(images(&pods), [new; NODES], "after a {termination:?}");
    }
    assert_eq!(client.list(&apps(DEFAULT, "controllerrevisions")).await?.len(), 3);
    Ok(())
}
