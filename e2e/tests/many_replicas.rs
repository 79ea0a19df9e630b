//! Owners that want far more pods than there can be: the server creates as many as it may, survives
//! restarts with them, and deletes them.

use anyhow::{Result, ensure};
use coracle_e2e::cluster::Termination;
use coracle_e2e::json_client::{JsonClient, items};
use coracle_e2e::wait::until;
use coracle_e2e::workloads::{apps, pods, template};
use coracle_e2e::{Cluster, cluster};
use serde_json::{Value, json};

const DEFAULT: &str = "default";
const JOBS: &str = "/apis/batch/v1/namespaces/default/jobs";
const MAX_PODS: u64 = 400;
const REFUSAL: &str = "exceeded the limit of 400 pods in all namespaces (--max-pods)";

/// Returns the owners: the collection, the name, and the spec. Each wants billions of pods, or
/// millions.
fn owners() -> Vec<(String, &'static str, Value)> {
    let selector = |app: &str| json!({"matchLabels": {"app": app}});
    let job = |app: &str, mode: &str| {
        let mut template = template(app, json!({"sim.coracle.dev/exit-after": "never"}));
        template["spec"]["restartPolicy"] = json!("Never");
        let parallelism = if mode == "Indexed" { 100_000 } else { i32::MAX };
        json!({"completionMode": mode, "completions": i32::MAX, "parallelism": parallelism, "template": template})
    };
    let set = |app: &str, policy: &str| {
        json!({
            "replicas": 4_000_000, "podManagementPolicy": policy, "selector": selector(app), "serviceName": app,
            "ordinals": {"start": 2_000_000_000}, "template": template(app, json!({})),
            "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": {
                "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Ei"}},
            }}],
        })
    };
    let replicated = |app: &str| json!({"replicas": 2_000_000_000, "selector": selector(app), "template": template(app, json!({}))});
    vec![
        (apps(DEFAULT, "deployments"), "deployment", replicated("deployment")),
        (apps(DEFAULT, "replicasets"), "set", replicated("set")),
        (apps(DEFAULT, "statefulsets"), "ordered", set("ordered", "OrderedReady")),
        (apps(DEFAULT, "statefulsets"), "parallel", set("parallel", "Parallel")),
        (JOBS.to_owned(), "plain", job("plain", "NonIndexed")),
        (JOBS.to_owned(), "indexed", job("indexed", "Indexed")),
    ]
}

async fn connect(cluster: &Cluster) -> Result<JsonClient> {
    JsonClient::new(&cluster.endpoint().await?).await
}

/// Returns the number of pods in the cluster.
async fn count(client: &mut JsonClient) -> Result<u64> {
    let page = client.get("/api/v1/pods?limit=1").await?;
    let listed = items(&page).map_or(0, |items| items.len() as u64);
    Ok(listed + page["metadata"]["remainingItemCount"].as_u64().unwrap_or(0))
}

/// Waits until an owner of a name has an event with this reason and text.
async fn wait_for_event(client: &mut JsonClient, owner: &str, reason: &str, text: &str) -> Result<()> {
    let path = format!(
        "/api/v1/namespaces/{DEFAULT}/events?fieldSelector=involvedObject.name={owner},reason={reason}"
    );
    let says = |event: &Value| event["message"].as_str().is_some_and(|message| message.contains(text));
    client.until(&path, |list| items(list).is_some_and(|events| events.iter().any(says))).await?;
    Ok(())
}

#[tokio::test]
async fn owners_of_billions_of_pods_survive_restarts_and_are_deleted() -> Result<()> {
    let directory = tempfile::TempDir::new()?;
    let start = || {
        let data = directory.path();
        cluster().data_dir(data).flag("--max-pods", MAX_PODS.to_string()).with_service_account().start()
    };
    let mut running = start().await?;
    let mut client = connect(&running).await?;
    for (collection, name, spec) in owners() {
        client.create(&collection, json!({"metadata": {"name": name}, "spec": spec})).await?;
    }
    until("as many pods as allowed", async || count(&mut client).await, |count| *count >= MAX_PODS).await?;
    wait_for_event(&mut client, "set", "FailedCreate", REFUSAL).await?;
    for how in [Termination::Crash, Termination::Stop] {
        how.apply(running).await?;
        running = start().await?;
        client = connect(&running).await?;
        client.until_ready().await?;
        // The controllers have reconciled what they found when they create a pod in place of
        // another.
        let first = client.list(&format!("{}?limit=1", pods(DEFAULT))).await?;
        let name = first[0]["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        client.delete(&format!("{}/{name}?gracePeriodSeconds=0", pods(DEFAULT))).await?;
        until("a pod in its place", async || count(&mut client).await, |count| *count >= MAX_PODS).await?;
    }
    for (collection, name, _) in owners() {
        client.delete(&format!("{collection}/{name}?propagationPolicy=Background")).await?;
    }
    until("no pods", async || count(&mut client).await, |count| *count == 0).await?;
    ensure!(running.stop().await?.success(), "no clean stop");
    Ok(())
}

#[tokio::test]
async fn creations_beyond_the_limit_are_forbidden() -> Result<()> {
    let cluster = cluster().flag("--max-pods", "2").with_service_account().start().await?;
    let mut client = connect(&cluster).await?;
    let pod = |name: &str| {
        let mut pod = template("web", json!({}));
        pod["metadata"]["name"] = json!(name);
        pod
    };
    let dry = format!("{}?dryRun=All", pods(DEFAULT));
    for name in ["a", "b"] {
        client.create(&dry, pod(name)).await?;
        client.create(&pods(DEFAULT), pod(name)).await?;
    }
    for path in [pods(DEFAULT), dry] {
        let (code, status) = client.send("POST", &path, Some(pod("c"))).await?;
        let message = "pods \"c\" is forbidden: exceeded the limit of 2 pods in all namespaces (--max-pods)";
        assert_eq!(
            (code, &status["reason"], &status["message"]),
            (403, &json!("Forbidden"), &json!(message))
        );
    }
    // A deletion makes room, and others are not limited.
    client.create("/api/v1/namespaces/default/configmaps", json!({"metadata": {"name": "c"}})).await?;
    client.delete(&format!("{}/a?gracePeriodSeconds=0", pods(DEFAULT))).await?;
    client.create(&pods(DEFAULT), pod("c")).await?;
    Ok(())
}
