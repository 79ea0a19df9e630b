//! PodResizeValidator: rejects a resize beyond the allocatable resources of the pod's node.

use coracle_apimachinery::Result;
use coracle_apimachinery::cluster::Cluster;
use coracle_apimachinery::error::{Cause, Error};
use coracle_apimachinery::field::quote;
use coracle_apimachinery::names::GroupResource;
use coracle_apiserver::admission::json::text;
use coracle_apiserver::admission::{AdmissionAttributes, AdmissionPlugin, Operation};

use crate::pod_spec::{pod_resources, resources};
use coracle_quantity::Quantity;

pub(super) struct PodResizeValidator;

impl AdmissionPlugin for PodResizeValidator {
    fn validate(&self, attributes: &AdmissionAttributes<'_>, cluster: &dyn Cluster) -> Result<()> {
        let concerned = attributes.is_any("", "pods")
            && attributes.subresource == "resize"
            && attributes.operation == Operation::Update;
        let Some(old) = attributes.old_object.filter(|_| concerned) else { return Ok(()) };
        let pod = &attributes.object;
        let name = text(&pod["spec"]["nodeName"]);
        // An unchanged generation is an unchanged spec.
        if name.is_empty() || old["metadata"]["generation"] == pod["metadata"]["generation"] {
            return Ok(());
        }
        let Some(node) = cluster.get(&GroupResource::new("", "nodes"), "", name)? else {
            return Err(attributes.forbidden(format!("node {} not found", quote(name))));
        };
        let system = node["metadata"]["labels"]["kubernetes.io/os"].as_str().unwrap_or("linux");
        if system != "linux" {
            let detail = format!(
                "pod resize is only supported on linux nodes, node {} is {}",
                quote(name),
                quote(system)
            );
            return Err(rejection(attributes, detail, "UnsupportedPlatform"));
        }
        let mut wanted = pod_resources(&pod["spec"], "requests");
        for (resource, overhead) in resources(&pod["spec"]["overhead"]) {
            wanted.entry(resource).and_modify(|sum| *sum = sum.plus(&overhead)).or_insert(overhead);
        }
        let allocatable = resources(&node["status"]["allocatable"]);
        let zero = Quantity::from_int(0);
        let short: Vec<String> = ["cpu", "memory"]
            .iter()
            .filter_map(|name| {
                let wanted = wanted.get(*name).unwrap_or(&zero);
                let have = allocatable.get(*name).unwrap_or(&zero);
                let shown = |q: &Quantity| if *name == "cpu" { q.milli_value() } else { q.value() };
                (wanted > have)
                    .then(|| format!("{name}, requested: {}, allocatable: {}", shown(wanted), shown(have)))
            })
            .collect();
        if short.is_empty() {
            return Ok(());
        }
        let detail = format!("node didn't have enough allocatable resources: {}", short.join("; "));
        Err(rejection(attributes, detail, "NodeCapacity"))
    }
}

fn rejection(attributes: &AdmissionAttributes<'_>, detail: String, reason: &str) -> Error {
    Error::Forbidden {
        resource: Some(attributes.resource.clone()),
        name: attributes.shown_name().to_owned(),
        detail,
        causes: vec![Cause { reason: reason.to_owned(), ..Cause::default() }],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use coracle_apiserver::admission::testing::{Request, World};
    use serde_json::{Value, json};

    #[test]
    fn a_resize_beyond_the_node_is_rejected() {
        let node = |name: &str, os: &str| {
            json!({"metadata": {"name": name, "labels": {"kubernetes.io/os": os}},
                   "status": {"allocatable": {"cpu": "2", "memory": "1Gi"}}})
        };
        let world =
            World::default().with("", "nodes", node("n", "linux")).with("", "nodes", node("w", "windows"));
        let pod = |node: &str, cpu: &str, generation: i64| -> Value {
            json!({"metadata": {"name": "p", "generation": generation}, "spec": {"nodeName": node,
                   "containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]}})
        };
        for (node, cpu, generation, want) in [
            ("n", "2", 2, "ok"),
            (
                "n",
                "3",
                2,
                "403 pods \"p\" is forbidden: node didn't have enough allocatable resources: cpu, requested: 3000, allocatable: 2000",
            ),
            ("n", "3", 1, "ok"),
            ("", "3", 2, "ok"),
            ("x", "1", 2, "403 pods \"p\" is forbidden: node \"x\" not found"),
            (
                "w",
                "1",
                2,
                "403 pods \"p\" is forbidden: pod resize is only supported on linux nodes, node \"w\" is \"windows\"",
            ),
        ] {
            let request = Request::new("", "pods", "ns", pod(node, cpu, generation))
                .update(pod(node, "1", 1))
                .of("resize");
            let got = request.run(&PodResizeValidator, &world).map_or_else(|e| e, |_| "ok".to_owned());
            assert_eq!(got, want, "{node} {cpu}");
        }
    }
}
