//! StorageObjectInUseProtection: adds the protection finalizers to new claims and volumes.

use coracle_apimachinery::Result;
use coracle_apimachinery::cluster::Cluster;
use coracle_apiserver::admission::json::{list_at, object_at};
use coracle_apiserver::admission::{AdmissionAttributes, AdmissionPlugin, Operation};

pub(super) struct StorageObjectInUseProtection;

const FINALIZERS: [(&str, &str, &str); 3] = [
    ("", "persistentvolumes", "kubernetes.io/pv-protection"),
    ("", "persistentvolumeclaims", "kubernetes.io/pvc-protection"),
    ("storage.k8s.io", "volumeattributesclasses", "kubernetes.io/vac-protection"),
];

impl AdmissionPlugin for StorageObjectInUseProtection {
    fn admit(&self, attributes: &mut AdmissionAttributes<'_>, _cluster: &dyn Cluster) -> Result<()> {
        if attributes.operation != Operation::Create {
            return Ok(());
        }
        let protection = FINALIZERS.iter().find(|(group, resource, _)| attributes.is(group, resource));
        if let Some((_, _, finalizer)) = protection
            && let Some(list) =
                object_at(attributes.object, "metadata").and_then(|m| list_at(m, "finalizers"))
            && !list.iter().any(|f| f == finalizer)
        {
            list.push((*finalizer).into());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use coracle_apiserver::admission::testing::{Request, World};
    use serde_json::json;

    #[test]
    fn the_finalizer_is_added_once() {
        for (group, resource, given, want) in [
            ("", "persistentvolumes", json!(["a/b"]), json!(["a/b", "kubernetes.io/pv-protection"])),
            (
                "",
                "persistentvolumeclaims",
                json!(["kubernetes.io/pvc-protection"]),
                json!(["kubernetes.io/pvc-protection"]),
            ),
            ("storage.k8s.io", "volumeattributesclasses", json!([]), json!(["kubernetes.io/vac-protection"])),
            ("storage.k8s.io", "persistentvolumes", json!([]), json!([])),
        ] {
            let object = json!({"metadata": {"name": "x", "finalizers": given}});
            let got = Request::new(group, resource, "", object)
                .run(&StorageObjectInUseProtection, &World::default());
            assert_eq!(got.expect("an object")["metadata"]["finalizers"], want, "{resource}");
        }
    }
}
