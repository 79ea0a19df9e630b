//! KEP-2644, honor the reclaim policy of volumes: whichever of claim and volume is deleted first, what is behind the volume
//! goes with policy Delete and stays with Retain. Its orders of deletion, finalizers, upgrades and rollbacks, each told calm
//! and with the server ending in the middle.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use coracle_e2e::cluster::End;
use coracle_e2e::told;
use coracle_e2e::volumes::{
    Asset, Driver, EXTERNAL_PROTECTION, IN_TREE_PROTECTION, MIGRATION, Story, VOLUME_PROTECTION, claim,
    is_terminating, pod_phase, volume_phase,
};
use coracle_e2e::wait::until;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::storage::v1::StorageClass;
use kube::ResourceExt;
use kube::api::DeleteParams;
use serde_json::{Value, json};

const GATE: &str = "HonorPVReclaimPolicy";

told! {
    // "The ordering of deletion determines whether the policy is honored": no longer.
    claim_first_with_delete,
    volume_first_with_delete,
    both_at_once_with_delete,
    volume_first_while_a_pod_runs,
    claim_first_with_retain,
    volume_first_with_retain,
    // "Either statically or dynamically provisioned."
    static_volume_claim_first,
    static_volume_volume_first,
    static_volume_that_nobody_bound,
    // The policy at the time of the deletion counts.
    policy_becomes_retain_while_bound,
    policy_becomes_delete_while_bound,
    policy_becomes_retain_while_terminating,
    policy_becomes_delete_when_released,
    policy_recycle,
    // "Failed operations will be added back to a queue"; "a delete call is idempotent".
    a_delete_that_fails_is_tried_again,
    what_is_gone_already_is_deleted,
    a_crash_after_the_storage_was_deleted,
    // Nor does a volume leak that was never finished.
    what_was_begun_goes_with_its_claim,
    what_was_begun_goes_with_a_claim_that_nobody_watched,
    // Enablement, upgrade, downgrade.
    gate_off_leaks_if_the_volume_is_deleted_first,
    gate_off_claim_first_deletes,
    upgrade_adds_the_finalizer_to_existing_volumes,
    downgrade_lets_volumes_leak_again,
    downgrade_and_upgrade_again,
}

told! {
    // Both drivers are in it.
    by {
        host_path: HostPath, None;
        host_path_interrupted: HostPath, Some(Crash);
    }
    migration_on_and_off,
}

told! {
    // What no driver does its own way, or what ends the server by itself.
    by { host_path: HostPath, None; }
    upgrade_again_deletes_what_the_finalizer_kept,
    downgrade_claim_first_deletes_the_storage_and_leaves_the_finalizer,
    upgrade_keeps_volumes_that_were_deleted_before,
    a_volume_that_its_claim_never_knew_of_is_released,
}

async fn claim_first_with_delete(story: &mut Story) -> Result<()> {
    let asset = story.bound("data", "delete").await?;
    story.finalizers(&asset.volume, &[VOLUME_PROTECTION, story.driver.finalizer()]).await?;
    story.delete::<PersistentVolumeClaim>("data").await?;
    story.is_deleted(&asset).await?;
    story.ends_with(&[]).await
}

/// The leak that the KEP is about.
async fn volume_first_with_delete(story: &mut Story) -> Result<()> {
    let asset = story.bound("data", "delete").await?;
    deleted_but_bound(story, &asset).await?;
    story.delete::<PersistentVolumeClaim>("data").await?;
    story.is_deleted(&asset).await?;
    story.ends_with(&[]).await
}

/// The volume is deleted, and nothing comes of that while there is its claim.
async fn deleted_but_bound(story: &mut Story, asset: &Asset) -> Result<()> {
    story.delete::<PersistentVolume>(&asset.volume).await?;
    story.settle().await?;
    story.is_kept(asset).await?;
    ensure!(is_terminating(&story.get::<PersistentVolume>(&asset.volume).await?));
    Ok(())
}

async fn both_at_once_with_delete(story: &mut Story) -> Result<()> {
    const PAIRS: usize = 6;
    let mut assets = Vec::new();
    for number in 0..PAIRS {
        assets.push(story.bound(&format!("data-{number}"), "delete").await?);
    }
    let (volumes, claims) = (story.api::<PersistentVolume>(), story.api::<PersistentVolumeClaim>());
    let options = DeleteParams::default();
    for (number, asset) in assets.iter().enumerate() {
        let volume = volumes.delete(&asset.volume, &options);
        let claim = claims.delete(&asset.claim, &options);
        match number % 2 {
            0 => drop(tokio::try_join!(volume, claim)?),
            _ => drop(tokio::try_join!(claim, volume)?),
        }
    }
    story.interrupt().await?;
    for asset in &assets {
        story.is_deleted(asset).await?;
    }
    story.ends_with(&[]).await
}

async fn volume_first_while_a_pod_runs(story: &mut Story) -> Result<()> {
    let asset = story.bound("data", "delete").await?;
    story.runs("user", &["data"]).await?;
    deleted_but_bound(story, &asset).await?;
    story.delete::<PersistentVolumeClaim>("data").await?;
    story.is_postponed(&asset).await?;
    ensure!(pod_phase(&story.get::<Pod>("user").await?) == "Running");
    story.delete::<Pod>("user").await?;
    story.is_deleted(&asset).await?;
    story.ends_with(&[]).await
}

async fn claim_first_with_retain(story: &mut Story) -> Result<()> {
    let asset = story.bound("data", "retain").await?;
    story.finalizers(&asset.volume, &[VOLUME_PROTECTION]).await?;
    story.delete::<PersistentVolumeClaim>("data").await?;
    story.is_retained(&asset).await?;
    story.delete::<PersistentVolume>(&asset.volume).await?;
    story.until_gone::<PersistentVolume>(&asset.volume).await?;
    story.ends_with(&[&asset]).await
}

async fn volume_first_with_retain(story: &mut Story) -> Result<()> {
    let asset = story.bound("data", "retain").await?;
    deleted_but_bound(story, &asset).await?;
    story.delete::<PersistentVolumeClaim>("data").await?;
    story.until_gone::<PersistentVolume>(&asset.volume).await?;
    story.ends_with(&[&asset]).await
}

async fn static_volume_claim_first(story: &mut Story) -> Result<()> {
    let asset = story.bound_static("by-hand", "Delete").await?;
    story.delete::<PersistentVolumeClaim>("by-hand").await?;
    story.is_deleted(&asset).await?;
    story.ends_with(&[]).await
}

/// "The finalizer kubernetes.io/pv-controller will not be added on statically provisioned in-tree volumes", so that what is
/// behind them may stay; a CSI driver adds its own when the volume is bound.
async fn static_volume_volume_first(story: &mut Story) -> Result<()> {
    let asset = story.bound_static("by-hand", "Delete").await?;
    match story.driver.protects_static_volumes() {
        true => story.finalizers(&asset.volume, &[VOLUME_PROTECTION, story.driver.finalizer()]).await?,
        false => story.finalizers(&asset.volume, &[VOLUME_PROTECTION]).await?,
    }
    deleted_but_bound(story, &asset).await?;
    story.delete::<PersistentVolumeClaim>("by-hand").await?;
    story.until_gone::<PersistentVolumeClaim>("by-hand").await?;
    story.until_gone::<PersistentVolume>("by-hand").await?;
    story.settle().await?;
    if !story.driver.protects_static_volumes() && asset.directory.exists() {
        fs::remove_dir_all(&asset.directory)?;
    }
    story.ends_with(&[]).await
}

/// "In cases where the volume is not associated with a claim, the finalizer is not added."
async fn static_volume_that_nobody_bound(story: &mut Story) -> Result<()> {
    let directory = story.volume_by_hand("by-hand", "Delete").await?;
    story.settle().await?;
    story.finalizers("by-hand", &[VOLUME_PROTECTION]).await?;
    story.delete::<PersistentVolume>("by-hand").await?;
    story.until_gone::<PersistentVolume>("by-hand").await?;
    story.settle().await?;
    ensure!(directory.is_dir(), "nobody had it, and nobody deletes it");
    fs::remove_dir(directory)?;
    story.ends_with(&[]).await
}

fn policy(policy: &str) -> Value {
    json!({"spec": {"persistentVolumeReclaimPolicy": policy}})
}

async fn policy_becomes_retain_while_bound(story: &mut Story) -> Result<()> {
    let asset = story.bound("data", "delete").await?;
    story.patch::<PersistentVolume>(&asset.volume, policy("Retain")).await?;
    story.finalizers(&asset.volume, &[VOLUME_PROTECTION]).await?;
    story.delete::<PersistentVolumeClaim>("data").await?;
    story.is_retained(&asset).await?;
    story.ends_with(&[&asset]).await
}

async fn policy_becomes_delete_while_bound(story: &mut Story) -> Result<()> {
    let asset = story.bound("data", "retain").await?;
    story.patch::<PersistentVolume>(&asset.volume, policy("Delete")).await?;
    // "Please make sure the finalizer is added to the volume before deleting the volume."
    story.finalizers(&asset.volume, &[VOLUME_PROTECTION, story.driver.finalizer()]).await?;
    deleted_but_bound(story, &asset).await?;
    story.delete::<PersistentVolumeClaim>("data").await?;
    story.is_deleted(&asset).await?;
    story.ends_with(&[]).await
}

async fn policy_becomes_retain_while_terminating(story: &mut Story) -> Result<()> {
    let asset = story.bound("data", "delete").await?;
    deleted_but_bound(story, &asset).await?;
    story.patch::<PersistentVolume>(&asset.volume, policy("Retain")).await?;
    story.finalizers(&asset.volume, &[VOLUME_PROTECTION]).await?;
    story.delete::<PersistentVolumeClaim>("data").await?;
    story.until_gone::<PersistentVolume>(&asset.volume).await?;
    story.ends_with(&[&asset]).await
}

async fn policy_becomes_delete_when_released(story: &mut Story) -> Result<()> {
    let asset = story.bound("data", "retain").await?;
    story.delete::<PersistentVolumeClaim>("data").await?;
    story.is_retained(&asset).await?;
    story.patch::<PersistentVolume>(&asset.volume, policy("Delete")).await?;
    story.is_deleted(&asset).await?;
    story.ends_with(&[]).await
}

/// The oldest policy, which no CSI driver knows: the volume stays, and what is on it goes.
async fn policy_recycle(story: &mut Story) -> Result<()> {
    let asset = story.bound_static("by-hand", "Recycle").await?;
    story.delete::<PersistentVolumeClaim>("by-hand").await?;
    if story.driver == Driver::Csi {
        story.until("by-hand", |volume: &PersistentVolume| volume_phase(volume) == "Failed").await?;
        story.until_told("by-hand", "VolumeFailedRecycle", "No recycler plugin found").await?;
        return story.ends_with(&[&asset]).await;
    }
    story.until("by-hand", |volume: &PersistentVolume| volume_phase(volume) == "Available").await?;
    story.until_told("by-hand", "VolumeRecycled", "Volume recycled").await?;
    ensure!(asset.directory.is_dir() && !asset.has_data(), "{} was not scrubbed", asset.directory.display());
    story.create::<PersistentVolumeClaim>(claim("next", "")).await?;
    ensure!(story.asset("next").await?.volume == "by-hand");
    Ok(())
}

async fn a_delete_that_fails_is_tried_again(story: &mut Story) -> Result<()> {
    let asset = story.bound("data", "delete").await?;
    deleted_but_bound(story, &asset).await?;
    let broken = story.break_root()?;
    story.delete::<PersistentVolumeClaim>("data").await?;
    story.until_told(&asset.volume, "VolumeFailedDelete", "Not a directory").await?;
    let volume: PersistentVolume = story.get(&asset.volume).await?;
    ensure!(volume_phase(&volume) == story.driver.phase_after_failure(), "{volume:?}");
    ensure!(volume.finalizers().iter().any(|f| f == story.driver.finalizer()), "{:?}", volume.finalizers());
    broken.mend()?;
    story.is_deleted(&asset).await?;
    story.ends_with(&[]).await
}

async fn what_is_gone_already_is_deleted(story: &mut Story) -> Result<()> {
    let asset = story.bound("data", "delete").await?;
    deleted_but_bound(story, &asset).await?;
    fs::remove_dir_all(&asset.directory)?;
    story.delete::<PersistentVolumeClaim>("data").await?;
    story.is_deleted(&asset).await?;
    story.ends_with(&[]).await
}

/// The storage was deleted, and the server died before it could say so.
async fn a_crash_after_the_storage_was_deleted(story: &mut Story) -> Result<()> {
    let asset = story.bound("data", "delete").await?;
    deleted_but_bound(story, &asset).await?;
    let broken = story.break_root()?;
    story.delete::<PersistentVolumeClaim>("data").await?;
    story.until_told(&asset.volume, "VolumeFailedDelete", "Not a directory").await?;
    story
        .restart_after(End::Crash, || {
            broken.mend()?;
            Ok(fs::remove_dir_all(&asset.directory)?)
        })
        .await?;
    story.is_deleted(&asset).await?;
    story.ends_with(&[]).await
}

async fn what_was_begun_goes_with_its_claim(story: &mut Story) -> Result<()> {
    let directory = begun(story).await?;
    story.delete::<PersistentVolumeClaim>("half").await?;
    until_removed(&directory).await?;
    story.ends_with(&[]).await
}

async fn what_was_begun_goes_with_a_claim_that_nobody_watched(story: &mut Story) -> Result<()> {
    let directory = begun(story).await?;
    story.run_controllers("persistentvolumeclaim-protection-controller").await?;
    story.delete::<PersistentVolumeClaim>("half").await?;
    story.until_gone::<PersistentVolumeClaim>("half").await?;
    story.run_controllers("*").await?;
    until_removed(&directory).await?;
    story.ends_with(&[]).await
}

/// The directory of a volume that is not finished, whatever its claim waits for.
async fn begun(story: &mut Story) -> Result<PathBuf> {
    let half = json!({
        "metadata": {"name": "half"}, "provisioner": story.driver.provisioner(), "reclaimPolicy": "Delete",
        "parameters": {"sim.coracle.dev/provision-failures": "1000"},
    });
    story.create::<StorageClass>(half).await?;
    let claim: PersistentVolumeClaim = story.create(claim("half", "half")).await?;
    story.until_told("half", "ProvisioningFailed", "simulated failure").await?;
    let directory = story.root().join(format!("pvc-{}", claim.uid().unwrap_or_default()));
    ensure!(directory.is_dir(), "{} was not begun", directory.display());
    Ok(directory)
}

async fn until_removed(directory: &Path) -> Result<()> {
    let what = format!("{} is removed", directory.display());
    until(&what, async || Ok(directory.exists()), |exists| !exists).await.map(drop)
}

async fn gate_off_leaks_if_the_volume_is_deleted_first(story: &mut Story) -> Result<()> {
    story.set_gate(GATE, false).await?;
    let asset = story.bound("data", "delete").await?;
    story.settle().await?;
    story.finalizers(&asset.volume, &[VOLUME_PROTECTION]).await?;
    deleted_but_bound(story, &asset).await?;
    story.delete::<PersistentVolumeClaim>("data").await?;
    story.until_gone::<PersistentVolume>(&asset.volume).await?;
    story.ends_with(&[&asset]).await
}

async fn gate_off_claim_first_deletes(story: &mut Story) -> Result<()> {
    story.set_gate(GATE, false).await?;
    let asset = story.bound("data", "delete").await?;
    story.delete::<PersistentVolumeClaim>("data").await?;
    story.is_deleted(&asset).await?;
    story.ends_with(&[]).await
}

/// "The new finalizer will be added to all existing volumes when the feature is enabled."
async fn upgrade_adds_the_finalizer_to_existing_volumes(story: &mut Story) -> Result<()> {
    story.set_gate(GATE, false).await?;
    let asset = story.bound("data", "delete").await?;
    story.settle().await?;
    story.finalizers(&asset.volume, &[VOLUME_PROTECTION]).await?;
    story.set_gate(GATE, true).await?;
    story.finalizers(&asset.volume, &[VOLUME_PROTECTION, story.driver.finalizer()]).await?;
    deleted_but_bound(story, &asset).await?;
    story.delete::<PersistentVolumeClaim>("data").await?;
    story.is_deleted(&asset).await?;
    story.ends_with(&[]).await
}

/// "There may be volumes with the finalizer that the older Kubernetes does not remove": those of the plugin in the controller
/// stay until somebody does, those of a CSI driver go. What is behind them leaks as it used to.
async fn downgrade_lets_volumes_leak_again(story: &mut Story) -> Result<()> {
    let asset = story.bound("data", "delete").await?;
    story.set_gate(GATE, false).await?;
    if story.driver.lets_go_on_rollback() {
        story.finalizers(&asset.volume, &[VOLUME_PROTECTION]).await?;
    }
    deleted_but_bound(story, &asset).await?;
    story.delete::<PersistentVolumeClaim>("data").await?;
    story.until_gone::<PersistentVolumeClaim>("data").await?;
    if !story.driver.lets_go_on_rollback() {
        story.finalizers(&asset.volume, &[story.driver.finalizer()]).await?;
        story.settle().await?;
        ensure!(asset.has_data());
        story.patch::<PersistentVolume>(&asset.volume, json!({"metadata": {"finalizers": null}})).await?;
    }
    story.until_gone::<PersistentVolume>(&asset.volume).await?;
    story.ends_with(&[&asset]).await
}

/// "What happens if we reenable the feature? Will pick the new behavior as described."
async fn downgrade_and_upgrade_again(story: &mut Story) -> Result<()> {
    let asset = story.bound("data", "delete").await?;
    let kept = [VOLUME_PROTECTION, story.driver.finalizer()];
    for _ in 0..2 {
        story.finalizers(&asset.volume, &kept).await?;
        story.set_gate(GATE, false).await?;
        story.settle().await?;
        story.is_kept(&asset).await?;
        story.set_gate(GATE, true).await?;
    }
    story.finalizers(&asset.volume, &kept).await?;
    deleted_but_bound(story, &asset).await?;
    story.delete::<PersistentVolumeClaim>("data").await?;
    story.is_deleted(&asset).await?;
    story.ends_with(&[]).await
}

/// What was deleted while the feature was off, and kept by its finalizer, is deleted once it is on again.
async fn upgrade_again_deletes_what_the_finalizer_kept(story: &mut Story) -> Result<()> {
    let assets = [story.bound("data", "delete").await?, story.bound("logs", "delete").await?];
    story.set_gate(GATE, false).await?;
    for asset in &assets {
        deleted_but_bound(story, asset).await?;
    }
    story.delete::<PersistentVolumeClaim>("data").await?;
    story.until_gone::<PersistentVolumeClaim>("data").await?;
    story.finalizers(&assets[0].volume, &[IN_TREE_PROTECTION]).await?;
    story.set_gate(GATE, true).await?;
    story.is_deleted(&assets[0]).await?;
    story.is_kept(&assets[1]).await?;
    story.delete::<PersistentVolumeClaim>("logs").await?;
    story.is_deleted(&assets[1]).await?;
    story.ends_with(&[]).await
}

/// With the gate off the controller deletes what is behind a volume, but no finalizer that it does not know.
async fn downgrade_claim_first_deletes_the_storage_and_leaves_the_finalizer(story: &mut Story) -> Result<()> {
    let asset = story.bound("data", "delete").await?;
    story.set_gate(GATE, false).await?;
    story.delete::<PersistentVolumeClaim>("data").await?;
    story.until(&asset.volume, |volume: &PersistentVolume| is_terminating(volume)).await?;
    story.finalizers(&asset.volume, &[IN_TREE_PROTECTION]).await?;
    ensure!(!asset.directory.exists());
    story.set_gate(GATE, true).await?;
    story.is_deleted(&asset).await?;
    story.ends_with(&[]).await
}

/// "If there are volumes that have a valid associated claim and a deletion timestamp set, then a finalizer is added": the API
/// allows no finalizer to be added then, to nobody. What becomes of such a volume is seen with Kubernetes 1.36: it is not let
/// go with its claim, so that nothing is leaked unseen, and somebody decides what to do with the data.
async fn upgrade_keeps_volumes_that_were_deleted_before(story: &mut Story) -> Result<()> {
    story.set_gate(GATE, false).await?;
    let asset = story.bound("data", "delete").await?;
    deleted_but_bound(story, &asset).await?;
    story.set_gate(GATE, true).await?;
    story.delete::<PersistentVolumeClaim>("data").await?;
    story.until_gone::<PersistentVolumeClaim>("data").await?;
    story.settle().await?;
    let volume: PersistentVolume = story.get(&asset.volume).await?;
    ensure!(is_terminating(&volume) && volume_phase(&volume) == "Bound" && asset.has_data(), "{volume:?}");
    story.finalizers(&asset.volume, &[VOLUME_PROTECTION]).await?;
    story.patch::<PersistentVolume>(&asset.volume, policy("Retain")).await?;
    story.until_gone::<PersistentVolume>(&asset.volume).await?;
    story.ends_with(&[&asset]).await
}

/// "When CSI migration is enabled, the finalizer kubernetes.io/pv-controller will be removed, and the external-provisioner adds
/// its own; when it is disabled, the finalizer is added back." With data on the volumes, and deletions before and after.
async fn migration_on_and_off(story: &mut Story) -> Result<()> {
    let mut assets = Vec::new();
    for (name, class) in [("on", "delete"), ("off", "delete"), ("kept", "retain"), ("going", "delete")] {
        assets.push(story.bound(name, class).await?);
    }
    let [on, off, kept, going] = assets.as_slice() else { unreachable!() };
    deleted_but_bound(story, going).await?;
    for (is_on, finalizer, asset, others) in
        [(true, EXTERNAL_PROTECTION, on, vec![on, off]), (false, IN_TREE_PROTECTION, off, vec![off])]
    {
        story.set_gate(MIGRATION, is_on).await?;
        for other in others {
            story.finalizers(&other.volume, &[VOLUME_PROTECTION, finalizer]).await?;
        }
        story.finalizers(&kept.volume, &[VOLUME_PROTECTION]).await?;
        deleted_but_bound(story, asset).await?;
        story.delete::<PersistentVolumeClaim>(&asset.claim).await?;
        story.is_deleted(asset).await?;
        story.is_kept(kept).await?;
        story.is_kept(going).await?;
    }
    story.set_gate(MIGRATION, true).await?;
    story.delete::<PersistentVolumeClaim>("going").await?;
    story.is_deleted(going).await?;
    story.ends_with(&[]).await
}

/// The claim goes before its volume was written into it, so that only the volume tells whose it was. It is released at once, not
/// when the controller looks at everything again.
async fn a_volume_that_its_claim_never_knew_of_is_released(story: &mut Story) -> Result<()> {
    const NEXT_LOOK: Duration = Duration::from_secs(15);
    // Nobody binds the two: their modes differ.
    let made: PersistentVolumeClaim = story.create(claim("data", "none")).await?;
    let reference =
        json!({"kind": "PersistentVolumeClaim", "namespace": "default", "name": "data", "uid": made.uid()});
    let meant = json!({"metadata": {"name": "meant"}, "spec": {
        "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}, "volumeMode": "Block",
        "claimRef": reference, "storageClassName": "none", "local": {"path": "/dev/none"},
        "nodeAffinity": {"required": {"nodeSelectorTerms": [
            {"matchExpressions": [{"key": "a", "operator": "Exists"}]}
        ]}},
    }});
    story.create::<PersistentVolume>(meant).await?;
    story.until_told("meant", "VolumeMismatch", "incompatible volumeMode").await?;
    let began = Instant::now();
    story.delete::<PersistentVolumeClaim>("data").await?;
    story.until("meant", |volume: &PersistentVolume| volume_phase(volume) == "Released").await?;
    ensure!(began.elapsed() < NEXT_LOOK / 2, "it took {:?}", began.elapsed());
    Ok(())
}
