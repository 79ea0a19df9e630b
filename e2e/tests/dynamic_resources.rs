//! Dynamic resource allocation: pods with ResourceClaims get devices of ResourceSlices.
//!
//! Tested are allocation, reservation and release, claims of templates, shared claims, the wake-up of
//! pods by new classes and slices, and extended resources of a class.

use anyhow::{Context, Result, ensure};
use coracle_e2e::json_client::{JsonClient, condition_reason};
use coracle_e2e::workloads::{is_ready, pods, template};
use coracle_e2e::{Cluster, cluster};
use serde_json::{Value, json};

const DEFAULT: &str = "default";
const RESOURCES: &str = "/apis/resource.k8s.io/v1";
const FINALIZER: &str = "resource.kubernetes.io/delete-protection";

fn claims() -> String {
    format!("{RESOURCES}/namespaces/{DEFAULT}/resourceclaims")
}

/// Starts a control plane with two nodes, of which `node-1` has two devices, and a class.
async fn start() -> Result<(Cluster, JsonClient)> {
    let cluster = cluster().flag("--nodes", "2").with_service_account().start().await?;
    let mut client = JsonClient::new(&cluster.endpoint().await?).await?;
    client
        .create(
            &format!("{RESOURCES}/deviceclasses"),
            json!({"metadata": {"name": "gpu"}, "spec": {
                "selectors": [{"cel": {"expression": "device.driver == \"gpu.example\""}}],
                "extendedResourceName": "example.com/gpu",
            }}),
        )
        .await?;
    publish(&mut client, &["gpu-0", "gpu-1"]).await?;
    Ok((cluster, client))
}

/// Publishes the devices of `node-1`.
async fn publish(client: &mut JsonClient, devices: &[&str]) -> Result<()> {
    let device = |name: &&str| json!({"name": name, "attributes": {"index": {"int": name.len()}}});
    let slice = json!({"metadata": {"name": "node-1-gpus"}, "spec": {
        "driver": "gpu.example", "nodeName": "node-1",
        "pool": {"name": "node-1", "generation": 1, "resourceSliceCount": 1},
        "devices": devices.iter().map(device).collect::<Vec<_>>(),
    }});
    client.create(&format!("{RESOURCES}/resourceslices"), slice).await?;
    Ok(())
}

fn spec(count: usize) -> Value {
    let exactly = json!({"deviceClassName": "gpu", "count": count});
    json!({"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}})
}

/// A pod with a claim, of a name or generated from a template.
fn consumer(name: &str, claim: Value) -> Value {
    let mut pod = template(name, json!({}));
    pod["metadata"]["name"] = json!(name);
    pod["spec"]["resourceClaims"] = json!([claim]);
    pod["spec"]["resourceClaims"][0]["name"] = json!("gpu");
    pod["spec"]["containers"][0]["resources"] = json!({"claims": [{"name": "gpu"}]});
    pod
}

fn named(claim: &str) -> Value {
    json!({"resourceClaimName": claim})
}

fn path(pod: &str) -> String {
    format!("{}/{pod}", pods(DEFAULT))
}

/// Returns the devices of a claim, separated by spaces.
fn devices(claim: &Value) -> String {
    let results = claim["status"]["allocation"]["devices"]["results"].as_array();
    let names = results.into_iter().flatten().filter_map(|result| result["device"].as_str());
    names.collect::<Vec<_>>().join(" ")
}

fn message(pod: &Value) -> &str {
    let conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
    let mut scheduled = conditions.filter(|condition| condition["type"] == "PodScheduled");
    scheduled.next().and_then(|condition| condition["message"].as_str()).unwrap_or_default()
}

#[tokio::test]
async fn devices_are_allocated_reserved_and_released() -> Result<()> {
    let (_cluster, mut client) = start().await?;
    client.create(&claims(), json!({"metadata": {"name": "two"}, "spec": spec(2)})).await?;
    client.create(&pods(DEFAULT), consumer("first", named("two"))).await?;
    let pod = client.until(&path("first"), is_ready).await?;
    assert_eq!(pod["spec"]["nodeName"], "node-1");
    let claim = client.get(&format!("{}/two", claims())).await?;
    assert_eq!(devices(&claim), "gpu-0 gpu-1");
    assert_eq!(claim["metadata"]["finalizers"], json!([FINALIZER]));
    let consumer_of_claim = &claim["status"]["reservedFor"][0];
    assert_eq!(consumer_of_claim["uid"], pod["metadata"]["uid"]);
    ensure!(claim["status"]["allocation"]["allocationTimestamp"].is_string(), "{claim}");
    // Another claim gets none of them, until the first one is released.
    client.create(&claims(), json!({"metadata": {"name": "one"}, "spec": spec(1)})).await?;
    client.create(&pods(DEFAULT), consumer("second", named("one"))).await?;
    let rejected = |pod: &Value| condition_reason(pod, "PodScheduled") == Some("Unschedulable");
    let pod = client.until(&path("second"), rejected).await?;
    let want = "0/2 nodes are available: 2 cannot allocate all claims. still not schedulable, preemption: ";
    ensure!(message(&pod).starts_with(want), "{}", message(&pod));
    client.delete(&path("first")).await?;
    client.until(&path("second"), is_ready).await?;
    assert_eq!(devices(&client.get(&format!("{}/one", claims())).await?), "gpu-0");
    let claim = client.get(&format!("{}/two", claims())).await?;
    ensure!(claim["status"]["allocation"].is_null(), "{claim}");
    Ok(())
}

#[tokio::test]
async fn pods_of_a_template_have_claims_and_devices_of_their_own() -> Result<()> {
    let (_cluster, mut client) = start().await?;
    let of_template = json!({"resourceClaimTemplateName": "gpus"});
    // The pod waits for the template without a condition.
    client.create(&pods(DEFAULT), consumer("first", of_template.clone())).await?;
    client.create(&pods(DEFAULT), consumer("second", of_template)).await?;
    let templates = format!("{RESOURCES}/namespaces/{DEFAULT}/resourceclaimtemplates");
    client.create(&templates, json!({"metadata": {"name": "gpus"}, "spec": {"spec": spec(1)}})).await?;
    let mut found = Vec::new();
    for name in ["first", "second"] {
        let pod = client.until(&path(name), is_ready).await?;
        let statuses = &pod["status"]["resourceClaimStatuses"];
        let claim = statuses[0]["resourceClaimName"].as_str().context("no claim")?;
        found.push(devices(&client.get(&format!("{}/{claim}", claims())).await?));
    }
    found.sort();
    assert_eq!(found, ["gpu-0", "gpu-1"]);
    for name in ["first", "second"] {
        client.delete(&path(name)).await?;
    }
    client.until_items(&claims(), 0).await?;
    Ok(())
}

#[tokio::test]
async fn pods_share_a_claim_and_stay_with_its_devices() -> Result<()> {
    let (_cluster, mut client) = start().await?;
    for name in ["first", "second", "third"] {
        client.create(&pods(DEFAULT), consumer(name, named("shared"))).await?;
    }
    client.create(&claims(), json!({"metadata": {"name": "shared"}, "spec": spec(1)})).await?;
    for name in ["first", "second", "third"] {
        let pod = client.until(&path(name), is_ready).await?;
        assert_eq!(pod["spec"]["nodeName"], "node-1", "{name}");
    }
    let claim = client.get(&format!("{}/shared", claims())).await?;
    assert_eq!(devices(&claim), "gpu-0");
    assert_eq!(claim["status"]["reservedFor"].as_array().map(Vec::len), Some(3));
    Ok(())
}

#[tokio::test]
async fn new_devices_and_classes_wake_pods() -> Result<()> {
    let (_cluster, mut client) = start().await?;
    client.delete(&format!("{RESOURCES}/resourceslices/node-1-gpus")).await?;
    let of_class = json!({"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "new"}}]}});
    client.create(&claims(), json!({"metadata": {"name": "one"}, "spec": of_class})).await?;
    client.create(&pods(DEFAULT), consumer("first", named("one"))).await?;
    let pod = client.until(&path("first"), |pod| !message(pod).is_empty()).await?;
    let want = "0/2 nodes are available: request gpu: device class new does not exist. no new claims to deallocate, ";
    ensure!(message(&pod).starts_with(want), "{}", message(&pod));
    client
        .create(&format!("{RESOURCES}/deviceclasses"), json!({"metadata": {"name": "new"}, "spec": {}}))
        .await?;
    client.until(&path("first"), |pod| message(pod).contains("2 cannot allocate all claims")).await?;
    publish(&mut client, &["gpu-0"]).await?;
    client.until(&path("first"), is_ready).await?;
    Ok(())
}

#[tokio::test]
async fn extended_resources_of_a_class_are_devices() -> Result<()> {
    let (_cluster, mut client) = start().await?;
    let mut pod = template("first", json!({}));
    pod["metadata"]["name"] = json!("first");
    pod["spec"]["containers"][0]["resources"] = json!({"limits": {"example.com/gpu": "2"}});
    client.create(&pods(DEFAULT), pod).await?;
    let pod = client.until(&path("first"), is_ready).await?;
    assert_eq!(pod["spec"]["nodeName"], "node-1");
    let status = &pod["status"]["extendedResourceClaimStatus"];
    let claim = status["resourceClaimName"].as_str().context("no claim")?;
    assert_eq!(status["requestMappings"][0]["requestName"], "container-0-request-0");
    let claim = client.get(&format!("{}/{claim}", claims())).await?;
    assert_eq!(devices(&claim), "gpu-0 gpu-1");
    client.delete(&path("first")).await?;
    client.until_items(&claims(), 0).await?;
    Ok(())
}
