//! Pods on simulated nodes, from the view of their users.

use std::net::TcpListener;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use coracle_e2e::{Cluster, cluster};
use futures::future::try_join_all;
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use k8s_openapi::api::core::v1::{Namespace, Node, PersistentVolumeClaim, Pod, ServiceAccount};
use k8s_openapi::api::storage::v1::StorageClass;
use kube::api::{Api, DeleteParams, LogParams, Patch, PatchParams, PostParams};
use kube::runtime::wait::await_condition;
use kube::{Client, Resource};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::time::timeout;

const DEADLINE: Duration = Duration::from_secs(30);

struct Scenario {
    _cluster: Cluster,
    pods: Api<Pod>,
    client: Client,
}

impl Scenario {
    async fn start(nodes: &str) -> Result<Scenario> {
        let cluster = cluster().flag("--nodes", nodes).with_service_account().start().await?;
        let client = cluster.client().await?;
        Ok(Scenario { _cluster: cluster, pods: Api::default_namespaced(client.clone()), client })
    }

    async fn create(&self, pod: Value) -> Result<Pod> {
        Ok(self.pods.create(&PostParams::default(), &serde_json::from_value(pod)?).await?)
    }

    async fn until(&self, name: &str, is_so: impl Fn(&Pod) -> bool) -> Result<Pod> {
        until(self.pods.clone(), name, is_so).await
    }
}

async fn until<K>(api: Api<K>, name: &str, is_so: impl Fn(&K) -> bool) -> Result<K>
where
    K: Resource + Clone + std::fmt::Debug + DeserializeOwned + Send + 'static,
{
    let so = await_condition(api, name, |object: Option<&K>| object.is_some_and(&is_so));
    let so = timeout(DEADLINE, so).await.with_context(|| format!("{name} does not come to be so"))??;
    so.with_context(|| format!("{name} is gone"))
}

fn pod(name: &str, annotations: Value) -> Value {
    json!({
        "metadata": {"name": name, "annotations": annotations},
        "spec": {
            "automountServiceAccountToken": false,
            "containers": [{"name": "c", "image": "img:1"}],
        },
    })
}

fn condition(pod: &Pod, name: &str) -> Option<String> {
    let conditions = pod.status.as_ref()?.conditions.as_ref()?;
    conditions.iter().find(|condition| condition.type_ == name).map(|condition| condition.status.clone())
}

fn is_ready(pod: &Pod) -> bool {
    condition(pod, "Ready").as_deref() == Some("True")
}

fn phase(pod: &Pod) -> Option<&str> {
    pod.status.as_ref()?.phase.as_deref()
}

#[tokio::test]
async fn pods_run_and_terminate() -> Result<()> {
    let scenario = Scenario::start("1").await?;
    let pods = (0..50).map(|n| scenario.create(pod(&format!("p{n}"), json!({}))));
    try_join_all(pods).await?;
    let mut addresses = std::collections::HashSet::new();
    for n in 0..50 {
        let pod = scenario.until(&format!("p{n}"), is_ready).await?;
        addresses.extend(pod.status.and_then(|status| status.pod_ip));
    }
    assert_eq!(addresses.len(), 50);
    let log = scenario.pods.logs("p0", &LogParams::default()).await?;
    assert!(log.contains("simulated"), "{log}");
    scenario.pods.delete("p0", &DeleteParams::default()).await?;
    let gone = await_condition(scenario.pods.clone(), "p0", |pod: Option<&Pod>| pod.is_none());
    timeout(DEADLINE, gone).await??;
    Ok(())
}

#[tokio::test]
async fn annotations_control_simulated_pods() -> Result<()> {
    let scenario = Scenario::start("1").await?;
    let annotation = |key: &str, value: &str| json!({format!("sim.coracle.dev/{key}"): value});
    scenario.create(pod("never", annotation("never-ready", "true"))).await?;
    let running = scenario.until("never", |pod| phase(pod) == Some("Running")).await?;
    assert_eq!(condition(&running, "Ready").as_deref(), Some("False"));
    let change = Patch::Merge(json!({"metadata": {"annotations": annotation("never-ready", "false")}}));
    scenario.pods.patch("never", &PatchParams::default(), &change).await?;
    scenario.until("never", is_ready).await?;

    let mut once = pod("once", annotation("exit-after", "100ms"));
    once["spec"]["restartPolicy"] = json!("Never");
    scenario.create(once).await?;
    scenario.until("once", |pod| phase(pod) == Some("Succeeded")).await?;

    scenario.create(pod("ignored", annotation("ignore", "true"))).await?;
    scenario.create(pod("later", json!({}))).await?;
    scenario.until("later", is_ready).await?;
    let ignored = scenario.pods.get("ignored").await?;
    assert_eq!(ignored.spec.and_then(|spec| spec.node_name), None);
    Ok(())
}

#[tokio::test]
async fn a_status_that_a_client_writes_is_kept() -> Result<()> {
    let scenario = Scenario::start("1").await?;
    scenario.create(pod("p", json!({}))).await?;
    scenario.until("p", is_ready).await?;
    let unready = json!({"status": {"conditions": [{"type": "Ready", "status": "False"}]}});
    scenario.pods.patch_status("p", &PatchParams::default(), &Patch::Strategic(unready)).await?;
    // The kubelet processes the other pod after whatever it would do about this one.
    scenario.create(pod("q", json!({}))).await?;
    scenario.until("q", is_ready).await?;
    assert!(!is_ready(&scenario.pods.get("p").await?));
    let over = Patch::Merge(json!({"status": {"phase": "Succeeded"}}));
    scenario.pods.patch_status("p", &PatchParams::default(), &over).await?;
    scenario.create(pod("r", json!({}))).await?;
    scenario.until("r", is_ready).await?;
    assert_eq!(phase(&scenario.pods.get("p").await?), Some("Succeeded"));
    Ok(())
}

#[tokio::test]
async fn pods_wait_for_nodes_and_claims_for_pods() -> Result<()> {
    let scenario = Scenario::start("1").await?;
    let nodes: Api<Node> = Api::all(scenario.client.clone());
    until(nodes.clone(), "node-0", |node| node.spec.as_ref().is_some_and(|spec| spec.taints.is_none()))
        .await?;
    nodes.cordon("node-0").await?;
    // The controller that sets the taint and the scheduler share a cache of nodes.
    until(nodes.clone(), "node-0", |node| node.spec.as_ref().is_some_and(|spec| spec.taints.is_some()))
        .await?;
    scenario.create(pod("p", json!({}))).await?;
    let refused =
        scenario.until("p", |pod| condition(pod, "PodScheduled").as_deref() == Some("False")).await?;
    let said = refused.status.and_then(|status| status.conditions?.into_iter().next()?.message);
    assert!(said.unwrap_or_default().starts_with("0/1 nodes are available: 1 node(s) were unschedulable."));
    nodes.uncordon("node-0").await?;
    scenario.until("p", is_ready).await?;

    let classes: Api<StorageClass> = Api::all(scenario.client.clone());
    let class = json!({
        "metadata": {"name": "later"}, "provisioner": "example.com/none",
        "volumeBindingMode": "WaitForFirstConsumer",
    });
    classes.create(&PostParams::default(), &serde_json::from_value(class)?).await?;
    let claims: Api<PersistentVolumeClaim> = Api::default_namespaced(scenario.client.clone());
    let claim = json!({
        "metadata": {"name": "data"},
        "spec": {
            "storageClassName": "later", "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}},
        },
    });
    claims.create(&PostParams::default(), &serde_json::from_value(claim)?).await?;
    let mut consumer = pod("consumer", json!({}));
    consumer["spec"]["volumes"] = json!([{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]);
    scenario.create(consumer).await?;
    let selected = |claim: &PersistentVolumeClaim| {
        let annotations = claim.metadata.annotations.as_ref();
        annotations
            .is_some_and(|a| a.get("volume.kubernetes.io/selected-node").is_some_and(|n| n == "node-0"))
    };
    until(claims, "data", selected).await?;
    let consumer = scenario.pods.get("consumer").await?;
    assert_eq!(consumer.spec.and_then(|spec| spec.node_name), None);
    Ok(())
}

/// Verifies that a webhook that does not answer delays a start, and the other controllers, for a
/// bounded time.
#[tokio::test]
async fn nodes_that_cannot_be_registered_do_not_keep_a_server_from_its_work() -> Result<()> {
    let data = TempDir::new()?;
    let first = cluster().data_dir(data.path()).flag("--nodes", "0").start().await?;
    // Connections are accepted by the kernel, and nobody answers.
    let silent = TcpListener::bind("127.0.0.1:0")?;
    let webhook = serde_json::from_value(json!({
        "metadata": {"name": "silent"},
        "webhooks": [{
            "name": "silent.example.com",
            "admissionReviewVersions": ["v1"],
            "sideEffects": "None",
            "timeoutSeconds": 30,
            "clientConfig": {"url": format!("https://{}/", silent.local_addr()?)},
            "rules": [{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["nodes"]}],
        }],
    }))?;
    let webhooks = Api::<ValidatingWebhookConfiguration>::all(first.client().await?);
    webhooks.create(&PostParams::default(), &webhook).await?;
    ensure!(first.stop().await?.success());

    let began = Instant::now();
    let second = cluster().data_dir(data.path()).flag("--nodes", "1").start().await?;
    let namespace = serde_json::from_value(json!({"metadata": {"name": "new"}}))?;
    let client = second.client().await?;
    Api::<Namespace>::all(client.clone()).create(&PostParams::default(), &namespace).await?;
    until(Api::<ServiceAccount>::namespaced(client, "new"), "default", |_| true).await?;
    // The server and its controllers have begun before the webhook's time is over.
    ensure!(began.elapsed() < Duration::from_secs(25), "{:?}", began.elapsed());
    Ok(())
}
