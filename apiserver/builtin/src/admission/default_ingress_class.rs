//! DefaultIngressClass: an ingress that names no class gets the default one, if there is any.

use coracle_apimachinery::Result;
use coracle_apimachinery::cluster::Cluster;
use coracle_apimachinery::names::GroupResource;
use coracle_apiserver::admission::json::{newest_default, object_at};
use coracle_apiserver::admission::{AdmissionAttributes, AdmissionPlugin, Operation};

pub(super) struct DefaultIngressClass;

const GROUP: &str = "networking.k8s.io";
const ANNOTATION: &str = "ingressclass.kubernetes.io/is-default-class";
const OLD_CLASS_ANNOTATION: &str = "kubernetes.io/ingress.class";

impl AdmissionPlugin for DefaultIngressClass {
    fn admit(&self, attributes: &mut AdmissionAttributes<'_>, cluster: &dyn Cluster) -> Result<()> {
        if !attributes.is(GROUP, "ingresses") || attributes.operation != Operation::Create {
            return Ok(());
        }
        let ingress = &attributes.object;
        let chosen = !ingress["spec"]["ingressClassName"].is_null()
            || !ingress["metadata"]["annotations"][OLD_CLASS_ANNOTATION].is_null();
        if chosen {
            return Ok(());
        }
        let classes = cluster.list(&GroupResource::new(GROUP, "ingressclasses"), "")?;
        if let Some(class) = newest_default(classes, &[ANNOTATION])
            && let Some(spec) = object_at(attributes.object, "spec")
        {
            spec["ingressClassName"] = class["metadata"]["name"].clone();
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
    fn only_ingresses_without_a_class_get_the_default() {
        let class = json!({"metadata": {"name": "std", "annotations": {ANNOTATION: "true"}}});
        for (metadata, spec, want) in [
            (json!({"name": "i"}), json!({}), json!("std")),
            (json!({"name": "i"}), json!({"ingressClassName": "own"}), json!("own")),
            (json!({"name": "i", "annotations": {OLD_CLASS_ANNOTATION: "x"}}), json!({}), json!(null)),
        ] {
            let world = World::default().with(GROUP, "ingressclasses", class.clone());
            let ingress = json!({"metadata": metadata, "spec": spec});
            let got = Request::new(GROUP, "ingresses", "ns", ingress).run(&DefaultIngressClass, &world);
            assert_eq!(got.expect("an ingress")["spec"]["ingressClassName"], want);
        }
    }
}
