//! ReplicaSets and ReplicationControllers on simulated nodes: upstream's end-to-end behaviors
//! (`[sig-apps] ReplicaSet`, `[sig-apps] ReplicationController`). Quotas are in
//! `misconfigured_workloads.rs`.

use anyhow::{Result, ensure};
use coracle_e2e::json_client::{JsonClient, items};
use coracle_e2e::workloads::{
    apps, controller, image, is_ready, name, pods, replicated, replication_controller, template, uid,
};
use coracle_e2e::{Cluster, cluster};
use serde_json::{Value, json};

const DEFAULT: &str = "default";
const CONTROLLERS: &str = "/api/v1/namespaces/default/replicationcontrollers";

async fn start() -> Result<(Cluster, JsonClient)> {
    let cluster = cluster().with_service_account().start().await?;
    let client = JsonClient::new(&cluster.endpoint().await?).await?;
    Ok((cluster, client))
}

/// Makes an object of a name with a number of replicas.
type Make = fn(&str, usize) -> Value;

/// Returns both kinds: the collection, and a function that builds an object of it.
fn kinds() -> [(String, Make); 2] {
    [(apps(DEFAULT, "replicasets"), replicated), (CONTROLLERS.to_owned(), replication_controller)]
}

fn pod(name: &str, app: &str) -> Value {
    let mut pod = template(app, json!({}));
    pod["metadata"]["name"] = json!(name);
    pod
}

/// Covers upstream's "should serve a basic image on each replica with a public image".
#[tokio::test]
async fn each_replica_is_ready_and_a_deleted_one_is_replaced() -> Result<()> {
    let (_cluster, mut client) = start().await?;
    for (collection, of) in kinds() {
        let path = format!("{collection}/web");
        client.create(&collection, of("web", 3)).await?;
        client.until(&path, |set| set["status"]["readyReplicas"] == 3).await?;
        let before = client.until_items(&pods(DEFAULT), 3).await?;
        ensure!(before.iter().all(is_ready), "{before:?}");
        let gone = uid(&before[0]).to_owned();
        client.delete(&format!("{}/{}", pods(DEFAULT), name(&before[0]))).await?;
        let is_replaced = |list: &Value| {
            items(list).is_some_and(|pods| {
                pods.len() == 3 && pods.iter().all(|pod| uid(pod) != gone && is_ready(pod))
            })
        };
        client.until(&pods(DEFAULT), is_replaced).await?;
        client.delete(&format!("{path}?propagationPolicy=Background")).await?;
        client.until_items(&pods(DEFAULT), 0).await?;
    }
    Ok(())
}

/// Covers upstream's "should adopt matching pods on creation", "should release no longer matching
/// pods".
#[tokio::test]
async fn matching_pods_are_adopted_and_others_released() -> Result<()> {
    let (_cluster, mut client) = start().await?;
    for (collection, of) in kinds() {
        let one = format!("{}/lonely", pods(DEFAULT));
        client.create(&pods(DEFAULT), pod("lonely", "web")).await?;
        // The kubelet has it from the cache of pods that the controller reads.
        client.until(&one, is_ready).await?;
        let owner = client.create(&collection, of("web", 1)).await?;
        client.until(&one, |pod| controller(pod) == Some(uid(&owner))).await?;
        client.until(&format!("{collection}/web"), |set| set["status"]["readyReplicas"] == 1).await?;
        assert_eq!(client.list(&pods(DEFAULT)).await?.len(), 1);

        client.patch(&one, json!({"metadata": {"labels": {"app": "other"}}})).await?;
        client.until(&one, |pod| controller(pod).is_none()).await?;
        let replaced = client.until_items(&pods(DEFAULT), 2).await?;
        assert_eq!(replaced.iter().filter(|pod| controller(pod) == Some(uid(&owner))).count(), 1);
        client.delete(&format!("{collection}/web?propagationPolicy=Background")).await?;
        client.delete(&one).await?;
        client.until_items(&pods(DEFAULT), 0).await?;
    }
    Ok(())
}

/// Covers upstream's "Replicaset should have a working scale subresource", "should get and update a
/// ReplicationController scale".
#[tokio::test]
async fn the_scale_subresource_sets_the_size() -> Result<()> {
    let (_cluster, mut client) = start().await?;
    for (collection, of) in kinds() {
        client.create(&collection, of("web", 1)).await?;
        let scale = format!("{collection}/web/scale");
        let read = client.until(&scale, |scale| scale["status"]["replicas"] == 1).await?;
        ensure!(read["kind"] == "Scale" && read["spec"]["replicas"] == 1, "{read}");
        client.update(&scale, |scale| scale["spec"]["replicas"] = json!(2)).await?;
        client.until(&format!("{collection}/web"), |set| set["status"]["readyReplicas"] == 2).await?;
        let stale = json!({"metadata": {"name": "web", "resourceVersion": "1"}, "spec": {"replicas": 5}});
        assert_eq!(client.send("PUT", &scale, Some(stale)).await?.0, 409);
        client.delete(&format!("{collection}/web?propagationPolicy=Background")).await?;
        client.until_items(&pods(DEFAULT), 0).await?;
    }
    Ok(())
}

/// Covers upstream's "Replace and Patch tests", "should list and delete a collection of
/// ReplicaSets", "should validate Replicaset Status endpoints", "should test the lifecycle of a
/// ReplicationController".
#[tokio::test]
async fn sets_are_replaced_patched_listed_and_deleted_together() -> Result<()> {
    let (_cluster, mut client) = start().await?;
    for (collection, of) in kinds() {
        let path = format!("{collection}/web");
        for name in ["web", "other"] {
            let mut set = of(name, 1);
            set["metadata"]["labels"] = json!({"suite": "sets"});
            client.create(&collection, set).await?;
        }
        client.until(&path, |set| set["status"]["readyReplicas"] == 1).await?;
        client.patch(&path, image("registry.example/app:2")).await?;
        client.patch(&path, json!({"spec": {"replicas": 2}})).await?;
        client.until(&path, |set| set["status"]["readyReplicas"] == 2).await?;
        // Only the new pod has the new template.
        let mut images: Vec<_> = client
            .list(&format!("{}?labelSelector=app%3Dweb", pods(DEFAULT)))
            .await?
            .iter()
            .map(|pod| pod["spec"]["containers"][0]["image"].to_string())
            .collect();
        images.sort();
        assert_eq!(images, ["\"registry.example/app:1\"", "\"registry.example/app:2\""]);

        let condition = json!({"type": "StatusUpdate", "status": "True", "reason": "E2E"});
        client.patch(&format!("{path}/status"), json!({"status": {"conditions": [condition]}})).await?;
        client
            .until(&path, |set| {
                let conditions = set["status"]["conditions"].as_array();
                conditions.is_some_and(|all| all.iter().any(|condition| condition["type"] == "StatusUpdate"))
            })
            .await?;
        let labelled = format!("{collection}?labelSelector=suite%3Dsets");
        assert_eq!(client.list(&labelled).await?.len(), 2);
        client.delete(&format!("{labelled}&propagationPolicy=Background")).await?;
        client.until_items(&collection, 0).await?;
        client.until_items(&pods(DEFAULT), 0).await?;
    }
    Ok(())
}

/// Checks that the least available of several pods are deleted first.
#[tokio::test]
async fn unready_pods_and_cheap_ones_are_deleted_first() -> Result<()> {
    let (_cluster, mut client) = start().await?;
    for (collection, of) in kinds() {
        let path = format!("{collection}/web");
        client.create(&collection, of("web", 4)).await?;
        client.until(&path, |set| set["status"]["readyReplicas"] == 4).await?;
        let all = client.list(&pods(DEFAULT)).await?;
        let of_name = |i: usize| format!("{}/{}", pods(DEFAULT), name(&all[i]));
        // Waits for the change that is observed last.
        let cheap =
            json!({"metadata": {"annotations": {"controller.kubernetes.io/pod-deletion-cost": "-1"}}});
        client.patch(&of_name(2), cheap).await?;
        let unready = json!({"metadata": {"annotations": {"sim.coracle.dev/never-ready": "true"}}});
        client.patch(&of_name(1), unready).await?;
        client.until(&path, |set| set["status"]["readyReplicas"] == 3).await?;
        client.patch(&path, json!({"spec": {"replicas": 2}})).await?;
        let mut left: Vec<_> =
            client.until_items(&pods(DEFAULT), 2).await?.iter().map(|pod| uid(pod).to_owned()).collect();
        let mut want = [uid(&all[0]).to_owned(), uid(&all[3]).to_owned()];
        left.sort();
        want.sort();
        assert_eq!(left, want);
        client.delete(&format!("{path}?propagationPolicy=Background")).await?;
        client.until_items(&pods(DEFAULT), 0).await?;
    }
    Ok(())
}
