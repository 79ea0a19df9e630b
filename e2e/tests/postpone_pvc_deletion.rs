//! Postponed deletion of a claim in use: the scenarios of the design, each uninterrupted and with
//! restarts of the server, and its parts one by one.
//!
//! If Kubernetes 1.36 differs from the design, the tests expect the behavior of Kubernetes: a pod
//! that has finished keeps its claims until it is deleted.

use anyhow::{Result, ensure};
use coracle_e2e::cluster::Termination;
use coracle_e2e::scenario;
use coracle_e2e::volumes::{
    BoundClaim, CLAIM_PROTECTION, Driver, NODE, Scenario, claim, claim_phase, is_terminating, pod, pod_phase,
    run_scenario, scripted, volume_phase,
};
use coracle_e2e::wait::until;
use futures::TryFutureExt;
use k8s_openapi::api::core::v1::{Namespace, PersistentVolume, PersistentVolumeClaim, Pod};
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams, PropagationPolicy};
use serde_json::json;

scenario! {
    // Use case 1, and the scenarios for data loss.
    a_running_pod_keeps_its_claim_and_data,
    a_static_volume_in_use_is_kept_for_its_pod,
    a_retained_volume_keeps_its_data,
    // The pods that keep a claim: "if all pods referencing the claim are not yet bound to a node or
    // are terminated".
    a_claim_is_kept_until_the_last_of_two_pods_is_deleted,
    all_claims_of_a_pod_are_deleted_after_it,
    a_terminating_pod_keeps_its_claim,
    a_succeeded_pod_keeps_its_claim_until_it_is_deleted,
    a_failed_pod_keeps_its_claim_until_it_is_deleted,
    a_pending_pod_on_a_node_keeps_its_claim,
    an_unscheduled_pod_does_not_keep_its_claim,
    an_unused_claim_is_deleted_immediately,
    // The scheduler and the kubelet.
    the_scheduler_places_no_pod_with_a_terminating_claim,
    the_kubelet_starts_no_pod_with_a_terminating_claim,
    // Ephemeral volumes.
    an_ephemeral_claim_is_kept_for_its_running_pod,
    an_ephemeral_claim_is_deleted_with_its_pod,
    another_pod_keeps_an_ephemeral_claim,
}

scenario! {
    // The server is restarted by the scenario itself.
    by {
        host_path: HostPath, None;
        csi: Csi, None;
        migrated: Migrated, None;
    }
    claims_deleted_while_the_controller_was_down_are_processed_at_start,
}

scenario! {
    // Scenarios that do not depend on the driver.
    by { host_path: HostPath, None; }
    admission_adds_the_finalizer_to_new_claims,
    the_finalizer_is_added_back_to_a_live_claim,
    every_way_to_delete_respects_the_protection,
    claims_are_deleted_with_their_namespace,
    tables_show_that_a_claim_is_terminating,
}

async fn a_running_pod_keeps_its_claim_and_data(scenario: &mut Scenario) -> Result<()> {
    let bound_claim = scenario.create_bound("data", "delete").await?;
    scenario.create_running_pod("user", &["data"]).await?;
    scenario.delete::<PersistentVolumeClaim>("data").await?;
    scenario.assert_postponed(&bound_claim).await?;
    ensure!(pod_phase(&scenario.get::<Pod>("user").await?) == "Running");
    scenario.delete::<Pod>("user").await?;
    scenario.until_bound_claim_deleted(&bound_claim).await?;
    scenario.assert_remaining(&[]).await
}

async fn a_static_volume_in_use_is_kept_for_its_pod(scenario: &mut Scenario) -> Result<()> {
    let bound_claim = scenario.create_bound_static("by-hand", "Delete").await?;
    scenario.create_running_pod("user", &["by-hand"]).await?;
    scenario.delete::<PersistentVolumeClaim>("by-hand").await?;
    scenario.assert_postponed(&bound_claim).await?;
    scenario.delete::<Pod>("user").await?;
    scenario.until_bound_claim_deleted(&bound_claim).await?;
    scenario.assert_remaining(&[]).await
}

async fn a_retained_volume_keeps_its_data(scenario: &mut Scenario) -> Result<()> {
    let bound_claim = scenario.create_bound("data", "retain").await?;
    scenario.create_running_pod("user", &["data"]).await?;
    scenario.delete::<PersistentVolumeClaim>("data").await?;
    scenario.assert_postponed(&bound_claim).await?;
    scenario.delete::<Pod>("user").await?;
    scenario.until_retained(&bound_claim).await?;
    scenario.assert_remaining(&[&bound_claim]).await
}

async fn a_claim_is_kept_until_the_last_of_two_pods_is_deleted(scenario: &mut Scenario) -> Result<()> {
    let bound_claim = scenario.create_bound("data", "delete").await?;
    scenario.create_running_pod("first", &["data"]).await?;
    scenario.create_running_pod("second", &["data"]).await?;
    scenario.delete::<PersistentVolumeClaim>("data").await?;
    scenario.delete::<Pod>("first").await?;
    scenario.until_deleted::<Pod>("first").await?;
    scenario.assert_postponed(&bound_claim).await?;
    scenario.delete::<Pod>("second").await?;
    scenario.until_bound_claim_deleted(&bound_claim).await?;
    scenario.assert_remaining(&[]).await
}

async fn all_claims_of_a_pod_are_deleted_after_it(scenario: &mut Scenario) -> Result<()> {
    let bound_claims =
        [scenario.create_bound("data", "delete").await?, scenario.create_bound("logs", "delete").await?];
    scenario.create_running_pod("user", &["data", "logs"]).await?;
    for bound_claim in &bound_claims {
        scenario.delete::<PersistentVolumeClaim>(&bound_claim.claim).await?;
        scenario.assert_postponed(bound_claim).await?;
    }
    scenario.delete::<Pod>("user").await?;
    for bound_claim in &bound_claims {
        scenario.until_bound_claim_deleted(bound_claim).await?;
    }
    scenario.assert_remaining(&[]).await
}

/// Checks a pod whose containers the kubelet has stopped and whose object a finalizer keeps.
async fn a_terminating_pod_keeps_its_claim(scenario: &mut Scenario) -> Result<()> {
    let bound_claim = scenario.create_bound("data", "delete").await?;
    let mut user = pod("user", &["data"]);
    user["metadata"]["finalizers"] = json!(["scenario.example/hold"]);
    scenario.create::<Pod>(user).await?;
    scenario.until("user", |pod: &Pod| pod_phase(pod) == "Running").await?;
    scenario.delete::<Pod>("user").await?;
    scenario.until("user", |pod: &Pod| is_terminating(pod)).await?;
    scenario.delete::<PersistentVolumeClaim>("data").await?;
    scenario.assert_postponed(&bound_claim).await?;
    scenario.patch::<Pod>("user", json!({"metadata": {"finalizers": null}})).await?;
    scenario.until_bound_claim_deleted(&bound_claim).await?;
    scenario.assert_remaining(&[]).await
}

async fn a_succeeded_pod_keeps_its_claim_until_it_is_deleted(scenario: &mut Scenario) -> Result<()> {
    a_finished_pod_keeps_its_claim(scenario, "0", "Succeeded").await
}

async fn a_failed_pod_keeps_its_claim_until_it_is_deleted(scenario: &mut Scenario) -> Result<()> {
    a_finished_pod_keeps_its_claim(scenario, "1", "Failed").await
}

async fn a_finished_pod_keeps_its_claim(scenario: &mut Scenario, code: &str, phase: &str) -> Result<()> {
    let bound_claim = scenario.create_bound("data", "delete").await?;
    scenario
        .create::<Pod>(scripted("user", &["data"], &[("exit-after", "10ms"), ("exit-code", code)]))
        .await?;
    scenario.until("user", |pod: &Pod| pod_phase(pod) == phase).await?;
    scenario.delete::<PersistentVolumeClaim>("data").await?;
    scenario.assert_postponed(&bound_claim).await?;
    scenario.delete::<Pod>("user").await?;
    scenario.until_bound_claim_deleted(&bound_claim).await?;
    scenario.assert_remaining(&[]).await
}

async fn a_pending_pod_on_a_node_keeps_its_claim(scenario: &mut Scenario) -> Result<()> {
    let bound_claim = scenario.create_bound("data", "delete").await?;
    let mut user = scripted("user", &["data"], &[("ignore", "true")]);
    user["spec"]["nodeName"] = json!(NODE);
    user["spec"]["terminationGracePeriodSeconds"] = json!(0);
    scenario.create::<Pod>(user).await?;
    scenario.delete::<PersistentVolumeClaim>("data").await?;
    scenario.assert_postponed(&bound_claim).await?;
    ensure!(pod_phase(&scenario.get::<Pod>("user").await?) == "Pending");
    scenario.delete::<Pod>("user").await?;
    scenario.until_bound_claim_deleted(&bound_claim).await?;
    scenario.assert_remaining(&[]).await
}

async fn an_unscheduled_pod_does_not_keep_its_claim(scenario: &mut Scenario) -> Result<()> {
    let bound_claim = scenario.create_bound("data", "delete").await?;
    scenario.create::<Pod>(scripted("user", &["data"], &[("ignore", "true")])).await?;
    scenario.delete::<PersistentVolumeClaim>("data").await?;
    scenario.until_bound_claim_deleted(&bound_claim).await?;
    ensure!(pod_phase(&scenario.get::<Pod>("user").await?) == "Pending");
    scenario.delete::<Pod>("user").await?;
    scenario.until_deleted::<Pod>("user").await?;
    scenario.assert_remaining(&[]).await
}

async fn an_unused_claim_is_deleted_immediately(scenario: &mut Scenario) -> Result<()> {
    let bound_claim = scenario.create_bound("data", "delete").await?;
    scenario.delete::<PersistentVolumeClaim>("data").await?;
    scenario.until_bound_claim_deleted(&bound_claim).await?;
    scenario.assert_remaining(&[]).await
}

/// Checks the design's "The scheduler will behave as if the claim was not found."
async fn the_scheduler_places_no_pod_with_a_terminating_claim(scenario: &mut Scenario) -> Result<()> {
    let bound_claim = scenario.create_bound("data", "delete").await?;
    scenario.create_running_pod("user", &["data"]).await?;
    scenario.delete::<PersistentVolumeClaim>("data").await?;
    scenario.create::<Pod>(pod("late", &["data"])).await?;
    scenario.create::<Pod>(pod("lost", &["nowhere"])).await?;
    for (name, why) in [
        ("late", r#"persistentvolumeclaim "data" is being deleted"#),
        ("lost", r#"persistentvolumeclaim "nowhere" not found"#),
    ] {
        scenario.until(name, |pod: &Pod| is_unschedulable(pod, why)).await?;
    }
    scenario.assert_postponed(&bound_claim).await?;
    // The waiting pod does not keep the claim.
    scenario.delete::<Pod>("user").await?;
    scenario.until_bound_claim_deleted(&bound_claim).await?;
    let why = r#"persistentvolumeclaim "data" not found"#;
    scenario.until("late", |pod: &Pod| is_unschedulable(pod, why)).await?;
    // A new claim of the same name is another claim.
    let next = scenario.create_bound("data", "delete").await?;
    ensure!(next.volume != bound_claim.volume);
    scenario.until("late", |pod: &Pod| pod_phase(pod) == "Running").await?;
    scenario.assert_remaining(&[]).await
}

fn is_unschedulable(pod: &Pod, why: &str) -> bool {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
    conditions.into_iter().flatten().any(|condition| {
        condition.type_ == "PodScheduled"
            && condition.reason.as_deref() == Some("Unschedulable")
            && condition.message.as_deref().is_some_and(|message| message.contains(why))
    })
}

/// Checks the design's "The kubelet will follow the same code path as if the claims do not exist."
async fn the_kubelet_starts_no_pod_with_a_terminating_claim(scenario: &mut Scenario) -> Result<()> {
    let bound_claim = scenario.create_bound("data", "delete").await?;
    scenario.create_running_pod("user", &["data"]).await?;
    scenario.delete::<PersistentVolumeClaim>("data").await?;
    for (name, claim) in [("late", "data"), ("lost", "nowhere")] {
        let mut pod = pod(name, &[claim]);
        pod["spec"]["nodeName"] = json!(NODE);
        scenario.create::<Pod>(pod).await?;
    }
    scenario.wait_for_event("late", "FailedMount", "PVC is being deleted").await?;
    scenario.wait_for_event("lost", "FailedMount", r#"persistentvolumeclaims "nowhere" not found"#).await?;
    scenario.delete::<Pod>("user").await?;
    scenario.until_deleted::<Pod>("user").await?;
    // The pod has a node, so it keeps the claim, and it cannot start with the terminating claim: a
    // user has to delete the pod.
    scenario.assert_postponed(&bound_claim).await?;
    for name in ["late", "lost"] {
        ensure!(pod_phase(&scenario.get::<Pod>(name).await?) == "Pending", "{name}");
        scenario.delete::<Pod>(name).await?;
    }
    scenario.until_bound_claim_deleted(&bound_claim).await?;
    scenario.until_deleted::<Pod>("lost").await?;
    scenario.assert_remaining(&[]).await
}

/// Creates a pod with an ephemeral volume, waits until it runs, and returns its claim.
async fn with_ephemeral_volume(scenario: &mut Scenario) -> Result<BoundClaim> {
    let mut user = pod("user", &[]);
    let template = json!({"spec": claim("", "delete")["spec"]});
    user["spec"]["volumes"] = json!([{"name": "scratch", "ephemeral": {"volumeClaimTemplate": template}}]);
    scenario.create::<Pod>(user).await?;
    scenario.until("user", |pod: &Pod| pod_phase(pod) == "Running").await?;
    scenario.write_data("user-scratch").await
}

async fn an_ephemeral_claim_is_kept_for_its_running_pod(scenario: &mut Scenario) -> Result<()> {
    let bound_claim = with_ephemeral_volume(scenario).await?;
    scenario.delete::<PersistentVolumeClaim>("user-scratch").await?;
    scenario.assert_postponed(&bound_claim).await?;
    ensure!(pod_phase(&scenario.get::<Pod>("user").await?) == "Running");
    scenario.delete::<Pod>("user").await?;
    scenario.until_bound_claim_deleted(&bound_claim).await?;
    scenario.assert_remaining(&[]).await
}

async fn an_ephemeral_claim_is_deleted_with_its_pod(scenario: &mut Scenario) -> Result<()> {
    let bound_claim = with_ephemeral_volume(scenario).await?;
    scenario.delete::<Pod>("user").await?;
    scenario.until_bound_claim_deleted(&bound_claim).await?;
    scenario.assert_remaining(&[]).await
}

async fn another_pod_keeps_an_ephemeral_claim(scenario: &mut Scenario) -> Result<()> {
    let bound_claim = with_ephemeral_volume(scenario).await?;
    scenario.create_running_pod("guest", &["user-scratch"]).await?;
    scenario.delete::<Pod>("user").await?;
    scenario.until_deleted::<Pod>("user").await?;
    scenario.until("user-scratch", |claim: &PersistentVolumeClaim| is_terminating(claim)).await?;
    scenario.assert_postponed(&bound_claim).await?;
    scenario.delete::<Pod>("guest").await?;
    scenario.until_bound_claim_deleted(&bound_claim).await?;
    scenario.assert_remaining(&[]).await
}

/// Checks that the admission plugin adds the finalizer: no controller runs.
async fn admission_adds_the_finalizer_to_new_claims(scenario: &mut Scenario) -> Result<()> {
    scenario.restart_with_controllers("").await?;
    let created: PersistentVolumeClaim = scenario.create(claim("plain", "delete")).await?;
    ensure!(created.finalizers() == [CLAIM_PROTECTION], "{:?}", created.finalizers());
    for (name, own, want) in [
        ("own", vec!["scenario.example/own"], vec!["scenario.example/own", CLAIM_PROTECTION]),
        (
            "there",
            vec![CLAIM_PROTECTION, "scenario.example/own"],
            vec![CLAIM_PROTECTION, "scenario.example/own"],
        ),
    ] {
        let mut claim = claim(name, "delete");
        claim["metadata"]["finalizers"] = json!(own);
        let created: PersistentVolumeClaim = scenario.create(claim).await?;
        ensure!(created.finalizers() == want, "{name}: {:?}", created.finalizers());
    }
    Ok(())
}

/// Covers claim events with `deletionTimestamp` nil and the finalizer missing.
async fn the_finalizer_is_added_back_to_a_live_claim(scenario: &mut Scenario) -> Result<()> {
    scenario.create_bound("data", "delete").await?;
    let protected = |claim: &PersistentVolumeClaim| claim.finalizers() == [CLAIM_PROTECTION];
    let take = json!({"metadata": {"finalizers": null}});
    scenario.patch::<PersistentVolumeClaim>("data", take.clone()).await?;
    scenario.until("data", protected).await?;
    // Also a claim that lost the finalizer, or never had it, while no controller was running.
    scenario.restart_with_controllers("*,-persistentvolumeclaim-protection-controller").await?;
    scenario.patch::<PersistentVolumeClaim>("data", take).await?;
    scenario.until_settled_without_protection().await?;
    ensure!(scenario.get::<PersistentVolumeClaim>("data").await?.finalizers().is_empty());
    scenario.restart_with_controllers("*").await?;
    scenario.until("data", protected).await?;
    scenario.assert_remaining(&[]).await
}

/// Covers claim events with `deletionTimestamp` set and the finalizer present, since before the
/// controller started.
async fn claims_deleted_while_the_controller_was_down_are_processed_at_start(
    scenario: &mut Scenario,
) -> Result<()> {
    let free = scenario.create_bound("free", "delete").await?;
    let used = scenario.create_bound("used", "delete").await?;
    scenario.create_running_pod("user", &["used"]).await?;
    scenario.restart_with_controllers("*,-persistentvolumeclaim-protection-controller").await?;
    scenario.delete::<PersistentVolumeClaim>("free").await?;
    scenario.delete::<PersistentVolumeClaim>("used").await?;
    scenario.until_settled_without_protection().await?;
    scenario.assert_kept(&free).await?;
    scenario.restart_with_controllers("*").await?;
    scenario.until_bound_claim_deleted(&free).await?;
    scenario.assert_postponed(&used).await?;
    // No controller runs while the pod is deleted.
    scenario.restart_with_controllers("*,-persistentvolumeclaim-protection-controller").await?;
    scenario.delete::<Pod>("user").await?;
    scenario.until_deleted::<Pod>("user").await?;
    scenario.assert_kept(&used).await?;
    scenario.restart_with_controllers("*").await?;
    scenario.until_bound_claim_deleted(&used).await?;
    scenario.assert_remaining(&[]).await
}

/// Checks the design's "In case the removal of the finalizer fails the claim is queued again":
/// other clients write all the time, so that updates of an old version conflict.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failed_finalizer_removal_is_retried() -> Result<()> {
    run_scenario(Driver::HostPath, None, async |scenario| {
        let bound_claim = scenario.create_bound("data", "delete").await?;
        scenario.create_running_pod("user", &["data"]).await?;
        scenario.delete::<PersistentVolumeClaim>("data").await?;
        scenario.assert_postponed(&bound_claim).await?;
        let api = scenario.api::<PersistentVolumeClaim>();
        let writes = (0..4).map(|writer| {
            let api = api.clone();
            tokio::spawn(async move {
                for number in 0.. {
                    let label =
                        json!({"metadata": {"labels": {format!("writer-{writer}"): number.to_string()}}});
                    let response = api.patch("data", &PatchParams::default(), &Patch::Merge(label)).await;
                    match response {
                        Err(kube::Error::Api(status)) if status.code == 404 => return Ok(number),
                        Err(kube::Error::Api(status)) if status.code == 409 => {}
                        response => drop(response?),
                    }
                }
                anyhow::Ok(0)
            })
        });
        let writes: Vec<_> = writes.collect();
        let all_write = |claim: &PersistentVolumeClaim| claim.labels().len() >= writes.len();
        scenario.until("data", all_write).await?;
        scenario.delete::<Pod>("user").await?;
        scenario.until_bound_claim_deleted(&bound_claim).await?;
        for write in writes {
            ensure!(write.await?? > 0);
        }
        scenario.assert_remaining(&[]).await
    })
    .await
}

/// Checks that a running pod has its claim and its data, in whatever order a claim and a pod race.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pod_that_wins_the_race_keeps_its_data() -> Result<()> {
    const ROUNDS: usize = 12;
    run_scenario(Driver::HostPath, None, async |scenario| {
        for round in 0..ROUNDS {
            let bound_claim = scenario.create_bound("data", "delete").await?;
            let mut user = pod("user", &["data"]);
            if round % 2 == 0 {
                user["spec"]["nodeName"] = json!(NODE);
            }
            let (pods, claims) = (scenario.api::<Pod>(), scenario.api::<PersistentVolumeClaim>());
            let user = serde_json::from_value(user)?;
            let (created, deleted) = (PostParams::default(), DeleteParams::default());
            let made = pods.create(&created, &user);
            let deleted = claims.delete("data", &deleted);
            match round % 4 {
                0 | 1 => tokio::try_join!(made, deleted.map_ok(drop))?.0,
                _ => tokio::try_join!(deleted.map_ok(drop), made)?.1,
            };
            scenario.until_settled().await?;
            if pod_phase(&scenario.get::<Pod>("user").await?) == "Running" {
                scenario.assert_postponed(&bound_claim).await?;
            }
            scenario.delete::<Pod>("user").await?;
            scenario.until_deleted::<Pod>("user").await?;
            scenario.until_bound_claim_deleted(&bound_claim).await?;
        }
        scenario.assert_remaining(&[]).await
    })
    .await
}

/// Checks that a deletion with any options is postponed, and not rejected as in the alternative
/// that the design dismisses.
async fn every_way_to_delete_respects_the_protection(scenario: &mut Scenario) -> Result<()> {
    let bound_claim = scenario.create_bound("data", "delete").await?;
    scenario.create_running_pod("user", &["data"]).await?;
    let api = scenario.api::<PersistentVolumeClaim>();
    let with = |policy| DeleteParams { propagation_policy: Some(policy), ..DeleteParams::default() };
    for options in [
        DeleteParams::default(),
        DeleteParams::default().grace_period(0),
        with(PropagationPolicy::Background),
        with(PropagationPolicy::Foreground),
        with(PropagationPolicy::Orphan),
    ] {
        let response = api.delete("data", &options).await?;
        ensure!(response.left().is_some_and(|claim| is_terminating(&claim)), "{options:?}");
        scenario.assert_kept(&bound_claim).await?;
    }
    api.delete_collection(&DeleteParams::default(), &ListParams::default()).await?;
    scenario.assert_postponed(&bound_claim).await?;
    // The name is taken until then.
    let again = api.create(&PostParams::default(), &serde_json::from_value(claim("data", "delete"))?).await;
    let refused = again.err().map(|error| error.to_string()).unwrap_or_default();
    ensure!(refused.contains("object is being deleted"), "{refused}");
    scenario.delete::<Pod>("user").await?;
    scenario.until_bound_claim_deleted(&bound_claim).await?;
    scenario.assert_remaining(&[]).await
}

/// Checks that pods of other namespaces do not count, and that in a deleted namespace pods are
/// deleted first, then claims, then their volumes.
async fn claims_are_deleted_with_their_namespace(scenario: &mut Scenario) -> Result<()> {
    let metadata = json!({"metadata": {"name": "elsewhere"}});
    let namespaces = Api::<Namespace>::all(scenario.client());
    namespaces.create(&PostParams::default(), &serde_json::from_value(metadata)?).await?;
    let claims = Api::<PersistentVolumeClaim>::namespaced(scenario.client(), "elsewhere");
    let pods = Api::<Pod>::namespaced(scenario.client(), "elsewhere");
    let ours = scenario.create_bound("data", "delete").await?;
    claims.create(&PostParams::default(), &serde_json::from_value(claim("data", "delete"))?).await?;
    let user = serde_json::from_value(pod("user", &["data"]))?;
    let create = async || Ok(pods.create(&PostParams::default(), &user).await);
    // Its default account has to be created first.
    until("a pod elsewhere", create, Result::is_ok).await?.map(drop)?;
    let run = async || Ok(pods.get("user").await?);
    until("it runs", run, |pod| pod_phase(pod) == "Running").await?;
    let theirs = claims.get("data").await?.spec.and_then(|spec| spec.volume_name).unwrap_or_default();

    scenario.delete::<PersistentVolumeClaim>("data").await?;
    scenario.until_bound_claim_deleted(&ours).await?;
    claims.delete("data", &DeleteParams::default()).await?;
    scenario.until_settled().await?;
    ensure!(claim_phase(&claims.get("data").await?) == "Bound");
    ensure!(volume_phase(&scenario.get::<PersistentVolume>(&theirs).await?) == "Bound");
    namespaces.delete("elsewhere", &DeleteParams::default()).await?;
    let there = async || Ok(namespaces.get_opt("elsewhere").await?);
    until("the namespace goes", there, Option::is_none).await?;
    scenario.until_deleted::<PersistentVolume>(&theirs).await?;
    scenario.assert_remaining(&[]).await
}

/// Checks the design's "kubectl get pvc will display that the claim is in terminating state": the
/// server renders that table.
async fn tables_show_that_a_claim_is_terminating(scenario: &mut Scenario) -> Result<()> {
    const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";
    let bound_claim = scenario.create_bound("data", "delete").await?;
    scenario.create_running_pod("user", &["data"]).await?;
    for want in ["Bound", "Terminating"] {
        for (path, name) in [
            ("/api/v1/namespaces/default/persistentvolumeclaims", &bound_claim.claim),
            ("/api/v1/persistentvolumes", &bound_claim.volume),
        ] {
            let mut connection = scenario.cluster()?.endpoint().await?.connect().await?;
            let response = connection.call("GET", path, &[("accept", Some(TABLE))], None).await?;
            let table: serde_json::Value = serde_json::from_slice(&response.body)?;
            let columns = table["columnDefinitions"].as_array().into_iter().flatten();
            let status = columns.into_iter().position(|column| column["name"] == "Status").unwrap_or(0);
            let row = table["rows"].as_array().into_iter().flatten().find(|row| row["cells"][0] == **name);
            ensure!(row.is_some_and(|row| row["cells"][status] == want), "{want}: {table}");
        }
        if want == "Bound" {
            scenario.delete::<PersistentVolumeClaim>(&bound_claim.claim).await?;
            scenario.delete::<PersistentVolume>(&bound_claim.volume).await?;
        }
    }
    scenario.restart(Termination::Crash).await?;
    scenario.assert_postponed(&bound_claim).await?;
    scenario.delete::<Pod>("user").await?;
    scenario.until_bound_claim_deleted(&bound_claim).await?;
    scenario.assert_remaining(&[]).await
}
