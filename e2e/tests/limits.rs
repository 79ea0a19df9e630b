//! Quotas and disruption budgets, from the view of their users.

use std::fmt::Debug;
use std::time::Duration;

use anyhow::{Context, Result};
use coracle_e2e::{Cluster, cluster};
use futures::future::try_join_all;
use k8s_openapi::api::core::v1::{Pod, ResourceQuota, Secret};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::{Api, DeleteParams, EvictParams, ListParams, Patch, PatchParams, PostParams};
use kube::runtime::wait::await_condition;
use kube::{Client, Resource};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::time::timeout;

const DEADLINE: Duration = Duration::from_secs(30);

async fn create<K>(client: &Client, new: Value) -> kube::Result<K>
where
    K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
        + Clone
        + Debug
        + DeserializeOwned
        + serde::Serialize,
{
    let new = serde_json::from_value(new).map_err(kube::Error::SerdeError)?;
    Api::<K>::default_namespaced(client.clone()).create(&PostParams::default(), &new).await
}

/// Starts a control plane in which the tests set the status of pods themselves.
async fn start() -> Result<Cluster> {
    cluster().flag("--nodes", "0").with_service_account().start().await
}

/// Creates a client that does not retry after a 429.
async fn client(cluster: &Cluster) -> Result<Client> {
    let mut config = cluster.config().await?;
    config.default_retry = false;
    Ok(Client::try_from(config)?)
}

/// Waits until an object meets a condition.
async fn until<K>(client: &Client, name: &str, is_so: impl Fn(&K) -> bool) -> Result<()>
where
    K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
        + Clone
        + Debug
        + DeserializeOwned
        + Send
        + 'static,
{
    let api = Api::<K>::default_namespaced(client.clone());
    let so = await_condition(api, name, |object: Option<&K>| object.is_some_and(&is_so));
    timeout(DEADLINE, so).await.with_context(|| format!("{name} does not come to be as it shall be"))??;
    Ok(())
}

/// Returns a predicate for quotas with this usage.
fn uses(used: Value) -> impl Fn(&ResourceQuota) -> bool {
    move |quota| quota.status.as_ref().is_some_and(|status| json!(status.used) == used)
}

fn secret(name: &str) -> Value {
    json!({"metadata": {"name": name}})
}

fn pod(name: &str) -> Value {
    json!({"metadata": {"name": name, "labels": {"app": "web"}}, "spec": {
        "terminationGracePeriodSeconds": 0,
        "containers": [{"name": "web", "image": "web:1", "resources": {"requests": {"cpu": "500m"}}}],
    }})
}

async fn set_status(client: &Client, name: &str, status: Value) -> kube::Result<Pod> {
    let pods = Api::<Pod>::default_namespaced(client.clone());
    pods.patch_status(name, &PatchParams::default(), &Patch::Strategic(json!({"status": status}))).await
}

/// Returns the message of a request that must fail.
fn refusal<T>(result: kube::Result<T>) -> Result<(u16, String)> {
    match result {
        Ok(_) => anyhow::bail!("it was not refused"),
        Err(kube::Error::Api(status)) => Ok((status.code, status.message.clone())),
        Err(error) => Err(error.into()),
    }
}

#[tokio::test]
async fn a_quota_counts_creations_and_deletions() -> Result<()> {
    let cluster = start().await?;
    let client = client(&cluster).await?;
    let hard =
        json!({"count/leases.coordination.k8s.io": "1", "pods": "1", "requests.cpu": "1", "secrets": "1"});
    let quota = json!({"metadata": {"name": "q"}, "spec": {"hard": hard}});
    create::<ResourceQuota>(&client, quota).await?;
    let used = |pods: &str, cpu: &str, secrets: &str| {
        uses(json!({
            "count/leases.coordination.k8s.io": "0", "pods": pods, "requests.cpu": cpu, "secrets": secrets,
        }))
    };
    until(&client, "q", used("0", "0", "0")).await?;

    create::<Secret>(&client, secret("a")).await?;
    let (code, message) = refusal(create::<Secret>(&client, secret("b")).await)?;
    let want = "secrets \"b\" is forbidden: exceeded quota: q, requested: secrets=1, used: secrets=1, limited: secrets=1";
    assert_eq!((code, message.as_str()), (403, want));
    Api::<Secret>::default_namespaced(client.clone()).delete("a", &DeleteParams::default()).await?;
    until(&client, "q", used("0", "0", "0")).await?;
    create::<Secret>(&client, secret("b")).await?;

    create::<Pod>(&client, pod("a")).await?;
    until(&client, "q", used("1", "500m", "1")).await?;
    let (code, _) = refusal(create::<Pod>(&client, pod("b")).await)?;
    assert_eq!(code, 403);
    set_status(&client, "a", json!({"phase": "Succeeded"})).await?;
    until(&client, "q", used("0", "0", "1")).await?;
    create::<Pod>(&client, pod("b")).await?;
    Ok(())
}

/// Changes the quota concurrently by writers and the controller.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_quota_is_correct_after_concurrent_writes() -> Result<()> {
    const WRITERS: usize = 6;
    const ROUNDS: usize = 15;
    let cluster = start().await?;
    let client = client(&cluster).await?;
    let hard = json!({"secrets": "1000"});
    create::<ResourceQuota>(&client, json!({"metadata": {"name": "q"}, "spec": {"hard": hard}})).await?;
    until(&client, "q", uses(json!({"secrets": "0"}))).await?;
    let secrets = Api::<Secret>::default_namespaced(client.clone());
    try_join_all((0..WRITERS).map(|writer| {
        let (client, secrets) = (client.clone(), secrets.clone());
        async move {
            for round in 0..ROUNDS {
                let name = format!("s-{writer}-{round}");
                create::<Secret>(&client, secret(&name)).await?;
                // Two of three stay.
                if round % 3 == 0 {
                    secrets.delete(&name, &DeleteParams::default()).await?;
                }
            }
            anyhow::Ok(())
        }
    }))
    .await?;
    let left = secrets.list(&ListParams::default()).await?.items.len();
    assert_eq!(left, WRITERS * ROUNDS * 2 / 3);
    until(&client, "q", uses(json!({"secrets": left.to_string()}))).await
}

#[tokio::test]
async fn a_disruption_budget_blocks_and_then_allows_evictions() -> Result<()> {
    let cluster = start().await?;
    let client = client(&cluster).await?;
    for name in ["a", "b"] {
        create::<Pod>(&client, pod(name)).await?;
        let ready = json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]});
        set_status(&client, name, ready).await?;
    }
    let selector = json!({"matchLabels": {"app": "web"}});
    let budget = json!({"metadata": {"name": "b"}, "spec": {"minAvailable": 2, "selector": selector}});
    create::<PodDisruptionBudget>(&client, budget).await?;
    let spares = |pods: i32, healthy: i32| {
        move |budget: &PodDisruptionBudget| {
            let status = budget.status.clone().unwrap_or_default();
            (status.disruptions_allowed, status.current_healthy) == (Some(pods), Some(healthy))
        }
    };
    until(&client, "b", spares(0, 2)).await?;

    let pods = Api::<Pod>::default_namespaced(client.clone());
    let (code, message) = refusal(pods.evict("a", &EvictParams::default()).await)?;
    assert_eq!(
        (code, message.as_str()),
        (429, "Cannot evict pod as it would violate the pod's disruption budget.")
    );

    let budgets = Api::<PodDisruptionBudget>::default_namespaced(client.clone());
    let fewer = Patch::Merge(json!({"spec": {"minAvailable": 1}}));
    budgets.patch("b", &PatchParams::default(), &fewer).await?;
    until(&client, "b", spares(1, 2)).await?;
    pods.evict("a", &EvictParams::default()).await?;
    until(&client, "b", spares(0, 1)).await?;
    assert_eq!(refusal(pods.evict("b", &EvictParams::default()).await)?.0, 429);
    create::<Pod>(&client, pod("c")).await?;
    let ready = json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]});
    set_status(&client, "c", ready).await?;
    until(&client, "b", spares(1, 2)).await?;
    pods.evict("b", &EvictParams::default()).await?;
    Ok(())
}
