//! DefaultStorageClass: a claim that names no class gets the default one, if there is any.

use coracle_apimachinery::Result;
use coracle_apimachinery::cluster::Cluster;
use coracle_apimachinery::names::GroupResource;
use coracle_apiserver::admission::json::{newest_default, object_at};
use coracle_apiserver::admission::{AdmissionAttributes, AdmissionPlugin, Operation};

pub(super) struct DefaultStorageClass;

const ANNOTATIONS: [&str; 2] =
    ["storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class"];
const OLD_CLASS_ANNOTATION: &str = "volume.beta.kubernetes.io/storage-class";

impl AdmissionPlugin for DefaultStorageClass {
    fn admit(&self, attributes: &mut AdmissionAttributes<'_>, cluster: &dyn Cluster) -> Result<()> {
        if !attributes.is("", "persistentvolumeclaims") || attributes.operation != Operation::Create {
            return Ok(());
        }
        let claim = &attributes.object;
        // An empty class is set on purpose: no dynamic provisioning.
        let chosen = !claim["spec"]["storageClassName"].is_null()
            || !claim["metadata"]["annotations"][OLD_CLASS_ANNOTATION].is_null();
        if chosen {
            return Ok(());
        }
        let classes = cluster.list(&GroupResource::new("storage.k8s.io", "storageclasses"), "")?;
        if let Some(class) = newest_default(classes, &ANNOTATIONS)
            && let Some(spec) = object_at(attributes.object, "spec")
        {
            spec["storageClassName"] = class["metadata"]["name"].clone();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use coracle_apiserver::admission::testing::{Request, World};
    use serde_json::{Value, json};

    #[test]
    fn claims_without_a_class_get_the_newest_default() {
        let class = |name: &str, made: &str, annotation: &str| json!({"metadata": {"name": name, "creationTimestamp": made, "annotations": {annotation: "true"}}});
        let old = class("old", "2026-01-01T00:00:00Z", ANNOTATIONS[0]);
        let beta = class("beta", "2026-01-02T00:00:00Z", ANNOTATIONS[1]);
        let same = class("alpha", "2026-01-02T00:00:00Z", ANNOTATIONS[0]);
        let no = json!({"metadata": {"name": "no", "creationTimestamp": "2026-01-03T00:00:00Z"}});
        for (classes, spec, annotations, want) in [
            (vec![], json!({}), json!({}), json!(null)),
            (vec![&no], json!({}), json!({}), json!(null)),
            (vec![&old, &beta, &no], json!({}), json!({}), json!("beta")),
            (vec![&old, &beta, &same], json!({}), json!({}), json!("alpha")),
            (vec![&old], json!({"storageClassName": ""}), json!({}), json!("")),
            (vec![&old], json!({}), json!({OLD_CLASS_ANNOTATION: "x"}), json!(null)),
        ] {
            let world = classes.into_iter().fold(World::default(), |world, class: &Value| {
                world.with("storage.k8s.io", "storageclasses", class.clone())
            });
            let claim = json!({"metadata": {"name": "c", "annotations": annotations}, "spec": spec});
            let got =
                Request::new("", "persistentvolumeclaims", "ns", claim).run(&DefaultStorageClass, &world);
            assert_eq!(got.expect("a claim")["spec"]["storageClassName"], want);
        }
    }
}
