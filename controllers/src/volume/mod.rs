//! Claims, volumes and classes, as every controller that touches them sees them: names, and what two objects mean to each
//! other. No I/O, no decisions.

pub mod attachment;

use std::collections::BTreeMap;

use coracle_quantity::Quantity;
use k8s_openapi::api::core::v1::{
    ObjectReference, PersistentVolume, PersistentVolumeClaim, PersistentVolumeStatus, Pod,
};
use k8s_openapi::api::storage::v1::StorageClass;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt;

use crate::runtime::cache::{Index, NamespacedName};
use crate::runtime::{HOST_PATH_MIGRATION, Settings};

pub const BIND_COMPLETED: &str = "pv.kubernetes.io/bind-completed";
pub const BOUND_BY_CONTROLLER: &str = "pv.kubernetes.io/bound-by-controller";
pub const PROVISIONED_BY: &str = "pv.kubernetes.io/provisioned-by";
pub const MIGRATED_TO: &str = "pv.kubernetes.io/migrated-to";
pub const STORAGE_PROVISIONER: &str = "volume.kubernetes.io/storage-provisioner";
pub const BETA_STORAGE_PROVISIONER: &str = "volume.beta.kubernetes.io/storage-provisioner";
pub const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
pub const BETA_STORAGE_CLASS: &str = "volume.beta.kubernetes.io/storage-class";
const DEFAULT_CLASS: &str = "storageclass.kubernetes.io/is-default-class";
const BETA_DEFAULT_CLASS: &str = "storageclass.beta.kubernetes.io/is-default-class";

/// KEP-2644: the plugin in the controller has still to delete what is behind the volume.
pub const IN_TREE_PROTECTION: &str = "kubernetes.io/pv-controller";
/// KEP-2644: the CSI driver has still to do so.
pub const EXTERNAL_PROTECTION: &str = "external-provisioner.volume.kubernetes.io/finalizer";

/// Either of them keeps a volume until what is behind it is gone. The plugin and the driver that takes over from it exchange them.
pub const DELETION_PROTECTIONS: [&str; 2] = [EXTERNAL_PROTECTION, IN_TREE_PROTECTION];

pub const DELETE: &str = "Delete";
pub const RETAIN: &str = "Retain";
pub const RECYCLE: &str = "Recycle";

/// The plugin in the controller whose volumes are directories.
pub const HOST_PATH: &str = "kubernetes.io/host-path";
/// The simulated CSI driver, whose volumes are directories as well.
pub const CSI_DRIVER: &str = "coracle.csi";

/// Plugins that only their CSI drivers know any more, and these drivers.
const MIGRATED: [(&str, &str); 7] = [
    ("kubernetes.io/aws-ebs", "ebs.csi.aws.com"),
    ("kubernetes.io/gce-pd", "pd.csi.storage.gke.io"),
    ("kubernetes.io/azure-disk", "disk.csi.azure.com"),
    ("kubernetes.io/azure-file", "file.csi.azure.com"),
    ("kubernetes.io/cinder", "cinder.csi.openstack.org"),
    ("kubernetes.io/vsphere-volume", "csi.vsphere.vmware.com"),
    ("kubernetes.io/portworx-volume", "pxd.portworx.com"),
];

/// Which CSI drivers took over from plugins in the controller.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Migration {
    /// Whether `kubernetes.io/host-path` is done by our driver: a gate of ours, to be turned on and off over the same data.
    pub host_path: bool,
}

impl Migration {
    pub fn of(settings: &Settings) -> Migration {
        Migration { host_path: (settings.is_enabled)(HOST_PATH_MIGRATION) }
    }

    /// The plugins that were migrated, in the order of their names.
    pub fn plugins(self) -> Vec<&'static str> {
        let ours = self.host_path.then_some(HOST_PATH);
        let mut plugins: Vec<_> = MIGRATED.iter().map(|(name, _)| *name).chain(ours).collect();
        plugins.sort_unstable();
        plugins
    }

    /// The driver that a plugin was migrated to.
    pub fn driver(self, plugin: &str) -> Option<&'static str> {
        if self.host_path && plugin == HOST_PATH {
            return Some(CSI_DRIVER);
        }
        MIGRATED.iter().find(|(name, _)| *name == plugin).map(|(_, driver)| *driver)
    }
}

/// KEP-2644's gate: volumes are kept by a finalizer until what is behind them is deleted.
pub fn honors_policy(settings: &Settings) -> bool {
    (settings.is_enabled)("HonorPVReclaimPolicy")
}

pub fn annotation<'a>(meta: &'a ObjectMeta, name: &str) -> Option<&'a str> {
    meta.annotations.as_ref()?.get(name).map(String::as_str)
}

pub fn annotate(meta: &mut ObjectMeta, name: &str, value: &str) {
    meta.annotations.get_or_insert_default().insert(name.to_owned(), value.to_owned());
}

/// Takes an annotation away, and the map with the last one. Tells whether it was there.
pub fn strip(meta: &mut ObjectMeta, name: &str) -> bool {
    let Some(annotations) = &mut meta.annotations else { return false };
    let was_there = annotations.remove(name).is_some();
    if annotations.is_empty() {
        meta.annotations = None;
    }
    was_there
}

/// Has a finalizer there, or not; tells whether that changed anything.
pub fn set_finalizer(meta: &mut ObjectMeta, finalizer: &str, wanted: bool) -> bool {
    let finalizers = meta.finalizers.get_or_insert_default();
    let has = finalizers.iter().any(|f| f == finalizer);
    match (has, wanted) {
        (false, true) => finalizers.push(finalizer.to_owned()),
        (true, false) => finalizers.retain(|f| f != finalizer),
        _ => {}
    }
    if finalizers.is_empty() {
        meta.finalizers = None;
    }
    has != wanted
}

pub fn has_finalizer(meta: &ObjectMeta, finalizer: &str) -> bool {
    meta.finalizers.iter().flatten().any(|f| f == finalizer)
}

/// The class that a claim or a volume is of; "" is none.
fn class<'a>(meta: &'a ObjectMeta, spec: Option<&'a String>) -> &'a str {
    annotation(meta, BETA_STORAGE_CLASS).or(spec.map(String::as_str)).unwrap_or_default()
}

/// The storage that is asked for or offered.
fn storage(
    resources: Option<&BTreeMap<String, k8s_openapi::apimachinery::pkg::api::resource::Quantity>>,
) -> Option<Quantity> {
    resources?.get("storage")?.0.parse().ok()
}

/// A claim, asked for what it means.
pub trait Claim {
    fn class(&self) -> &str;
    /// Whether it says of which class it is; "" is an answer too.
    fn has_class(&self) -> bool;
    fn volume_name(&self) -> &str;
    fn phase(&self) -> &str;
    fn requested(&self) -> Quantity;
    fn access_modes(&self) -> &[String];
    fn volume_mode(&self) -> &str;
    fn attributes_class(&self) -> &str;
    fn reference(&self) -> ObjectReference;
}

impl Claim for PersistentVolumeClaim {
    fn class(&self) -> &str {
        class(&self.metadata, self.spec.as_ref().and_then(|spec| spec.storage_class_name.as_ref()))
    }

    fn has_class(&self) -> bool {
        annotation(&self.metadata, BETA_STORAGE_CLASS).is_some()
            || self.spec.as_ref().is_some_and(|spec| spec.storage_class_name.is_some())
    }

    fn volume_name(&self) -> &str {
        self.spec.as_ref().and_then(|spec| spec.volume_name.as_deref()).unwrap_or_default()
    }

    fn phase(&self) -> &str {
        self.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default()
    }

    fn requested(&self) -> Quantity {
        let resources = self.spec.as_ref().and_then(|spec| spec.resources.as_ref());
        storage(resources.and_then(|resources| resources.requests.as_ref())).unwrap_or(Quantity::from_int(0))
    }

    fn access_modes(&self) -> &[String] {
        self.spec.as_ref().and_then(|spec| spec.access_modes.as_deref()).unwrap_or_default()
    }

    fn volume_mode(&self) -> &str {
        mode(self.spec.as_ref().and_then(|spec| spec.volume_mode.as_deref()))
    }

    fn attributes_class(&self) -> &str {
        self.spec.as_ref().and_then(|spec| spec.volume_attributes_class_name.as_deref()).unwrap_or_default()
    }

    fn reference(&self) -> ObjectReference {
        ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("PersistentVolumeClaim".to_owned()),
            namespace: self.namespace(),
            name: Some(self.name_any()),
            uid: self.uid(),
            resource_version: self.resource_version(),
            ..ObjectReference::default()
        }
    }
}

/// A volume, asked for what it means.
pub trait Volume {
    fn class(&self) -> &str;
    fn claim_ref(&self) -> Option<&ObjectReference>;
    /// The name of the claim that it is meant for.
    fn claim_name(&self) -> Option<NamespacedName>;
    fn phase(&self) -> &str;
    fn policy(&self) -> &str;
    fn capacity(&self) -> Option<Quantity>;
    fn access_modes(&self) -> &[String];
    fn volume_mode(&self) -> &str;
    fn attributes_class(&self) -> &str;
    fn is_terminating(&self) -> bool;
    /// Whether it is meant for a claim: by name, and by uid where it says one.
    fn is_bound_to(&self, claim: &PersistentVolumeClaim) -> bool;
    fn with_phase(&self, phase: &str, message: &str) -> PersistentVolume;
}

impl Volume for PersistentVolume {
    fn class(&self) -> &str {
        class(&self.metadata, self.spec.as_ref().and_then(|spec| spec.storage_class_name.as_ref()))
    }

    fn claim_ref(&self) -> Option<&ObjectReference> {
        self.spec.as_ref()?.claim_ref.as_ref()
    }

    fn claim_name(&self) -> Option<NamespacedName> {
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        self.claim_ref().map(|claim| NamespacedName::new(text(&claim.namespace), text(&claim.name)))
    }

    fn phase(&self) -> &str {
        self.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default()
    }

    fn policy(&self) -> &str {
        let policy = self.spec.as_ref().and_then(|spec| spec.persistent_volume_reclaim_policy.as_deref());
        policy.unwrap_or_default()
    }

    fn capacity(&self) -> Option<Quantity> {
        storage(self.spec.as_ref()?.capacity.as_ref())
    }

    fn access_modes(&self) -> &[String] {
        self.spec.as_ref().and_then(|spec| spec.access_modes.as_deref()).unwrap_or_default()
    }

    fn volume_mode(&self) -> &str {
        mode(self.spec.as_ref().and_then(|spec| spec.volume_mode.as_deref()))
    }

    fn attributes_class(&self) -> &str {
        self.spec.as_ref().and_then(|spec| spec.volume_attributes_class_name.as_deref()).unwrap_or_default()
    }

    fn is_terminating(&self) -> bool {
        self.metadata.deletion_timestamp.is_some()
    }

    fn is_bound_to(&self, claim: &PersistentVolumeClaim) -> bool {
        self.claim_ref().is_some_and(|reference| {
            let uid = reference.uid.as_deref().filter(|uid| !uid.is_empty());
            reference.name == claim.metadata.name
                && reference.namespace == claim.metadata.namespace
                && uid.is_none_or(|uid| claim.metadata.uid.as_deref() == Some(uid))
        })
    }

    fn with_phase(&self, phase: &str, message: &str) -> PersistentVolume {
        let mut volume = self.clone();
        let status = volume.status.get_or_insert_with(PersistentVolumeStatus::default);
        status.phase = Some(phase.to_owned());
        status.message = (!message.is_empty()).then(|| message.to_owned());
        volume
    }
}

fn mode(mode: Option<&str>) -> &str {
    mode.unwrap_or("Filesystem")
}

pub fn waits_for_consumer(class: &StorageClass) -> bool {
    class.volume_binding_mode.as_deref() == Some("WaitForFirstConsumer")
}

/// The class of claims that name none: the newest of those that say so, of two the first by name.
pub fn default_class<'a>(classes: impl IntoIterator<Item = &'a StorageClass>) -> Option<&'a StorageClass> {
    let says_so = |class: &&StorageClass| {
        [DEFAULT_CLASS, BETA_DEFAULT_CLASS]
            .iter()
            .any(|name| annotation(&class.metadata, name) == Some("true"))
    };
    let newest_then_name = |class: &&StorageClass| {
        let created = class.metadata.creation_timestamp.as_ref().map(|time| time.0.as_second());
        (std::cmp::Reverse(created), class.metadata.name.clone())
    };
    classes.into_iter().filter(says_so).min_by_key(newest_then_name)
}

/// Whether a bound claim asks for more than it has.
pub fn asks_for_more(claim: &PersistentVolumeClaim) -> bool {
    let has = storage(claim.status.as_ref().and_then(|status| status.capacity.as_ref()));
    claim.phase() == "Bound" && has.is_some_and(|has| has < claim.requested())
}

/// A claim as a pod names it.
pub struct ClaimOfPod<'a> {
    /// The pod's name for what it gets by the claim.
    pub volume: &'a str,
    pub name: String,
    pub is_ephemeral: bool,
}

/// The claims of a pod.
pub fn claims_of(pod: &Pod) -> impl Iterator<Item = ClaimOfPod<'_>> {
    let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    volumes.filter_map(|volume| {
        let (name, is_ephemeral) = match (&volume.persistent_volume_claim, &volume.ephemeral) {
            (Some(source), _) => (source.claim_name.clone(), false),
            (None, Some(_)) => (format!("{}-{}", pod.name_any(), volume.name), true),
            _ => return None,
        };
        Some(ClaimOfPod { volume: &volume.name, name, is_ephemeral })
    })
}

/// Finds the pods that have a volume of a claim, by its name or as an ephemeral one of their own.
pub struct ByClaim;

impl Index<Pod> for ByClaim {
    fn keys(pod: &Pod) -> Vec<NamespacedName> {
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        claims_of(pod).map(|claim| NamespacedName::new(namespace, claim.name)).collect()
    }
}

/// Finds the volumes that are meant for a claim, or for nobody yet.
pub struct ByMeaning;

impl ByMeaning {
    pub const NOBODY: NamespacedName = NamespacedName { namespace: String::new(), name: String::new() };
}

impl Index<PersistentVolume> for ByMeaning {
    fn keys(volume: &PersistentVolume) -> Vec<NamespacedName> {
        vec![volume.claim_name().unwrap_or(ByMeaning::NOBODY)]
    }
}

/// Whether the controller of an object is this pod.
pub fn is_controlled_by(meta: &ObjectMeta, pod: &Pod) -> bool {
    let mut owners = meta.owner_references.iter().flatten();
    owners.any(|owner| owner.controller == Some(true) && Some(&owner.uid) == pod.metadata.uid.as_ref())
}

/// Whether nothing of a pod runs any more: it ended, or it terminates and no container is running.
pub fn is_terminated(pod: &Pod) -> bool {
    let Some(status) = &pod.status else { return pod.metadata.deletion_timestamp.is_some() };
    let all =
        [&status.init_container_statuses, &status.container_statuses, &status.ephemeral_container_statuses];
    let none_runs = all.into_iter().flatten().flatten().all(|container| {
        container.state.as_ref().is_some_and(|state| state.terminated.is_some() || state.waiting.is_some())
    });
    let is_over = matches!(status.phase.as_deref(), Some("Succeeded" | "Failed"));
    is_over || (pod.metadata.deletion_timestamp.is_some() && none_runs)
}
