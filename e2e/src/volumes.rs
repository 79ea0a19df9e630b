//! Scenarios about volumes: a control plane whose volumes are directories, claims and pods that use them, what is on the disk,
//! and an end of the process after each step.
//!
//! A scenario is state by a function of [`Scenario`]; [`scenario`](crate::scenario) makes tests of it for the drivers: calm, and with the
//! server stopped or killed, in turn, after everything that the scenario does. When it has been state, nothing is stuck, and the
//! directories are those of living volumes and those that the scenario names.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{
    ConfigMap, Event, Namespace, Node, PersistentVolume, PersistentVolumeClaim, Pod,
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

pub const CLAIM_PROTECTION: &str = "kubernetes.io/pvc-protection";
pub const VOLUME_PROTECTION: &str = "kubernetes.io/pv-protection";
pub const IN_TREE_PROTECTION: &str = "kubernetes.io/pv-controller";
pub const EXTERNAL_PROTECTION: &str = "external-provisioner.volume.kubernetes.io/finalizer";

/// The gate that lets the CSI driver do what the plugin in the controller does.
pub const MIGRATION: &str = "CSIMigrationHostPath";

/// The node that pods are put on.
pub const NODE: &str = "node-0";

/// What a file on a volume holds.
const DATA: &str = "not to be lost";

/// Where directories of volumes are, in the data directory.
const HOST_PATH_ROOT: &str = "volumes/host-path";
const CSI_ROOT: &str = "volumes/coracle.csi";

/// Who makes and deletes what is behind a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Driver {
    /// The plugin in the controller.
    HostPath,
    /// The simulated CSI driver.
    Csi,
    /// The CSI driver for the volumes of the plugin: CSI migration.
    Migrated,
}

impl Driver {
    pub const ALL: [Driver; 3] = [Driver::HostPath, Driver::Csi, Driver::Migrated];

    pub fn provisioner(self) -> &'static str {
        match self {
            Driver::HostPath | Driver::Migrated => "kubernetes.io/host-path",
            Driver::Csi => "coracle.csi",
        }
    }

    /// The finalizer by which it keeps a volume until what is behind it is deleted (KEP-2644).
    pub fn finalizer(self) -> &'static str {
        match self {
            Driver::HostPath => IN_TREE_PROTECTION,
            Driver::Csi | Driver::Migrated => EXTERNAL_PROTECTION,
        }
    }

    /// Whether it takes its finalizers from volumes when the feature is turned off.
    pub fn removes_finalizers_on_rollback(self) -> bool {
        self != Driver::HostPath
    }

    /// Whether it keeps volumes that were made by hand, too, once they are bound.
    pub fn protects_static_volumes(self) -> bool {
        self == Driver::Csi
    }

    /// The phase of a volume when what is behind it could not be deleted.
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

    /// The part of a volume that says where a directory of this name is.
    fn source(self, root: &Path, name: &str) -> Value {
        match self {
            Driver::HostPath | Driver::Migrated => json!({"hostPath": {"path": root.join(name)}}),
            Driver::Csi => json!({"csi": {"driver": "coracle.csi", "volumeHandle": name}}),
        }
    }
}

/// Where a volume's directory is: its root, and its name there.
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

/// Kinds that scenarios are about.
pub trait Kind:
    Resource<DynamicType = ()> + Clone + Debug + Serialize + DeserializeOwned + Send + 'static
{
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

/// A claim that was bound, its volume, and the directory behind it.
#[derive(Clone, Debug)]
pub struct BoundClaim {
    pub claim: String,
    pub volume: String,
    pub directory: PathBuf,
}

impl BoundClaim {
    /// What a pod would write, which cannot make the volume's own directory.
    pub fn write(&self) -> Result<()> {
        let deep = self.directory.join("deep");
        if !deep.is_dir() {
            fs::create_dir(deep)?;
        }
        Ok(fs::write(self.directory.join("deep/file"), DATA)?)
    }

    pub fn has_data(&self) -> bool {
        fs::read_to_string(self.directory.join("deep/file")).is_ok_and(|text| text == DATA)
    }

    /// The name of the directory, as the end of a scenario names those that stay.
    pub fn name(&self) -> String {
        self.directory.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }
}

pub struct Scenario {
    pub driver: Driver,
    /// Where claims and pods are.
    pub namespace: &'static str,
    /// How the server ends after the next step, if it does.
    interruption: Option<Termination>,
    /// What `--controllers` says.
    controllers: String,
    gates: BTreeMap<&'static str, bool>,
    nodes: usize,
    data: TempDir,
    cluster: Option<Cluster>,
    client: Client,
}

/// Tells a scenario, and looks at the end whether anything is stuck or leaked.
///
/// # Errors
/// The scenario's, and what is not as it should be at the end.
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
    pub async fn start(driver: Driver) -> Result<Scenario> {
        Scenario::with_nodes(driver, 1).await
    }

    /// Begins one with so many nodes.
    pub async fn with_nodes(driver: Driver, nodes: usize) -> Result<Scenario> {
        let data = TempDir::with_prefix("coracle-volumes-")?;
        let (controllers, gates) = ("*".to_owned(), driver.gates());
        let (cluster, client) = start(data.path(), nodes, &controllers, &gates).await?;
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

    /// Another control plane, with data of its own, that ends as this one does.
    pub async fn start_another(&self) -> Result<Scenario> {
        let mut other = Scenario::start(self.driver).await?;
        other.interruption = self.interruption;
        Ok(other)
    }

    pub fn api<K: Kind>(&self) -> Api<K> {
        K::api(self.client.clone(), self.namespace)
    }

    pub fn client(&self) -> Client {
        self.client.clone()
    }

    pub fn cluster(&self) -> Result<&Cluster> {
        self.cluster.as_ref().context("it has ended")
    }

    /// Where the driver's directories are.
    pub fn root(&self) -> PathBuf {
        self.data.path().join(self.driver.root())
    }

    /// Ends the server, and starts it again on the same data.
    pub async fn restart(&mut self, end: Termination) -> Result<()> {
        self.restart_after(end, || Ok(())).await
    }

    /// Ends the server, and starts it again after something was done that it does not see.
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

    /// Stops the server, and starts it with these controllers.
    pub async fn restart_with_controllers(&mut self, selection: &str) -> Result<()> {
        selection.clone_into(&mut self.controllers);
        self.restart(Termination::Stop).await
    }

    /// Stops the server, and starts it with a feature gate set so.
    pub async fn restart_with_gate(&mut self, gate: &'static str, is_on: bool) -> Result<()> {
        self.gates.insert(gate, is_on);
        self.restart(Termination::Stop).await
    }

    /// Ends the server, if this is state so, in turn by stopping and by killing it. Whatever changes something here does that by
    /// itself.
    pub async fn interrupt(&mut self) -> Result<()> {
        let Some(end) = self.interruption else { return Ok(()) };
        self.interruption = Some(match end {
            Termination::Stop => Termination::Crash,
            Termination::Crash => Termination::Stop,
        });
        self.restart(end).await
    }

    /// Does several things as one: the server ends after the last of them, if it does.
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

    /// Makes everything fail that the driver does with its directories, until it is mended.
    pub fn break_driver_root(&self) -> Result<BrokenRoot> {
        let root = self.root();
        let aside = root.with_extension("aside");
        fs::write(&aside, "not a directory")?;
        exchange(&root, &aside)?;
        Ok(BrokenRoot { root, aside })
    }

    pub async fn create<K: Kind>(&mut self, object: Value) -> Result<K> {
        let object = serde_json::from_value(object)?;
        let object = self.api::<K>().create(&PostParams::default(), &object).await?;
        self.interrupt().await?;
        Ok(object)
    }

    pub async fn get<K: Kind>(&self, name: &str) -> Result<K> {
        Ok(self.api::<K>().get(name).await?)
    }

    pub async fn patch<K: Kind>(&mut self, name: &str, patch: Value) -> Result<()> {
        self.api::<K>().patch(name, &PatchParams::default(), &Patch::Merge(patch)).await?;
        self.interrupt().await
    }

    pub async fn delete<K: Kind>(&mut self, name: &str) -> Result<()> {
        self.api::<K>().delete(name, &DeleteParams::default()).await?;
        self.interrupt().await
    }

    pub async fn until<K: Kind>(&self, name: &str, is_so: impl Fn(&K) -> bool) -> Result<K> {
        let object = until_object(self.api::<K>(), name, |object| object.is_some_and(&is_so)).await?;
        object.with_context(|| format!("{name} is gone"))
    }

    pub async fn until_gone<K: Kind>(&self, name: &str) -> Result<()> {
        until_object(self.api::<K>(), name, |object: Option<&K>| object.is_none()).await.map(drop)
    }

    /// Until an event matches of an object, for a reason, message that contain these.
    pub async fn until_event(&self, name: &str, reason: &str, message: &str) -> Result<()> {
        let ask = async || Ok(self.api::<Event>().list(&ListParams::default()).await?.items);
        let matches = |events: &Vec<Event>| {
            events.iter().any(|event| {
                event.involved_object.name.as_deref() == Some(name)
                    && event.reason.as_deref() == Some(reason)
                    && event.message.as_deref().is_some_and(|message| message.contains(message))
            })
        };
        until(&format!("{reason} of {name}: {message}"), ask, matches).await.map(drop)
    }

    /// A claim of a class, bound, with data on its volume.
    pub async fn create_bound(&mut self, name: &str, class: &str) -> Result<BoundClaim> {
        self.create::<PersistentVolumeClaim>(claim(name, class)).await?;
        self.write_data(name).await
    }

    /// A volume made by hand with a policy, bound to a claim, with data on it.
    pub async fn create_bound_static(&mut self, name: &str, policy: &str) -> Result<BoundClaim> {
        self.create_static_volume(name, policy).await?;
        let mut claim = claim(name, "");
        claim["spec"]["volumeName"] = json!(name);
        self.create::<PersistentVolumeClaim>(claim).await?;
        self.write_data(name).await
    }

    /// A volume made by hand, and its directory.
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

    /// What a claim is bound to, with data on it.
    pub async fn write_data(&self, claim: &str) -> Result<BoundClaim> {
        let bound = self.until(claim, |claim: &PersistentVolumeClaim| claim_phase(claim) == "Bound").await?;
        let volume = bound.spec.and_then(|spec| spec.volume_name).context("no volume")?;
        self.until(&volume, |volume: &PersistentVolume| volume_phase(volume) == "Bound").await?;
        let bound_claim = self.get_bound_claim(claim).await?;
        ensure!(bound_claim.directory.is_dir(), "{} is not there", bound_claim.directory.display());
        bound_claim.write()?;
        Ok(bound_claim)
    }

    /// What a claim is bound to, as it is.
    pub async fn get_bound_claim(&self, claim: &str) -> Result<BoundClaim> {
        let bound: PersistentVolumeClaim = self.get(claim).await?;
        let volume = bound.spec.and_then(|spec| spec.volume_name).context("no volume")?;
        let (root, name) =
            directory(&self.get::<PersistentVolume>(&volume).await?).context("no directory")?;
        let directory = self.data.path().join(root).join(name);
        Ok(BoundClaim { claim: claim.to_owned(), volume, directory })
    }

    /// A pod that runs.
    pub async fn create_running_pod(&mut self, name: &str, claims: &[&str]) -> Result<()> {
        self.create::<Pod>(pod(name, claims)).await?;
        self.until(name, |pod: &Pod| pod_phase(pod) == "Running").await.map(drop)
    }

    /// Until the controllers have come to the end of what they know: a claim that nobody uses has come and gone, with its
    /// volume, after all that happened before.
    pub async fn until_settled(&self) -> Result<()> {
        let canary = self.canary().await?;
        self.until_canary_gone(&canary).await
    }

    /// The same, where nobody takes the finalizer from claims but this.
    pub async fn until_settled_without_protection(&self) -> Result<()> {
        let canary = self.canary().await?;
        let free = Patch::Merge(json!({"metadata": {"finalizers": null}}));
        self.api::<PersistentVolumeClaim>().patch("canary", &PatchParams::default(), &free).await?;
        self.until_canary_gone(&canary).await
    }

    /// A claim that was bound and is deleted; returns the name of its volume.
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
        self.until_gone::<PersistentVolumeClaim>("canary").await?;
        self.until_gone::<PersistentVolume>(volume).await
    }

    /// The claim is being deleted, and nothing has come of it: its volume is bound to it, and its data are there.
    pub async fn assert_postponed(&self, bound_claim: &BoundClaim) -> Result<()> {
        self.until_settled().await?;
        let claim: PersistentVolumeClaim = self.get(&bound_claim.claim).await?;
        ensure!(is_terminating(&claim), "{claim:?}");
        ensure!(claim.finalizers().iter().any(|f| f == CLAIM_PROTECTION), "{:?}", claim.finalizers());
        self.assert_kept(bound_claim).await
    }

    /// Claim and volume are bound to each other, and the data are there.
    pub async fn assert_kept(&self, bound_claim: &BoundClaim) -> Result<()> {
        let claim: PersistentVolumeClaim = self.get(&bound_claim.claim).await?;
        let volume: PersistentVolume = self.get(&bound_claim.volume).await?;
        ensure!(claim_phase(&claim) == "Bound", "{claim:?}");
        ensure!(volume_phase(&volume) == "Bound", "{volume:?}");
        ensure!(bound_claim.has_data(), "{} has lost its data", bound_claim.directory.display());
        Ok(())
    }

    /// Claim, volume and directory go.
    pub async fn until_deleted(&self, bound_claim: &BoundClaim) -> Result<()> {
        self.until_gone::<PersistentVolumeClaim>(&bound_claim.claim).await?;
        self.until_gone::<PersistentVolume>(&bound_claim.volume).await?;
        ensure!(!bound_claim.directory.exists(), "{} has leaked", bound_claim.directory.display());
        Ok(())
    }

    /// The claim is gone; the volume waits for somebody to look at it, with its data.
    pub async fn until_retained(&self, bound_claim: &BoundClaim) -> Result<()> {
        self.until_gone::<PersistentVolumeClaim>(&bound_claim.claim).await?;
        self.until(&bound_claim.volume, |volume: &PersistentVolume| volume_phase(volume) == "Released")
            .await?;
        self.until_settled().await?;
        let volume: PersistentVolume = self.get(&bound_claim.volume).await?;
        ensure!(volume_phase(&volume) == "Released" && bound_claim.has_data(), "{volume:?}");
        Ok(())
    }

    /// The finalizers of a volume come to be these, in any order.
    pub async fn until_finalizers(&self, volume: &str, want: &[&str]) -> Result<()> {
        let want: BTreeSet<&str> = want.iter().copied().collect();
        let has = |volume: &PersistentVolume| {
            volume.finalizers().iter().map(String::as_str).collect::<BTreeSet<_>>() == want
        };
        let found = self.until(volume, has).await;
        found.with_context(|| format!("finalizers {want:?} of {volume}")).map(drop)
    }

    /// Nothing is stuck, and the directories are those of living volumes and these.
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

    /// The names of what is being deleted.
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

    /// The names of the directories of volumes that are there.
    pub async fn volume_directories(&self) -> Result<BTreeSet<String>> {
        let volumes = self.api::<PersistentVolume>().list(&ListParams::default()).await?.items;
        Ok(volumes.iter().filter_map(directory).map(|(_, name)| name).collect())
    }

    /// The names of the directories of all drivers.
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

/// A directory that is a file, for now.
pub struct BrokenRoot {
    root: PathBuf,
    aside: PathBuf,
}

impl BrokenRoot {
    pub fn repair(self) -> Result<()> {
        exchange(&self.root, &self.aside)?;
        Ok(fs::remove_file(&self.aside)?)
    }
}

/// In one step, so that no server makes a directory in between.
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

pub fn claim(name: &str, class: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {
        "storageClassName": class,
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}},
    }})
}

pub fn pod(name: &str, claims: &[&str]) -> Value {
    let volume = |claim: &&str| json!({"name": claim, "persistentVolumeClaim": {"claimName": claim}});
    json!({"metadata": {"name": name}, "spec": {
        "automountServiceAccountToken": false,
        "containers": [{"name": "c", "image": "img:1"}],
        "restartPolicy": "Never",
        "volumes": claims.iter().map(volume).collect::<Vec<_>>(),
    }})
}

/// A pod that simulated nodes play, or leave alone, as its annotation `sim.coracle.dev/KEY` says.
pub fn scripted(name: &str, claims: &[&str], script: &[(&str, &str)]) -> Value {
    let mut pod = pod(name, claims);
    for (key, value) in script {
        pod["metadata"]["annotations"][format!("sim.coracle.dev/{key}")] = json!(value);
    }
    pod
}

pub fn is_terminating(object: &impl Resource) -> bool {
    object.meta().deletion_timestamp.is_some()
}

pub fn claim_phase(claim: &PersistentVolumeClaim) -> &str {
    claim.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default()
}

pub fn volume_phase(volume: &PersistentVolume) -> &str {
    volume.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default()
}

pub fn pod_phase(pod: &Pod) -> &str {
    pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default()
}

/// Tests of scenarios: for each a module of its name, and in it one for each driver and way to be interrupted: these five, or those
/// that are named first, `by { NAME: DRIVER, INTERRUPTION; }`.
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
