//! Postpone deletion of a claim that a pod uses: the design's scenarios, each told calm and with the server ending in the
//! middle, and its parts one by one.
//!
//! Where Kubernetes 1.36 does other than the design says, it is Kubernetes that is held to: a pod that has ended holds its
//! claims until it is deleted.

use anyhow::{Result, ensure};
use coracle_e2e::cluster::End;
use coracle_e2e::told;
use coracle_e2e::volumes::{
    Asset, CLAIM_PROTECTION, Driver, NODE, Story, claim, claim_phase, is_terminating, pod, pod_phase,
    scripted, tell, volume_phase,
};
use coracle_e2e::wait::until;
use futures::TryFutureExt;
use k8s_openapi::api::core::v1::{Namespace, PersistentVolume, PersistentVolumeClaim, Pod};
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams, PropagationPolicy};
use serde_json::json;

told! {
    // Use case 1, and the scenarios for data loss.
    a_running_pod_keeps_its_claim_and_data,
    a_static_volume_to_be_deleted_is_kept_for_the_pod,
    a_retained_volume_keeps_its_data_after_all,
    // Who holds: "if all pods referencing the claim are not yet bound to a node or are terminated".
    the_last_of_two_pods_lets_the_claim_go,
    a_pod_lets_all_its_claims_go,
    a_terminating_pod_holds,
    a_succeeded_pod_holds_until_it_is_deleted,
    a_failed_pod_holds_until_it_is_deleted,
    a_pending_pod_on_a_node_holds,
    an_unscheduled_pod_does_not_hold,
    an_unused_claim_goes_at_once,
    // The scheduler, the kubelet.
    the_scheduler_places_no_pod_of_a_claim_being_deleted,
    the_kubelet_starts_no_pod_of_a_claim_being_deleted,
    // Ephemeral volumes.
    an_ephemeral_claim_is_kept_for_its_running_pod,
    an_ephemeral_claim_goes_with_its_pod,
    a_pod_beside_the_owner_holds_an_ephemeral_claim,
}

told! {
    // The server ends in the middle of it anyway.
    by {
        host_path: HostPath, None;
        csi: Csi, None;
        migrated: Migrated, None;
    }
    what_was_deleted_while_nobody_looked_is_judged_at_the_start,
}

told! {
    // What no driver does its own way.
    by { host_path: HostPath, None; }
    admission_adds_the_finalizer_to_new_claims,
    a_living_claim_gets_the_finalizer_back,
    no_way_to_delete_goes_round_the_protection,
    claims_are_of_their_namespace_and_go_with_it,
    tables_show_that_a_claim_is_terminating,
}

async fn a_running_pod_keeps_its_claim_and_data(story: &mut Story) -> Result<()> {
    let asset = story.bound("data", "delete").await?;
    story.runs("user", &["data"]).await?;
    story.delete::<PersistentVolumeClaim>("data").await?;
    story.is_postponed(&asset).await?;
    ensure!(pod_phase(&story.get::<Pod>("user").await?) == "Running");
    story.delete::<Pod>("user").await?;
    story.is_deleted(&asset).await?;
    story.ends_with(&[]).await
}

async fn a_static_volume_to_be_deleted_is_kept_for_the_pod(story: &mut Story) -> Result<()> {
    let asset = story.bound_static("by-hand", "Delete").await?;
    story.runs("user", &["by-hand"]).await?;
    story.delete::<PersistentVolumeClaim>("by-hand").await?;
    story.is_postponed(&asset).await?;
    story.delete::<Pod>("user").await?;
    story.is_deleted(&asset).await?;
    story.ends_with(&[]).await
}

async fn a_retained_volume_keeps_its_data_after_all(story: &mut Story) -> Result<()> {
    let asset = story.bound("data", "retain").await?;
    story.runs("user", &["data"]).await?;
    story.delete::<PersistentVolumeClaim>("data").await?;
    story.is_postponed(&asset).await?;
    story.delete::<Pod>("user").await?;
    story.is_retained(&asset).await?;
    story.ends_with(&[&asset]).await
}

async fn the_last_of_two_pods_lets_the_claim_go(story: &mut Story) -> Result<()> {
    let asset = story.bound("data", "delete").await?;
    story.runs("first", &["data"]).await?;
    story.runs("second", &["data"]).await?;
    story.delete::<PersistentVolumeClaim>("data").await?;
    story.delete::<Pod>("first").await?;
    story.until_gone::<Pod>("first").await?;
    story.is_postponed(&asset).await?;
    story.delete::<Pod>("second").await?;
    story.is_deleted(&asset).await?;
    story.ends_with(&[]).await
}

async fn a_pod_lets_all_its_claims_go(story: &mut Story) -> Result<()> {
    let assets = [story.bound("data", "delete").await?, story.bound("logs", "delete").await?];
    story.runs("user", &["data", "logs"]).await?;
    for asset in &assets {
        story.delete::<PersistentVolumeClaim>(&asset.claim).await?;
        story.is_postponed(asset).await?;
    }
    story.delete::<Pod>("user").await?;
    for asset in &assets {
        story.is_deleted(asset).await?;
    }
    story.ends_with(&[]).await
}

/// The kubelet has stopped what ran in it, and somebody else keeps the object.
async fn a_terminating_pod_holds(story: &mut Story) -> Result<()> {
    let asset = story.bound("data", "delete").await?;
    let mut user = pod("user", &["data"]);
    user["metadata"]["finalizers"] = json!(["story.example/hold"]);
    story.create::<Pod>(user).await?;
    story.until("user", |pod: &Pod| pod_phase(pod) == "Running").await?;
    story.delete::<Pod>("user").await?;
    story.until("user", |pod: &Pod| is_terminating(pod)).await?;
    story.delete::<PersistentVolumeClaim>("data").await?;
    story.is_postponed(&asset).await?;
    story.patch::<Pod>("user", json!({"metadata": {"finalizers": null}})).await?;
    story.is_deleted(&asset).await?;
    story.ends_with(&[]).await
}

async fn a_succeeded_pod_holds_until_it_is_deleted(story: &mut Story) -> Result<()> {
    an_ended_pod_holds(story, "0", "Succeeded").await
}

async fn a_failed_pod_holds_until_it_is_deleted(story: &mut Story) -> Result<()> {
    an_ended_pod_holds(story, "1", "Failed").await
}

async fn an_ended_pod_holds(story: &mut Story, code: &str, phase: &str) -> Result<()> {
    let asset = story.bound("data", "delete").await?;
    story.create::<Pod>(scripted("user", &["data"], &[("exit-after", "10ms"), ("exit-code", code)])).await?;
    story.until("user", |pod: &Pod| pod_phase(pod) == phase).await?;
    story.delete::<PersistentVolumeClaim>("data").await?;
    story.is_postponed(&asset).await?;
    story.delete::<Pod>("user").await?;
    story.is_deleted(&asset).await?;
    story.ends_with(&[]).await
}

async fn a_pending_pod_on_a_node_holds(story: &mut Story) -> Result<()> {
    let asset = story.bound("data", "delete").await?;
    let mut user = scripted("user", &["data"], &[("ignore", "true")]);
    user["spec"]["nodeName"] = json!(NODE);
    user["spec"]["terminationGracePeriodSeconds"] = json!(0);
    story.create::<Pod>(user).await?;
    story.delete::<PersistentVolumeClaim>("data").await?;
    story.is_postponed(&asset).await?;
    ensure!(pod_phase(&story.get::<Pod>("user").await?) == "Pending");
    story.delete::<Pod>("user").await?;
    story.is_deleted(&asset).await?;
    story.ends_with(&[]).await
}

async fn an_unscheduled_pod_does_not_hold(story: &mut Story) -> Result<()> {
    let asset = story.bound("data", "delete").await?;
    story.create::<Pod>(scripted("user", &["data"], &[("ignore", "true")])).await?;
    story.delete::<PersistentVolumeClaim>("data").await?;
    story.is_deleted(&asset).await?;
    ensure!(pod_phase(&story.get::<Pod>("user").await?) == "Pending");
    story.delete::<Pod>("user").await?;
    story.until_gone::<Pod>("user").await?;
    story.ends_with(&[]).await
}

async fn an_unused_claim_goes_at_once(story: &mut Story) -> Result<()> {
    let asset = story.bound("data", "delete").await?;
    story.delete::<PersistentVolumeClaim>("data").await?;
    story.is_deleted(&asset).await?;
    story.ends_with(&[]).await
}

/// "The scheduler will behave as if the claim was not found."
async fn the_scheduler_places_no_pod_of_a_claim_being_deleted(story: &mut Story) -> Result<()> {
    let asset = story.bound("data", "delete").await?;
    story.runs("user", &["data"]).await?;
    story.delete::<PersistentVolumeClaim>("data").await?;
    story.create::<Pod>(pod("late", &["data"])).await?;
    story.create::<Pod>(pod("lost", &["nowhere"])).await?;
    for (name, why) in [
        ("late", r#"persistentvolumeclaim "data" is being deleted"#),
        ("lost", r#"persistentvolumeclaim "nowhere" not found"#),
    ] {
        story.until(name, |pod: &Pod| is_unschedulable(pod, why)).await?;
    }
    story.is_postponed(&asset).await?;
    // The one that waits does not hold.
    story.delete::<Pod>("user").await?;
    story.is_deleted(&asset).await?;
    let why = r#"persistentvolumeclaim "data" not found"#;
    story.until("late", |pod: &Pod| is_unschedulable(pod, why)).await?;
    // A new claim of the name is another claim.
    let next = story.bound("data", "delete").await?;
    ensure!(next.volume != asset.volume);
    story.until("late", |pod: &Pod| pod_phase(pod) == "Running").await?;
    story.ends_with(&[]).await
}

fn is_unschedulable(pod: &Pod, why: &str) -> bool {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
    conditions.into_iter().flatten().any(|condition| {
        condition.type_ == "PodScheduled"
            && condition.reason.as_deref() == Some("Unschedulable")
            && condition.message.as_deref().is_some_and(|message| message.contains(why))
    })
}

/// "The kubelet will follow the same code path as if the claims do not exist."
async fn the_kubelet_starts_no_pod_of_a_claim_being_deleted(story: &mut Story) -> Result<()> {
    let asset = story.bound("data", "delete").await?;
    story.runs("user", &["data"]).await?;
    story.delete::<PersistentVolumeClaim>("data").await?;
    for (name, claim) in [("late", "data"), ("lost", "nowhere")] {
        let mut pod = pod(name, &[claim]);
        pod["spec"]["nodeName"] = json!(NODE);
        story.create::<Pod>(pod).await?;
    }
    story.until_told("late", "FailedMount", "PVC is being deleted").await?;
    story.until_told("lost", "FailedMount", r#"persistentvolumeclaims "nowhere" not found"#).await?;
    story.delete::<Pod>("user").await?;
    story.until_gone::<Pod>("user").await?;
    // The pod is on a node, so the claim waits for it, and it for the claim: somebody has to delete the pod.
    story.is_postponed(&asset).await?;
    for name in ["late", "lost"] {
        ensure!(pod_phase(&story.get::<Pod>(name).await?) == "Pending", "{name}");
        story.delete::<Pod>(name).await?;
    }
    story.is_deleted(&asset).await?;
    story.until_gone::<Pod>("lost").await?;
    story.ends_with(&[]).await
}

/// A pod that runs with an ephemeral volume, and the claim of it.
async fn with_ephemeral_volume(story: &mut Story) -> Result<Asset> {
    let mut user = pod("user", &[]);
    let template = json!({"spec": claim("", "delete")["spec"]});
    user["spec"]["volumes"] = json!([{"name": "scratch", "ephemeral": {"volumeClaimTemplate": template}}]);
    story.create::<Pod>(user).await?;
    story.until("user", |pod: &Pod| pod_phase(pod) == "Running").await?;
    story.asset("user-scratch").await
}

async fn an_ephemeral_claim_is_kept_for_its_running_pod(story: &mut Story) -> Result<()> {
    let asset = with_ephemeral_volume(story).await?;
    story.delete::<PersistentVolumeClaim>("user-scratch").await?;
    story.is_postponed(&asset).await?;
    ensure!(pod_phase(&story.get::<Pod>("user").await?) == "Running");
    story.delete::<Pod>("user").await?;
    story.is_deleted(&asset).await?;
    story.ends_with(&[]).await
}

async fn an_ephemeral_claim_goes_with_its_pod(story: &mut Story) -> Result<()> {
    let asset = with_ephemeral_volume(story).await?;
    story.delete::<Pod>("user").await?;
    story.is_deleted(&asset).await?;
    story.ends_with(&[]).await
}

async fn a_pod_beside_the_owner_holds_an_ephemeral_claim(story: &mut Story) -> Result<()> {
    let asset = with_ephemeral_volume(story).await?;
    story.runs("guest", &["user-scratch"]).await?;
    story.delete::<Pod>("user").await?;
    story.until_gone::<Pod>("user").await?;
    story.until("user-scratch", |claim: &PersistentVolumeClaim| is_terminating(claim)).await?;
    story.is_postponed(&asset).await?;
    story.delete::<Pod>("guest").await?;
    story.is_deleted(&asset).await?;
    story.ends_with(&[]).await
}

/// The admission plugin adds the finalizer: no controller is there to do it.
async fn admission_adds_the_finalizer_to_new_claims(story: &mut Story) -> Result<()> {
    story.run_controllers("").await?;
    let created: PersistentVolumeClaim = story.create(claim("plain", "delete")).await?;
    ensure!(created.finalizers() == [CLAIM_PROTECTION], "{:?}", created.finalizers());
    for (name, own, want) in [
        ("own", vec!["story.example/own"], vec!["story.example/own", CLAIM_PROTECTION]),
        ("there", vec![CLAIM_PROTECTION, "story.example/own"], vec![CLAIM_PROTECTION, "story.example/own"]),
    ] {
        let mut claim = claim(name, "delete");
        claim["metadata"]["finalizers"] = json!(own);
        let created: PersistentVolumeClaim = story.create(claim).await?;
        ensure!(created.finalizers() == want, "{name}: {:?}", created.finalizers());
    }
    Ok(())
}

/// Claim events: `deletionTimestamp` is nil and the finalizer is missing.
async fn a_living_claim_gets_the_finalizer_back(story: &mut Story) -> Result<()> {
    story.bound("data", "delete").await?;
    let protected = |claim: &PersistentVolumeClaim| claim.finalizers() == [CLAIM_PROTECTION];
    let take = json!({"metadata": {"finalizers": null}});
    story.patch::<PersistentVolumeClaim>("data", take.clone()).await?;
    story.until("data", protected).await?;
    // Also one that lost it, or never had it, while nobody looked.
    story.run_controllers("*,-persistentvolumeclaim-protection-controller").await?;
    story.patch::<PersistentVolumeClaim>("data", take).await?;
    story.settle_without_protection().await?;
    ensure!(story.get::<PersistentVolumeClaim>("data").await?.finalizers().is_empty());
    story.run_controllers("*").await?;
    story.until("data", protected).await?;
    story.ends_with(&[]).await
}

/// Claim events: `deletionTimestamp` is set and the finalizer is there, from before the controller was started.
async fn what_was_deleted_while_nobody_looked_is_judged_at_the_start(story: &mut Story) -> Result<()> {
    let free = story.bound("free", "delete").await?;
    let used = story.bound("used", "delete").await?;
    story.runs("user", &["used"]).await?;
    story.run_controllers("*,-persistentvolumeclaim-protection-controller").await?;
    story.delete::<PersistentVolumeClaim>("free").await?;
    story.delete::<PersistentVolumeClaim>("used").await?;
    story.settle_without_protection().await?;
    story.is_kept(&free).await?;
    story.run_controllers("*").await?;
    story.is_deleted(&free).await?;
    story.is_postponed(&used).await?;
    // Nobody looks while the pod goes.
    story.run_controllers("*,-persistentvolumeclaim-protection-controller").await?;
    story.delete::<Pod>("user").await?;
    story.until_gone::<Pod>("user").await?;
    story.is_kept(&used).await?;
    story.run_controllers("*").await?;
    story.is_deleted(&used).await?;
    story.ends_with(&[]).await
}

/// "In case the removal of the finalizer fails the claim is queued again": others write all the time, so that writes against
/// what was read before fail.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_removal_that_fails_is_tried_again() -> Result<()> {
    tell(Driver::HostPath, None, async |story| {
        let asset = story.bound("data", "delete").await?;
        story.runs("user", &["data"]).await?;
        story.delete::<PersistentVolumeClaim>("data").await?;
        story.is_postponed(&asset).await?;
        let api = story.api::<PersistentVolumeClaim>();
        let writes = (0..4).map(|writer| {
            let api = api.clone();
            tokio::spawn(async move {
                for number in 0.. {
                    let label =
                        json!({"metadata": {"labels": {format!("writer-{writer}"): number.to_string()}}});
                    let answer = api.patch("data", &PatchParams::default(), &Patch::Merge(label)).await;
                    match answer {
                        Err(kube::Error::Api(status)) if status.code == 404 => return Ok(number),
                        Err(kube::Error::Api(status)) if status.code == 409 => {}
                        answer => drop(answer?),
                    }
                }
                anyhow::Ok(0)
            })
        });
        let writes: Vec<_> = writes.collect();
        story.delete::<Pod>("user").await?;
        story.is_deleted(&asset).await?;
        for write in writes {
            ensure!(write.await?? > 0);
        }
        story.ends_with(&[]).await
    })
    .await
}

/// However a claim and a pod race: a pod that runs has its claim and its data.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_pod_wins_a_race_and_loses_its_data() -> Result<()> {
    const ROUNDS: usize = 12;
    tell(Driver::HostPath, None, async |story| {
        for round in 0..ROUNDS {
            let asset = story.bound("data", "delete").await?;
            let mut user = pod("user", &["data"]);
            if round % 2 == 0 {
                user["spec"]["nodeName"] = json!(NODE);
            }
            let (pods, claims) = (story.api::<Pod>(), story.api::<PersistentVolumeClaim>());
            let user = serde_json::from_value(user)?;
            let (created, deleted) = (PostParams::default(), DeleteParams::default());
            let made = pods.create(&created, &user);
            let deleted = claims.delete("data", &deleted);
            match round % 4 {
                0 | 1 => tokio::try_join!(made, deleted.map_ok(drop))?.0,
                _ => tokio::try_join!(deleted.map_ok(drop), made)?.1,
            };
            story.settle().await?;
            if pod_phase(&story.get::<Pod>("user").await?) == "Running" {
                story.is_postponed(&asset).await?;
            }
            story.delete::<Pod>("user").await?;
            story.until_gone::<Pod>("user").await?;
            story.is_deleted(&asset).await?;
        }
        story.ends_with(&[]).await
    })
    .await
}

/// Whatever the options of a deletion are, it is postponed; and it is not refused, as the rejected alternative would.
async fn no_way_to_delete_goes_round_the_protection(story: &mut Story) -> Result<()> {
    let asset = story.bound("data", "delete").await?;
    story.runs("user", &["data"]).await?;
    let api = story.api::<PersistentVolumeClaim>();
    let with = |policy| DeleteParams { propagation_policy: Some(policy), ..DeleteParams::default() };
    for options in [
        DeleteParams::default(),
        DeleteParams::default().grace_period(0),
        with(PropagationPolicy::Background),
        with(PropagationPolicy::Foreground),
        with(PropagationPolicy::Orphan),
    ] {
        let answer = api.delete("data", &options).await?;
        ensure!(answer.left().is_some_and(|claim| is_terminating(&claim)), "{options:?}");
        story.is_kept(&asset).await?;
    }
    api.delete_collection(&DeleteParams::default(), &ListParams::default()).await?;
    story.is_postponed(&asset).await?;
    // The name is taken until then.
    let again = api.create(&PostParams::default(), &serde_json::from_value(claim("data", "delete"))?).await;
    let refused = again.err().map(|error| error.to_string()).unwrap_or_default();
    ensure!(refused.contains("object is being deleted"), "{refused}");
    story.delete::<Pod>("user").await?;
    story.is_deleted(&asset).await?;
    story.ends_with(&[]).await
}

/// Pods of other namespaces are other pods; a namespace goes with its pods, then its claims, then what was behind them.
async fn claims_are_of_their_namespace_and_go_with_it(story: &mut Story) -> Result<()> {
    let metadata = json!({"metadata": {"name": "elsewhere"}});
    let namespaces = Api::<Namespace>::all(story.client());
    namespaces.create(&PostParams::default(), &serde_json::from_value(metadata)?).await?;
    let claims = Api::<PersistentVolumeClaim>::namespaced(story.client(), "elsewhere");
    let pods = Api::<Pod>::namespaced(story.client(), "elsewhere");
    let ours = story.bound("data", "delete").await?;
    claims.create(&PostParams::default(), &serde_json::from_value(claim("data", "delete"))?).await?;
    let user = serde_json::from_value(pod("user", &["data"]))?;
    let create = async || Ok(pods.create(&PostParams::default(), &user).await);
    // Its default account is to be made first.
    until("a pod elsewhere", create, Result::is_ok).await?.map(drop)?;
    let run = async || Ok(pods.get("user").await?);
    until("it runs", run, |pod| pod_phase(pod) == "Running").await?;
    let theirs = claims.get("data").await?.spec.and_then(|spec| spec.volume_name).unwrap_or_default();

    story.delete::<PersistentVolumeClaim>("data").await?;
    story.is_deleted(&ours).await?;
    claims.delete("data", &DeleteParams::default()).await?;
    story.settle().await?;
    ensure!(claim_phase(&claims.get("data").await?) == "Bound");
    ensure!(volume_phase(&story.get::<PersistentVolume>(&theirs).await?) == "Bound");
    namespaces.delete("elsewhere", &DeleteParams::default()).await?;
    let there = async || Ok(namespaces.get_opt("elsewhere").await?);
    until("the namespace goes", there, Option::is_none).await?;
    story.until_gone::<PersistentVolume>(&theirs).await?;
    story.ends_with(&[]).await
}

/// "kubectl get pvc will display that the claim is in terminating state": the server makes that table.
async fn tables_show_that_a_claim_is_terminating(story: &mut Story) -> Result<()> {
    const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";
    let asset = story.bound("data", "delete").await?;
    story.runs("user", &["data"]).await?;
    for want in ["Bound", "Terminating"] {
        for (path, name) in [
            ("/api/v1/namespaces/default/persistentvolumeclaims", &asset.claim),
            ("/api/v1/persistentvolumes", &asset.volume),
        ] {
            let mut connection = story.cluster()?.endpoint().await?.connect().await?;
            let answer = connection.call("GET", path, &[("accept", Some(TABLE))], None).await?;
            let table: serde_json::Value = serde_json::from_slice(&answer.body)?;
            let columns = table["columnDefinitions"].as_array().into_iter().flatten();
            let status = columns.into_iter().position(|column| column["name"] == "Status").unwrap_or(0);
            let row = table["rows"].as_array().into_iter().flatten().find(|row| row["cells"][0] == **name);
            ensure!(row.is_some_and(|row| row["cells"][status] == want), "{want}: {table}");
        }
        if want == "Bound" {
            story.delete::<PersistentVolumeClaim>(&asset.claim).await?;
            story.delete::<PersistentVolume>(&asset.volume).await?;
        }
    }
    story.restart(End::Crash).await?;
    story.is_postponed(&asset).await?;
    story.delete::<Pod>("user").await?;
    story.is_deleted(&asset).await?;
    story.ends_with(&[]).await
}
