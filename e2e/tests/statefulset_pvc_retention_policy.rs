//! `persistentVolumeClaimRetentionPolicy` as announced: the matrix of four cases, each by the
//! example of the announcement, and its statements about the volumes behind the claims;
//! uninterrupted and with restarts of the server. The design itself is tested in
//! `statefulset_auto_delete_pvc.rs`.

use anyhow::{Result, ensure};
use coracle_e2e::scenario;
use coracle_e2e::statefulsets::{
    claim_of, pod_of, pods_of, stateful_set, uids, until_filled, until_ready, until_replaced, until_settled,
};
use coracle_e2e::volumes::{NODE, Scenario};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{Node, PersistentVolumeClaim, Pod};
use kube::api::EvictParams;
use serde_json::{Value, json};

scenario! {
    by {
        csi: Csi, None;
        host_path_interrupted: HostPath, Some(Crash);
    }
    irreplaceable_data_is_deleted_by_users_only,
    a_ci_instance_leaves_no_claims,
    replicas_that_can_be_rebuilt_survive_a_drain,
    elasticsearch_is_scaled_and_taken_down,
    volumes_that_are_retained_outlive_their_claims,
}

const SET: &str = "data";

/// Creates a set with this policy, as users write it.
async fn make(scenario: &mut Scenario, replicas: u32, policy: Value) -> Result<()> {
    let mut set = stateful_set(SET, replicas);
    set["spec"]["persistentVolumeClaimRetentionPolicy"] = policy;
    scenario.create::<StatefulSet>(set).await.map(drop)
}

async fn scale(scenario: &mut Scenario, replicas: u32) -> Result<()> {
    scenario.patch::<StatefulSet>(SET, json!({"spec": {"replicas": replicas}})).await?;
    until_ready(scenario, SET, 0..replicas).await.map(drop)
}

async fn delete(scenario: &mut Scenario) -> Result<()> {
    scenario.delete::<StatefulSet>(SET).await?;
    until_ready(scenario, SET, 0..0).await?;
    until_settled(scenario).await
}

/// Covers "Both Retain: this is also the default", for each half alone, and for manifests older
/// than the field.
async fn irreplaceable_data_is_deleted_by_users_only(scenario: &mut Scenario) -> Result<()> {
    let retain = json!({"whenDeleted": "Retain", "whenScaled": "Retain"});
    make(scenario, 2, json!(null)).await?;
    let bound_claims = until_filled(scenario, SET, 0..2).await?;
    for (said, want) in [
        (json!(null), retain.clone()),
        (json!({"whenScaled": "Delete"}), json!({"whenDeleted": "Retain", "whenScaled": "Delete"})),
        (json!(null), retain.clone()),
        (json!({"whenDeleted": "Delete"}), json!({"whenDeleted": "Delete", "whenScaled": "Retain"})),
        (json!(null), retain),
    ] {
        let patch = json!({"spec": {"persistentVolumeClaimRetentionPolicy": said}});
        scenario.patch::<StatefulSet>(SET, patch).await?;
        let spec = scenario.get::<StatefulSet>(SET).await?.spec.unwrap_or_default();
        ensure!(json!(spec.persistent_volume_claim_retention_policy) == want, "{said} is {spec:?}");
    }
    scale(scenario, 1).await?;
    delete(scenario).await?;
    for bound_claim in &bound_claims {
        scenario.assert_kept(bound_claim).await?;
        scenario.delete::<PersistentVolumeClaim>(&bound_claim.claim).await?;
        scenario.until_bound_claim_deleted(bound_claim).await?;
    }
    scenario.assert_remaining(&[]).await
}

/// Covers whenDeleted Delete, whenScaled Retain: "needed only during the lifetime, but while the
/// task is running not easily reconstructible".
async fn a_ci_instance_leaves_no_claims(scenario: &mut Scenario) -> Result<()> {
    make(scenario, 3, json!({"whenDeleted": "Delete", "whenScaled": "Retain"})).await?;
    let bound_claims = until_filled(scenario, SET, 0..3).await?;
    for replicas in [1, 3, 0, 3] {
        scale(scenario, replicas).await?;
        until_settled(scenario).await?;
        for bound_claim in &bound_claims {
            scenario.assert_kept(bound_claim).await?;
        }
    }
    delete(scenario).await?;
    for bound_claim in &bound_claims {
        scenario.until_bound_claim_deleted(bound_claim).await?;
    }
    scenario.assert_remaining(&[]).await
}

/// Covers both Delete: "this does not include when a pod is deleted and a new version rescheduled,
/// for example when a node is drained".
async fn replicas_that_can_be_rebuilt_survive_a_drain(scenario: &mut Scenario) -> Result<()> {
    make(scenario, 2, json!({"whenDeleted": "Delete", "whenScaled": "Delete"})).await?;
    let bound_claims = until_filled(scenario, SET, 0..2).await?;
    let old = uids(&pods_of(scenario, SET).await?);
    scenario.patch::<Node>(NODE, json!({"spec": {"unschedulable": true}})).await?;
    for ordinal in 0..2 {
        scenario.api::<Pod>().evict(&pod_of(SET, ordinal), &EvictParams::default()).await?;
    }
    scenario.interrupt().await?;
    for bound_claim in &bound_claims {
        scenario.assert_kept(bound_claim).await?;
    }
    scenario.patch::<Node>(NODE, json!({"spec": {"unschedulable": null}})).await?;
    until_replaced(scenario, SET, 0..2, &old).await?;
    for bound_claim in &bound_claims {
        scenario.assert_kept(bound_claim).await?;
    }
    scale(scenario, 1).await?;
    scenario.until_bound_claim_deleted(&bound_claims[1]).await?;
    scenario.assert_kept(&bound_claims[0]).await?;
    delete(scenario).await?;
    scenario.until_bound_claim_deleted(&bound_claims[0]).await?;
    scenario.assert_remaining(&[]).await
}

/// Covers whenDeleted Retain, whenScaled Delete: data are migrated away from pods before they are
/// deleted, but when "you need to take the system offline, the claims will still exist and the new
/// replicas will automatically use them".
async fn elasticsearch_is_scaled_and_taken_down(scenario: &mut Scenario) -> Result<()> {
    let policy = json!({"whenDeleted": "Retain", "whenScaled": "Delete"});
    make(scenario, 3, policy.clone()).await?;
    let kept = until_filled(scenario, SET, 0..3).await?;
    scale(scenario, 4).await?;
    let more = scenario.write_data(&claim_of(SET, 3)).await?;
    scale(scenario, 3).await?;
    scenario.until_bound_claim_deleted(&more).await?;
    delete(scenario).await?;
    make(scenario, 3, policy).await?;
    until_ready(scenario, SET, 0..3).await?;
    for bound_claim in &kept {
        scenario.assert_kept(bound_claim).await?;
    }
    scenario.assert_remaining(&[]).await
}

/// Checks the design's "The deletion is done with a normal object deletion, so that all retention
/// policies for the underlying volume are respected."
async fn volumes_that_are_retained_outlive_their_claims(scenario: &mut Scenario) -> Result<()> {
    let mut set = stateful_set(SET, 2);
    set["spec"]["persistentVolumeClaimRetentionPolicy"] =
        json!({"whenDeleted": "Delete", "whenScaled": "Delete"});
    set["spec"]["volumeClaimTemplates"][0]["spec"]["storageClassName"] = json!("retain");
    scenario.create::<StatefulSet>(set).await?;
    let bound_claims = until_filled(scenario, SET, 0..2).await?;
    scale(scenario, 1).await?;
    scenario.until_retained(&bound_claims[1]).await?;
    delete(scenario).await?;
    scenario.until_retained(&bound_claims[0]).await?;
    scenario.assert_remaining(&[&bound_claims[0], &bound_claims[1]]).await
}
