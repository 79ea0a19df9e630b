//! Jobs on simulated nodes: upstream's end-to-end behaviors (`[sig-apps] Job`). Restarts are in
//! `jobs.rs`.

use anyhow::{Context, Result, ensure};
use coracle_e2e::json_client::{JsonClient, condition, condition_reason, items};
use coracle_e2e::workloads::{batch, controller, job, name, pods, uid};
use coracle_e2e::{Cluster, cluster};
use serde_json::{Value, json};

const DEFAULT: &str = "default";

async fn start() -> Result<(Cluster, JsonClient)> {
    let cluster = cluster().start().await?;
    let client = JsonClient::new(&cluster.endpoint().await?).await?;
    Ok((cluster, client))
}

fn jobs() -> String {
    batch(DEFAULT, "jobs")
}

fn path(name: &str) -> String {
    format!("{}/{name}", jobs())
}

fn with(mut job: Value, spec: Value) -> Value {
    for (key, value) in spec.as_object().into_iter().flatten() {
        job["spec"][key] = value.clone();
    }
    job
}

fn succeeds() -> Value {
    json!({"sim.coracle.dev/exit-after": "0s"})
}

fn fails(code: &str) -> Value {
    json!({"sim.coracle.dev/exit-after": "0s", "sim.coracle.dev/exit-code": code})
}

fn is(r#type: &'static str) -> impl Fn(&Value) -> bool {
    move |job| condition(job, r#type) == Some("True")
}

/// Covers, in this order, upstream's "should run a job to completion when tasks succeed", "should
/// allow to use the pod failure policy on exit code to fail job early", "... to not count the
/// failure towards the backoffLimit" (here: ignored until the deadline), "should fail when exceeds
/// active deadline", "should fail to exceed backoffLimit", "should execute all indexes despite some
/// failing when using backoffLimitPerIndex", "should terminate job execution when the number of
/// failed indexes exceeds maxFailedIndexes", "should mark indexes as failed when the FailIndex
/// action is matched in podFailurePolicy", "with successPolicy should succeeded when all indexes
/// succeeded", "... succeededIndexes rule", "... succeededCount rule".
#[tokio::test]
async fn jobs_end_as_their_policies_say() -> Result<()> {
    let (_cluster, mut client) = start().await?;
    let rule = |action: &str| json!({"rules": [{"action": action, "onExitCodes": {"operator": "In", "values": [3]}}]});
    let some_fail = json!({"sim.coracle.dev/exit-after": "0s", "sim.coracle.dev/fail-indexes": "1"});
    let code_3 = json!({
        "sim.coracle.dev/exit-after": "0s", "sim.coracle.dev/fail-indexes": "1", "sim.coracle.dev/exit-code": "3",
    });
    let indexed = |more: Value| {
        let mut spec = json!({"completionMode": "Indexed", "completions": 4, "parallelism": 4});
        for (key, value) in more.as_object().into_iter().flatten() {
            spec[key] = value.clone();
        }
        spec
    };
    let cases = [
        (
            "succeeds",
            succeeds(),
            json!({"completions": 4, "parallelism": 2}),
            "Complete",
            "CompletionsReached",
        ),
        ("early", fails("3"), json!({"podFailurePolicy": rule("FailJob")}), "Failed", "PodFailurePolicy"),
        (
            "ignored",
            fails("3"),
            json!({"backoffLimit": 0, "podFailurePolicy": rule("Ignore"), "activeDeadlineSeconds": 2}),
            "Failed",
            "DeadlineExceeded",
        ),
        ("late", json!({}), json!({"activeDeadlineSeconds": 1}), "Failed", "DeadlineExceeded"),
        ("limited", fails("1"), json!({"backoffLimit": 0}), "Failed", "BackoffLimitExceeded"),
        (
            "indexes",
            some_fail.clone(),
            indexed(json!({"backoffLimitPerIndex": 0})),
            "Failed",
            "FailedIndexes",
        ),
        (
            "most",
            fails("1"),
            indexed(json!({"backoffLimitPerIndex": 0, "maxFailedIndexes": 1})),
            "Failed",
            "MaxFailedIndexesExceeded",
        ),
        (
            "fail-index",
            code_3,
            indexed(json!({"backoffLimitPerIndex": 5, "podFailurePolicy": rule("FailIndex")})),
            "Failed",
            "FailedIndexes",
        ),
        (
            "all",
            succeeds(),
            indexed(json!({"successPolicy": {"rules": [{"succeededCount": 4}]}})),
            "Complete",
            "",
        ),
        (
            "leader",
            some_fail.clone(),
            indexed(json!({"successPolicy": {"rules": [{"succeededIndexes": "0"}]}})),
            "Complete",
            "SuccessPolicy",
        ),
        (
            "enough",
            some_fail,
            indexed(json!({"successPolicy": {"rules": [{"succeededCount": 2}]}})),
            "Complete",
            "SuccessPolicy",
        ),
    ];
    for (name, annotations, spec, ..) in &cases {
        let mut created = with(job(name, annotations.clone()), spec.clone());
        created["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] = json!(0);
        client.create(&jobs(), created).await.with_context(|| (*name).to_owned())?;
    }
    for (name, .., r#type, reason) in cases {
        let done = client.until(&path(name), is(r#type)).await.with_context(|| name.to_owned())?;
        let found = condition_reason(&done, r#type).unwrap_or_default();
        ensure!(reason.is_empty() || found == reason, "{name}: {found}");
        if ["indexes", "fail-index"].contains(&name) {
            let status = &done["status"];
            ensure!(
                status["failedIndexes"] == "1" && status["completedIndexes"] == "0,2,3",
                "{name}: {status}"
            );
        }
    }
    Ok(())
}

/// Covers upstream's "should not create pods when created in suspend state", "should delete pods
/// when suspended", "should update the status ready field", "should remove pods when job is
/// deleted".
#[tokio::test]
async fn a_suspended_job_has_no_pods() -> Result<()> {
    let (_cluster, mut client) = start().await?;
    let suspended = with(job("web", json!({})), json!({"suspend": true, "parallelism": 2, "completions": 2}));
    client.create(&jobs(), suspended).await?;
    client.until(&path("web"), is("Suspended")).await?;
    assert_eq!(client.list(&pods(DEFAULT)).await?.len(), 0);
    client.patch(&path("web"), json!({"spec": {"suspend": false}})).await?;
    client.until(&path("web"), |job| job["status"]["ready"] == 2).await?;
    client.patch(&path("web"), json!({"spec": {"suspend": true}})).await?;
    client.until(&path("web"), is("Suspended")).await?;
    client.until_items(&pods(DEFAULT), 0).await?;
    client.patch(&path("web"), json!({"spec": {"suspend": false}})).await?;
    client.until_items(&pods(DEFAULT), 2).await?;
    client.delete(&format!("{}?propagationPolicy=Background", path("web"))).await?;
    client.until_items(&pods(DEFAULT), 0).await.map(drop)
}

/// Covers upstream's "should create pods for an Indexed job with completion indexes and specified
/// hostname".
#[tokio::test]
async fn pods_of_an_indexed_job_have_their_index_and_host_name() -> Result<()> {
    let (_cluster, mut client) = start().await?;
    let spec = json!({"completionMode": "Indexed", "completions": 3, "parallelism": 3});
    client.create(&jobs(), with(job("web", succeeds()), spec)).await?;
    let done = client.until(&path("web"), is("Complete")).await?;
    assert_eq!(done["status"]["completedIndexes"], "0-2");
    let mut found: Vec<_> = client.list(&pods(DEFAULT)).await?;
    found.sort_by_key(|pod| pod["spec"]["hostname"].to_string());
    for (index, pod) in found.iter().enumerate() {
        let label = &pod["metadata"]["labels"]["batch.kubernetes.io/job-completion-index"];
        assert_eq!(
            (label, &pod["spec"]["hostname"]),
            (&json!(index.to_string()), &json!(format!("web-{index}")))
        );
    }
    Ok(())
}

/// Covers upstream's "should adopt matching orphans and release non-matching pods".
#[tokio::test]
async fn orphans_are_adopted_and_others_released() -> Result<()> {
    let (_cluster, mut client) = start().await?;
    let spec = json!({"parallelism": 2, "completions": 2});
    let created = client.create(&jobs(), with(job("web", json!({})), spec)).await?;
    client.until(&path("web"), |job| job["status"]["ready"] == 2).await?;
    let pod = client.list(&pods(DEFAULT)).await?.pop().context("no pod")?;
    let one = format!("{}/{}", pods(DEFAULT), name(&pod));
    client.patch(&one, json!({"metadata": {"ownerReferences": null}})).await?;
    client.until(&one, |pod| controller(pod) == Some(uid(&created))).await?;
    client
        .patch(&one, json!({"metadata": {"labels": {"batch.kubernetes.io/controller-uid": "none"}}}))
        .await?;
    client.until(&one, |pod| controller(pod).is_none()).await?;
    client.until_items(&pods(DEFAULT), 3).await?;
    client.until(&path("web"), |job| job["status"]["ready"] == 2).await.map(drop)
}

/// Covers upstream's "should recreate pods only after they have failed if pod replacement policy is
/// set to Failed".
#[tokio::test]
async fn a_terminating_pod_is_replaced_when_it_has_failed() -> Result<()> {
    let (_cluster, mut client) = start().await?;
    // It does not stop in time, and fails; one that stops in time succeeds.
    let slow = json!({"sim.coracle.dev/terminate-after": "60s"});
    let mut created = with(job("web", slow), json!({"podReplacementPolicy": "Failed"}));
    created["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] = json!(5);
    client.create(&jobs(), created).await?;
    client.until(&path("web"), |job| job["status"]["ready"] == 1).await?;
    let first = client.list(&pods(DEFAULT)).await?.pop().context("no pod")?;
    client.delete(&format!("{}/{}", pods(DEFAULT), name(&first))).await?;
    let terminating = client.until(&path("web"), |job| job["status"]["terminating"] == 1).await?;
    assert!(terminating["status"]["active"].is_null(), "{terminating}");
    assert_eq!(client.list(&pods(DEFAULT)).await?.len(), 1);
    let first = uid(&first).to_owned();
    let is_replaced = |list: &Value| items(list).is_some_and(|pods| pods.iter().any(|pod| uid(pod) != first));
    client.until(&pods(DEFAULT), is_replaced).await.map(drop)
}
