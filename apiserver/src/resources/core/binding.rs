//! Binding: puts a pod on a node. It is posted and never stored.
//!
//! The real server hands mistakes of a Binding on without making them an API error, so clients see a 500 with the bare
//! text: [`check`] does the same.

use serde_json::{Value, json};

use crate::field::{Errors, Field, quote};
use crate::resources::strategy::Strategy;
use crate::{Error, Result};

/// The rules of Binding.
pub struct Rules;

impl Strategy for Rules {}

/// Whether the Binding is for the pod `name`, and has a target.
pub fn check(name: &str, binding: &Value) -> Result<()> {
    let binding = Field::root(binding);
    if binding.walk("metadata.name").str() != name {
        return Err(Error::bad_request("name in URL does not match name in Binding object"));
    }
    let mut errors = Errors::new();
    let (kind, node) = (binding.walk("target.kind"), binding.walk("target.name"));
    errors.push_if(!kind.is_empty() && kind.str() != "Node", || kind.not_supported(&["Node", "<empty>"]));
    errors.push_if(node.is_empty(), || node.required(""));
    if errors.is_empty() { Ok(()) } else { Err(Error::Unclassified(errors.summary())) }
}

/// Puts the pod on the node, with the Binding's labels and annotations; or says why it cannot be put there.
pub fn bind(pod: &mut Value, binding: &Value, now: &str) -> std::result::Result<(), String> {
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
    set_scheduled(pod, now);
    Ok(())
}

fn set_scheduled(pod: &mut Value, now: &str) {
    let scheduled = json!({"type": "PodScheduled", "status": "True", "lastTransitionTime": now});
    let conditions = &mut pod["status"]["conditions"];
    if !conditions.is_array() {
        *conditions = json!([]);
    }
    let Some(conditions) = conditions.as_array_mut() else { return };
    match conditions.iter_mut().find(|condition| condition["type"] == "PodScheduled") {
        Some(condition) => *condition = scheduled,
        None => conditions.push(scheduled),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets() {
        let binding = |target: Value| json!({"metadata": {"name": "p"}, "target": target});
        for (case, name, target, want) in [
            ("a node", "p", json!({"name": "n"}), None),
            (
                "another pod's",
                "q",
                json!({"name": "n"}),
                Some((400, "name in URL does not match name in Binding object")),
            ),
            ("nothing", "p", json!({}), Some((500, "target.name: Required value"))),
            (
                "a pod",
                "p",
                json!({"kind": "Pod", "name": "n"}),
                Some((500, r#"target.kind: Unsupported value: "Pod": supported values: "Node", "<empty>""#)),
            ),
        ] {
            let found = check(name, &binding(target)).err().map(|error| (error.code(), error.to_string()));
            assert_eq!(found, want.map(|(code, text)| (code, text.to_owned())), "{case}");
        }
    }

    #[test]
    fn binding_a_pod() {
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
