//! A random search for leaked volumes, lost data and stuck deletions: claims, volumes and pods are
//! created and deleted at random, deletions of directories fail sometimes, and the server is ended
//! at random.
//!
//! `HUNT_SECONDS=600 cargo test -p coracle-e2e --test leak_hunt` runs for ten minutes instead of a
//! few seconds. A failure names its seed; `HUNT_SEED=N` starts with it.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use coracle_e2e::cluster::Termination;
use coracle_e2e::random::{self, Rng};
use coracle_e2e::volumes::{
    BrokenRoot, Driver, Kind, NODE, Scenario, claim, is_terminating, pod_phase, run_scenario, scripted,
    volume_phase,
};
use coracle_e2e::wait::until;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod};
use kube::ResourceExt;
use kube::api::{DeleteParams, ListParams};
use serde_json::json;

const OPERATIONS: usize = 120;

#[tokio::test]
async fn host_path() -> Result<()> {
    run_seeds(Driver::HostPath).await
}

#[tokio::test]
async fn csi() -> Result<()> {
    run_seeds(Driver::Csi).await
}

#[tokio::test]
async fn migrated() -> Result<()> {
    run_seeds(Driver::Migrated).await
}

async fn run_seeds(driver: Driver) -> Result<()> {
    let run = async |rng, end| {
        run_scenario(driver, None, async |scenario: &mut Scenario| {
            RandomRun::new(rng).run(scenario, end).await
        })
        .await
    };
    random::run_seeds(driver, run).await
}

struct RandomRun {
    rng: Rng,
    /// All operations so far.
    operations: Vec<String>,
    /// Directories that may remain: of volumes that were retained at some time, and of static ones.
    may_remain: BTreeSet<String>,
    /// Volumes that a pod wrote to.
    written: BTreeSet<String>,
    broken_root: Option<BrokenRoot>,
}

impl RandomRun {
    fn new(rng: Rng) -> RandomRun {
        RandomRun {
            rng,
            operations: Vec::new(),
            may_remain: BTreeSet::new(),
            written: BTreeSet::new(),
            broken_root: None,
        }
    }

    async fn run(mut self, scenario: &mut Scenario, end: Instant) -> Result<()> {
        for number in 0..OPERATIONS {
            let operation = self.operate(scenario, number).await?;
            self.operations.push(operation);
            self.check_pods(scenario).await?;
            if number > OPERATIONS / 3 && Instant::now() > end {
                break;
            }
        }
        let finished = self.finish(scenario).await;
        finished.with_context(|| format!("after {}", self.operations.join(", ")))
    }

    /// Runs one random operation; returns its description.
    async fn operate(&mut self, scenario: &mut Scenario, number: usize) -> Result<String> {
        Ok(match self.rng.below(20) {
            0..=4 => {
                let is_retained = self.rng.one_in(4);
                let class = if is_retained { "retain" } else { "delete" };
                let claim: PersistentVolumeClaim =
                    scenario.create(claim(&format!("c{number}"), class)).await?;
                if is_retained {
                    self.may_remain.insert(format!("pvc-{}", claim.uid().unwrap_or_default()));
                }
                format!("{class} c{number} pvc-{}", claim.uid().unwrap_or_default())
            }
            5 => {
                let name = format!("s{number}");
                if self.broken_root.is_none() {
                    self.may_remain.insert(name.clone());
                    scenario.create_static_volume(&name, "Delete").await?;
                    let mut claim = claim(&name, "");
                    claim["spec"]["volumeName"] = json!(name);
                    scenario.create::<PersistentVolumeClaim>(claim).await?;
                }
                format!("by hand s{number}")
            }
            6..=9 => {
                let claims = [self.any::<PersistentVolumeClaim>(scenario).await?, self.any(scenario).await?];
                let mut claims: Vec<String> = claims.into_iter().flatten().map(|c| c.name_any()).collect();
                claims.dedup();
                claims.truncate(1 + self.rng.below(2));
                let claims: Vec<&str> = claims.iter().map(String::as_str).collect();
                let script: &[_] = if self.rng.one_in(3) { &[("exit-after", "20ms")] } else { &[] };
                let mut pod = scripted(&format!("p{number}"), &claims, script);
                if self.rng.one_in(3) {
                    pod["spec"]["nodeName"] = json!(NODE);
                }
                scenario.create::<Pod>(pod).await?;
                format!("pod p{number} of {claims:?}")
            }
            10..=12 => self.delete_any::<PersistentVolumeClaim>(scenario).await?,
            13 | 14 => self.delete_any::<PersistentVolume>(scenario).await?,
            15 | 16 => self.delete_any::<Pod>(scenario).await?,
            17 => {
                let volume = self.any::<PersistentVolume>(scenario).await?;
                match volume.filter(|volume| !is_terminating(volume)) {
                    Some(volume) if is_claimed(scenario, &volume).await? => {
                        self.may_remain.insert(volume.name_any());
                        let retain = json!({"spec": {"persistentVolumeReclaimPolicy": "Retain"}});
                        ignore_not_found(
                            scenario.patch::<PersistentVolume>(&volume.name_any(), retain).await,
                        )?;
                        format!("retain {}", volume.name_any())
                    }
                    _ => String::new(),
                }
            }
            18 => match self.broken_root.take() {
                Some(broken_root) => {
                    broken_root.repair()?;
                    "mended".to_owned()
                }
                None => {
                    self.broken_root = scenario.break_driver_root().ok();
                    "broken".to_owned()
                }
            },
            _ => {
                let end = if self.rng.one_in(3) { Termination::Stop } else { Termination::Crash };
                scenario.restart(end).await?;
                format!("{end:?}")
            }
        })
    }

    async fn any<K: Kind>(&mut self, scenario: &Scenario) -> Result<Option<K>> {
        let mut all = scenario.api::<K>().list(&ListParams::default()).await?.items;
        let index = self.rng.below(all.len());
        Ok((index < all.len()).then(|| all.swap_remove(index)))
    }

    async fn delete_any<K: Kind>(&mut self, scenario: &mut Scenario) -> Result<String> {
        let Some(object) = self.any::<K>(scenario).await? else { return Ok(String::new()) };
        ignore_not_found(scenario.delete::<K>(&object.name_any()).await)?;
        Ok(format!("delete {}", object.name_any()))
    }

    /// Checks that every running pod has its claims, their volumes, and its data.
    async fn check_pods(&mut self, scenario: &Scenario) -> Result<()> {
        if self.broken_root.is_some() {
            return Ok(());
        }
        for pod in scenario.api::<Pod>().list(&ListParams::default()).await?.items {
            if pod_phase(&pod) != "Running" {
                continue;
            }
            let sources = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
            for claim in sources.filter_map(|volume| volume.persistent_volume_claim.as_ref()) {
                if let Err(loss) = self.check_data(scenario, &claim.claim_name).await {
                    // The pod may have been deleted meanwhile, and the claim after it.
                    let now = scenario.api::<Pod>().get_opt(&pod.name_any()).await?;
                    let is_there = now.is_some_and(|now| now.metadata.uid == pod.metadata.uid);
                    ensure!(
                        !is_there,
                        "pod {} has lost claim {}: {loss:?}",
                        pod.name_any(),
                        claim.claim_name
                    );
                }
            }
        }
        Ok(())
    }

    async fn check_data(&mut self, scenario: &Scenario, claim: &str) -> Result<()> {
        let bound_claim = scenario.get_bound_claim(claim).await?;
        if !self.written.contains(&bound_claim.volume) {
            ensure!(bound_claim.directory.is_dir(), "{} is not there", bound_claim.directory.display());
            bound_claim.write()?;
            self.written.insert(bound_claim.volume.clone());
        }
        ensure!(bound_claim.has_data(), "no data in {}", bound_claim.directory.display());
        Ok(())
    }

    /// Deletes all pods and claims. Then nothing may be stuck, and only the directories of existing
    /// volumes and those that may remain are left.
    async fn finish(&mut self, scenario: &mut Scenario) -> Result<()> {
        if let Some(broken_root) = self.broken_root.take() {
            broken_root.repair()?;
        }
        let (all, now) = (ListParams::default(), DeleteParams::default());
        scenario.api::<Pod>().delete_collection(&now, &all).await?;
        scenario.api::<PersistentVolumeClaim>().delete_collection(&now, &all).await?;
        let stuck = async || {
            let claims = scenario.api::<PersistentVolumeClaim>().list(&all).await?.items;
            let volumes = scenario.api::<PersistentVolume>().list(&all).await?.items;
            let to_delete = volumes.iter().filter(|volume| is_to_be_deleted(volume));
            let mut stuck = scenario.terminating().await?;
            stuck.extend(claims.iter().map(ResourceExt::name_any));
            stuck.extend(to_delete.map(ResourceExt::name_any));
            Ok(stuck)
        };
        if let Err(late) = until("everything goes", stuck, Vec::is_empty).await {
            return Err(late).with_context(|| "stuck");
        }
        scenario.until_settled().await?;
        let (owned, found) = (scenario.volume_directories().await?, scenario.directories()?);
        let lost: Vec<_> = owned.difference(&found).collect();
        ensure!(lost.is_empty(), "volumes have lost their directories: {lost:?}");
        let leaked = async || {
            let (owned, found) = (scenario.volume_directories().await?, scenario.directories()?);
            let leaked = found.difference(&owned).filter(|name| !self.may_remain.contains(*name));
            Ok(leaked.cloned().collect::<Vec<_>>())
        };
        // A failed deletion may be retried some time after its cause is repaired.
        until("no directory has leaked", leaked, Vec::is_empty).await.map(drop)
    }
}

/// Returns `true` if the claim of a volume exists and is not terminating. Otherwise the directory
/// of the volume may be deleted at any moment.
async fn is_claimed(scenario: &Scenario, volume: &PersistentVolume) -> Result<bool> {
    let reference = volume.spec.as_ref().and_then(|spec| spec.claim_ref.as_ref());
    let Some(name) = reference.and_then(|reference| reference.name.as_deref()) else { return Ok(false) };
    let claim = scenario.api::<PersistentVolumeClaim>().get_opt(name).await?;
    Ok(claim.is_some_and(|claim| !is_terminating(&claim)))
}

/// Returns `true` if a volume is to be deleted.
fn is_to_be_deleted(volume: &PersistentVolume) -> bool {
    let policy = volume.spec.as_ref().and_then(|spec| spec.persistent_volume_reclaim_policy.as_deref());
    // A volume that is pending was just provisioned for a claim.
    policy == Some("Delete") && volume_phase(volume) != "Available"
}

/// Ignores a 404: the object may have been deleted meanwhile.
fn ignore_not_found(result: Result<()>) -> Result<()> {
    let is_gone = |error: &dyn Display| error.to_string().contains("not found");
    match result {
        Err(error) if is_gone(&error) => Ok(()),
        result => result,
    }
}
