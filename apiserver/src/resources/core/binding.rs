//! Binding: binds a pod to a node. It is posted and never stored.

use serde_json::Value;

use super::pod;
use crate::field::{Errors, Field, quote};
use crate::resources::strategy::Strategy;

/// The strategy of Binding.
pub struct BindingStrategy;

impl Strategy for BindingStrategy {
    fn validate(&self, binding: &Field<'_>, errors: &mut Errors) {
        let (kind, node) = (binding.walk("target.kind"), binding.walk("target.name"));
        let known = kind.is_empty() || kind.str() == "Node";
        errors.push_if(!known, || kind.not_supported(&["Node", "<empty>"]));
        errors.push_if(node.is_empty(), || node.required(""));
    }
}

/// Binds the pod to the node, with the Binding's labels and annotations; returns why it cannot be bound.
pub fn bind(pod: &mut Value, binding: &Value, now: &str) -> Result<(), String> {
    let name = pod.pointer("/metadata/name").and_then(Value::as_str).unwrap_or("").to_owned();
    if pod.pointer("/metadata/deletionTimestamp").is_some() {
        return Err(format!("pod {name} is being deleted, cannot be assigned to a host"));
    }
    let on = pod.pointer("/spec/nodeName").and_then(Value::as_str).unwrap_or("");
    if !on.is_empty() {
        return Err(format!("pod {name} is already assigned to node {}", quote(on)));
    }
    let gates = pod.pointer("/spec/schedulingGates").and_then(Value::as_array);
    if gates.is_some_and(|gates| !gates.is_empty()) {
        return Err(format!("pod {name} has non-empty .spec.schedulingGates"));
    }
    pod["spec"]["nodeName"] = binding.pointer("/target/name").cloned().unwrap_or_default();
    for map in ["labels", "annotations"] {
        let entries = binding.pointer("/metadata").and_then(|metadata| metadata.get(map));
        for (key, value) in entries.and_then(Value::as_object).into_iter().flatten() {
            pod["metadata"][map][key.as_str()] = value.clone();
        }
    }
    if let Some(status) = pod.get_mut("status").and_then(Value::as_object_mut) {
        status.remove("nominatedNodeName");
    }
    pod::set_condition(pod, "PodScheduled", "", "", now);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn only_nodes_are_valid_targets() {
        for (case, target, want) in [
            ("a node", json!({"name": "n"}), vec![]),
            ("nothing", json!({}), vec!["target.name: Required value"]),
            (
                "a pod",
                json!({"kind": "Pod", "name": "n"}),
                vec![r#"target.kind: Unsupported value: "Pod": supported values: "Node", "<empty>""#],
            ),
        ] {
            let mut errors = Errors::new();
            BindingStrategy.validate(&Field::root(&json!({ "target": target })), &mut errors);
            assert_eq!(errors.iter().map(ToString::to_string).collect::<Vec<_>>(), want, "{case}");
        }
    }

    #[test]
    fn binding_sets_the_node_and_the_condition() {
        let binding = json!({"metadata": {"name": "p", "annotations": {"a": "b"}}, "target": {"name": "n"}});
        let now = "2026-01-02T03:04:05Z";
        let mut pod = json!({"metadata": {"name": "p"}, "spec": {}, "status": {"nominatedNodeName": "m"}});
        assert_eq!(bind(&mut pod, &binding, now), Ok(()));
        assert_eq!(
            pod,
            json!({"metadata": {"name": "p", "annotations": {"a": "b"}}, "spec": {"nodeName": "n"},
                "status": {"conditions": [{"type": "PodScheduled", "status": "True", "lastTransitionTime": now}]}})
        );
        assert_eq!(bind(&mut pod, &binding, now), Err("pod p is already assigned to node \"n\"".to_owned()));
    }
}
