//! `persistentVolumeClaimRetentionPolicy` as it was announced: the matrix of four cases, each by the example that the announcement
//! gives for it, and what it says of the volumes behind the claims; calm and with the server ending in the middle. The design
//! itself is told in `statefulset_auto_delete_pvc.rs`.

use anyhow::{Result, ensure};
use coracle_e2e::statefulsets::{
    claim_of, filled, pod_of, pods_of, rest, stateful_set, uids, until_others_run, until_run,
};
use coracle_e2e::told;
use coracle_e2e::volumes::{NODE, Story};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{Node, PersistentVolumeClaim, Pod};
use kube::api::EvictParams;
use serde_json::{Value, json};

told! {
    by {
        csi: Csi, None;
        host_path_interrupted: HostPath, Some(Crash);
    }
    irreplaceable_data_are_deleted_by_hand,
    a_ci_instance_leaves_nothing,
    replicas_that_can_be_rebuilt_survive_a_drain,
    elasticsearch_is_scaled_and_taken_down,
    volumes_that_are_retained_outlive_their_claims,
}

const SET: &str = "data";

/// A set of a policy as users write it.
async fn make(story: &mut Story, replicas: u32, policy: Value) -> Result<()> {
    let mut set = stateful_set(SET, replicas);
    set["spec"]["persistentVolumeClaimRetentionPolicy"] = policy;
    story.create::<StatefulSet>(set).await.map(drop)
}

async fn scale(story: &mut Story, replicas: u32) -> Result<()> {
    story.patch::<StatefulSet>(SET, json!({"spec": {"replicas": replicas}})).await?;
    until_run(story, SET, 0..replicas).await.map(drop)
}

async fn delete(story: &mut Story) -> Result<()> {
    story.delete::<StatefulSet>(SET).await?;
    until_run(story, SET, 0..0).await?;
    rest(story).await
}

/// "Both Retain: this is also the default", of each half alone, and of all that is said before this existed.
async fn irreplaceable_data_are_deleted_by_hand(story: &mut Story) -> Result<()> {
    let retain = json!({"whenDeleted": "Retain", "whenScaled": "Retain"});
    make(story, 2, json!(null)).await?;
    let assets = filled(story, SET, 0..2).await?;
    for (said, want) in [
        (json!(null), retain.clone()),
        (json!({"whenScaled": "Delete"}), json!({"whenDeleted": "Retain", "whenScaled": "Delete"})),
        (json!(null), retain.clone()),
        (json!({"whenDeleted": "Delete"}), json!({"whenDeleted": "Delete", "whenScaled": "Retain"})),
        (json!(null), retain),
    ] {
        let patch = json!({"spec": {"persistentVolumeClaimRetentionPolicy": said}});
        story.patch::<StatefulSet>(SET, patch).await?;
        let spec = story.get::<StatefulSet>(SET).await?.spec.unwrap_or_default();
        ensure!(json!(spec.persistent_volume_claim_retention_policy) == want, "{said} is {spec:?}");
    }
    scale(story, 1).await?;
    delete(story).await?;
    for asset in &assets {
        story.is_kept(asset).await?;
        story.delete::<PersistentVolumeClaim>(&asset.claim).await?;
        story.is_deleted(asset).await?;
    }
    story.ends_with(&[]).await
}

/// whenDeleted Delete, whenScaled Retain: "needed only during the lifetime, but while the task is running not easily
/// reconstructible".
async fn a_ci_instance_leaves_nothing(story: &mut Story) -> Result<()> {
    make(story, 3, json!({"whenDeleted": "Delete", "whenScaled": "Retain"})).await?;
    let assets = filled(story, SET, 0..3).await?;
    for replicas in [1, 3, 0, 3] {
        scale(story, replicas).await?;
        rest(story).await?;
        for asset in &assets {
            story.is_kept(asset).await?;
        }
    }
    delete(story).await?;
    for asset in &assets {
        story.is_deleted(asset).await?;
    }
    story.ends_with(&[]).await
}

/// Both Delete: "this does not include when a pod is deleted and a new version rescheduled, for example when a node is drained".
async fn replicas_that_can_be_rebuilt_survive_a_drain(story: &mut Story) -> Result<()> {
    make(story, 2, json!({"whenDeleted": "Delete", "whenScaled": "Delete"})).await?;
    let assets = filled(story, SET, 0..2).await?;
    let old = uids(&pods_of(story, SET).await?);
    story.patch::<Node>(NODE, json!({"spec": {"unschedulable": true}})).await?;
    for ordinal in 0..2 {
        story.api::<Pod>().evict(&pod_of(SET, ordinal), &EvictParams::default()).await?;
    }
    story.interrupt().await?;
    for asset in &assets {
        story.is_kept(asset).await?;
    }
    story.patch::<Node>(NODE, json!({"spec": {"unschedulable": null}})).await?;
    until_others_run(story, SET, 0..2, &old).await?;
    for asset in &assets {
        story.is_kept(asset).await?;
    }
    scale(story, 1).await?;
    story.is_deleted(&assets[1]).await?;
    story.is_kept(&assets[0]).await?;
    delete(story).await?;
    story.is_deleted(&assets[0]).await?;
    story.ends_with(&[]).await
}

/// whenDeleted Retain, whenScaled Delete: data are migrated away from pods before they go, but when "you need to take the system
/// offline, the claims will still exist and the new replicas will automatically use them".
async fn elasticsearch_is_scaled_and_taken_down(story: &mut Story) -> Result<()> {
    let policy = json!({"whenDeleted": "Retain", "whenScaled": "Delete"});
    make(story, 3, policy.clone()).await?;
    let kept = filled(story, SET, 0..3).await?;
    scale(story, 4).await?;
    let more = story.asset(&claim_of(SET, 3)).await?;
    scale(story, 3).await?;
    story.is_deleted(&more).await?;
    delete(story).await?;
    make(story, 3, policy).await?;
    until_run(story, SET, 0..3).await?;
    for asset in &kept {
        story.is_kept(asset).await?;
    }
    story.ends_with(&[]).await
}

/// "The deletion is done with a normal object deletion, so that all retention policies for the underlying volume are respected."
async fn volumes_that_are_retained_outlive_their_claims(story: &mut Story) -> Result<()> {
    let mut set = stateful_set(SET, 2);
    set["spec"]["persistentVolumeClaimRetentionPolicy"] =
        json!({"whenDeleted": "Delete", "whenScaled": "Delete"});
    set["spec"]["volumeClaimTemplates"][0]["spec"]["storageClassName"] = json!("retain");
    story.create::<StatefulSet>(set).await?;
    let assets = filled(story, SET, 0..2).await?;
    scale(story, 1).await?;
    story.is_retained(&assets[1]).await?;
    delete(story).await?;
    story.is_retained(&assets[0]).await?;
    story.ends_with(&[&assets[0], &assets[1]]).await
}
