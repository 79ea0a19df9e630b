//! Times that objects have follow a manual clock: the stabilization of autoscalers, the back-off of
//! deletions of volumes, the end of tokens, the pace of StatefulSets.

use anyhow::{Context, Result, ensure};
use coracle_e2e::http::Endpoint;
use coracle_e2e::json_client::JsonClient;
use coracle_e2e::{Cluster, cluster, workloads};
use serde_json::json;

const CLAIMS: &str = "/api/v1/namespaces/default/persistentvolumeclaims";
const CLOCK: &str = "/coracle/v1alpha1/clock";
const VOLUMES: &str = "/api/v1/persistentvolumes";

async fn manual() -> Result<(Cluster, JsonClient)> {
    let cluster = cluster().flag("--clock", "manual").start().await?;
    let client = JsonClient::new(&cluster.endpoint().await?).await?;
    Ok((cluster, client))
}

#[tokio::test]
async fn an_autoscaler_scales_down_after_its_window() -> Result<()> {
    let (cluster, mut client) = manual().await?;
    let deployments = workloads::apps("default", "deployments");
    let mut deployment = workloads::replicated("web", 4);
    let template = &mut deployment["spec"]["template"];
    template["metadata"]["annotations"] = json!({"sim.coracle.dev/cpu": "1m"});
    template["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": "100m"}});
    client.create(&deployments, deployment).await?;
    let target = json!({"type": "Utilization", "averageUtilization": 50});
    let autoscaler = json!({"metadata": {"name": "web"}, "spec": {
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}, "maxReplicas": 5,
        "metrics": [{"type": "Resource", "resource": {"name": "cpu", "target": target}}],
    }});
    client.create("/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers", autoscaler).await?;
    cluster.settle().await?;
    let replicas = async |client: &mut JsonClient| {
        anyhow::Ok(client.get(&format!("{deployments}/web")).await?["spec"]["replicas"].clone())
    };
    // The window is five minutes by default.
    cluster.advance("4m30s").await?;
    ensure!(replicas(&mut client).await? == 4);
    cluster.advance("2m").await?;
    ensure!(replicas(&mut client).await? == 1);
    Ok(())
}

#[tokio::test]
async fn the_deletion_of_a_volume_is_tried_again_later_each_time() -> Result<()> {
    // The backoff of the last one is 80 seconds.
    const FAILURES: u32 = 15;
    let (cluster, mut client) = manual().await?;
    let class = json!({"metadata": {"name": "stubborn"}, "provisioner": "kubernetes.io/host-path", "reclaimPolicy": "Delete",
                       "parameters": {"sim.coracle.dev/delete-failures": FAILURES.to_string()}});
    client.create("/apis/storage.k8s.io/v1/storageclasses", class).await?;
    let claim = json!({"metadata": {"name": "data"}, "spec": {"storageClassName": "stubborn",
                       "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Mi"}}}});
    client.create(CLAIMS, claim).await?;
    cluster.settle().await?;
    ensure!(client.list(VOLUMES).await?.len() == 1, "it is not provisioned");
    client.delete(&format!("{CLAIMS}/data")).await?;
    cluster.settle().await?;
    // The first retries take no time.
    for by in ["5s", "55s"] {
        let moved = client.call("POST", CLOCK, Some(json!({"advance": by}))).await?;
        ensure!(moved["timersByName"]["retry-backoff"].as_u64() > Some(0), "{moved}");
        let volumes = client.list(VOLUMES).await?;
        ensure!(volumes.len() == 1 && volumes[0]["status"]["phase"] == "Failed", "{by}: {volumes:?}");
    }
    cluster.advance("5m").await?;
    let left = client.list(VOLUMES).await?;
    ensure!(left.is_empty(), "{left:?}");
    Ok(())
}

#[tokio::test]
async fn a_token_ends_by_the_clock() -> Result<()> {
    let (cluster, mut client) = manual().await?;
    cluster.settle().await?;
    let path = "/api/v1/namespaces/default/serviceaccounts/default/token";
    let request = json!({"spec": {"expirationSeconds": 600}});
    let token = client.call("POST", path, Some(request)).await?;
    let token = token["status"]["token"].as_str().context("a token")?;
    let with_token = Endpoint::with_token(&cluster.config().await?, token)?;
    let status = async || {
        let review = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
        anyhow::Ok(JsonClient::new(&with_token).await?.send("POST", review, Some(json!({}))).await?.0)
    };
    ensure!(status().await? == 201);
    cluster.advance("9m").await?;
    ensure!(status().await? == 201);
    // As in kube-apiserver, a clock that is a minute late is forgiven.
    cluster.advance("3m").await?;
    ensure!(status().await? == 401);
    Ok(())
}

#[tokio::test]
async fn a_stateful_set_waits_for_each_pod_to_be_available() -> Result<()> {
    let (cluster, mut client) = manual().await?;
    let sets = workloads::apps("default", "statefulsets");
    let mut set = workloads::replicated("web", 3);
    set["spec"]["serviceName"] = json!("web");
    set["spec"]["minReadySeconds"] = json!(600);
    client.create(&sets, set).await?;
    cluster.settle().await?;
    let mut counts = Vec::new();
    for _ in 0..4 {
        counts.push(client.list(&workloads::pods("default")).await?.len());
        cluster.advance("11m").await?;
    }
    ensure!(counts == [1, 2, 3, 3], "{counts:?}");
    let set = client.get(&format!("{sets}/web")).await?;
    ensure!(set["status"]["availableReplicas"] == 3, "{set}");
    Ok(())
}
