//! RuntimeClass: a pod gets the overhead and the scheduling constraints of its runtime class.

use std::collections::HashSet;

use coracle_apimachinery::cluster::Cluster;
use coracle_apimachinery::field::quote;
use coracle_apimachinery::names::GroupResource;
use coracle_apimachinery::{Error, Result};
use coracle_apiserver::admission::json::{items, object_at, refused_name, text};
use coracle_apiserver::admission::{AdmissionAttributes, AdmissionPlugin, Operation};
use serde_json::Value;

use crate::pod_spec::resources;

pub(super) struct RuntimeClass;

impl AdmissionPlugin for RuntimeClass {
    fn admit(&self, attributes: &mut AdmissionAttributes<'_>, cluster: &dyn Cluster) -> Result<()> {
        if !handles(attributes) {
            return Ok(());
        }
        let Some(class) = class_of(attributes, cluster)? else { return Ok(()) };
        let overhead = &class["overhead"]["podFixed"];
        let scheduling = &class["scheduling"];
        let spec = &attributes.object["spec"];
        if !class["overhead"].is_null() && !spec["overhead"].is_null() && differs(&spec["overhead"], overhead)
        {
            return Err(mismatch(attributes));
        }
        for (key, wanted) in scheduling["nodeSelector"].as_object().into_iter().flatten() {
            let own = &spec["nodeSelector"][key];
            if !own.is_null() && own != wanted {
                return Err(attributes.forbidden(format!(
                    "conflict: runtimeClass.scheduling.nodeSelector[{key}] = {}; pod.spec.nodeSelector[{key}] = {}",
                    text(wanted),
                    text(own)
                )));
            }
        }
        let Some(spec) = object_at(attributes.object, "spec") else { return Ok(()) };
        if overhead.is_object() {
            spec["overhead"] = overhead.clone();
        }
        if let (Some(wanted), Some(own)) = (
            scheduling["nodeSelector"].as_object(),
            object_at(spec, "nodeSelector").and_then(Value::as_object_mut),
        ) {
            own.extend(wanted.iter().map(|(k, v)| (k.clone(), v.clone())));
        }
        if !items(&scheduling["tolerations"]).is_empty() {
            spec["tolerations"] =
                merge(items(&spec["tolerations"]), items(&scheduling["tolerations"])).into();
        }
        Ok(())
    }

    fn validate(&self, attributes: &AdmissionAttributes<'_>, cluster: &dyn Cluster) -> Result<()> {
        if !handles(attributes) {
            return Ok(());
        }
        let class = class_of(attributes, cluster)?;
        let own = &attributes.object["spec"]["overhead"];
        match class.filter(|class| !class["overhead"].is_null()) {
            Some(class) if differs(own, &class["overhead"]["podFixed"]) => Err(mismatch(attributes)),
            None if !own.is_null() => Err(attributes.forbidden(
                "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead",
            )),
            _ => Ok(()),
        }
    }
}

fn handles(attributes: &AdmissionAttributes<'_>) -> bool {
    attributes.is("", "pods") && attributes.operation == Operation::Create
}

/// Returns the class that a pod names; None if it names none.
fn class_of(attributes: &AdmissionAttributes<'_>, cluster: &dyn Cluster) -> Result<Option<Value>> {
    let Some(name) = attributes.object["spec"]["runtimeClassName"].as_str() else { return Ok(None) };
    if let Some(error) = refused_name(name) {
        return Err(Error::Unclassified(error));
    }
    match cluster.get(&GroupResource::new("node.k8s.io", "runtimeclasses"), "", name)? {
        None => Err(attributes.forbidden(format!("pod rejected: RuntimeClass {} not found", quote(name)))),
        found => Ok(found),
    }
}

fn mismatch(attributes: &AdmissionAttributes<'_>) -> coracle_apimachinery::Error {
    attributes.forbidden("pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead")
}

fn differs(a: &Value, b: &Value) -> bool {
    resources(a) != resources(b)
}

/// Up to this many tolerations each is compared with all others; of more only exact duplicates are
/// removed.
const MAX_COMPARED: usize = 500;

/// Returns the tolerations of both lists, without those that another one covers.
fn merge(first: &[Value], second: &[Value]) -> Vec<Value> {
    let all: Vec<&Value> = first.iter().chain(second).collect();
    if all.len() > MAX_COMPARED {
        let mut seen = HashSet::new();
        return all.into_iter().filter(|one| seen.insert(*one)).cloned().collect();
    }
    let mut merged: Vec<&Value> = Vec::new();
    for (i, one) in all.iter().enumerate() {
        let before = merged.iter().any(|other| covers(other, one));
        let after = all.iter().skip(i + 1).any(|other| other != one && covers(other, one));
        if !before && !after {
            merged.push(one);
        }
    }
    merged.into_iter().cloned().collect()
}

/// Returns `true` if the toleration `wide` tolerates everything that `narrow` does.
fn covers(wide: &Value, narrow: &Value) -> bool {
    if wide == narrow {
        return true;
    }
    let member = |toleration: &'_ Value, name: &str| text(&toleration[name]).to_owned();
    let [operator, key, effect] = ["operator", "key", "effect"].map(|name| member(wide, name));
    let any_key = key.is_empty() && operator == "Exists";
    if (key != member(narrow, "key") && !any_key)
        || (!effect.is_empty() && effect != member(narrow, "effect"))
    {
        return false;
    }
    let shorter = |limit: i64| narrow["tolerationSeconds"].as_i64().is_some_and(|seconds| seconds <= limit);
    if effect == "NoExecute" && wide["tolerationSeconds"].as_i64().is_some_and(|limit| !shorter(limit)) {
        return false;
    }
    match operator.as_str() {
        "" | "Equal" => member(narrow, "operator") == "Equal" && wide["value"] == narrow["value"],
        other => other == "Exists",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use coracle_apiserver::admission::testing::{Request, World};
    use serde_json::json;

    #[test]
    fn pods_get_overhead_and_scheduling_of_their_class() {
        let class = json!({"metadata": {"name": "vm"}, "handler": "h", "overhead": {"podFixed": {"cpu": "1"}},
            "scheduling": {"nodeSelector": {"a": "b"}, "tolerations": [{"key": "t", "operator": "Exists"}]}});
        let world = World::default().with("node.k8s.io", "runtimeclasses", class);
        let refused = |text: &str| Err(format!("403 pods \"p\" is forbidden: {text}"));
        let narrow = json!({"key": "t", "operator": "Equal", "value": "v"});
        for (spec, want) in [
            (json!({}), Ok(json!({}))),
            (
                json!({"overhead": {"cpu": "1"}}),
                refused("pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead"),
            ),
            (json!({"runtimeClassName": "x"}), refused("pod rejected: RuntimeClass \"x\" not found")),
            (
                json!({"runtimeClassName": "vm", "nodeSelector": {"c": "d"}, "tolerations": [narrow], "overhead": {"cpu": "1000m"}}),
                Ok(
                    json!({"runtimeClassName": "vm", "nodeSelector": {"a": "b", "c": "d"}, "overhead": {"cpu": "1"},
                          "tolerations": [{"key": "t", "operator": "Exists"}]}),
                ),
            ),
            (
                json!({"runtimeClassName": "vm", "nodeSelector": {"a": "x"}}),
                refused(
                    "conflict: runtimeClass.scheduling.nodeSelector[a] = b; pod.spec.nodeSelector[a] = x",
                ),
            ),
            (
                json!({"runtimeClassName": "vm", "overhead": {"cpu": "2"}}),
                refused("pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead"),
            ),
        ] {
            let request = Request::new("", "pods", "ns", json!({"metadata": {"name": "p"}, "spec": spec}));
            assert_eq!(request.run(&RuntimeClass, &world).map(|pod| pod["spec"].clone()), want);
        }
    }
}
