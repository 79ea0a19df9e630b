//! In-tree volume plugins, and the CSI drivers that have taken over from them (KEP-625).

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeSpec};

/// The simulated CSI driver: its name, and that of the provisioner that it is.
pub const CSI_DRIVER: &str = "coracle.csi";

/// The gate for [`CSI_DRIVER`] to take over from [`HOST_PATH`]; Kubernetes has no gate of that
/// name.
pub const HOST_PATH_MIGRATION: &str = "CSIMigrationHostPath";

/// The in-tree plugin that provisions directories of this machine.
pub const HOST_PATH: &str = "kubernetes.io/host-path";

/// A plugin that is only implemented by a CSI driver.
struct Migrated {
    plugin: &'static str,
    driver: &'static str,
    /// Returns `true` for its volumes.
    has: fn(&PersistentVolumeSpec) -> bool,
}

const fn migrated(
    plugin: &'static str,
    driver: &'static str,
    has: fn(&PersistentVolumeSpec) -> bool,
) -> Migrated {
    Migrated { plugin, driver, has }
}

const MIGRATED: [Migrated; 7] = [
    migrated("kubernetes.io/aws-ebs", "ebs.csi.aws.com", |spec| spec.aws_elastic_block_store.is_some()),
    migrated("kubernetes.io/gce-pd", "pd.csi.storage.gke.io", |spec| spec.gce_persistent_disk.is_some()),
    migrated("kubernetes.io/azure-disk", "disk.csi.azure.com", |spec| spec.azure_disk.is_some()),
    migrated("kubernetes.io/azure-file", "file.csi.azure.com", |spec| spec.azure_file.is_some()),
    migrated("kubernetes.io/cinder", "cinder.csi.openstack.org", |spec| spec.cinder.is_some()),
    migrated("kubernetes.io/vsphere-volume", "csi.vsphere.vmware.com", |spec| spec.vsphere_volume.is_some()),
    migrated("kubernetes.io/portworx-volume", "pxd.portworx.com", |spec| spec.portworx_volume.is_some()),
];

/// Returns the in-tree plugin of a volume that drivers can take over; None for any other volume.
pub fn plugin_of(volume: &PersistentVolume) -> Option<&'static str> {
    let spec = volume.spec.as_ref()?;
    let of_host = spec.host_path.is_some().then_some(HOST_PATH);
    MIGRATED.iter().find(|migrated| (migrated.has)(spec)).map(|migrated| migrated.plugin).or(of_host)
}

/// The plugins that CSI drivers have taken over in the controller.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Migration {
    /// Whether Coracle's CSI driver handles the plugin `kubernetes.io/host-path`. It is a feature
    /// gate of Coracle's own, which can be turned on and off with the same data.
    pub host_path: bool,
}

impl Migration {
    /// Returns the names of the migrated plugins, sorted.
    pub fn plugins(self) -> Vec<&'static str> {
        let ours = self.host_path.then_some(HOST_PATH);
        let mut plugins: Vec<_> = MIGRATED.iter().map(|migrated| migrated.plugin).chain(ours).collect();
        plugins.sort_unstable();
        plugins
    }

    /// Returns the CSI driver to which a plugin was migrated.
    pub fn driver(self, plugin: &str) -> Option<&'static str> {
        if self.host_path && plugin == HOST_PATH {
            return Some(CSI_DRIVER);
        }
        MIGRATED.iter().find(|migrated| migrated.plugin == plugin).map(|migrated| migrated.driver)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drivers_take_over_volumes_of_their_plugins() {
        let volume = |source: serde_json::Value| -> PersistentVolume {
            serde_json::from_value(serde_json::json!({"spec": source})).unwrap()
        };
        let (disk, path) = (
            volume(serde_json::json!({"gcePersistentDisk": {"pdName": "d"}})),
            volume(serde_json::json!({"hostPath": {"path": "/a"}})),
        );
        let driver = |volume, host_path| Migration { host_path }.driver(plugin_of(volume)?);
        assert_eq!(driver(&disk, false), Some("pd.csi.storage.gke.io"));
        assert_eq!([driver(&path, false), driver(&path, true)], [None, Some(CSI_DRIVER)]);
        assert_eq!(plugin_of(&volume(serde_json::json!({"nfs": {"path": "/", "server": "s"}}))), None);
    }
}
