//! The in-tree plugin `kubernetes.io/host-path`. Its volumes are directories of this machine.
//!
//! [`HostPath`] provisions volumes in the loop of all [`coracle_volumes::provisioner`]s;
//! [`reclaim`] deletes and recycles them.

mod host_path;
pub mod reclaim;

use coracle_kinds::storage::{MIGRATED_TO, PROVISIONED_BY};
use coracle_object_meta::annotation;
use coracle_volumes::migration::{HOST_PATH, Migration};
use k8s_openapi::api::core::v1::PersistentVolume;

pub use self::host_path::HostPath;

/// The prefix of the names of in-tree plugins.
const IN_TREE: &str = "kubernetes.io/";

/// Returns `true` if a provisioner is an in-tree plugin, and `false` if it is an external one.
///
/// # Errors
/// The message of the event, if there is no such in-tree plugin.
pub fn provides(provisioner: &str, migration: Migration) -> Result<bool, String> {
    match provisioner {
        migrated if migration.driver(migrated).is_some() => Ok(false),
        HOST_PATH => Ok(true),
        other if other.starts_with(IN_TREE) => Err(unknown(other)),
        _ => Ok(false),
    }
}

fn unknown(plugin: &str) -> String {
    format!("no volume plugin matched name: {plugin}")
}

/// Returns `true` if an in-tree plugin deletes the storage of a volume, and `false` if an external
/// provisioner does.
///
/// # Errors
/// The message of the event, if no plugin can delete it.
pub fn deletes(volume: &PersistentVolume) -> Result<bool, String> {
    match annotation(&volume.metadata, PROVISIONED_BY).filter(|plugin| !plugin.is_empty()) {
        Some(HOST_PATH) => return Ok(true),
        Some(plugin) if plugin.starts_with(IN_TREE) => return Err(unknown(plugin)),
        Some(_) => return Ok(false),
        None => {}
    }
    let spec = volume.spec.as_ref();
    let is_external =
        annotation(&volume.metadata, MIGRATED_TO).is_some() || spec.is_some_and(|spec| spec.csi.is_some());
    if is_external {
        return Ok(false);
    }
    if spec.is_some_and(|spec| spec.host_path.is_some()) {
        return Ok(true);
    }
    let name = volume.metadata.name.as_deref().unwrap_or_default();
    // kube-controller-manager has a plugin for NFS, which recycles.
    let kind = if spec.is_some_and(|spec| spec.nfs.is_some()) { "deletable volume" } else { "volume" };
    Err(format!("error getting deleter volume plugin for volume {name:?}: no {kind} plugin matched"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn who_deletes() {
        let no_plugin =
            "error getting deleter volume plugin for volume \"v\": no deletable volume plugin matched";
        for (case, annotations, source, want) in [
            ("host path", json!({}), json!({"hostPath": {"path": "/tmp/a"}}), Ok(true)),
            ("nfs", json!({}), json!({"nfs": {"path": "/", "server": "s"}}), Err(no_plugin.to_owned())),
            (
                "local",
                json!({}),
                json!({"local": {"path": "/"}}),
                Err("error getting deleter volume plugin for volume \"v\": no volume plugin matched"
                    .to_owned()),
            ),
            ("csi", json!({}), json!({"csi": {"driver": "d", "volumeHandle": "h"}}), Ok(false)),
            (
                "provisioned",
                json!({PROVISIONED_BY: HOST_PATH}),
                json!({"hostPath": {"path": "/tmp/a"}}),
                Ok(true),
            ),
            (
                "outside",
                json!({PROVISIONED_BY: "example.com/a"}),
                json!({"hostPath": {"path": "/tmp/a"}}),
                Ok(false),
            ),
            (
                "unknown",
                json!({PROVISIONED_BY: "kubernetes.io/none"}),
                json!({"hostPath": {"path": "/tmp/a"}}),
                Err("no volume plugin matched name: kubernetes.io/none".to_owned()),
            ),
            ("migrated", json!({MIGRATED_TO: "d"}), json!({"hostPath": {"path": "/tmp/a"}}), Ok(false)),
        ] {
            assert_eq!(deletes(&volume(annotations, source)), want, "{case}");
        }
    }

    fn volume(annotations: Value, spec: Value) -> PersistentVolume {
        let object = json!({"metadata": {"name": "v", "annotations": annotations}, "spec": spec});
        serde_json::from_value(object).unwrap()
    }
}
