//! A hunt for volumes that leak, data that are lost, and deletions that get stuck: claims, volumes and pods come and go at
//! random, what deletes directories fails now and then, and the server ends at random.
//!
//! `HUNT_SECONDS=600 cargo test -p coracle-e2e --test leak_hunt` hunts for ten minutes instead of a few seconds. A hunt that
//! found something tells its seed; `HUNT_SEED=N` begins with it.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use coracle_e2e::chance::{self, Chance};
use coracle_e2e::cluster::End;
use coracle_e2e::volumes::{
    Broken, Driver, Kind, NODE, Story, claim, is_terminating, pod_phase, scripted, tell, volume_phase,
};
use coracle_e2e::wait::until;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod};
use kube::ResourceExt;
use kube::api::{DeleteParams, ListParams};
use serde_json::json;

const ACTS: usize = 120;

#[tokio::test]
async fn host_path() -> Result<()> {
    hunts(Driver::HostPath).await
}

#[tokio::test]
async fn csi() -> Result<()> {
    hunts(Driver::Csi).await
}

#[tokio::test]
async fn migrated() -> Result<()> {
    hunts(Driver::Migrated).await
}

async fn hunts(driver: Driver) -> Result<()> {
    let hunt = async |chance, end| {
        tell(driver, None, async |story: &mut Story| Hunt::new(chance).run(story, end).await).await
    };
    chance::hunts(driver, hunt).await
}

struct Hunt {
    chance: Chance,
    /// What was done, to what.
    acts: Vec<String>,
    /// Directories that nobody has to delete: of volumes that were retained at some time, or made by hand.
    may_stay: BTreeSet<String>,
    /// Volumes that a pod wrote to.
    written: BTreeSet<String>,
    broken: Option<Broken>,
}

impl Hunt {
    fn new(chance: Chance) -> Hunt {
        Hunt { chance, acts: Vec::new(), may_stay: BTreeSet::new(), written: BTreeSet::new(), broken: None }
    }

    async fn run(mut self, story: &mut Story, end: Instant) -> Result<()> {
        for number in 0..ACTS {
            let act = self.act(story, number).await?;
            self.acts.push(act);
            self.look(story).await?;
            if number > ACTS / 3 && Instant::now() > end {
                break;
            }
        }
        let finished = self.finish(story).await;
        finished.with_context(|| format!("after {}", self.acts.join(", ")))
    }

    /// One random act; returns what it was.
    async fn act(&mut self, story: &mut Story, number: usize) -> Result<String> {
        Ok(match self.chance.below(20) {
            0..=4 => {
                let is_retained = self.chance.one_in(4);
                let class = if is_retained { "retain" } else { "delete" };
                let claim: PersistentVolumeClaim = story.create(claim(&format!("c{number}"), class)).await?;
                if is_retained {
                    self.may_stay.insert(format!("pvc-{}", claim.uid().unwrap_or_default()));
                }
                format!("{class} c{number} pvc-{}", claim.uid().unwrap_or_default())
            }
            5 => {
                let name = format!("s{number}");
                if self.broken.is_none() {
                    self.may_stay.insert(name.clone());
                    story.volume_by_hand(&name, "Delete").await?;
                    let mut claim = claim(&name, "");
                    claim["spec"]["volumeName"] = json!(name);
                    story.create::<PersistentVolumeClaim>(claim).await?;
                }
                format!("by hand s{number}")
            }
            6..=9 => {
                let claims = [self.any::<PersistentVolumeClaim>(story).await?, self.any(story).await?];
                let mut claims: Vec<String> = claims.into_iter().flatten().map(|c| c.name_any()).collect();
                claims.dedup();
                claims.truncate(1 + self.chance.below(2));
                let claims: Vec<&str> = claims.iter().map(String::as_str).collect();
                let script: &[_] = if self.chance.one_in(3) { &[("exit-after", "20ms")] } else { &[] };
                let mut pod = scripted(&format!("p{number}"), &claims, script);
                if self.chance.one_in(3) {
                    pod["spec"]["nodeName"] = json!(NODE);
                }
                story.create::<Pod>(pod).await?;
                format!("pod p{number} of {claims:?}")
            }
            10..=12 => self.delete_any::<PersistentVolumeClaim>(story).await?,
            13 | 14 => self.delete_any::<PersistentVolume>(story).await?,
            15 | 16 => self.delete_any::<Pod>(story).await?,
            17 => {
                let volume = self.any::<PersistentVolume>(story).await?;
                match volume.filter(|volume| !is_terminating(volume)) {
                    Some(volume) if is_claimed(story, &volume).await? => {
                        self.may_stay.insert(volume.name_any());
                        let retain = json!({"spec": {"persistentVolumeReclaimPolicy": "Retain"}});
                        allow_gone(story.patch::<PersistentVolume>(&volume.name_any(), retain).await)?;
                        format!("retain {}", volume.name_any())
                    }
                    _ => String::new(),
                }
            }
            18 => match self.broken.take() {
                Some(broken) => {
                    broken.mend()?;
                    "mended".to_owned()
                }
                None => {
                    self.broken = story.break_root().ok();
                    "broken".to_owned()
                }
            },
            _ => {
                let end = if self.chance.one_in(3) { End::Stop } else { End::Crash };
                story.restart(end).await?;
                format!("{end:?}")
            }
        })
    }

    async fn any<K: Kind>(&mut self, story: &Story) -> Result<Option<K>> {
        let mut all = story.api::<K>().list(&ListParams::default()).await?.items;
        let index = self.chance.below(all.len());
        Ok((index < all.len()).then(|| all.swap_remove(index)))
    }

    async fn delete_any<K: Kind>(&mut self, story: &mut Story) -> Result<String> {
        let Some(object) = self.any::<K>(story).await? else { return Ok(String::new()) };
        allow_gone(story.delete::<K>(&object.name_any()).await)?;
        Ok(format!("delete {}", object.name_any()))
    }

    /// Every pod that runs has its claims, their volumes, and what it wrote.
    async fn look(&mut self, story: &Story) -> Result<()> {
        if self.broken.is_some() {
            return Ok(());
        }
        for pod in story.api::<Pod>().list(&ListParams::default()).await?.items {
            if pod_phase(&pod) != "Running" {
                continue;
            }
            let sources = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
            for claim in sources.filter_map(|volume| volume.persistent_volume_claim.as_ref()) {
                if let Err(loss) = self.look_at(story, &claim.claim_name).await {
                    // It may have gone in between, and the claim after it.
                    let now = story.api::<Pod>().get_opt(&pod.name_any()).await?;
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

    async fn look_at(&mut self, story: &Story, claim: &str) -> Result<()> {
        let asset = story.look(claim).await?;
        if !self.written.contains(&asset.volume) {
            ensure!(asset.directory.is_dir(), "{} is not there", asset.directory.display());
            asset.write()?;
            self.written.insert(asset.volume.clone());
        }
        ensure!(asset.has_data(), "no data in {}", asset.directory.display());
        Ok(())
    }

    /// All pods and claims go. Then nothing may be stuck, and nothing left but what is owned or may stay.
    async fn finish(&mut self, story: &mut Story) -> Result<()> {
        if let Some(broken) = self.broken.take() {
            broken.mend()?;
        }
        let (all, now) = (ListParams::default(), DeleteParams::default());
        story.api::<Pod>().delete_collection(&now, &all).await?;
        story.api::<PersistentVolumeClaim>().delete_collection(&now, &all).await?;
        let stuck = async || {
            let claims = story.api::<PersistentVolumeClaim>().list(&all).await?.items;
            let volumes = story.api::<PersistentVolume>().list(&all).await?.items;
            let to_delete = volumes.iter().filter(|volume| is_to_delete(volume));
            let mut stuck = story.stuck().await?;
            stuck.extend(claims.iter().map(ResourceExt::name_any));
            stuck.extend(to_delete.map(ResourceExt::name_any));
            Ok(stuck)
        };
        if let Err(late) = until("everything goes", stuck, Vec::is_empty).await {
            return Err(late).with_context(|| "stuck");
        }
        story.settle().await?;
        let (owned, found) = (story.owned().await?, story.directories()?);
        let lost: Vec<_> = owned.difference(&found).collect();
        ensure!(lost.is_empty(), "volumes have lost their directories: {lost:?}");
        let leaked = async || {
            let (owned, found) = (story.owned().await?, story.directories()?);
            let leaked = found.difference(&owned).filter(|name| !self.may_stay.contains(*name));
            Ok(leaked.cloned().collect::<Vec<_>>())
        };
        // What failed may be tried again a while after what made it fail is over.
        until("no directory has leaked", leaked, Vec::is_empty).await.map(drop)
    }
}

/// Whether the claim of a volume is there to stay: otherwise what is behind the volume may be deleted at this moment.
async fn is_claimed(story: &Story, volume: &PersistentVolume) -> Result<bool> {
    let reference = volume.spec.as_ref().and_then(|spec| spec.claim_ref.as_ref());
    let Some(name) = reference.and_then(|reference| reference.name.as_deref()) else { return Ok(false) };
    let claim = story.api::<PersistentVolumeClaim>().get_opt(name).await?;
    Ok(claim.is_some_and(|claim| !is_terminating(&claim)))
}

/// Whether a volume waits for its end.
fn is_to_delete(volume: &PersistentVolume) -> bool {
    let policy = volume.spec.as_ref().and_then(|spec| spec.persistent_volume_reclaim_policy.as_deref());
    // One that is pending was made for a claim just now.
    policy == Some("Delete") && volume_phase(volume) != "Available"
}

/// What was to be changed may have gone.
fn allow_gone(result: Result<()>) -> Result<()> {
    let is_gone = |error: &dyn Display| error.to_string().contains("not found");
    match result {
        Err(error) if is_gone(&error) => Ok(()),
        result => result,
    }
}
