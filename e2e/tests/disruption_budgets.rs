//! PodDisruptionBudgets: upstream's end-to-end behaviors (`[sig-apps] DisruptionController`).

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use coracle_e2e::json_client::{JsonClient, condition_reason};
use coracle_e2e::workloads::{apps, is_ready, name, pods, replicated, template};
use coracle_e2e::{Cluster, cluster};
use serde_json::{Value, json};

/// The status code of an eviction that a budget forbids.
const TOO_MANY_REQUESTS: u16 = 429;

async fn start() -> Result<(Cluster, JsonClient)> {
    let cluster = cluster().start().await?;
    let client = JsonClient::new(&cluster.endpoint().await?).await?;
    Ok((cluster, client))
}

fn budgets(namespace: &str) -> String {
    format!("/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets")
}

fn budget(name: &str, spec: Value) -> Value {
    let mut budget = json!({"metadata": {"name": name, "labels": {"set": "test"}}, "spec": spec});
    budget["spec"]["selector"] = json!({"matchLabels": {"app": "web"}});
    budget
}

async fn create_pods(client: &mut JsonClient, namespace: &str, count: usize) -> Result<()> {
    for i in 0..count {
        let mut pod = template("web", json!({}));
        pod["metadata"]["name"] = json!(format!("web-{i}"));
        client.create(&pods(namespace), pod).await?;
    }
    until_ready(client, namespace, count).await
}

/// Waits until a number of pods are ready.
async fn until_ready(client: &mut JsonClient, namespace: &str, count: usize) -> Result<()> {
    let are_ready = |list: &Value| {
        let pods = list["items"].as_array().into_iter().flatten();
        pods.filter(|pod| is_ready(pod)).count() == count
    };
    client.until(&pods(namespace), are_ready).await.map(drop)
}

/// Evicts a pod, and returns the status code.
async fn evict(client: &mut JsonClient, namespace: &str, pod: &str) -> Result<u16> {
    let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod}});
    let path = format!("{}/{pod}/eviction", pods(namespace));
    Ok(client.send("POST", &path, Some(eviction)).await?.0)
}

async fn any_ready_pod(client: &mut JsonClient, namespace: &str) -> Result<String> {
    let pods = client.list(&pods(namespace)).await?;
    Ok(name(pods.iter().find(|pod| is_ready(pod)).context("no pod is ready")?).to_owned())
}

/// Covers upstream's "evictions: no PDB => should allow an eviction", "too few pods, absolute =>
/// should not allow an eviction", "enough pods, absolute => should allow an eviction", "enough
/// pods, replicaSet, percentage => should allow an eviction", "too few pods, replicaSet, percentage
/// => should not allow an eviction", "maxUnavailable allow single eviction, percentage => should
/// allow an eviction", "maxUnavailable deny evictions, integer => should not allow an eviction".
#[tokio::test]
async fn evictions_are_allowed_as_the_budget_says() -> Result<()> {
    const ALLOWED: u16 = 201;
    let (_cluster, mut client) = start().await?;
    // The number of pods, or of replicas of a set; all of them, or only one, can be ready.
    for (case, count, is_set, is_exclusive, spec, want) in [
        ("no budget", 1, false, false, json!(null), ALLOWED),
        ("too few pods", 2, false, false, json!({"minAvailable": 2}), TOO_MANY_REQUESTS),
        ("enough pods", 3, false, false, json!({"minAvailable": 2}), ALLOWED),
        ("enough of a set", 10, true, false, json!({"minAvailable": "90%"}), ALLOWED),
        ("too few of a set", 10, true, true, json!({"minAvailable": "90%"}), TOO_MANY_REQUESTS),
        ("one may be missing", 10, true, false, json!({"maxUnavailable": "10%"}), ALLOWED),
        ("too many are missing", 10, true, true, json!({"maxUnavailable": 1}), TOO_MANY_REQUESTS),
    ] {
        let namespace = client.namespace().await?;
        if is_set {
            let mut set = replicated("web", count);
            if is_exclusive {
                set["spec"]["template"]["spec"]["containers"][0]["ports"] =
                    json!([{"containerPort": 5555, "hostPort": 5555}]);
            }
            client.create(&apps(&namespace, "replicasets"), set).await?;
            until_ready(&mut client, &namespace, if is_exclusive { 1 } else { count }).await.context(case)?;
        } else {
            create_pods(&mut client, &namespace, count).await.context(case)?;
        }
        if !spec.is_null() {
            client.create(&budgets(&namespace), budget("web", spec)).await?;
            let expected = if is_exclusive { 1 } else { count };
            let is_counted = |budget: &Value| budget["status"]["currentHealthy"] == expected;
            client.until(&format!("{}/web", budgets(&namespace)), is_counted).await.context(case)?;
        }
        let pod = any_ready_pod(&mut client, &namespace).await?;
        assert_eq!(evict(&mut client, &namespace, &pod).await?, want, "{case}");
        // The host's port is free for the next case.
        client.delete(&format!("{}?propagationPolicy=Background", apps(&namespace, "replicasets"))).await?;
        client.delete(&pods(&namespace)).await?;
        client.until_items(&pods(&namespace), 0).await.context(case)?;
    }
    Ok(())
}

/// Covers upstream's "should create a PodDisruptionBudget", "should observe PodDisruptionBudget
/// status updated", "should update/patch PodDisruptionBudget status", "should block an eviction
/// until the PDB is updated to allow it", "should list and delete a collection of
/// PodDisruptionBudgets".
#[tokio::test]
async fn a_budget_is_changed_observed_listed_and_deleted() -> Result<()> {
    let (_cluster, mut client) = start().await?;
    let namespace = client.namespace().await?;
    let web = format!("{}/web", budgets(&namespace));
    client.create(&budgets(&namespace), budget("web", json!({"minAvailable": 3}))).await?;
    create_pods(&mut client, &namespace, 3).await?;
    let allows = |count: u32| {
        move |budget: &Value| {
            let status = &budget["status"];
            status["disruptionsAllowed"] == count
                && status["currentHealthy"] == 3
                && status["observedGeneration"] == budget["metadata"]["generation"]
        }
    };
    let blocked = client.until(&web, allows(0)).await?;
    assert_eq!(condition_reason(&blocked, "DisruptionAllowed"), Some("InsufficientPods"));
    assert_eq!(evict(&mut client, &namespace, "web-0").await?, TOO_MANY_REQUESTS);
    client.patch(&web, json!({"spec": {"minAvailable": 2}})).await?;
    let allowed = client.until(&web, allows(1)).await?;
    assert_eq!(condition_reason(&allowed, "DisruptionAllowed"), Some("SufficientPods"));
    assert_eq!(evict(&mut client, &namespace, "web-0").await?, 201);
    // A value written into the status stays until the controller counts again.
    let disrupted = json!({"status": {"disruptedPods": {"web-1": "2999-01-01T00:00:00Z"}}});
    let written = client.patch(&format!("{web}/status"), disrupted).await?;
    assert_eq!(written["status"]["disruptedPods"]["web-1"], "2999-01-01T00:00:00Z");
    client.create(&budgets(&namespace), budget("other", json!({"maxUnavailable": 1}))).await?;
    let all = "/apis/policy/v1/poddisruptionbudgets?labelSelector=set%3Dtest";
    assert_eq!(client.list(all).await?.len(), 2);
    client.delete(&format!("{}?labelSelector=set%3Dtest", budgets(&namespace))).await?;
    client.until_items(all, 0).await.map(drop)
}

/// Covers upstream's "should observe that the PodDisruptionBudget status is not updated for
/// unmanaged pods".
#[tokio::test]
async fn pods_without_a_controller_are_not_expected() -> Result<()> {
    let (_cluster, mut client) = start().await?;
    let namespace = client.namespace().await?;
    client.create(&budgets(&namespace), budget("web", json!({"maxUnavailable": 1}))).await?;
    create_pods(&mut client, &namespace, 3).await?;
    let are_counted = |budget: &Value| budget["status"]["currentHealthy"] == 3;
    let counted = client.until(&format!("{}/web", budgets(&namespace)), are_counted).await?;
    let status = &counted["status"];
    assert_eq!((&status["expectedPods"], &status["disruptionsAllowed"]), (&json!(0), &json!(0)));
    assert_eq!(condition_reason(&counted, "DisruptionAllowed"), Some("InsufficientPods"));
    assert_eq!(evict(&mut client, &namespace, "web-0").await?, TOO_MANY_REQUESTS);
    Ok(())
}

/// Covers upstream's "should evict ready pods with Default UnhealthyPodEvictionPolicy" and "...
/// IfHealthyBudget" and "... AlwaysAllow UnhealthyPodEvictionPolicy", "should not evict unready
/// pods with Default ..." and "... IfHealthyBudget ...", "should evict unready pods with
/// AlwaysAllow ...".
#[tokio::test]
async fn pods_that_are_not_ready_are_evicted_as_the_policy_says() -> Result<()> {
    let (_cluster, mut client) = start().await?;
    for (policy, is_pod_ready, is_evicted) in [
        (None, true, true),
        (Some("IfHealthyBudget"), true, true),
        (Some("AlwaysAllow"), true, true),
        (None, false, false),
        (Some("IfHealthyBudget"), false, false),
        (Some("AlwaysAllow"), false, true),
    ] {
        let namespace = client.namespace().await?;
        let mut set = replicated("web", 3);
        if !is_pod_ready {
            set["spec"]["template"]["metadata"]["annotations"] =
                json!({"sim.coracle.dev/never-ready": "true"});
        }
        client.create(&apps(&namespace, "replicasets"), set).await?;
        let mut created = budget("web", json!({"minAvailable": if is_pod_ready { 2 } else { 1 }}));
        created["spec"]["unhealthyPodEvictionPolicy"] = json!(policy);
        client.create(&budgets(&namespace), created).await?;
        let healthy = if is_pod_ready { 3 } else { 0 };
        client
            .until(&format!("{}/web", budgets(&namespace)), |budget| {
                budget["status"]["expectedPods"] == 3 && budget["status"]["currentHealthy"] == healthy
            })
            .await?;
        let is_running = |list: &Value| {
            let pods = list["items"].as_array().into_iter().flatten();
            pods.filter(|pod| pod["status"]["phase"] == "Running").count() == 3
        };
        let list = client.until(&pods(&namespace), is_running).await?;
        let status = evict(&mut client, &namespace, name(&list["items"][0])).await?;
        ensure!((status == 201) == is_evicted, "{policy:?}, ready: {is_pod_ready}: {status}");
    }
    client.until_at_rest(&["poddisruptionbudgets", "pods", "replicasets"], Duration::from_secs(3)).await
}
