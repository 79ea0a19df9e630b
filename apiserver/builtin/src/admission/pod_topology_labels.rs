//! PodTopologyLabels: copies the zone and region labels of the node to a pod that is bound to it.

use coracle_apimachinery::Result;
use coracle_apimachinery::cluster::Cluster;
use coracle_apimachinery::names::GroupResource;
use coracle_apiserver::admission::json::{object_at, text};
use coracle_apiserver::admission::{AdmissionAttributes, AdmissionPlugin, Operation};
use serde_json::{Map, Value};

pub(super) struct PodTopologyLabels;

const LABELS: [&str; 2] = ["topology.kubernetes.io/zone", "topology.kubernetes.io/region"];

impl AdmissionPlugin for PodTopologyLabels {
    fn admit(&self, attributes: &mut AdmissionAttributes<'_>, cluster: &dyn Cluster) -> Result<()> {
        if !attributes.is_any("", "pods") || attributes.operation != Operation::Create {
            return Ok(());
        }
        let object = &attributes.object;
        let node = match attributes.subresource {
            "" => text(&object["spec"]["nodeName"]),
            // The registry copies a binding's labels to its pod.
            "binding" if object["target"]["kind"] == "Node" => text(&object["target"]["name"]),
            _ => "",
        };
        let labels = if node.is_empty() { Map::new() } else { topology(cluster, node)? };
        if !labels.is_empty()
            && let Some(own) = object_at(attributes.object, "metadata").and_then(|m| object_at(m, "labels"))
            && let Some(own) = own.as_object_mut()
        {
            own.extend(labels);
        }
        Ok(())
    }
}

/// Returns the labels of a node that pods get; empty if there is no such node.
fn topology(cluster: &dyn Cluster, node: &str) -> Result<Map<String, Value>> {
    let nodes = GroupResource::new("", "nodes");
    let mut labels = Map::new();
    for label in LABELS {
        let value = cluster.label(&nodes, "", node, label)?;
        labels.extend(value.map(|value| (label.to_owned(), Value::from(value))));
    }
    Ok(labels)
}

#[cfg(test)]
mod tests {
    use super::*;
    use coracle_apiserver::admission::testing::{Request, World};
    use serde_json::json;

    #[test]
    fn topology_labels_of_the_node_are_copied() {
        let labels = json!({LABELS[0]: "z", "other": "x"});
        let world = World::default().with("", "nodes", json!({"metadata": {"name": "n", "labels": labels}}));
        let pod = |node: &str| json!({"metadata": {"name": "p", "labels": {LABELS[0]: "mine"}}, "spec": {"nodeName": node}});
        let binding = json!({"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n"}});
        for (subresource, object, want) in [
            ("", pod("n"), json!({LABELS[0]: "z"})),
            ("", pod(""), json!({LABELS[0]: "mine"})),
            ("", pod("gone"), json!({LABELS[0]: "mine"})),
            ("binding", binding, json!({LABELS[0]: "z"})),
            ("eviction", pod("n"), json!({LABELS[0]: "mine"})),
        ] {
            let got = Request::new("", "pods", "ns", object).of(subresource).run(&PodTopologyLabels, &world);
            assert_eq!(got.expect("an object")["metadata"]["labels"], want);
        }
    }
}
