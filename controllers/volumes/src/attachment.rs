//! Volumes that are attached to nodes.

use coracle_controller_runtime::cache::{Cache, NamespacedName};
use k8s_openapi::api::core::v1::PersistentVolume;
use k8s_openapi::api::storage::v1::CSIDriver;

/// Returns `true` if the driver of a volume requires that it is attached. A driver without a
/// CSIDriver object does.
pub fn needs_attachment(volume: &PersistentVolume, drivers: &Cache<CSIDriver>) -> bool {
    let source = volume.spec.as_ref().and_then(|spec| spec.csi.as_ref());
    let driver = source.map(|source| drivers.get(&NamespacedName::new("", &source.driver)));
    driver.is_some_and(|driver| driver.is_none_or(|driver| driver.spec.attach_required != Some(false)))
}
