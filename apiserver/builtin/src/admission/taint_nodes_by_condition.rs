//! TaintNodesByCondition: adds the taint `node.kubernetes.io/not-ready` to a new node.

use coracle_apimachinery::Result;
use coracle_apimachinery::cluster::Cluster;
use coracle_apiserver::admission::json::{list_at, object_at};
use coracle_apiserver::admission::{AdmissionAttributes, AdmissionPlugin, Operation};
use serde_json::json;

pub(super) struct TaintNodesByCondition;

impl AdmissionPlugin for TaintNodesByCondition {
    fn admit(&self, attributes: &mut AdmissionAttributes<'_>, _cluster: &dyn Cluster) -> Result<()> {
        if !attributes.is("", "nodes") || attributes.operation != Operation::Create {
            return Ok(());
        }
        let Some(taints) = object_at(attributes.object, "spec").and_then(|spec| list_at(spec, "taints"))
        else {
            return Ok(());
        };
        let not_ready = json!({"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"});
        if !taints.iter().any(|t| t["key"] == not_ready["key"] && t["effect"] == not_ready["effect"]) {
            taints.push(not_ready);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use coracle_apiserver::admission::testing::{Request, World};

    #[test]
    fn new_nodes_are_tainted_once() {
        let taint = json!({"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"});
        let other = json!({"key": "node.kubernetes.io/not-ready", "effect": "NoExecute"});
        for (spec, want) in [
            (json!(null), json!([taint])),
            (json!({"taints": [other]}), json!([other, taint])),
            (json!({"taints": [taint, other]}), json!([taint, other])),
        ] {
            let mut node = json!({"metadata": {"name": "n"}});
            if !spec.is_null() {
                node["spec"] = spec;
            }
            let got = Request::new("", "nodes", "", node).run(&TaintNodesByCondition, &World::default());
            assert_eq!(got.expect("a node")["spec"]["taints"], want);
        }
    }
}
