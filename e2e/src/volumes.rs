//! Volume scenarios: a control plane with volumes in directories, claims and pods that use them,
//! checks of the files on disk, and a restart of the server after each step.
//!
//! A scenario is a function of [`Scenario`]; [`scenario`](crate::scenario) makes tests of it for
//! each driver: uninterrupted, and with the server stopped and killed, in turn, after each step. A
//! scenario ends with a check that no object is stuck and that only the directories of existing
//! volumes and those that it names remain.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{
    ConfigMap, Event, Namespace, Node, PersistentVolume, PersistentVolumeClaim, Pod, ServiceAccount,
};
use k8s_openapi::api::storage::v1::{StorageClass, VolumeAttachment};
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Client, Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::cluster::{Cluster, Termination, cluster};
use crate::wait::{until, until_object};

/// The finalizer that keeps claims while pods use them.
pub const CLAIM_PROTECTION: &str = "kubernetes.io/pvc-protection";
/// The finalizer that keeps volumes while claims are bound to them.
pub const VOLUME_PROTECTION: &str = "kubernetes.io/pv-protection";
/// The finalizer of the in-tree plugin on its volumes (KEP-2644).
pub const IN_TREE_PROTECTION: &str = "kubernetes.io/pv-controller";
/// The finalizer of an external provisioner on its volumes (KEP-2644).
pub const EXTERNAL_PROTECTION: &str = "external-provisioner.volume.kubernetes.io/finalizer";

/// The feature gate of CSI migration for the in-tree plugin.
pub const MIGRATION: &str = "CSIMigrationHostPath";

/// The node of the pods.
pub const NODE: &str = "node-0";

/// The content of files on volumes.
const DATA: &str = "not to be lost";

/// The directories of volumes, relative to the data directory.
const HOST_PATH_ROOT: &str = "volumes/host-path";
const CSI_ROOT: &str = "volumes/coracle.csi";

/// The driver that creates and deletes the directories of volumes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Driver {
    /// The in-tree plugin in the controller.
    HostPath,
    /// The simulated CSI driver.
    Csi,
    /// The CSI driver, for volumes of the in-tree plugin: CSI migration.
    Migrated,
}

impl Driver {
    /// All drivers.
    pub const ALL: [Driver; 3] = [Driver::HostPath, Driver::Csi, Driver::Migrated];

    /// Returns the name of the driver in its StorageClasses.
    pub fn provisioner(self) -> &'static str {
        match self {
            Driver::HostPath | Driver::Migrated => "kubernetes.io/host-path",
            Driver::Csi => "coracle.csi",
        }
    }

    /// Returns the driver's finalizer, which keeps a volume until its directory is deleted
    /// (KEP-2644).
    pub fn finalizer(self) -> &'static str {
        match self {
            Driver::HostPath => IN_TREE_PROTECTION,
            Driver::Csi | Driver::Migrated => EXTERNAL_PROTECTION,
        }
    }

    /// Returns `true` if the driver removes its finalizers from volumes when the feature is turned
    /// off.
    pub fn removes_finalizers_on_rollback(self) -> bool {
        self != Driver::HostPath
    }

    /// Returns `true` if the driver also protects static volumes once they are bound.
    pub fn protects_static_volumes(self) -> bool {
        self == Driver::Csi
    }

    /// Returns the phase of a volume after a failed deletion.
    pub fn phase_after_failure(self) -> &'static str {
        match self {
            Driver::HostPath => "Failed",
            Driver::Csi | Driver::Migrated => "Released",
        }
    }

    fn gates(self) -> BTreeMap<&'static str, bool> {
        BTreeMap::from([(MIGRATION, self == Driver::Migrated)])
    }

    fn root(self) -> &'static str {
        match self {
            Driver::HostPath | Driver::Migrated => HOST_PATH_ROOT,
            Driver::Csi => CSI_ROOT,
        }
    }

    /// Returns the volume source for a directory with this name.
    fn source(self, root: &Path, name: &str) -> Value {
        match self {
            Driver::HostPath | Driver::Migrated => json!({"hostPath": {"path": root.join(name)}}),
            Driver::Csi => json!({"csi": {"driver": "coracle.csi", "volumeHandle": name}}),
        }
    }
}

/// Returns the root of a volume's directory, and the directory's name there.
fn directory(volume: &PersistentVolume) -> Option<(&'static str, String)> {
    let spec = volume.spec.as_ref()?;
    match (&spec.host_path, &spec.csi) {
        (Some(source), _) => {
            Some((HOST_PATH_ROOT, Path::new(&source.path).file_name()?.to_string_lossy().into_owned()))
        }
        (None, Some(source)) => Some((CSI_ROOT, source.volume_handle.clone())),
        (None, None) => None,
    }
}

/// The kinds of objects in scenarios.
pub trait Kind:
    Resource<DynamicType = ()> + Clone + Debug + Serialize + DeserializeOwned + Send + 'static
{
    /// Returns the API of the kind. `namespace` is ignored for cluster-scoped kinds.
    fn api(client: Client, namespace: &str) -> Api<Self>;
}

macro_rules! kinds {
    (of a cluster: $($clustered:ty),*; of a namespace: $($namespaced:ty),* $(,)?) => {
        $(impl Kind for $clustered {
            fn api(client: Client, _: &str) -> Api<Self> {
                Api::all(client)
            }
        })*
        $(impl Kind for $namespaced {
            fn api(client: Client, namespace: &str) -> Api<Self> {
                Api::namespaced(client, namespace)
            }
        })*
    };
}

kinds! {
    of a cluster: Namespace, Node, PersistentVolume, StorageClass, VolumeAttachment;
    of a namespace: ConfigMap, Event, PersistentVolumeClaim, Pod, StatefulSet,
}

/// A bound claim, its volume, and the directory of the volume.
#[derive(Clone, Debug)]
pub struct BoundClaim {
    /// The name of the claim.
    pub claim: String,
    /// The name of the volume.
    pub volume: String,
    /// The path of the volume's directory.
    pub directory: PathBuf,
}

impl BoundClaim {
    /// Writes data as a pod would. It cannot create the directory of the volume.
    pub fn write(&self) -> Result<()> {
        let deep = self.directory.join("deep");
        if !deep.is_dir() {
            fs::create_dir(deep)?;
        }
        Ok(fs::write(self.directory.join("deep/file"), DATA)?)
    }

    /// Returns `true` if the volume has the data that [`BoundClaim::write`] wrote.
    pub fn has_data(&self) -> bool {
        fs::read_to_string(self.directory.join("deep/file")).is_ok_and(|text| text == DATA)
    }

    /// Returns the name of the directory.
    pub fn name(&self) -> String {
        self.directory.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }
}

/// A control plane with its own data directory, and its kind of interruptions.
pub struct Scenario {
    /// The driver of the volumes.
    pub driver: Driver,
    /// The namespace of claims and pods.
    pub namespace: &'static str,
    /// The way in which the server is terminated after the next step; None for an uninterrupted
    /// scenario.
    interruption: Option<Termination>,
    /// The value of `--controllers`.
    controllers: String,
    gates: BTreeMap<&'static str, bool>,
    nodes: usize,
    data: TempDir,
    cluster: Option<Cluster>,
    client: Client,
}

/// Runs a scenario, and prints the server's log if it fails.
///
/// # Errors
/// The error of the scenario.
pub async fn run_scenario(
    driver: Driver,
    interruption: Option<Termination>,
    scenario: impl AsyncFnOnce(&mut Scenario) -> Result<()>,
) -> Result<()> {
    let mut state = Scenario::start(driver).await?;
    state.interruption = interruption;
    let result = scenario(&mut state).await;
    if let (Err(_), Some(cluster)) = (&result, &state.cluster) {
        eprintln!("--- what coracle said:\n{}---", cluster.log());
    }
    result
}

impl Scenario {
    /// Starts a control plane with one node, and the classes `delete` and `retain`.
    pub async fn start(driver: Driver) -> Result<Scenario> {
        Scenario::with_nodes(driver, 1).await
    }

    /// Starts a control plane with this number of nodes.
    pub async fn with_nodes(driver: Driver, nodes: usize) -> Result<Scenario> {
        let data = TempDir::with_prefix("coracle-volumes-")?;
        let (controllers, gates) = ("*".to_owned(), driver.gates());
        let (cluster, client) = start(data.path(), nodes, &controllers, &gates).await?;
        until_object(Api::<ServiceAccount>::default_namespaced(client.clone()), "default", |found| {
            found.is_some()
        })
        .await?;
        let cluster = Some(cluster);
        let (namespace, interruption) = ("default", None);
        let mut scenario =
            Scenario { driver, namespace, interruption, controllers, gates, nodes, data, cluster, client };
        for (name, policy) in [("delete", "Delete"), ("retain", "Retain")] {
            let class = json!({
                "metadata": {"name": name}, "provisioner": driver.provisioner(), "reclaimPolicy": policy,
            });
            scenario.create::<StorageClass>(class).await?;
        }
        Ok(scenario)
    }

    /// Starts another control plane with data of its own, interrupted like this one.
    pub async fn start_another(&self) -> Result<Scenario> {
        let mut other = Scenario::start(self.driver).await?;
        other.interruption = self.interruption;
        Ok(other)
    }

    /// Returns the API of a kind, in the scenario's namespace.
    pub fn api<K: Kind>(&self) -> Api<K> {
        K::api(self.client.clone(), self.namespace)
    }

    /// Returns a client of the running server.
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// Returns the running server.
    pub fn cluster(&self) -> Result<&Cluster> {
        self.cluster.as_ref().context("it has ended")
    }

    /// Returns the directory that contains the directories of the driver's volumes.
    pub fn root(&self) -> PathBuf {
        self.data.path().join(self.driver.root())
    }

    /// Ends the server, and starts it again on the same data.
    pub async fn restart(&mut self, end: Termination) -> Result<()> {
        self.restart_after(end, || Ok(())).await
    }

    /// Ends the server, and starts it again after `between`, whose changes the server does not
    /// observe.
    pub async fn restart_after(
        &mut self,
        end: Termination,
        between: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        end.apply(self.cluster.take().context("it has ended")?).await?;
        between()?;
        let (cluster, client) = start(self.data.path(), self.nodes, &self.controllers, &self.gates).await?;
        (self.cluster, self.client) = (Some(cluster), client);
        Ok(())
    }

    /// Restarts the server with this selection of controllers.
    pub async fn restart_with_controllers(&mut self, selection: &str) -> Result<()> {
        selection.clone_into(&mut self.controllers);
        self.restart(Termination::Stop).await
    }

    /// Restarts the server with a feature gate set.
    pub async fn restart_with_gate(&mut self, gate: &'static str, is_on: bool) -> Result<()> {
        self.gates.insert(gate, is_on);
        self.restart(Termination::Stop).await
    }

    /// Restarts the server if the scenario is interrupted, stopping and killing it in turn. Each
    /// method that changes objects calls it.
    pub async fn interrupt(&mut self) -> Result<()> {
        let Some(end) = self.interruption else { return Ok(()) };
        self.interruption = Some(match end {
            Termination::Stop => Termination::Crash,
            Termination::Crash => Termination::Stop,
        });
        self.restart(end).await
    }

    /// Runs several steps as one, with an interruption only after the last.
    pub async fn uninterrupted<T>(
        &mut self,
        step: impl AsyncFnOnce(&mut Scenario) -> Result<T>,
    ) -> Result<T> {
        let interruption = self.interruption.take();
        let outcome = step(self).await?;
        self.interruption = interruption;
        self.interrupt().await?;
        Ok(outcome)
    }

    /// Makes the driver's operations on directories fail until the root is repaired.
    pub fn break_driver_root(&self) -> Result<BrokenRoot> {
        let root = self.root();
        let aside = root.with_extension("aside");
        fs::write(&aside, "not a directory")?;
        exchange(&root, &aside)?;
        Ok(BrokenRoot { root, aside })
    }

    /// Creates an object, as one step.
    pub async fn create<K: Kind>(&mut self, object: Value) -> Result<K> {
        let object = serde_json::from_value(object)?;
        let object = self.api::<K>().create(&PostParams::default(), &object).await?;
        self.interrupt().await?;
        Ok(object)
    }

    /// Reads an object.
    pub async fn get<K: Kind>(&self, name: &str) -> Result<K> {
        Ok(self.api::<K>().get(name).await?)
    }

    /// Applies a merge patch to an object, as one step.
    pub async fn patch<K: Kind>(&mut self, name: &str, patch: Value) -> Result<()> {
        self.api::<K>().patch(name, &PatchParams::default(), &Patch::Merge(patch)).await?;
        self.interrupt().await
    }

    /// Deletes an object, as one step.
    pub async fn delete<K: Kind>(&mut self, name: &str) -> Result<()> {
        self.api::<K>().delete(name, &DeleteParams::default()).await?;
        self.interrupt().await
    }

    /// Waits until an object exists and meets a condition.
    pub async fn until<K: Kind>(&self, name: &str, condition: impl Fn(&K) -> bool) -> Result<K> {
        let object = until_object(self.api::<K>(), name, |object| object.is_some_and(&condition)).await?;
        object.with_context(|| format!("{name} is gone"))
    }

    /// Waits until an object does not exist.
    pub async fn until_deleted<K: Kind>(&self, name: &str) -> Result<()> {
        until_object(self.api::<K>(), name, |object: Option<&K>| object.is_none()).await.map(drop)
    }

    /// Waits until an event of an object has this reason and contains the message.
    pub async fn wait_for_event(&self, name: &str, reason: &str, message: &str) -> Result<()> {
        let ask = async || Ok(self.api::<Event>().list(&ListParams::default()).await?.items);
        let matches = |events: &Vec<Event>| {
            events.iter().any(|event| {
                event.involved_object.name.as_deref() == Some(name)
                    && event.reason.as_deref() == Some(reason)
                    && event.message.as_deref().is_some_and(|text| text.contains(message))
            })
        };
        until(&format!("{reason} of {name}: {message}"), ask, matches).await.map(drop)
    }

    /// Waits for an event that is recorded only once: a server that is interrupted at that moment
    /// loses it.
    pub async fn until_event_once(&self, name: &str, reason: &str, message: &str) -> Result<()> {
        match self.interruption {
            None => self.wait_for_event(name, reason, message).await,
            Some(_) => Ok(()),
        }
    }

    /// Creates a bound claim of a class, with data on its volume.
    pub async fn create_bound(&mut self, name: &str, class: &str) -> Result<BoundClaim> {
        self.create::<PersistentVolumeClaim>(claim(name, class)).await?;
        self.write_data(name).await
    }

    /// Creates a static volume with a reclaim policy, bound to a claim, with data on it.
    pub async fn create_bound_static(&mut self, name: &str, policy: &str) -> Result<BoundClaim> {
        self.create_static_volume(name, policy).await?;
        let mut claim = claim(name, "");
        claim["spec"]["volumeName"] = json!(name);
        self.create::<PersistentVolumeClaim>(claim).await?;
        self.write_data(name).await
    }

    /// Creates a static volume, and returns its directory.
    pub async fn create_static_volume(&mut self, name: &str, policy: &str) -> Result<PathBuf> {
        let directory = self.root().join(name);
        fs::create_dir_all(&directory)?;
        let mut spec = self.driver.source(&self.root(), name);
        spec["accessModes"] = json!(["ReadWriteOnce"]);
        spec["capacity"] = json!({"storage": "1Gi"});
        spec["persistentVolumeReclaimPolicy"] = json!(policy);
        self.create::<PersistentVolume>(json!({"metadata": {"name": name}, "spec": spec})).await?;
        Ok(directory)
    }

    /// Waits until a claim is bound, and writes data to its volume.
    pub async fn write_data(&self, claim: &str) -> Result<BoundClaim> {
        let bound = self.until(claim, |claim: &PersistentVolumeClaim| claim_phase(claim) == "Bound").await?;
        let volume = bound.spec.and_then(|spec| spec.volume_name).context("no volume")?;
        self.until(&volume, |volume: &PersistentVolume| volume_phase(volume) == "Bound").await?;
        let bound_claim = self.get_bound_claim(claim).await?;
        ensure!(bound_claim.directory.is_dir(), "{} is not there", bound_claim.directory.display());
        bound_claim.write()?;
        Ok(bound_claim)
    }

    /// Returns a claim with its volume and directory.
    pub async fn get_bound_claim(&self, claim: &str) -> Result<BoundClaim> {
        let bound: PersistentVolumeClaim = self.get(claim).await?;
        let volume = bound.spec.and_then(|spec| spec.volume_name).context("no volume")?;
        let (root, name) =
            directory(&self.get::<PersistentVolume>(&volume).await?).context("no directory")?;
        let directory = self.data.path().join(root).join(name);
        Ok(BoundClaim { claim: claim.to_owned(), volume, directory })
    }

    /// Creates a pod and waits until it is running.
    pub async fn create_running_pod(&mut self, name: &str, claims: &[&str]) -> Result<()> {
        self.create::<Pod>(pod(name, claims)).await?;
        self.until(name, |pod: &Pod| pod_phase(pod) == "Running").await.map(drop)
    }

    /// Waits until the controllers have processed everything before: an unused claim is bound and
    /// then deleted with its volume.
    pub async fn until_settled(&self) -> Result<()> {
        let canary = self.canary().await?;
        self.until_canary_gone(&canary).await
    }

    /// Waits as [`Scenario::until_settled`] does, without claim protection.
    pub async fn until_settled_without_protection(&self) -> Result<()> {
        let canary = self.canary().await?;
        let free = Patch::Merge(json!({"metadata": {"finalizers": null}}));
        self.api::<PersistentVolumeClaim>().patch("canary", &PatchParams::default(), &free).await?;
        self.until_canary_gone(&canary).await
    }

    /// Creates a claim, waits until it is bound, and deletes it; returns the name of its volume.
    async fn canary(&self) -> Result<String> {
        let claims = self.api::<PersistentVolumeClaim>();
        let canary = serde_json::from_value(claim("canary", "delete"))?;
        claims.create(&PostParams::default(), &canary).await?;
        let bound =
            self.until("canary", |claim: &PersistentVolumeClaim| claim_phase(claim) == "Bound").await?;
        claims.delete("canary", &DeleteParams::default()).await?;
        bound.spec.and_then(|spec| spec.volume_name).context("no volume")
    }

    async fn until_canary_gone(&self, volume: &str) -> Result<()> {
        self.until_deleted::<PersistentVolumeClaim>("canary").await?;
        self.until_deleted::<PersistentVolume>(volume).await
    }

    /// Checks that the claim is terminating and that its volume is still bound, with its data.
    pub async fn assert_postponed(&self, bound_claim: &BoundClaim) -> Result<()> {
        self.until_settled().await?;
        let claim: PersistentVolumeClaim = self.get(&bound_claim.claim).await?;
        ensure!(is_terminating(&claim), "{claim:?}");
        ensure!(claim.finalizers().iter().any(|f| f == CLAIM_PROTECTION), "{:?}", claim.finalizers());
        self.assert_kept(bound_claim).await
    }

    /// Checks that claim and volume are bound to each other and have their data.
    pub async fn assert_kept(&self, bound_claim: &BoundClaim) -> Result<()> {
        let claim: PersistentVolumeClaim = self.get(&bound_claim.claim).await?;
        let volume: PersistentVolume = self.get(&bound_claim.volume).await?;
        ensure!(claim_phase(&claim) == "Bound", "{claim:?}");
        ensure!(volume_phase(&volume) == "Bound", "{volume:?}");
        ensure!(bound_claim.has_data(), "{} has lost its data", bound_claim.directory.display());
        Ok(())
    }

    /// Waits until claim, volume and directory are deleted.
    pub async fn until_bound_claim_deleted(&self, bound_claim: &BoundClaim) -> Result<()> {
        self.until_deleted::<PersistentVolumeClaim>(&bound_claim.claim).await?;
        self.until_deleted::<PersistentVolume>(&bound_claim.volume).await?;
        ensure!(!bound_claim.directory.exists(), "{} has leaked", bound_claim.directory.display());
        Ok(())
    }

    /// Waits until the claim is deleted and its volume released, with its data.
    pub async fn until_retained(&self, bound_claim: &BoundClaim) -> Result<()> {
        self.until_deleted::<PersistentVolumeClaim>(&bound_claim.claim).await?;
        self.until(&bound_claim.volume, |volume: &PersistentVolume| volume_phase(volume) == "Released")
            .await?;
        self.until_settled().await?;
        let volume: PersistentVolume = self.get(&bound_claim.volume).await?;
        ensure!(volume_phase(&volume) == "Released" && bound_claim.has_data(), "{volume:?}");
        Ok(())
    }

    /// Waits until the volume has exactly these finalizers, in any order.
    pub async fn until_finalizers(&self, volume: &str, want: &[&str]) -> Result<()> {
        let want: BTreeSet<&str> = want.iter().copied().collect();
        let has = |volume: &PersistentVolume| {
            volume.finalizers().iter().map(String::as_str).collect::<BTreeSet<_>>() == want
        };
        let found = self.until(volume, has).await;
        found.with_context(|| format!("finalizers {want:?} of {volume}")).map(drop)
    }

    /// Checks that no object is terminating, and that the directories are those of existing volumes
    /// and of `remaining`.
    pub async fn assert_remaining(&self, remaining: &[&BoundClaim]) -> Result<()> {
        self.until_settled().await?;
        ensure!(self.terminating().await?.is_empty(), "stuck: {:?}", self.terminating().await?);
        let mut want = self.volume_directories().await?;
        want.extend(remaining.iter().map(|bound_claim| bound_claim.name()));
        let found = self.directories()?;
        ensure!(found == want, "directories {found:?}, not {want:?}");
        ensure!(remaining.iter().all(|bound_claim| bound_claim.has_data()), "no data in {remaining:?}");
        Ok(())
    }

    /// Returns the names of the terminating objects.
    pub async fn terminating(&self) -> Result<Vec<String>> {
        async fn terminating<K: Kind>(api: Api<K>) -> Result<impl Iterator<Item = String>> {
            let all = api.list(&ListParams::default()).await?.items;
            Ok(all.into_iter().filter(is_terminating).map(|object| object.name_any()))
        }
        let mut all: Vec<String> = terminating(self.api::<PersistentVolume>()).await?.collect();
        all.extend(terminating(self.api::<PersistentVolumeClaim>()).await?);
        all.extend(terminating(self.api::<Pod>()).await?);
        Ok(all)
    }

    /// Returns the names of the directories of existing volumes.
    pub async fn volume_directories(&self) -> Result<BTreeSet<String>> {
        let volumes = self.api::<PersistentVolume>().list(&ListParams::default()).await?.items;
        Ok(volumes.iter().filter_map(directory).map(|(_, name)| name).collect())
    }

    /// Returns the names of the directories of all drivers.
    pub fn directories(&self) -> Result<BTreeSet<String>> {
        let mut names = BTreeSet::new();
        for root in [HOST_PATH_ROOT, CSI_ROOT] {
            let Ok(entries) = fs::read_dir(self.data.path().join(root)) else { continue };
            for entry in entries {
                names.insert(entry?.file_name().to_string_lossy().into_owned());
            }
        }
        Ok(names)
    }
}

/// A driver's root that is temporarily replaced by a file.
pub struct BrokenRoot {
    root: PathBuf,
    aside: PathBuf,
}

impl BrokenRoot {
    /// Restores the root.
    pub fn repair(self) -> Result<()> {
        exchange(&self.root, &self.aside)?;
        Ok(fs::remove_file(&self.aside)?)
    }
}

/// Exchanges two paths atomically, so that no server creates the directory in between.
fn exchange(a: &Path, b: &Path) -> Result<()> {
    use rustix::fs::{CWD, RenameFlags, renameat_with};
    Ok(renameat_with(CWD, a, CWD, b, RenameFlags::EXCHANGE)?)
}

async fn start(
    data: &Path,
    nodes: usize,
    controllers: &str,
    gates: &BTreeMap<&'static str, bool>,
) -> Result<(Cluster, Client)> {
    let mut builder = cluster().data_dir(data).flag("--durability", "sync");
    builder = builder.flag("--controllers", controllers).flag("--nodes", nodes.to_string());
    for (gate, is_on) in gates {
        builder = builder.flag("--feature-gates", format!("{gate}={is_on}"));
    }
    let cluster = builder.start().await?;
    let client = cluster.client().await?;
    Ok((cluster, client))
}

/// Returns the manifest of a claim for 1 GiB of a class.
pub fn claim(name: &str, class: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {
        "storageClassName": class,
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}},
    }})
}

/// Returns the manifest of a pod that uses these claims.
pub fn pod(name: &str, claims: &[&str]) -> Value {
    let volume = |claim: &&str| json!({"name": claim, "persistentVolumeClaim": {"claimName": claim}});
    let annotations = json!({"sim.coracle.dev/exit-after": "never"});
    json!({"metadata": {"name": name, "annotations": annotations}, "spec": {
        "automountServiceAccountToken": false,
        "containers": [{"name": "c", "image": "img:1"}],
        "restartPolicy": "Never",
        "volumes": claims.iter().map(volume).collect::<Vec<_>>(),
    }})
}

/// Returns the manifest of a pod with annotations `sim.coracle.dev/KEY`, which control its
/// simulation.
pub fn scripted(name: &str, claims: &[&str], script: &[(&str, &str)]) -> Value {
    let mut pod = pod(name, claims);
    for (key, value) in script {
        pod["metadata"]["annotations"][format!("sim.coracle.dev/{key}")] = json!(value);
    }
    pod
}

/// Returns `true` if an object has a deletion timestamp.
pub fn is_terminating(object: &impl Resource) -> bool {
    object.meta().deletion_timestamp.is_some()
}

/// Returns `status.phase` of a claim; `""` if it is not set.
pub fn claim_phase(claim: &PersistentVolumeClaim) -> &str {
    claim.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default()
}

/// Returns `status.phase` of a volume; `""` if it is not set.
pub fn volume_phase(volume: &PersistentVolume) -> &str {
    volume.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default()
}

/// Returns `status.phase` of a pod; `""` if it is not set.
pub fn pod_phase(pod: &Pod) -> &str {
    pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default()
}

/// Makes tests of scenarios: a module for each with a test for each driver and interruption: these
/// five, or those listed in `by { NAME: DRIVER, INTERRUPTION; }`.
#[macro_export]
macro_rules! scenario {
    (by $ways:tt $($scenario:ident),* $(,)?) => { $(
        mod $scenario {
            use $crate::cluster::Termination::{Crash, Stop};
            use $crate::volumes::{Driver::*, run_scenario};

            $crate::scenario!(@ $scenario $ways);
        }
    )* };
    ($($scenario:ident),* $(,)?) => { $crate::scenario! {
        by {
            host_path: HostPath, None;
            host_path_interrupted: HostPath, Some(Crash);
            csi: Csi, None;
            csi_interrupted: Csi, Some(Stop);
            migrated_interrupted: Migrated, Some(Crash);
        }
        $($scenario),*
    } };
    (@ $scenario:ident { $($name:ident: $driver:expr, $interruption:expr;)* }) => { $(
        #[tokio::test]
        async fn $name() -> anyhow::Result<()> {
            run_scenario($driver, $interruption, super::$scenario).await
        }
    )* };
}
