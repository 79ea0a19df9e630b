//! Indexes of the caches by the references between claims, volumes, pods and attachments.

use coracle_kinds::pods::pod_claims;
use coracle_kinds::storage::VolumeExt;
use coracle_kinds::storage::attachment::volume_of;
use k8s_openapi::api::core::v1::{PersistentVolume, Pod};
use k8s_openapi::api::storage::v1::VolumeAttachment;

use crate::runtime::cache::{Index, NamespacedName};

/// Finds the pods that have a volume of a claim, by its name or as an ephemeral one of their own.
pub struct ByClaim;

impl Index<Pod> for ByClaim {
    fn keys(pod: &Pod) -> Vec<NamespacedName> {
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        pod_claims(pod).map(|claim| NamespacedName::new(namespace, claim.name)).collect()
    }
}

/// Finds the volumes by their `claimRef`; under [`ByClaimRef::NONE`] those without one.
pub struct ByClaimRef;

impl ByClaimRef {
    pub const NONE: NamespacedName = NamespacedName { namespace: String::new(), name: String::new() };
}

impl Index<PersistentVolume> for ByClaimRef {
    fn keys(volume: &PersistentVolume) -> Vec<NamespacedName> {
        vec![volume.claim_name().unwrap_or(ByClaimRef::NONE)]
    }
}

/// Finds the attachments of a volume.
pub struct ByVolume;

impl Index<VolumeAttachment> for ByVolume {
    fn keys(attachment: &VolumeAttachment) -> Vec<NamespacedName> {
        volume_of(attachment).into_iter().map(|volume| NamespacedName::new("", volume)).collect()
    }
}
