//! Simulated pods wait for the ConfigMaps, Secrets and images that they refer to, with a kubelet's
//! reasons and events.

use anyhow::{Context, Result, ensure};
use coracle_e2e::cluster;
use coracle_e2e::cluster::Cluster;
use coracle_e2e::json_client::{JsonClient, items};
use coracle_e2e::wait::DEADLINE;
use serde_json::{Value, json};
use tokio::time::timeout;

const PODS: &str = "/api/v1/namespaces/default/pods";
const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
const SECRETS: &str = "/api/v1/namespaces/default/secrets";

async fn start(profile: &str) -> Result<(Cluster, JsonClient)> {
    let cluster = cluster().flag("--simulation-profile", profile).with_service_account().start().await?;
    let client = JsonClient::new(&cluster.endpoint().await?).await?;
    Ok((cluster, client))
}

fn pod(name: &str, container: Value, volumes: Value) -> Value {
    let mut full = json!({"name": "c", "image": "registry.example/app:1"});
    for (key, value) in container.as_object().into_iter().flatten() {
        full[key] = value.clone();
    }
    json!({"metadata": {"name": name}, "spec": {"containers": [full], "volumes": volumes}})
}

/// Waits for the reason for which the container of a pod waits; "" once it runs.
async fn until_waiting(client: &mut JsonClient, name: &str, reason: &str) -> Result<Value> {
    let state = |pod: &Value| pod["status"]["containerStatuses"][0]["state"].clone();
    let pod = client
        .until(&format!("{PODS}/{name}"), |pod| match reason {
            "" => state(pod)["running"].is_object(),
            _ => state(pod)["waiting"]["reason"] == reason,
        })
        .await?;
    Ok(state(&pod)["waiting"]["message"].clone())
}

/// Waits for an event of a pod.
async fn wait_for_event(client: &mut JsonClient, name: &str, reason: &str, message: &str) -> Result<()> {
    let events = format!("/api/v1/namespaces/default/events?fieldSelector=involvedObject.name%3D{name}");
    let is_it = |event: &Value| event["reason"] == reason && event["message"] == message;
    client.until(&events, |list| items(list).is_some_and(|events| events.iter().any(is_it))).await.map(drop)
}

#[tokio::test]
async fn variables_wait_for_their_objects() -> Result<()> {
    let (_cluster, mut client) = start("realistic").await?;
    let from_map =
        json!({"env": [{"name": "A", "valueFrom": {"configMapKeyRef": {"name": "settings", "key": "a"}}}]});
    client.create(PODS, pod("web", from_map, json!([]))).await?;
    let optional = json!({"envFrom": [{"secretRef": {"name": "nosuch", "optional": true}}]});
    client.create(PODS, pod("optional", optional, json!([]))).await?;
    until_waiting(&mut client, "optional", "").await?;
    let message = until_waiting(&mut client, "web", "CreateContainerConfigError").await?;
    assert_eq!(message, "configmap \"settings\" not found");
    wait_for_event(&mut client, "web", "Failed", "Error: configmap \"settings\" not found").await?;
    client.create(CONFIG_MAPS, json!({"metadata": {"name": "settings"}, "data": {"b": "1"}})).await?;
    let missing = "Error: couldn't find key a in ConfigMap default/settings";
    wait_for_event(&mut client, "web", "Failed", missing).await?;
    client.patch(&format!("{CONFIG_MAPS}/settings"), json!({"data": {"a": "1"}})).await?;
    until_waiting(&mut client, "web", "").await.map(drop)
}

#[tokio::test]
async fn volumes_wait_for_their_objects() -> Result<()> {
    let (_cluster, mut client) = start("realistic").await?;
    let volumes = json!([
        {"name": "settings", "projected": {"sources": [{"secret": {"name": "key"}}]}},
        {"name": "other", "configMap": {"name": "nosuch", "optional": true}},
    ]);
    let mounts = json!({"volumeMounts": [{"name": "settings", "mountPath": "/a"}, {"name": "other", "mountPath": "/b"}]});
    client.create(PODS, pod("web", mounts, volumes)).await?;
    let missing = "MountVolume.SetUp failed for volume \"settings\" : secret \"key\" not found";
    wait_for_event(&mut client, "web", "FailedMount", missing).await?;
    until_waiting(&mut client, "web", "ContainerCreating").await?;
    client.create(SECRETS, json!({"metadata": {"name": "key"}, "stringData": {"a": "1"}})).await?;
    until_waiting(&mut client, "web", "").await.map(drop)
}

/// Creates a pod anew until its image is missing.
async fn until_refused(client: &mut JsonClient, name: &str) -> Result<()> {
    let path = format!("{PODS}/{name}");
    let state = |pod: &Value| pod["status"]["containerStatuses"][0]["state"].clone();
    loop {
        client.create(PODS, pod(name, json!({"image": "registry.example/app:2"}), json!([]))).await?;
        if state(&client.until(&path, |pod| state(pod).is_object()).await?)["waiting"].is_object() {
            return Ok(());
        }
        client.delete(&format!("{path}?gracePeriodSeconds=0")).await?;
        client.until_deleted(&path).await?;
    }
}

#[tokio::test]
async fn images_are_missing_where_an_annotation_says_so() -> Result<()> {
    let (_cluster, mut client) = start("realistic").await?;
    let missing =
        |images: Value| json!({"metadata": {"annotations": {"sim.coracle.dev/missing-images": images}}});
    for (name, owner) in [("first", "/api/v1/namespaces/default"), ("second", "/api/v1/nodes/node-0")] {
        client.patch(owner, missing(json!("registry.example/*:2"))).await?;
        // The kubelet knows the annotation some time after the request: until then the image is
        // there.
        let refused = timeout(DEADLINE, until_refused(&mut client, name)).await;
        refused.with_context(|| format!("the image of {name} is there"))??;
        let message = until_waiting(&mut client, name, "ImagePullBackOff").await?;
        ensure!(message.as_str().is_some_and(|text| text.starts_with("Back-off pulling image")), "{message}");
        wait_for_event(&mut client, name, "Failed", "Error: ErrImagePull").await?;
        let other = format!("{name}-other");
        client.create(PODS, pod(&other, json!({}), json!([]))).await?;
        until_waiting(&mut client, &other, "").await?;
        client.patch(owner, missing(Value::Null)).await?;
        until_waiting(&mut client, name, "").await?;
    }
    Ok(())
}

#[tokio::test]
async fn an_inert_simulation_looks_at_no_reference() -> Result<()> {
    let (_cluster, mut client) = start("inert").await?;
    let mounts = json!([{"name": "v", "mountPath": "/v"}]);
    let container = json!({"envFrom": [{"secretRef": {"name": "nosuch"}}], "volumeMounts": mounts});
    let volumes = json!([{"name": "v", "configMap": {"name": "nosuch"}}]);
    client.create(PODS, pod("web", container, volumes)).await?;
    until_waiting(&mut client, "web", "").await.map(drop)
}
