//! `pods/binding`: the scheduler's word on which node a pod goes to. Said once, and the node need not exist.

use serde_json::{Value, json};

use super::super::body::Body;
use super::super::deletion::rfc3339;
use super::super::object::ObjectMeta;
use super::super::write::same_uid;
use super::super::{Outcome, Registry, Target};
use crate::codec::body::Expected;
use crate::field::{Errors, Field};
use crate::request::options::WriteOptions;
use crate::resources;
use crate::{Error, Result};

impl Registry {
    /// Binds the pod that the path names, or (on the old `/bindings` path) the one that the body names.
    pub async fn bind(&self, target: &Target, body: &Body, options: &WriteOptions) -> Result<Outcome> {
        let expected = Expected { group: "", version: "v1", kind: "Binding" };
        let decoded = body.decode(expected, options.field_validation)?;
        let binding = decoded.object;
        let name = binding.name().to_owned();
        if !target.name.is_empty() && name != target.name {
            return Err(Error::bad_request("name in URL does not match name in Binding object"));
        }
        let target = Target { name, ..target.clone() };
        let mut errors = Errors::new();
        resources::behaviour("", "Binding").strategy.validate(&Field::root(&binding), &mut errors);
        if !errors.is_empty() {
            return Err(Error::Unclassified(errors.summary()));
        }
        let now = rfc3339(self.now());
        self.rewrite(&target, options.dry_run, |pod| {
            same_uid(&target, &binding, pod)?;
            assign(&target, pod, &binding, &now)
        })
        .await?;
        Ok(Outcome::success(201, decoded.warnings))
    }
}

/// The pod on its node.
fn assign(target: &Target, pod: &Value, binding: &Value, now: &str) -> Result<Value> {
    let name = &target.name;
    let refuse =
        |detail: String| Err(Error::conflict(&target.served.group_resource.sub("binding"), name, detail));
    let node = pod.pointer("/spec/nodeName").and_then(Value::as_str).unwrap_or("");
    if pod.is_terminating() {
        return refuse(format!("pod {name} is being deleted, cannot be assigned to a host"));
    }
    if !node.is_empty() {
        return refuse(format!("pod {name} is already assigned to node {}", crate::field::quote(node)));
    }
    let gates = pod.pointer("/spec/schedulingGates").and_then(Value::as_array);
    if gates.is_some_and(|g| !g.is_empty()) {
        return refuse(format!("pod {name} has non-empty .spec.schedulingGates"));
    }
    let mut bound = pod.clone();
    bound["spec"]["nodeName"] = binding.pointer("/target/name").cloned().unwrap_or_default();
    for member in ["annotations", "labels"] {
        for (key, value) in binding.meta(member).and_then(Value::as_object).into_iter().flatten() {
            bound["metadata"][member][key] = value.clone();
        }
    }
    set_condition(&mut bound, "PodScheduled", now);
    Ok(bound)
}

/// Sets a condition to True; the time is that of its last change.
fn set_condition(pod: &mut Value, kind: &str, now: &str) {
    let generation = pod.generation();
    let mut condition =
        json!({"type": kind, "status": "True", "lastProbeTime": null, "lastTransitionTime": now});
    if generation > 0 {
        condition["observedGeneration"] = generation.into();
    }
    let conditions = &mut pod["status"]["conditions"];
    if !conditions.is_array() {
        *conditions = json!([]);
    }
    let Some(list) = conditions.as_array_mut() else { return };
    match list.iter_mut().find(|c| c["type"] == kind) {
        Some(present) if present["status"] == "True" => {}
        Some(present) => *present = condition,
        None => list.push(condition),
    }
}
