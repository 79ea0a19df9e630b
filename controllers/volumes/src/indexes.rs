//! Indexes of the caches by the references between claims, volumes, pods, nodes and attachments.

use coracle_controller_runtime::cache::{Index, NamespacedName};
use coracle_kinds::pods::{self, pod_claims};
use coracle_kinds::storage::VolumeExt;
use coracle_kinds::storage::attachment::volume_of;
use k8s_openapi::api::core::v1::{PersistentVolume, Pod};
use k8s_openapi::api::storage::v1::VolumeAttachment;

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
    /// The key of the volumes without one.
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

/// Finds the pods that are bound to a node, and its attachments.
pub struct ByNode;

impl ByNode {
    /// Returns the key of a node.
    pub fn key(node: &str) -> NamespacedName {
        NamespacedName::new("", node)
    }
}

impl Index<Pod> for ByNode {
    fn keys(pod: &Pod) -> Vec<NamespacedName> {
        pods::node(pod).into_iter().map(ByNode::key).collect()
    }
}

impl Index<VolumeAttachment> for ByNode {
    fn keys(attachment: &VolumeAttachment) -> Vec<NamespacedName> {
        vec![ByNode::key(&attachment.spec.node_name)]
    }
}
