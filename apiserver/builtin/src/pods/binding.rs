//! `pods/binding`: the scheduler's word on which node a pod goes to. Said once, and the node need
//! not exist.

use coracle_apimachinery::codec::body::Expected;
use coracle_apimachinery::field::{Errors, Field, quote};
use coracle_apimachinery::object_meta::ObjectMeta;
use coracle_apimachinery::validation::content;
use coracle_apimachinery::{Error, Result, conditions};
use coracle_apiserver::registry::deletion::rfc3339;
use coracle_apiserver::registry::same_uid;
use coracle_apiserver::registry::{Outcome, Target};
use coracle_apiserver::serve::ActionRequest;
use futures::future::BoxFuture;
use serde_json::Value;

/// Handles a request to `pods/NAME/binding`.
pub fn bind_pod(request: ActionRequest<'_>) -> BoxFuture<'_, Result<Outcome>> {
    Box::pin(async {
        let mut binding = decode(&request)?;
        let ActionRequest { registry, target, caller, options, .. } = &request;
        registry.admit_subresource(target, "binding", &mut binding, *caller, options).await?;
        perform(request, binding).await
    })
}

/// Handles a request to `bindings`; its body names the pod.
pub fn bind_named_pod(mut request: ActionRequest<'_>) -> BoxFuture<'_, Result<Outcome>> {
    Box::pin(async {
        let mut binding = decode(&request)?;
        let ActionRequest { registry, target, caller, options, .. } = &request;
        registry.admit_subresource(target, "", &mut binding, *caller, options).await?;
        request.target.info = registry.find("", "v1", "pods").ok_or(Error::UnknownResource)?;
        perform(request, binding).await
    })
}

fn decode(request: &ActionRequest<'_>) -> Result<Value> {
    request.decode(Expected { group: "", version: "v1", kind: "Binding" })
}

/// Binds a pod to a node.
async fn perform(request: ActionRequest<'_>, binding: Value) -> Result<Outcome> {
    let ActionRequest { registry, target, options, caller, .. } = request;
    let name = binding.name().to_owned();
    if !target.name.is_empty() && name != target.name {
        return Err(Error::bad_request("name in URL does not match name in Binding object"));
    }
    let target = Target { name, ..target.clone() };
    let info = registry.find("", "v1", "bindings");
    let info = info.ok_or_else(|| Error::Internal("bindings are not served".to_owned()))?;
    let mut errors = Errors::new();
    info.behavior.strategy.validate(&Field::root(&binding), &mut errors);
    if !errors.is_empty() {
        return Err(Error::Unclassified(errors.summary()));
    }
    if target.name.is_empty() {
        return Err(Error::bad_request("Name parameter required."));
    }
    let found = content::path_segment(&target.name);
    if !found.is_empty() {
        let (name, found) = (quote(&target.name), found.join(";"));
        return Err(Error::bad_request(format!("Name parameter invalid: {name}: {found}")));
    }
    let now = rfc3339(registry.now());
    registry
        .rewrite_for(caller.origin(), &target, options.dry_run, |pod| {
            same_uid(&target, &binding, pod, options.dry_run)?;
            let mut bound = pod.clone();
            bind(&mut bound, &binding, &now).map_err(|detail| {
                Error::conflict(&target.info.group_resource.sub("binding"), &target.name, detail)
            })?;
            Ok(bound)
        })
        .await?;
    Ok(Outcome::success(201))
}

/// Binds the pod to the node, with the Binding's labels and annotations; returns why it cannot be
/// bound.
fn bind(pod: &mut Value, binding: &Value, now: &str) -> Result<(), String> {
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
    conditions::set(&mut pod["status"], "PodScheduled", true, "", "", now);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

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
