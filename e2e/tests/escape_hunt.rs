//! A random search for volumes whose deletion or recycling changes foreign files: volumes with
//! arbitrary paths, through links of pods, to links and links to links, with `..`, `.` and
//! superfluous slashes, exchanged for links while they are deleted; static volumes, and some that
//! claim to be provisioned. Neither a file outside nor one of another volume may change.
//!
//! `HUNT_SECONDS=600 cargo test -p coracle-e2e --test escape_hunt` runs for ten minutes instead of
//! a few seconds. A failure reports its seed; `HUNT_SEED=N` starts with it.

use std::collections::BTreeMap;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Instant;
use std::{fs, io};

use anyhow::{Context, Result, ensure};
use coracle_e2e::random::{self, Rng};
use coracle_e2e::volumes::{
    BoundClaim, Driver, Scenario, claim, pod_phase, run_scenario, scripted, volume_phase,
};
use coracle_e2e::wait::until;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod};
use kube::api::{ListParams, PostParams};
use kube::{Api, ResourceExt};
use rustix::fs::{CWD, RenameFlags, renameat_with};
use serde_json::{Value, json};
use tempfile::TempDir;

/// The volumes that are deleted in each round, and the rounds of a run.
const VOLUMES: usize = 12;
const ROUNDS: usize = 6;

#[tokio::test]
async fn host_path() -> Result<()> {
    run_seeds(Driver::HostPath).await
}

#[tokio::test]
async fn csi() -> Result<()> {
    run_seeds(Driver::Csi).await
}

async fn run_seeds(driver: Driver) -> Result<()> {
    let run = async |rng, end| {
        run_scenario(driver, None, async |scenario: &mut Scenario| {
            RandomRun::start(rng, scenario).await?.run(scenario, end).await
        })
        .await
    };
    random::run_seeds(driver, run).await
}

struct RandomRun {
    rng: Rng,
    data: PathBuf,
    outside: TempDir,
    /// Volumes in use.
    others: Vec<BoundClaim>,
    /// Links of a pod to directories that are not volumes.
    links: Vec<PathBuf>,
    number: usize,
    /// The attempts of this round.
    attempts: Vec<String>,
}

impl RandomRun {
    /// Creates two volumes in use, and a pod with links out of the data directory.
    async fn start(rng: Rng, scenario: &mut Scenario) -> Result<RandomRun> {
        let data = scenario.root().ancestors().nth(2).context("no data directory")?.to_owned();
        let outside = TempDir::with_prefix("coracle-outside-")?;
        for directory in ["deep/deeper", "empty"] {
            fs::create_dir_all(outside.path().join(directory))?;
        }
        for file in ["file", "deep/file", "deep/deeper/file"] {
            fs::write(outside.path().join(file), file)?;
        }
        let mut others = Vec::new();
        for (name, class) in [("of-driver", "delete"), ("of-default", "standard")] {
            others.push(scenario.create_bound(name, class).await?);
        }
        scenario.create_running_pod("user", &["of-driver", "of-default"]).await?;
        let targets =
            [outside.path().to_owned(), outside.path().join("deep"), data.clone(), data.join("pods")];
        let mut names = Vec::new();
        for (number, target) in targets.iter().enumerate() {
            let name = format!("out-{number}");
            let volume = json!({"metadata": {"name": name}, "spec": {
                "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}, "hostPath": {"path": target},
            }});
            scenario.create::<PersistentVolume>(volume).await?;
            let mut claim = claim(&name, "");
            claim["spec"]["volumeName"] = json!(name);
            scenario.create::<PersistentVolumeClaim>(claim).await?;
            names.push(name);
        }
        let claims: Vec<&str> = names.iter().map(String::as_str).collect();
        let pod: Pod = scenario.create(scripted("linked", &claims, &[])).await?;
        scenario.until("linked", |pod: &Pod| pod_phase(pod) == "Running").await?;
        let link_directory = data.join("pods").join(pod.uid().context("no uid")?).join("volumes");
        let links: Vec<PathBuf> = names.iter().map(|name| link_directory.join(name)).collect();
        ensure!(links.iter().all(|link| link.is_symlink()), "{links:?}");
        for root in ["volumes/host-path", "volumes/coracle.csi"] {
            let root = data.join(root);
            fs::create_dir_all(&root)?;
            symlink(outside.path(), root.join("a-link"))?;
            symlink(root.join("a-link"), root.join("a-link-to-a-link"))?;
            symlink("../../pods", root.join("a-relative-link"))?;
        }
        Ok(RandomRun { rng, data, outside, others, links, number: 0, attempts: Vec::new() })
    }

    async fn run(mut self, scenario: &mut Scenario, end: Instant) -> Result<()> {
        for round in 0..ROUNDS {
            let before = self.snapshot()?;
            self.round(scenario).await.with_context(|| format!("{:#?}", self.attempts))?;
            let after = self.snapshot()?;
            let changed: Vec<_> =
                before.iter().filter(|(path, file)| after.get(*path) != Some(file)).collect();
            ensure!(changed.is_empty(), "{changed:#?}\nchanged after {:#?}", self.attempts);
            ensure!(self.others.iter().all(BoundClaim::has_data));
            if round > 0 && Instant::now() > end {
                break;
            }
        }
        Ok(())
    }

    /// Creates volumes to be deleted, and waits until each has been processed.
    async fn round(&mut self, scenario: &mut Scenario) -> Result<()> {
        self.attempts.clear();
        let (mut condemned, mut swapping) = (Vec::new(), Vec::new());
        for _ in 0..VOLUMES {
            self.number += 1;
            let name = format!("condemned-{}", self.number);
            let source = self.source(&name, &mut swapping)?;
            let volume = self.volume(&name, &source);
            let by = volume.pointer("/metadata/annotations/pv.kubernetes.io~1provisioned-by");
            // The driver ignores these.
            let is_csi = source.get("csi").is_some() || by.is_some_and(|by| by == "coracle.csi");
            self.attempts.push(volume.to_string());
            let volumes: Api<PersistentVolume> = scenario.api();
            match volumes.create(&PostParams::default(), &serde_json::from_value(volume)?).await {
                Ok(_) if is_csi => {}
                Ok(_) => condemned.push(name),
                // Some paths are rejected.
                Err(kube::Error::Api(status)) if status.code == 422 => {}
                Err(error) => return Err(error.into()),
            }
        }
        let undecided = async || {
            let volumes = scenario.api::<PersistentVolume>().list(&ListParams::default()).await?.items;
            let is_undecided = |volume: &&PersistentVolume| {
                condemned.contains(&volume.name_any())
                    && !matches!(volume_phase(volume), "Failed" | "Available")
            };
            Ok(volumes.iter().filter(is_undecided).map(ResourceExt::name_any).collect::<Vec<_>>())
        };
        let decided = until("everything is decided", undecided, Vec::is_empty).await;
        // The driver processes volumes in order, and this is the last one.
        let settled = scenario.until_settled().await;
        for swap in swapping {
            swap.end();
        }
        decided?;
        settled?;
        let volumes: Api<PersistentVolume> = scenario.api();
        let all = volumes.list(&ListParams::default()).await?.items;
        for volume in all.iter().filter(|volume| volume.name_any().starts_with("condemned-")) {
            // Only the objects, since their directories are no longer processed.
            let free = kube::api::Patch::Merge(json!({"metadata": {"finalizers": null}}));
            let name = volume.name_any();
            volumes.delete(&name, &Default::default()).await.map(drop).or_else(ignore_not_found)?;
            volumes.patch(&name, &Default::default(), &free).await.map(drop).or_else(ignore_not_found)?;
        }
        Ok(())
    }

    fn volume(&mut self, name: &str, source: &Value) -> Value {
        let policy = if self.rng.one_in(3) { "Recycle" } else { "Delete" };
        let mut spec = json!({
            "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"},
            "persistentVolumeReclaimPolicy": policy,
            // The claim does not exist, so the volume is released immediately.
            "claimRef": {"kind": "PersistentVolumeClaim", "namespace": "default", "name": "gone", "uid": "gone"},
        });
        if let (Some(spec), Some(source)) = (spec.as_object_mut(), source.as_object()) {
            spec.extend(source.clone());
        }
        let mut volume = json!({"metadata": {"name": name}, "spec": spec});
        if self.rng.one_in(2) {
            let by = ["kubernetes.io/host-path", "coracle.csi"][self.rng.below(2)];
            volume["metadata"]["annotations"] = json!({"pv.kubernetes.io/provisioned-by": by});
        }
        volume
    }

    fn source(&mut self, name: &str, swapping: &mut Vec<Exchanger>) -> Result<Value> {
        if self.rng.one_in(4) {
            let other = self.others[self.rng.below(self.others.len())].name();
            let handles = [
                "..",
                ".",
                "../host-path",
                "../../pods",
                "a-link",
                "a-link/deep",
                "a-link-to-a-link",
                "/tmp",
                name,
                &other,
                &format!("{other}/"),
                &format!("{other}/deep"),
                &format!("./{other}"),
                "a-relative-link",
                "",
            ]
            .map(str::to_owned);
            let handle = &handles[self.rng.below(handles.len())];
            return Ok(json!({"csi": {"driver": "coracle.csi", "volumeHandle": handle}}));
        }
        let root = self.data.join("volumes/host-path");
        let path = match self.rng.below(5) {
            0 => self.removable_directory(&root, name, swapping)?,
            1 => self.links[self.rng.below(self.links.len())]
                .join(["", "deep", "deep/deeper", "store"][self.rng.below(4)]),
            2 => self.others[self.rng.below(self.others.len())].directory.clone(),
            3 => root.join(
                ["a-link", "a-link/deep", "a-link-to-a-link", "a-relative-link", "..", ".", "", "../../pods"]
                    [self.rng.below(8)],
            ),
            _ => {
                let places = [
                    self.outside.path().to_owned(),
                    self.outside.path().join("deep"),
                    self.data.clone(),
                    self.data.join("pods"),
                    self.data.join("store"),
                    self.data.join("volumes"),
                    self.data.join("volumes/coracle.csi"),
                    self.data.join("volumes/begun"),
                    self.links[0].ancestors().nth(2).context("no pod")?.to_owned(),
                    PathBuf::from("outside"),
                ];
                places[self.rng.below(places.len())].clone()
            }
        };
        let path = path.to_string_lossy();
        let path = match self.rng.below(6) {
            0 => format!("{path}/"),
            1 => format!("{path}//."),
            2 => path.replacen('/', "//", 2),
            3 => path.replacen("/volumes", "/./volumes", 1),
            4 if self.rng.one_in(3) => format!("{path}/../{}", name),
            _ => path.into_owned(),
        };
        Ok(json!({"hostPath": {"path": path}}))
    }

    /// Creates a directory that may be removed, with links in it; sometimes a part of it is
    /// repeatedly exchanged for a link in the meantime.
    fn removable_directory(
        &mut self,
        root: &Path,
        name: &str,
        swapping: &mut Vec<Exchanger>,
    ) -> Result<PathBuf> {
        let removable_directory = root.join(name);
        for number in 0..30 {
            let directory = removable_directory.join(format!("{number}/deep"));
            fs::create_dir_all(&directory)?;
            fs::write(directory.join("file"), "x")?;
            symlink(self.outside.path(), directory.join("link"))?;
        }
        symlink(self.data.join("pods"), removable_directory.join("link"))?;
        if self.rng.one_in(2) {
            let link = root.join(format!("{name}-swapped"));
            symlink(self.outside.path(), &link)?;
            let part = if self.rng.one_in(2) {
                removable_directory.clone()
            } else {
                removable_directory.join(self.rng.below(30).to_string())
            };
            swapping.push(Exchanger::start(part, link));
        }
        Ok(removable_directory)
    }

    /// Returns everything that must not change: the content of each file, the target of each link.
    fn snapshot(&self) -> Result<BTreeMap<PathBuf, String>> {
        let mut snapshot = BTreeMap::new();
        add_entries(self.outside.path(), &mut snapshot)?;
        add_entries(&self.data, &mut snapshot)?;
        let is_volatile = |path: &Path| {
            let inner = path.strip_prefix(&self.data).unwrap_or(Path::new(""));
            let is_condemned = inner.starts_with("volumes")
                && inner
                    .components()
                    .any(|part| part.as_os_str().to_string_lossy().starts_with("condemned-"));
            inner.starts_with("store") || inner.starts_with("volumes/begun") || is_condemned
        };
        snapshot.retain(|path, _| !is_volatile(path));
        Ok(snapshot)
    }
}

fn add_entries(directory: &Path, snapshot: &mut BTreeMap<PathBuf, String>) -> Result<()> {
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let (path, kind) = (entry.path(), entry.file_type()?);
        let is_store = path.ends_with("store");
        let says = match () {
            () if kind.is_symlink() => match fs::read_link(&path) {
                Ok(target) => target.display().to_string(),
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err(error.into()),
            },
            () if kind.is_dir() => "a directory".to_owned(),
            () => fs::read_to_string(&path).unwrap_or_default(),
        };
        snapshot.insert(path.clone(), says);
        // Directories that are being removed may disappear, and the store changes all the time.
        if kind.is_dir()
            && !is_store
            && let Err(error) = add_entries(&path, snapshot)
        {
            ensure!(!path.exists(), error);
        }
    }
    Ok(())
}

/// Exchanges a directory and a link repeatedly.
struct Exchanger {
    is_over: Arc<AtomicBool>,
    thread: JoinHandle<()>,
    link: PathBuf,
}

impl Exchanger {
    fn start(part: PathBuf, link: PathBuf) -> Exchanger {
        let is_over = Arc::new(AtomicBool::new(false));
        let (until, place) = (is_over.clone(), link.clone());
        let thread = std::thread::spawn(move || {
            while !until.load(Ordering::Relaxed) {
                // The directory may have been removed.
                let _ = renameat_with(CWD, &part, CWD, &place, RenameFlags::EXCHANGE);
                std::thread::yield_now();
            }
        });
        Exchanger { is_over, thread, link }
    }

    fn end(self) {
        self.is_over.store(true, Ordering::Relaxed);
        let _ = self.thread.join();
        let is_link = self.link.is_symlink();
        let _ = if is_link { fs::remove_file(&self.link) } else { fs::remove_dir_all(&self.link) };
    }
}

fn ignore_not_found(error: kube::Error) -> Result<()> {
    match error {
        kube::Error::Api(status) if matches!(status.code, 404 | 409) => Ok(()),
        error => Err(error.into()),
    }
}
