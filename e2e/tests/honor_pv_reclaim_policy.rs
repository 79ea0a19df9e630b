//! KEP-2644, honor the reclaim policy of volumes: whichever of claim and volume is deleted first,
//! the storage is deleted with policy Delete and kept with Retain. Orders of deletion, finalizers,
//! upgrades and rollbacks, each uninterrupted and with restarts of the server.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use coracle_e2e::cluster::Termination;
use coracle_e2e::scenario;
use coracle_e2e::volumes::{
    BoundClaim, Driver, EXTERNAL_PROTECTION, IN_TREE_PROTECTION, MIGRATION, Scenario, VOLUME_PROTECTION,
    claim, is_terminating, pod_phase, volume_phase,
};
use coracle_e2e::wait::until;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::storage::v1::StorageClass;
use kube::ResourceExt;
use kube::api::DeleteParams;
use serde_json::{Value, json};

const GATE: &str = "HonorPVReclaimPolicy";

scenario! {
    // "The ordering of deletion determines whether the policy is honored": no longer.
    claim_first_with_delete,
    volume_first_with_delete,
    concurrent_deletion_with_delete,
    volume_first_while_a_pod_runs,
    claim_first_with_retain,
    volume_first_with_retain,
    // "Either statically or dynamically provisioned."
    static_volume_claim_first,
    static_volume_volume_first,
    an_unbound_static_volume_keeps_its_directory,
    // The policy at the time of the deletion counts.
    policy_becomes_retain_while_bound,
    policy_becomes_delete_while_bound,
    policy_becomes_retain_while_terminating,
    policy_becomes_delete_when_released,
    policy_recycle,
    // "Failed operations will be added back to a queue"; "a delete call is idempotent".
    a_failed_deletion_is_retried,
    a_volume_without_a_directory_is_deleted,
    a_crash_after_the_storage_was_deleted,
    // A volume that was not completely provisioned does not leak either.
    a_half_provisioned_directory_is_removed_with_its_claim,
    a_half_provisioned_directory_is_removed_after_a_restart,
    // Enablement, upgrade, downgrade.
    gate_off_leaks_if_the_volume_is_deleted_first,
    gate_off_claim_first_deletes,
    upgrade_adds_the_finalizer_to_existing_volumes,
    downgrade_lets_volumes_leak_again,
    downgrade_and_upgrade_again,
}

scenario! {
    // These use both drivers.
    by {
        host_path: HostPath, None;
        host_path_interrupted: HostPath, Some(Crash);
    }
    migration_on_and_off,
}

scenario! {
    // Scenarios that do not depend on the driver, or that end the server themselves.
    by { host_path: HostPath, None; }
    upgrade_again_deletes_volumes_that_the_finalizer_kept,
    downgrade_claim_first_deletes_the_storage_and_leaves_the_finalizer,
    upgrade_keeps_volumes_that_were_deleted_before,
    a_volume_not_yet_recorded_in_its_claim_is_released,
}

async fn claim_first_with_delete(scenario: &mut Scenario) -> Result<()> {
    let bound_claim = scenario.create_bound("data", "delete").await?;
    scenario.until_finalizers(&bound_claim.volume, &[VOLUME_PROTECTION, scenario.driver.finalizer()]).await?;
    scenario.delete::<PersistentVolumeClaim>("data").await?;
    scenario.until_bound_claim_deleted(&bound_claim).await?;
    scenario.assert_remaining(&[]).await
}

/// Covers the leak that the KEP fixes.
async fn volume_first_with_delete(scenario: &mut Scenario) -> Result<()> {
    let bound_claim = scenario.create_bound("data", "delete").await?;
    a_terminating_volume_stays_while_it_is_bound(scenario, &bound_claim).await?;
    scenario.delete::<PersistentVolumeClaim>("data").await?;
    scenario.until_bound_claim_deleted(&bound_claim).await?;
    scenario.assert_remaining(&[]).await
}

/// Checks that a deleted volume stays as long as its claim exists.
async fn a_terminating_volume_stays_while_it_is_bound(
    scenario: &mut Scenario,
    bound_claim: &BoundClaim,
) -> Result<()> {
    scenario.delete::<PersistentVolume>(&bound_claim.volume).await?;
    scenario.until_settled().await?;
    scenario.assert_kept(bound_claim).await?;
    ensure!(is_terminating(&scenario.get::<PersistentVolume>(&bound_claim.volume).await?));
    Ok(())
}

async fn concurrent_deletion_with_delete(scenario: &mut Scenario) -> Result<()> {
    const PAIRS: usize = 6;
    let mut bound_claims = Vec::new();
    for number in 0..PAIRS {
        bound_claims.push(scenario.create_bound(&format!("data-{number}"), "delete").await?);
    }
    let (volumes, claims) = (scenario.api::<PersistentVolume>(), scenario.api::<PersistentVolumeClaim>());
    let options = DeleteParams::default();
    for (number, bound_claim) in bound_claims.iter().enumerate() {
        let volume = volumes.delete(&bound_claim.volume, &options);
        let claim = claims.delete(&bound_claim.claim, &options);
        match number % 2 {
            0 => drop(tokio::try_join!(volume, claim)?),
            _ => drop(tokio::try_join!(claim, volume)?),
        }
    }
    scenario.interrupt().await?;
    for bound_claim in &bound_claims {
        scenario.until_bound_claim_deleted(bound_claim).await?;
    }
    scenario.assert_remaining(&[]).await
}

async fn volume_first_while_a_pod_runs(scenario: &mut Scenario) -> Result<()> {
    let bound_claim = scenario.create_bound("data", "delete").await?;
    scenario.create_running_pod("user", &["data"]).await?;
    a_terminating_volume_stays_while_it_is_bound(scenario, &bound_claim).await?;
    scenario.delete::<PersistentVolumeClaim>("data").await?;
    scenario.assert_postponed(&bound_claim).await?;
    ensure!(pod_phase(&scenario.get::<Pod>("user").await?) == "Running");
    scenario.delete::<Pod>("user").await?;
    scenario.until_bound_claim_deleted(&bound_claim).await?;
    scenario.assert_remaining(&[]).await
}

async fn claim_first_with_retain(scenario: &mut Scenario) -> Result<()> {
    let bound_claim = scenario.create_bound("data", "retain").await?;
    scenario.until_finalizers(&bound_claim.volume, &[VOLUME_PROTECTION]).await?;
    scenario.delete::<PersistentVolumeClaim>("data").await?;
    scenario.until_retained(&bound_claim).await?;
    scenario.delete::<PersistentVolume>(&bound_claim.volume).await?;
    scenario.until_deleted::<PersistentVolume>(&bound_claim.volume).await?;
    scenario.assert_remaining(&[&bound_claim]).await
}

async fn volume_first_with_retain(scenario: &mut Scenario) -> Result<()> {
    let bound_claim = scenario.create_bound("data", "retain").await?;
    a_terminating_volume_stays_while_it_is_bound(scenario, &bound_claim).await?;
    scenario.delete::<PersistentVolumeClaim>("data").await?;
    scenario.until_deleted::<PersistentVolume>(&bound_claim.volume).await?;
    scenario.assert_remaining(&[&bound_claim]).await
}

async fn static_volume_claim_first(scenario: &mut Scenario) -> Result<()> {
    let bound_claim = scenario.create_bound_static("by-hand", "Delete").await?;
    scenario.delete::<PersistentVolumeClaim>("by-hand").await?;
    scenario.until_bound_claim_deleted(&bound_claim).await?;
    scenario.assert_remaining(&[]).await
}

/// Checks the design's "The finalizer kubernetes.io/pv-controller will not be added on statically
/// provisioned in-tree volumes", so their storage may remain; a CSI driver adds its own finalizer
/// when the volume is bound.
async fn static_volume_volume_first(scenario: &mut Scenario) -> Result<()> {
    let bound_claim = scenario.create_bound_static("by-hand", "Delete").await?;
    match scenario.driver.protects_static_volumes() {
        true => {
            scenario
                .until_finalizers(&bound_claim.volume, &[VOLUME_PROTECTION, scenario.driver.finalizer()])
                .await?
        }
        false => scenario.until_finalizers(&bound_claim.volume, &[VOLUME_PROTECTION]).await?,
    }
    a_terminating_volume_stays_while_it_is_bound(scenario, &bound_claim).await?;
    scenario.delete::<PersistentVolumeClaim>("by-hand").await?;
    scenario.until_deleted::<PersistentVolumeClaim>("by-hand").await?;
    scenario.until_deleted::<PersistentVolume>("by-hand").await?;
    scenario.until_settled().await?;
    if !scenario.driver.protects_static_volumes() && bound_claim.directory.exists() {
        fs::remove_dir_all(&bound_claim.directory)?;
    }
    scenario.assert_remaining(&[]).await
}

/// Checks the design's "In cases where the volume is not associated with a claim, the finalizer is
/// not added."
async fn an_unbound_static_volume_keeps_its_directory(scenario: &mut Scenario) -> Result<()> {
    let directory = scenario.create_static_volume("by-hand", "Delete").await?;
    scenario.until_settled().await?;
    scenario.until_finalizers("by-hand", &[VOLUME_PROTECTION]).await?;
    scenario.delete::<PersistentVolume>("by-hand").await?;
    scenario.until_deleted::<PersistentVolume>("by-hand").await?;
    scenario.until_settled().await?;
    ensure!(directory.is_dir(), "nobody had it, and nobody deletes it");
    fs::remove_dir(directory)?;
    scenario.assert_remaining(&[]).await
}

fn policy(policy: &str) -> Value {
    json!({"spec": {"persistentVolumeReclaimPolicy": policy}})
}

async fn policy_becomes_retain_while_bound(scenario: &mut Scenario) -> Result<()> {
    let bound_claim = scenario.create_bound("data", "delete").await?;
    scenario.patch::<PersistentVolume>(&bound_claim.volume, policy("Retain")).await?;
    scenario.until_finalizers(&bound_claim.volume, &[VOLUME_PROTECTION]).await?;
    scenario.delete::<PersistentVolumeClaim>("data").await?;
    scenario.until_retained(&bound_claim).await?;
    scenario.assert_remaining(&[&bound_claim]).await
}

async fn policy_becomes_delete_while_bound(scenario: &mut Scenario) -> Result<()> {
    let bound_claim = scenario.create_bound("data", "retain").await?;
    scenario.patch::<PersistentVolume>(&bound_claim.volume, policy("Delete")).await?;
    // "Please make sure the finalizer is added to the volume before deleting the volume."
    scenario.until_finalizers(&bound_claim.volume, &[VOLUME_PROTECTION, scenario.driver.finalizer()]).await?;
    a_terminating_volume_stays_while_it_is_bound(scenario, &bound_claim).await?;
    scenario.delete::<PersistentVolumeClaim>("data").await?;
    scenario.until_bound_claim_deleted(&bound_claim).await?;
    scenario.assert_remaining(&[]).await
}

async fn policy_becomes_retain_while_terminating(scenario: &mut Scenario) -> Result<()> {
    let bound_claim = scenario.create_bound("data", "delete").await?;
    a_terminating_volume_stays_while_it_is_bound(scenario, &bound_claim).await?;
    scenario.patch::<PersistentVolume>(&bound_claim.volume, policy("Retain")).await?;
    scenario.until_finalizers(&bound_claim.volume, &[VOLUME_PROTECTION]).await?;
    scenario.delete::<PersistentVolumeClaim>("data").await?;
    scenario.until_deleted::<PersistentVolume>(&bound_claim.volume).await?;
    scenario.assert_remaining(&[&bound_claim]).await
}

async fn policy_becomes_delete_when_released(scenario: &mut Scenario) -> Result<()> {
    let bound_claim = scenario.create_bound("data", "retain").await?;
    scenario.delete::<PersistentVolumeClaim>("data").await?;
    scenario.until_retained(&bound_claim).await?;
    scenario.patch::<PersistentVolume>(&bound_claim.volume, policy("Delete")).await?;
    scenario.until_bound_claim_deleted(&bound_claim).await?;
    scenario.assert_remaining(&[]).await
}

/// Covers the oldest policy, which no CSI driver supports: the volume stays, and its data are
/// deleted.
async fn policy_recycle(scenario: &mut Scenario) -> Result<()> {
    let bound_claim = scenario.create_bound_static("by-hand", "Recycle").await?;
    scenario.delete::<PersistentVolumeClaim>("by-hand").await?;
    if scenario.driver == Driver::Csi {
        scenario.until("by-hand", |volume: &PersistentVolume| volume_phase(volume) == "Failed").await?;
        scenario.until_event_once("by-hand", "VolumeFailedRecycle", "No recycler plugin found").await?;
        return scenario.assert_remaining(&[&bound_claim]).await;
    }
    scenario.until("by-hand", |volume: &PersistentVolume| volume_phase(volume) == "Available").await?;
    scenario.until_event_once("by-hand", "VolumeRecycled", "Volume recycled").await?;
    ensure!(
        bound_claim.directory.is_dir() && !bound_claim.has_data(),
        "{} was not scrubbed",
        bound_claim.directory.display()
    );
    scenario.create::<PersistentVolumeClaim>(claim("next", "")).await?;
    ensure!(scenario.write_data("next").await?.volume == "by-hand");
    Ok(())
}

async fn a_failed_deletion_is_retried(scenario: &mut Scenario) -> Result<()> {
    let bound_claim = scenario.create_bound("data", "delete").await?;
    a_terminating_volume_stays_while_it_is_bound(scenario, &bound_claim).await?;
    let broken = scenario.break_driver_root()?;
    scenario.delete::<PersistentVolumeClaim>("data").await?;
    let volume = until_deletion_failed(scenario, &bound_claim.volume).await?;
    ensure!(
        volume.finalizers().iter().any(|f| f == scenario.driver.finalizer()),
        "{:?}",
        volume.finalizers()
    );
    broken.repair()?;
    scenario.until_bound_claim_deleted(&bound_claim).await?;
    scenario.assert_remaining(&[]).await
}

/// Waits until the storage of a volume could not be deleted.
async fn until_deletion_failed(scenario: &Scenario, volume: &str) -> Result<PersistentVolume> {
    const FAILED: (&str, &str) = ("VolumeFailedDelete", "Not a directory");
    let phase = scenario.driver.phase_after_failure();
    match phase {
        // A driver that sets the phase records the event once, after that; the others record one
        // per attempt.
        "Failed" => {
            scenario.until(volume, |volume: &PersistentVolume| volume_phase(volume) == phase).await?;
            scenario.until_event_once(volume, FAILED.0, FAILED.1).await?;
        }
        _ => scenario.wait_for_event(volume, FAILED.0, FAILED.1).await?,
    }
    let volume: PersistentVolume = scenario.get(volume).await?;
    ensure!(volume_phase(&volume) == phase, "{volume:?}");
    Ok(volume)
}

async fn a_volume_without_a_directory_is_deleted(scenario: &mut Scenario) -> Result<()> {
    let bound_claim = scenario.create_bound("data", "delete").await?;
    a_terminating_volume_stays_while_it_is_bound(scenario, &bound_claim).await?;
    fs::remove_dir_all(&bound_claim.directory)?;
    scenario.delete::<PersistentVolumeClaim>("data").await?;
    scenario.until_bound_claim_deleted(&bound_claim).await?;
    scenario.assert_remaining(&[]).await
}

/// Crashes the server after the storage was deleted and before that was recorded.
async fn a_crash_after_the_storage_was_deleted(scenario: &mut Scenario) -> Result<()> {
    let bound_claim = scenario.create_bound("data", "delete").await?;
    a_terminating_volume_stays_while_it_is_bound(scenario, &bound_claim).await?;
    let broken = scenario.break_driver_root()?;
    scenario.delete::<PersistentVolumeClaim>("data").await?;
    until_deletion_failed(scenario, &bound_claim.volume).await?;
    scenario
        .restart_after(Termination::Crash, || {
            broken.repair()?;
            Ok(fs::remove_dir_all(&bound_claim.directory)?)
        })
        .await?;
    scenario.until_bound_claim_deleted(&bound_claim).await?;
    scenario.assert_remaining(&[]).await
}

async fn a_half_provisioned_directory_is_removed_with_its_claim(scenario: &mut Scenario) -> Result<()> {
    let directory = half_provisioned(scenario).await?;
    scenario.delete::<PersistentVolumeClaim>("half").await?;
    until_removed(&directory).await?;
    scenario.assert_remaining(&[]).await
}

async fn a_half_provisioned_directory_is_removed_after_a_restart(scenario: &mut Scenario) -> Result<()> {
    let directory = half_provisioned(scenario).await?;
    scenario.restart_with_controllers("persistentvolumeclaim-protection-controller").await?;
    scenario.delete::<PersistentVolumeClaim>("half").await?;
    scenario.until_deleted::<PersistentVolumeClaim>("half").await?;
    scenario.restart_with_controllers("*").await?;
    until_removed(&directory).await?;
    scenario.assert_remaining(&[]).await
}

/// Waits until the directory of a half-provisioned volume is removed, whatever the state of its
/// claim.
async fn half_provisioned(scenario: &mut Scenario) -> Result<PathBuf> {
    let half = json!({
        "metadata": {"name": "half"}, "provisioner": scenario.driver.provisioner(), "reclaimPolicy": "Delete",
        "parameters": {"sim.coracle.dev/provision-failures": "1000"},
    });
    scenario.create::<StorageClass>(half).await?;
    let claim: PersistentVolumeClaim = scenario.create(claim("half", "half")).await?;
    scenario.wait_for_event("half", "ProvisioningFailed", "simulated failure").await?;
    let directory = scenario.root().join(format!("pvc-{}", claim.uid().unwrap_or_default()));
    ensure!(directory.is_dir(), "{} was not begun", directory.display());
    Ok(directory)
}

async fn until_removed(directory: &Path) -> Result<()> {
    let what = format!("{} is removed", directory.display());
    until(&what, async || Ok(directory.exists()), |exists| !exists).await.map(drop)
}

async fn gate_off_leaks_if_the_volume_is_deleted_first(scenario: &mut Scenario) -> Result<()> {
    scenario.restart_with_gate(GATE, false).await?;
    let bound_claim = scenario.create_bound("data", "delete").await?;
    scenario.until_settled().await?;
    scenario.until_finalizers(&bound_claim.volume, &[VOLUME_PROTECTION]).await?;
    a_terminating_volume_stays_while_it_is_bound(scenario, &bound_claim).await?;
    scenario.delete::<PersistentVolumeClaim>("data").await?;
    scenario.until_deleted::<PersistentVolume>(&bound_claim.volume).await?;
    scenario.assert_remaining(&[&bound_claim]).await
}

async fn gate_off_claim_first_deletes(scenario: &mut Scenario) -> Result<()> {
    scenario.restart_with_gate(GATE, false).await?;
    let bound_claim = scenario.create_bound("data", "delete").await?;
    scenario.delete::<PersistentVolumeClaim>("data").await?;
    scenario.until_bound_claim_deleted(&bound_claim).await?;
    scenario.assert_remaining(&[]).await
}

/// Checks the design's "The new finalizer will be added to all existing volumes when the feature is
/// enabled."
async fn upgrade_adds_the_finalizer_to_existing_volumes(scenario: &mut Scenario) -> Result<()> {
    scenario.restart_with_gate(GATE, false).await?;
    let bound_claim = scenario.create_bound("data", "delete").await?;
    scenario.until_settled().await?;
    scenario.until_finalizers(&bound_claim.volume, &[VOLUME_PROTECTION]).await?;
    scenario.restart_with_gate(GATE, true).await?;
    scenario.until_finalizers(&bound_claim.volume, &[VOLUME_PROTECTION, scenario.driver.finalizer()]).await?;
    a_terminating_volume_stays_while_it_is_bound(scenario, &bound_claim).await?;
    scenario.delete::<PersistentVolumeClaim>("data").await?;
    scenario.until_bound_claim_deleted(&bound_claim).await?;
    scenario.assert_remaining(&[]).await
}

/// Checks the design's "There may be volumes with the finalizer that the older Kubernetes does not
/// remove": those of the in-tree plugin stay until a user removes it, those of a CSI driver are
/// deleted. Their storage leaks as before the KEP.
async fn downgrade_lets_volumes_leak_again(scenario: &mut Scenario) -> Result<()> {
    let bound_claim = scenario.create_bound("data", "delete").await?;
    scenario.restart_with_gate(GATE, false).await?;
    if scenario.driver.removes_finalizers_on_rollback() {
        scenario.until_finalizers(&bound_claim.volume, &[VOLUME_PROTECTION]).await?;
    }
    a_terminating_volume_stays_while_it_is_bound(scenario, &bound_claim).await?;
    scenario.delete::<PersistentVolumeClaim>("data").await?;
    scenario.until_deleted::<PersistentVolumeClaim>("data").await?;
    if !scenario.driver.removes_finalizers_on_rollback() {
        scenario.until_finalizers(&bound_claim.volume, &[scenario.driver.finalizer()]).await?;
        scenario.until_settled().await?;
        ensure!(bound_claim.has_data());
        scenario
            .patch::<PersistentVolume>(&bound_claim.volume, json!({"metadata": {"finalizers": null}}))
            .await?;
    }
    scenario.until_deleted::<PersistentVolume>(&bound_claim.volume).await?;
    scenario.assert_remaining(&[&bound_claim]).await
}

/// Checks the design's "What happens if we reenable the feature? Will pick the new behavior as
/// described."
async fn downgrade_and_upgrade_again(scenario: &mut Scenario) -> Result<()> {
    let bound_claim = scenario.create_bound("data", "delete").await?;
    let kept = [VOLUME_PROTECTION, scenario.driver.finalizer()];
    for _ in 0..2 {
        scenario.until_finalizers(&bound_claim.volume, &kept).await?;
        scenario.restart_with_gate(GATE, false).await?;
        scenario.until_settled().await?;
        scenario.assert_kept(&bound_claim).await?;
        scenario.restart_with_gate(GATE, true).await?;
    }
    scenario.until_finalizers(&bound_claim.volume, &kept).await?;
    a_terminating_volume_stays_while_it_is_bound(scenario, &bound_claim).await?;
    scenario.delete::<PersistentVolumeClaim>("data").await?;
    scenario.until_bound_claim_deleted(&bound_claim).await?;
    scenario.assert_remaining(&[]).await
}

/// Checks that a volume deleted while the feature was off, and kept by its finalizer, is deleted
/// once the feature is on again.
async fn upgrade_again_deletes_volumes_that_the_finalizer_kept(scenario: &mut Scenario) -> Result<()> {
    let bound_claims =
        [scenario.create_bound("data", "delete").await?, scenario.create_bound("logs", "delete").await?];
    scenario.restart_with_gate(GATE, false).await?;
    for bound_claim in &bound_claims {
        a_terminating_volume_stays_while_it_is_bound(scenario, bound_claim).await?;
    }
    scenario.delete::<PersistentVolumeClaim>("data").await?;
    scenario.until_deleted::<PersistentVolumeClaim>("data").await?;
    scenario.until_finalizers(&bound_claims[0].volume, &[IN_TREE_PROTECTION]).await?;
    scenario.restart_with_gate(GATE, true).await?;
    scenario.until_bound_claim_deleted(&bound_claims[0]).await?;
    scenario.assert_kept(&bound_claims[1]).await?;
    scenario.delete::<PersistentVolumeClaim>("logs").await?;
    scenario.until_bound_claim_deleted(&bound_claims[1]).await?;
    scenario.assert_remaining(&[]).await
}

/// Checks that with the gate off the controller deletes the storage of a volume, but does not
/// remove a finalizer that it does not know.
async fn downgrade_claim_first_deletes_the_storage_and_leaves_the_finalizer(
    scenario: &mut Scenario,
) -> Result<()> {
    let bound_claim = scenario.create_bound("data", "delete").await?;
    scenario.restart_with_gate(GATE, false).await?;
    scenario.delete::<PersistentVolumeClaim>("data").await?;
    scenario.until(&bound_claim.volume, |volume: &PersistentVolume| is_terminating(volume)).await?;
    scenario.until_finalizers(&bound_claim.volume, &[IN_TREE_PROTECTION]).await?;
    ensure!(!bound_claim.directory.exists());
    scenario.restart_with_gate(GATE, true).await?;
    scenario.until_bound_claim_deleted(&bound_claim).await?;
    scenario.assert_remaining(&[]).await
}

/// Checks the design's "If there are volumes that have a valid associated claim and a deletion
/// timestamp set, then a finalizer is added": the API rejects new finalizers of a terminating
/// object from all clients. As in Kubernetes 1.36 such a volume is not deleted with its claim, so
/// that nothing leaks unnoticed and a user decides about the data.
async fn upgrade_keeps_volumes_that_were_deleted_before(scenario: &mut Scenario) -> Result<()> {
    scenario.restart_with_gate(GATE, false).await?;
    let bound_claim = scenario.create_bound("data", "delete").await?;
    a_terminating_volume_stays_while_it_is_bound(scenario, &bound_claim).await?;
    scenario.restart_with_gate(GATE, true).await?;
    scenario.delete::<PersistentVolumeClaim>("data").await?;
    scenario.until_deleted::<PersistentVolumeClaim>("data").await?;
    scenario.until_settled().await?;
    let volume: PersistentVolume = scenario.get(&bound_claim.volume).await?;
    ensure!(
        is_terminating(&volume) && volume_phase(&volume) == "Bound" && bound_claim.has_data(),
        "{volume:?}"
    );
    scenario.until_finalizers(&bound_claim.volume, &[VOLUME_PROTECTION]).await?;
    scenario.patch::<PersistentVolume>(&bound_claim.volume, policy("Retain")).await?;
    scenario.until_deleted::<PersistentVolume>(&bound_claim.volume).await?;
    scenario.assert_remaining(&[&bound_claim]).await
}

/// Checks the design's "When CSI migration is enabled, the finalizer kubernetes.io/pv-controller
/// will be removed, and the external-provisioner adds its own; when it is disabled, the finalizer
/// is added back." With data on the volumes, and deletions before and after.
async fn migration_on_and_off(scenario: &mut Scenario) -> Result<()> {
    let mut bound_claims = Vec::new();
    for (name, class) in [("on", "delete"), ("off", "delete"), ("kept", "retain"), ("going", "delete")] {
        bound_claims.push(scenario.create_bound(name, class).await?);
    }
    let [on, off, kept, going] = bound_claims.as_slice() else { unreachable!() };
    a_terminating_volume_stays_while_it_is_bound(scenario, going).await?;
    for (is_on, finalizer, bound_claim, others) in
        [(true, EXTERNAL_PROTECTION, on, vec![on, off]), (false, IN_TREE_PROTECTION, off, vec![off])]
    {
        scenario.restart_with_gate(MIGRATION, is_on).await?;
        for other in others {
            scenario.until_finalizers(&other.volume, &[VOLUME_PROTECTION, finalizer]).await?;
        }
        scenario.until_finalizers(&kept.volume, &[VOLUME_PROTECTION]).await?;
        a_terminating_volume_stays_while_it_is_bound(scenario, bound_claim).await?;
        scenario.delete::<PersistentVolumeClaim>(&bound_claim.claim).await?;
        scenario.until_bound_claim_deleted(bound_claim).await?;
        scenario.assert_kept(kept).await?;
        scenario.assert_kept(going).await?;
    }
    scenario.restart_with_gate(MIGRATION, true).await?;
    scenario.delete::<PersistentVolumeClaim>("going").await?;
    scenario.until_bound_claim_deleted(going).await?;
    scenario.assert_remaining(&[]).await
}

/// Deletes the claim before its volume is recorded in it, so only the volume refers to the claim.
/// It is released immediately, not at the next resync.
async fn a_volume_not_yet_recorded_in_its_claim_is_released(scenario: &mut Scenario) -> Result<()> {
    const RESYNC: Duration = Duration::from_secs(15);
    // The two are never bound: their modes differ.
    let made: PersistentVolumeClaim = scenario.create(claim("data", "none")).await?;
    let reference =
        json!({"kind": "PersistentVolumeClaim", "namespace": "default", "name": "data", "uid": made.uid()});
    let meant = json!({"metadata": {"name": "meant"}, "spec": {
        "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}, "volumeMode": "Block",
        "claimRef": reference, "storageClassName": "none", "local": {"path": "/dev/none"},
        "nodeAffinity": {"required": {"nodeSelectorTerms": [
            {"matchExpressions": [{"key": "a", "operator": "Exists"}]}
        ]}},
    }});
    scenario.create::<PersistentVolume>(meant).await?;
    scenario.wait_for_event("meant", "VolumeMismatch", "incompatible volumeMode").await?;
    let began = Instant::now();
    scenario.delete::<PersistentVolumeClaim>("data").await?;
    scenario.until("meant", |volume: &PersistentVolume| volume_phase(volume) == "Released").await?;
    ensure!(began.elapsed() < RESYNC / 2, "it took {:?}", began.elapsed());
    Ok(())
}
