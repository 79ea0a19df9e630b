//! In-tree volume plugins, and the CSI drivers that have taken over from them (KEP-625).

/// The simulated CSI driver: its name, and that of the provisioner that it is.
pub const CSI_DRIVER: &str = "coracle.csi";

/// The gate for [`CSI_DRIVER`] to take over from [`HOST_PATH`]; Kubernetes has no gate of that
/// name.
pub const HOST_PATH_MIGRATION: &str = "CSIMigrationHostPath";

/// The in-tree plugin that provisions directories of this machine.
pub const HOST_PATH: &str = "kubernetes.io/host-path";

/// The plugins that are only implemented by CSI drivers, and these drivers.
const MIGRATED: [(&str, &str); 7] = [
    ("kubernetes.io/aws-ebs", "ebs.csi.aws.com"),
    ("kubernetes.io/gce-pd", "pd.csi.storage.gke.io"),
    ("kubernetes.io/azure-disk", "disk.csi.azure.com"),
    ("kubernetes.io/azure-file", "file.csi.azure.com"),
    ("kubernetes.io/cinder", "cinder.csi.openstack.org"),
    ("kubernetes.io/vsphere-volume", "csi.vsphere.vmware.com"),
    ("kubernetes.io/portworx-volume", "pxd.portworx.com"),
];

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
        let mut plugins: Vec<_> = MIGRATED.iter().map(|(name, _)| *name).chain(ours).collect();
        plugins.sort_unstable();
        plugins
    }

    /// Returns the CSI driver to which a plugin was migrated.
    pub fn driver(self, plugin: &str) -> Option<&'static str> {
        if self.host_path && plugin == HOST_PATH {
            return Some(CSI_DRIVER);
        }
        MIGRATED.iter().find(|(name, _)| *name == plugin).map(|(_, driver)| *driver)
    }
}
