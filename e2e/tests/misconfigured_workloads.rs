//! Workloads that conflict with each other or request the impossible: they report it in conditions
//! and events, cost nothing while nothing changes, and continue when the cause is removed.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use coracle_e2e::json_client::{JsonClient, condition, condition_reason};
use coracle_e2e::workloads::{
    apps, batch, controller, cron_job, daemon_set, image, is_complete, is_rolled_out, job, name, pods,
    replicated, template, uid,
};
use coracle_e2e::{Cluster, cluster};
use serde_json::{Value, json};

const DEFAULT: &str = "default";
/// The period at rest in which no request may be sent.
const REST: Duration = Duration::from_secs(3);
const WORKLOADS: [&str; 8] = [
    "deployments",
    "replicasets",
    "replicationcontrollers",
    "daemonsets",
    "jobs",
    "cronjobs",
    "pods",
    "events",
];

async fn start() -> Result<(Cluster, JsonClient)> {
    let cluster = cluster().with_service_account().start().await?;
    let client = JsonClient::new(&cluster.endpoint().await?).await?;
    Ok((cluster, client))
}

fn labelled(mut object: Value, app: &str) -> Value {
    let labels = json!({"app": app});
    object["spec"]["selector"] = json!({"matchLabels": labels});
    object["spec"]["template"]["metadata"]["labels"] = labels;
    object
}

fn count_of(pods: &[Value], owner: &Value) -> usize {
    pods.iter().filter(|pod| controller(pod) == Some(uid(owner))).count()
}

async fn until_events(client: &mut JsonClient, reason: &str) -> Result<Vec<Value>> {
    let events = format!("/api/v1/namespaces/{DEFAULT}/events?fieldSelector=reason%3D{reason}");
    let list = client
        .until(&events, |list| list["items"].as_array().is_some_and(|events| !events.is_empty()))
        .await?;
    Ok(list["items"].as_array().cloned().unwrap_or_default())
}

/// Checks that pods that their kubelet rejects, since they were bound without the scheduler, are
/// replaced at a bounded rate, and that the control plane comes to rest in between.
#[tokio::test]
async fn rejected_pods_are_replaced_twenty_times_a_second() -> Result<()> {
    let cluster = cluster().flag("--clock", "manual").with_service_account().start().await?;
    let mut client = JsonClient::new(&cluster.endpoint().await?).await?;
    let mut object = replicated("web", 3);
    object["spec"]["template"]["spec"]["nodeName"] = json!("node-0");
    object["spec"]["template"]["spec"]["nodeSelector"] = json!({"no": "such"});
    client.create(&apps(DEFAULT, "replicasets"), object).await?;
    for seconds in 0..3 {
        cluster.settle().await?;
        let rejected = client.list(&pods(DEFAULT)).await?;
        let is_rejected = |pod: &Value| pod["status"]["reason"] == "NodeAffinity";
        ensure!(rejected.iter().all(is_rejected), "{rejected:?}");
        // Some of the last ones may be created before the others are rejected.
        let (least, most) = (20 + seconds * 20, 23 + seconds * 23);
        ensure!((least..=most).contains(&rejected.len()), "{} after {seconds} s", rejected.len());
        cluster.advance("1s").await?;
    }
    Ok(())
}

/// Checks that pods with a controller are not adopted by another one, and that a pod without one
/// gets exactly one.
#[tokio::test]
async fn controllers_with_one_selector_keep_to_their_own_pods() -> Result<()> {
    let (_cluster, mut client) = start().await?;
    let mut owners = Vec::new();
    for (resource, object) in [
        ("replicasets", replicated("one", 2)),
        ("replicasets", replicated("two", 2)),
        ("daemonsets", daemon_set("three")),
        ("daemonsets", daemon_set("four")),
        ("deployments", replicated("five", 2)),
        ("deployments", replicated("six", 2)),
    ] {
        owners.push(client.create(&apps(DEFAULT, resource), labelled(object, "shared")).await?);
    }
    let mut manual = labelled(job("seven", json!({})), "shared");
    manual["spec"]["manualSelector"] = json!(true);
    owners.push(client.create(&batch(DEFAULT, "jobs"), manual).await?);
    client.until_items(&pods(DEFAULT), 11).await?;
    for deployment in ["five", "six"] {
        client.until(&format!("{}/{deployment}", apps(DEFAULT, "deployments")), is_complete).await?;
    }
    let settled = client.list(&pods(DEFAULT)).await?;
    let counts: Vec<_> = owners.iter().map(|owner| count_of(&settled, owner)).collect();
    assert_eq!(counts, [2, 2, 1, 1, 0, 0, 1], "the Deployments' pods belong to ReplicaSets");
    client.until_at_rest(&WORKLOADS, REST).await?;

    // One of them adopts it, and then has one too many.
    let mut orphan = template("shared", json!({}));
    orphan["metadata"]["name"] = json!("orphan");
    orphan["spec"]["automountServiceAccountToken"] = json!(false);
    client.create(&pods(DEFAULT), orphan).await?;
    client
        .until(&pods(DEFAULT), |list| {
            let items = list["items"].as_array().into_iter().flatten();
            let alive: Vec<_> = items.filter(|pod| pod["metadata"]["deletionTimestamp"].is_null()).collect();
            alive.len() == 11 && alive.iter().all(|pod| controller(pod).is_some())
        })
        .await?;
    client.until_at_rest(&WORKLOADS, REST).await
}

/// Creates a Deployment that selects the pods of another one by a wider selector.
#[tokio::test]
async fn a_selector_that_matches_pods_of_others_takes_none_of_them() -> Result<()> {
    let (_cluster, mut client) = start().await?;
    let sets = apps(DEFAULT, "replicasets");
    let mut narrow = replicated("narrow", 3);
    let labels = json!({"app": "shared", "tier": "web"});
    narrow["spec"]["selector"] = json!({"matchLabels": labels});
    narrow["spec"]["template"]["metadata"]["labels"] = labels;
    let narrow = client.create(&sets, narrow).await?;
    client.until(&format!("{sets}/narrow"), |set| set["status"]["availableReplicas"] == 3).await?;
    let wide = client.create(&sets, labelled(replicated("wide", 2), "shared")).await?;
    client.until(&format!("{sets}/wide"), |set| set["status"]["availableReplicas"] == 2).await?;
    client.patch(&format!("{sets}/wide"), json!({"spec": {"replicas": 1}})).await?;
    let left = client.until_items(&pods(DEFAULT), 4).await?;
    assert_eq!((count_of(&left, &narrow), count_of(&left, &wide)), (3, 1));
    // The remaining pods of a deleted owner are adopted by the other one, as far as it needs them.
    client.delete(&format!("{sets}/narrow?propagationPolicy=Orphan")).await?;
    let left = client.until_items(&pods(DEFAULT), 1).await?;
    assert_eq!(count_of(&left, &wide), 1);
    client.until_at_rest(&WORKLOADS, REST).await
}

#[tokio::test]
async fn a_job_of_a_million_completions_makes_progress_and_is_deleted() -> Result<()> {
    let (_cluster, mut client) = start().await?;
    let jobs = batch(DEFAULT, "jobs");
    let done = json!({"sim.coracle.dev/exit-after": "0s"});
    for (name, mode, annotations) in [
        ("plain", "NonIndexed", done.clone()),
        ("indexed", "Indexed", done),
        ("waiting", "Indexed", json!({})),
    ] {
        let mut large = job(name, annotations);
        large["spec"]["completions"] = json!(1_000_000);
        large["spec"]["parallelism"] = json!(5);
        large["spec"]["completionMode"] = json!(mode);
        client.create(&jobs, large).await?;
    }
    for name in ["plain", "indexed"] {
        let path = format!("{jobs}/{name}");
        client.until(&path, |job| job["status"]["succeeded"].as_u64() >= Some(20)).await?;
        client.patch(&path, json!({"spec": {"suspend": true}})).await?;
        client.until(&path, |job| condition(job, "Suspended") == Some("True")).await?;
    }
    client.until(&format!("{jobs}/waiting"), |job| job["status"]["ready"] == 5).await?;
    client.until_at_rest(&WORKLOADS, REST).await?;
    for name in ["plain", "indexed", "waiting"] {
        client.delete(&format!("{jobs}/{name}?propagationPolicy=Foreground")).await?;
    }
    client.until_items(&jobs, 0).await?;
    client.until_items(&pods(DEFAULT), 0).await.map(drop)
}

#[tokio::test]
async fn a_cron_job_whose_schedule_never_fires_waits_for_another_one() -> Result<()> {
    let (_cluster, mut client) = start().await?;
    let cron_jobs = batch(DEFAULT, "cronjobs");
    client.create(&cron_jobs, cron_job("never", "0 0 30 2 *", json!({}))).await?;
    until_events(&mut client, "InvalidSchedule").await?;
    client.until_at_rest(&WORKLOADS, REST).await?;
    let never = client.get(&format!("{cron_jobs}/never")).await?;
    assert_eq!(never["status"], json!({}));
    client.patch(&format!("{cron_jobs}/never"), json!({"spec": {"schedule": "@every 1s"}})).await?;
    let jobs = batch(DEFAULT, "jobs");
    client.until(&jobs, |list| list["items"].as_array().is_some_and(|jobs| !jobs.is_empty())).await.map(drop)
}

#[tokio::test]
async fn an_autoscaler_of_nothing_finds_its_target_when_it_is_created() -> Result<()> {
    let (_cluster, mut client) = start().await?;
    let autoscalers = format!("/apis/autoscaling/v2/namespaces/{DEFAULT}/horizontalpodautoscalers");
    let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"});
    let spec = json!({"scaleTargetRef": target, "minReplicas": 2, "maxReplicas": 3});
    client.create(&autoscalers, json!({"metadata": {"name": "web"}, "spec": spec})).await?;
    let web = format!("{autoscalers}/web");
    let lost = client.until(&web, |web| condition(web, "AbleToScale") == Some("False")).await?;
    assert_eq!(condition_reason(&lost, "AbleToScale"), Some("FailedGetScale"));
    until_events(&mut client, "FailedGetScale").await?;
    client.until_at_rest(&["horizontalpodautoscalers"], REST).await?;
    client.create(&apps(DEFAULT, "deployments"), replicated("web", 1)).await?;
    // The minimum needs no metrics.
    let found = client.until(&web, |web| condition(web, "AbleToScale") == Some("True")).await?;
    assert_eq!(condition_reason(&found, "AbleToScale"), Some("SucceededRescale"));
    client
        .until(&format!("{}/web", apps(DEFAULT, "deployments")), |web| {
            web["spec"]["replicas"] == 2 && is_complete(web)
        })
        .await
        .map(drop)
}

/// Covers upstream's "should surface a failure condition on a common issue like exceeded quota".
#[tokio::test]
async fn a_rollout_that_a_quota_stops_continues_when_the_quota_is_lifted() -> Result<()> {
    let (_cluster, mut client) = start().await?;
    let deployments = apps(DEFAULT, "deployments");
    let web = format!("{deployments}/web");
    let mut created = replicated("web", 4);
    created["spec"]["strategy"] =
        json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 2, "maxUnavailable": 0}});
    client.create(&deployments, created).await?;
    client.until(&web, is_complete).await?;
    let quotas = format!("/api/v1/namespaces/{DEFAULT}/resourcequotas");
    client.create(&quotas, json!({"metadata": {"name": "few"}, "spec": {"hard": {"pods": "4"}}})).await?;
    client.until(&format!("{quotas}/few"), |quota| quota["status"]["used"]["pods"] == "4").await?;

    client.patch(&web, image("registry.example/app:2")).await?;
    let stopped = client.until(&web, |web| condition(web, "ReplicaFailure") == Some("True")).await?;
    assert_eq!(condition_reason(&stopped, "ReplicaFailure"), Some("FailedCreate"));
    assert_eq!(condition(&stopped, "Available"), Some("True"));
    let events = until_events(&mut client, "FailedCreate").await?;
    let is_of_quota = |event: &Value| {
        event["message"].as_str().is_some_and(|message| message.contains("exceeded quota: few"))
    };
    ensure!(events.iter().all(is_of_quota), "{events:?}");
    // A failed request is repeated with a growing delay.
    let before = client.requests_of(&["pods"], &["POST"]).await?;
    tokio::time::sleep(REST).await;
    let sent = client.requests_of(&["pods"], &["POST"]).await? - before;
    ensure!(sent < 20, "{sent} pods tried in {REST:?}");

    client.patch(&format!("{quotas}/few"), json!({"spec": {"hard": {"pods": "6"}}})).await?;
    let complete = client.until(&web, is_complete).await?;
    assert_eq!(condition(&complete, "ReplicaFailure"), None);
    let pods = client.until_items(&pods(DEFAULT), 4).await?;
    assert!(pods.iter().all(|pod| pod["spec"]["containers"][0]["image"] == "registry.example/app:2"));
    client.until_at_rest(&WORKLOADS, REST).await
}

/// Covers a DaemonSet and a Job with pods that exceed the quota.
#[tokio::test]
async fn what_a_quota_forbids_is_created_when_it_is_lifted() -> Result<()> {
    let (_cluster, mut client) = start().await?;
    let quotas = format!("/api/v1/namespaces/{DEFAULT}/resourcequotas");
    client.create(&quotas, json!({"metadata": {"name": "none"}, "spec": {"hard": {"pods": "0"}}})).await?;
    client.until(&format!("{quotas}/none"), |quota| quota["status"]["used"]["pods"] == "0").await?;
    let (sets, jobs) = (apps(DEFAULT, "daemonsets"), batch(DEFAULT, "jobs"));
    client.create(&sets, daemon_set("agent")).await?;
    client.create(&jobs, job("report", json!({"sim.coracle.dev/exit-after": "0s"}))).await?;
    client
        .until(&format!("/api/v1/namespaces/{DEFAULT}/events?fieldSelector=reason%3DFailedCreate"), |list| {
            let events = list["items"].as_array().into_iter().flatten();
            let mut kinds: Vec<_> = events.map(|event| event["involvedObject"]["kind"].as_str()).collect();
            kinds.sort_unstable();
            kinds.dedup();
            kinds == [Some("DaemonSet"), Some("Job")]
        })
        .await
        .context("no events")?;
    client.delete(&format!("{quotas}/none")).await?;
    client.until(&format!("{sets}/agent"), is_rolled_out).await?;
    let is_complete = |job: &Value| condition(job, "Complete") == Some("True");
    let report = client.until(&format!("{jobs}/report"), is_complete).await?;
    assert_eq!((name(&report), &report["status"]["succeeded"]), ("report", &json!(1)));
    client.until_at_rest(&WORKLOADS, REST).await
}
