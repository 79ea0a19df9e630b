//! The limit of all pods together (`--max-pods`). It is not one of kube-apiserver's plugins: no
//! selection disables it.
//!
//! The pods in the store are counted, those of other creations under way are not: these may exceed
//! the limit together by their number.

use coracle_apimachinery::Result;
use coracle_apimachinery::cluster::Cluster;
use coracle_apiserver::admission::{AdmissionAttributes, AdmissionPlugin, Operation};

/// Rejects the creation of pods while there are as many as allowed.
pub(super) struct PodLimit {
    /// The maximum number of pods in all namespaces.
    pub max: usize,
}

impl AdmissionPlugin for PodLimit {
    fn admit(&self, attributes: &mut AdmissionAttributes<'_>, cluster: &dyn Cluster) -> Result<()> {
        let is_new_pod = attributes.operation == Operation::Create
            && attributes.is("", "pods")
            && attributes.subresource.is_empty();
        if is_new_pod && cluster.count(attributes.resource)? >= self.max {
            let max = self.max;
            return Err(attributes
                .forbidden(format!("exceeded the limit of {max} pods in all namespaces (--max-pods)")));
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
    fn no_pod_is_created_beyond_the_limit() {
        let pod = |name: &str| json!({"kind": "Pod", "metadata": {"name": name, "namespace": "n"}});
        let world = World::default().with("", "pods", pod("a")).with("", "pods", pod("b"));
        let refused =
            "403 pods \"c\" is forbidden: exceeded the limit of 2 pods in all namespaces (--max-pods)";
        let create = |resource: &str| Request::new("", resource, "n", pod("c"));
        for (case, max, request, want) in [
            ("below the limit", 3, create("pods"), None),
            ("at the limit", 2, create("pods"), Some(refused)),
            ("another resource", 2, create("configmaps"), None),
            ("a binding", 2, create("pods").of("binding"), None),
            ("an update", 2, create("pods").update(pod("c")), None),
            ("a deletion", 2, create("pods").delete(), None),
        ] {
            let error = request.run(&PodLimit { max }, &world).err();
            assert_eq!(error.as_deref(), want, "{case}");
        }
    }
}
