//! VolumeAttachments: that a CSI volume is to be usable on a node, and whether it is.

use k8s_openapi::api::core::v1::PersistentVolume;
use k8s_openapi::api::storage::v1::{VolumeAttachment, VolumeAttachmentSource, VolumeAttachmentSpec};
use kube::ResourceExt;
use ring::digest::{SHA256, digest};

/// Returns `true` if a CSI driver serves a volume.
pub fn is_csi(volume: &PersistentVolume) -> bool {
    volume.spec.as_ref().is_some_and(|spec| spec.csi.is_some())
}

/// Builds the attachment of a volume to a node, as it is created; None if the volume is not a CSI
/// volume.
pub fn attachment(volume: &PersistentVolume, node: &str) -> Option<VolumeAttachment> {
    let source = volume.spec.as_ref()?.csi.as_ref()?;
    let mut attachment = VolumeAttachment::default();
    attachment.metadata.name = Some(name(&source.volume_handle, &source.driver, node));
    attachment.spec = VolumeAttachmentSpec {
        attacher: source.driver.clone(),
        node_name: node.to_owned(),
        source: VolumeAttachmentSource {
            persistent_volume_name: Some(volume.name_any()),
            ..VolumeAttachmentSource::default()
        },
    };
    Some(attachment)
}

fn name(handle: &str, driver: &str, node: &str) -> String {
    let digest = digest(&SHA256, [handle, driver, node].concat().as_bytes());
    let hex: String = digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    format!("csi-{hex}")
}

/// Returns the volume of an attachment.
pub fn volume_of(attachment: &VolumeAttachment) -> Option<&str> {
    attachment.spec.source.persistent_volume_name.as_deref()
}

/// Returns `true` if the driver has attached the volume.
pub fn is_attached(attachment: &VolumeAttachment) -> bool {
    attachment.status.as_ref().is_some_and(|status| status.attached)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        // printf handledrivernode | sha256sum
        let want = "csi-fdef298eb16db6fa42906ef1ff09a93a7f3028f8290cc9d71628ff91c237bfa7";
        assert_eq!(name("handle", "driver", "node"), want);
    }
}
