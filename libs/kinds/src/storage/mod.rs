//! Claims, volumes and storage classes: the names of their annotations and finalizers, and how they
//! refer to each other.
//!
//! Source: component-helpers' `storage/volume`, and the annotations' documentation.

pub mod attachment;

use std::collections::BTreeMap;

use coracle_object_meta::{NamespacedName, annotation};
use coracle_quantity::Quantity;
use k8s_openapi::api::core::v1::{
    ObjectReference, PersistentVolume, PersistentVolumeClaim, PersistentVolumeStatus,
};
use k8s_openapi::api::storage::v1::StorageClass;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt;

/// On a claim: the binder has bound it, and must not bind it again.
pub const BIND_COMPLETED: &str = "pv.kubernetes.io/bind-completed";
/// On a claim or a volume: the binder set the reference to the other, not a client.
pub const BOUND_BY_CONTROLLER: &str = "pv.kubernetes.io/bound-by-controller";
/// On a volume: its provisioner.
pub const PROVISIONED_BY: &str = "pv.kubernetes.io/provisioned-by";
/// On a claim or a volume: the CSI driver that took over from an in-tree plugin.
pub const MIGRATED_TO: &str = "pv.kubernetes.io/migrated-to";
/// On a claim: the provisioner that should provision a volume for it.
pub const STORAGE_PROVISIONER: &str = "volume.kubernetes.io/storage-provisioner";
/// The earlier name of [`STORAGE_PROVISIONER`].
pub const BETA_STORAGE_PROVISIONER: &str = "volume.beta.kubernetes.io/storage-provisioner";
/// On a claim: the node that the scheduler has chosen for the first pod that uses it.
pub const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
/// On a claim or a volume: its storage class; takes precedence over the field.
pub const BETA_STORAGE_CLASS: &str = "volume.beta.kubernetes.io/storage-class";
const DEFAULT_CLASS: &str = "storageclass.kubernetes.io/is-default-class";
const BETA_DEFAULT_CLASS: &str = "storageclass.beta.kubernetes.io/is-default-class";

/// KEP-2644: the plugin in the controller has to delete the storage of the volume.
pub const IN_TREE_PROTECTION: &str = "kubernetes.io/pv-controller";
/// KEP-2644: the CSI driver has still to do so.
pub const EXTERNAL_PROTECTION: &str = "external-provisioner.volume.kubernetes.io/finalizer";

/// Either of them keeps a volume until its storage is deleted. The plugin and the CSI driver that
/// takes over from it exchange them.
pub const DELETION_PROTECTIONS: [&str; 2] = [EXTERNAL_PROTECTION, IN_TREE_PROTECTION];

/// The reclaim policy that deletes the storage of the volume.
pub const DELETE: &str = "Delete";
/// The reclaim policy that keeps the volume unchanged.
pub const RETAIN: &str = "Retain";
/// A reclaim policy: the volume is emptied, for other claims.
pub const RECYCLE: &str = "Recycle";

/// Returns the storage class of a claim or a volume, or `""` if there is none.
fn class<'a>(meta: &'a ObjectMeta, spec: Option<&'a String>) -> &'a str {
    annotation(meta, BETA_STORAGE_CLASS).or(spec.map(String::as_str)).unwrap_or_default()
}

/// Returns the amount of storage in a list of resources.
fn storage(
    resources: Option<&BTreeMap<String, k8s_openapi::apimachinery::pkg::api::resource::Quantity>>,
) -> Option<Quantity> {
    resources?.get("storage")?.0.parse().ok()
}

/// Accessors for a claim's requests and binding.
pub trait ClaimExt {
    /// Returns the storage class, or `""` if there is none.
    fn class(&self) -> &str;
    /// Returns `true` if the claim specifies a class, even if that is `""`.
    fn has_class(&self) -> bool;
    /// Returns the name of the volume that the claim is bound to or requests, or `""` if there is
    /// none.
    fn volume_name(&self) -> &str;
    /// Returns the phase, or `""` if there is no status.
    fn phase(&self) -> &str;
    /// Returns the requested storage, or zero if there is none.
    fn requested(&self) -> Quantity;
    /// Returns the access modes.
    fn access_modes(&self) -> &[String];
    /// Returns the volume mode, by default `Filesystem`.
    fn volume_mode(&self) -> &str;
    /// Returns the name of the VolumeAttributesClass, or `""` if there is none.
    fn attributes_class(&self) -> &str;
    /// Returns a reference to the claim for the `claimRef` of a volume.
    fn reference(&self) -> ObjectReference;
}

impl ClaimExt for PersistentVolumeClaim {
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

/// Accessors for a volume's properties and binding.
pub trait VolumeExt {
    /// Returns the storage class, or `""` if there is none.
    fn class(&self) -> &str;
    /// Returns the reference to the volume's claim.
    fn claim_ref(&self) -> Option<&ObjectReference>;
    /// Returns the name of the volume's claim.
    fn claim_name(&self) -> Option<NamespacedName>;
    /// Returns the phase, or `""` if there is no status.
    fn phase(&self) -> &str;
    /// Returns the reclaim policy.
    fn policy(&self) -> &str;
    /// Returns the amount of storage.
    fn capacity(&self) -> Option<Quantity>;
    /// Returns the access modes.
    fn access_modes(&self) -> &[String];
    /// Returns the volume mode, by default `Filesystem`.
    fn volume_mode(&self) -> &str;
    /// Returns the name of the VolumeAttributesClass, or `""` if there is none.
    fn attributes_class(&self) -> &str;
    /// Returns `true` if the volume has a deletion timestamp.
    fn is_terminating(&self) -> bool;
    /// Returns `true` if the volume refers to a claim, by name, and by uid if the reference has
    /// one.
    fn is_bound_to(&self, claim: &PersistentVolumeClaim) -> bool;
    /// Returns the volume with this phase and message in its status.
    fn with_phase(&self, phase: &str, message: &str) -> PersistentVolume;
}

impl VolumeExt for PersistentVolume {
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

/// Returns `true` if volumes of a class are bound only once a pod uses their claim.
pub fn waits_for_consumer(class: &StorageClass) -> bool {
    class.volume_binding_mode.as_deref() == Some("WaitForFirstConsumer")
}

/// Returns the class for claims without one: the newest of the default classes, and of equally new
/// ones the first by name.
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

/// Returns `true` if a bound claim requests more than its capacity.
pub fn asks_for_more(claim: &PersistentVolumeClaim) -> bool {
    let has = storage(claim.status.as_ref().and_then(|status| status.capacity.as_ref()));
    claim.phase() == "Bound" && has.is_some_and(|has| has < claim.requested())
}
