//! PersistentVolumeClaimResize: only a bound claim of a class that allows expansion may grow.

use coracle_apimachinery::Result;
use coracle_apimachinery::cluster::Cluster;
use coracle_apimachinery::names::GroupResource;
use coracle_apiserver::admission::json::text;
use coracle_apiserver::admission::{AdmissionAttributes, AdmissionPlugin, Operation};
use serde_json::Value;

use coracle_quantity::Quantity;

pub(super) struct PersistentVolumeClaimResize;

impl AdmissionPlugin for PersistentVolumeClaimResize {
    fn validate(&self, attributes: &AdmissionAttributes<'_>, cluster: &dyn Cluster) -> Result<()> {
        if !attributes.is("", "persistentvolumeclaims") || attributes.operation != Operation::Update {
            return Ok(());
        }
        let Some(old) = attributes.old_object else { return Ok(()) };
        if size(attributes.object) <= size(old) {
            return Ok(());
        }
        if old["status"]["phase"] != "Bound" {
            return Err(attributes.forbidden("Only bound persistent volume claims can be expanded"));
        }
        let class = class_of(old);
        let growable = !class.is_empty()
            && class == class_of(attributes.object)
            && cluster
                .get(&GroupResource::new("storage.k8s.io", "storageclasses"), "", class)?
                .is_some_and(|class| class["allowVolumeExpansion"] == true);
        if growable {
            return Ok(());
        }
        Err(attributes.forbidden(
            "only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must support resize",
        ))
    }
}

fn size(claim: &Value) -> Quantity {
    text(&claim["spec"]["resources"]["requests"]["storage"]).parse().unwrap_or(Quantity::from_int(0))
}

fn class_of(claim: &Value) -> &str {
    let annotation = &claim["metadata"]["annotations"]["volume.beta.kubernetes.io/storage-class"];
    annotation.as_str().unwrap_or_else(|| text(&claim["spec"]["storageClassName"]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use coracle_apiserver::admission::testing::{Request, World};
    use serde_json::json;

    #[test]
    fn only_bound_claims_of_expandable_classes_grow() {
        let claim = |size: &str, class: &str, phase: &str| {
            json!({"metadata": {"name": "c"}, "status": {"phase": phase},
                   "spec": {"storageClassName": class, "resources": {"requests": {"storage": size}}}})
        };
        let class =
            |name: &str, grows: bool| json!({"metadata": {"name": name}, "allowVolumeExpansion": grows});
        let world = World::default().with("storage.k8s.io", "storageclasses", class("grows", true)).with(
            "storage.k8s.io",
            "storageclasses",
            class("rigid", false),
        );
        let no = "403 persistentvolumeclaims \"c\" is forbidden: only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must support resize";
        for (size, class, phase, want) in [
            ("2Gi", "grows", "Bound", "ok"),
            (
                "2Gi",
                "grows",
                "Pending",
                "403 persistentvolumeclaims \"c\" is forbidden: Only bound persistent volume claims can be expanded",
            ),
            ("2Gi", "rigid", "Bound", no),
            ("2Gi", "gone", "Bound", no),
            ("2Gi", "", "Bound", no),
            ("1Gi", "rigid", "Bound", "ok"),
            ("1Mi", "rigid", "Pending", "ok"),
        ] {
            let request = Request::new("", "persistentvolumeclaims", "ns", claim(size, class, phase));
            let got = request.update(claim("1Gi", class, phase)).run(&PersistentVolumeClaimResize, &world);
            assert_eq!(got.map_or_else(|e| e, |_| "ok".to_owned()), want, "{size} {class} {phase}");
        }
    }
}
