//! The volumes that `kubernetes.io/host-path` makes: directories of this machine.

use coracle_kinds::storage::PROVISIONED_BY;
use coracle_object_meta::set_annotation;
use k8s_openapi::api::core::v1::{HostPathVolumeSource, PersistentVolume};
use kube::ResourceExt;

use crate::migration::HOST_PATH;
use crate::provisioner::directories::Directories;

/// Says that the plugin made the directory.
const CREATED_BY: (&str, &str) = ("kubernetes.io/createdby", "hostpath-dynamic-provisioner");

/// Sets the source and the annotations of a volume that this plugin, or a driver in its place,
/// makes.
pub fn set_source(volume: &mut PersistentVolume, directories: &Directories) {
    set_annotation(&mut volume.metadata, CREATED_BY.0, CREATED_BY.1);
    set_annotation(&mut volume.metadata, PROVISIONED_BY, HOST_PATH);
    let path = directories.host_path(&volume.name_any()).to_string_lossy().into_owned();
    let source = HostPathVolumeSource { path, type_: Some(String::new()) };
    volume.spec.get_or_insert_default().host_path = Some(source);
}
