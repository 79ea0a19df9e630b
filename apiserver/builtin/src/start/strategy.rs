//! The strategy for the objects of the start: their field managers, and their reconciliation.
//!
//! Default roles and bindings are restored by [`rbac`], the specs of the default flow control
//! objects as their annotation says. Everything else is left unchanged.

use std::borrow::Cow;

use coracle_apimachinery::object_meta::ObjectMeta;
use coracle_apiserver::registry::{BootstrapStrategy, ReconcileAction};
use serde_json::{Value, json};

use crate::rbac;

const AUTOUPDATE_SPEC: &str = "apf.kubernetes.io/autoupdate-spec";
/// The FlowSchemas and PriorityLevelConfigurations without which flow control does not work. Their
/// specs cannot be changed.
const MANDATORY: &[&str] = &["exempt", "catch-all"];

/// The strategy for the objects that are there from the start.
pub struct StartStrategy;

impl BootstrapStrategy for StartStrategy {
    /// Returns the manager in a real control plane.
    fn field_manager(&self, group: &str) -> &'static str {
        match group {
            "flowcontrol.apiserver.k8s.io" => "api-priority-and-fairness-config-producer-v1",
            _ => "kube-apiserver",
        }
    }

    fn managed<'a>(&self, object: &'a Value) -> Cow<'a, Value> {
        let (parent, members): (&str, &[&str]) = match object["kind"].as_str().unwrap_or("") {
            "Namespace" => ("/spec", &["finalizers"]),
            "Service" => ("/spec", &["clusterIPs", "ipFamilies"]),
            "ServiceCIDR" => ("/metadata", &["finalizers"]),
            "ClusterRole" if object["aggregationRule"].is_object() => ("", &["rules"]),
            _ => return Cow::Borrowed(object),
        };
        let mut managed = object.clone();
        if let Some(parent) = managed.pointer_mut(parent).and_then(Value::as_object_mut) {
            parent.retain(|member, _| !members.contains(&member.as_str()));
        }
        Cow::Owned(managed)
    }

    fn reconcile(&self, wanted: &Value, stored: &Value) -> ReconcileAction {
        match wanted["kind"].as_str().unwrap_or("") {
            "ClusterRole" | "Role" | "ClusterRoleBinding" | "RoleBinding" => rbac::reconcile(wanted, stored),
            "FlowSchema" | "PriorityLevelConfiguration" => flow_control(wanted, stored),
            _ => ReconcileAction::Keep,
        }
    }
}

/// Returns the action on a stored object of flow control. An annotation decides whether its spec is
/// restored; without it, the spec is restored until a client changes it.
fn flow_control(wanted: &Value, stored: &Value) -> ReconcileAction {
    let annotated = autoupdate(stored);
    let is_first = stored["metadata"]["generation"] == 1;
    let is_restored = MANDATORY.contains(&wanted.name()) || annotated.unwrap_or(is_first);
    let is_changed = is_restored && stored.get("spec") != wanted.get("spec");
    if annotated == Some(is_restored) && !is_changed {
        return ReconcileAction::Keep;
    }
    let mut restored = stored.clone();
    if is_changed {
        restored["spec"] = wanted["spec"].clone();
        let generation = stored["metadata"]["generation"].as_i64().unwrap_or(0);
        restored["metadata"]["generation"] = json!(generation.saturating_add(1));
    }
    if annotated != Some(is_restored) {
        restored["metadata"]["annotations"][AUTOUPDATE_SPEC] = json!(is_restored.to_string());
    }
    ReconcileAction::Update(restored)
}

/// Returns the value of the annotation; None if it is no boolean as Go reads one.
pub(super) fn autoupdate(object: &Value) -> Option<bool> {
    match object["metadata"]["annotations"][AUTOUPDATE_SPEC].as_str()? {
        "1" | "t" | "T" | "TRUE" | "true" | "True" => Some(true),
        "0" | "f" | "F" | "FALSE" | "false" | "False" => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_of_flow_control_are_restored_as_their_annotation_says() {
        let object = |name: &str, annotation: Option<&str>, generation: i64, precedence: i64| {
            let annotations = annotation.map(|text| json!({AUTOUPDATE_SPEC: text})).unwrap_or_default();
            json!({
                "kind": "FlowSchema",
                "metadata": {"name": name, "annotations": annotations, "generation": generation},
                "spec": {"matchingPrecedence": precedence},
            })
        };
        for (case, name, annotation, generation, precedence, want) in [
            ("as it was", "probes", Some("true"), 1, 1, None),
            ("a changed spec", "probes", Some("true"), 2, 7, Some((Some("true"), 3, 1))),
            ("kept by its annotation", "probes", Some("false"), 2, 7, None),
            ("changed, and not annotated", "probes", None, 2, 7, Some((Some("false"), 2, 7))),
            ("never changed, and not annotated", "probes", None, 1, 1, Some((Some("true"), 1, 1))),
            ("no boolean", "probes", Some("yes"), 2, 7, Some((Some("false"), 2, 7))),
            ("a mandatory one", "catch-all", Some("false"), 2, 7, Some((Some("true"), 3, 1))),
            ("another text", "catch-all", Some("t"), 1, 1, None),
        ] {
            let wanted = object(name, Some("true"), 1, 1);
            let stored = object(name, annotation, generation, precedence);
            let action = want.map_or(ReconcileAction::Keep, |(annotation, generation, precedence)| {
                ReconcileAction::Update(object(name, annotation, generation, precedence))
            });
            assert_eq!(StartStrategy.reconcile(&wanted, &stored), action, "{case}");
        }
    }

    #[test]
    fn bindings_are_restored() {
        let binding = |role: &str, subjects: Value| json!({"kind": "RoleBinding", "metadata": {}, "roleRef": {"name": role}, "subjects": subjects});
        let wanted = binding("r", json!([{"name": "a"}]));
        for (wanted, stored, want) in [
            (
                &wanted,
                binding("r", json!([{"name": "b"}])),
                ReconcileAction::Update(binding("r", json!([{"name": "b"}, {"name": "a"}]))),
            ),
            (&wanted, binding("r", json!([{"name": "a"}, {"name": "b"}])), ReconcileAction::Keep),
            (&wanted, binding("x", json!([{"name": "a"}])), ReconcileAction::Recreate(wanted.clone())),
            (&json!({"kind": "Namespace"}), json!({"kind": "Namespace", "spec": {}}), ReconcileAction::Keep),
        ] {
            assert_eq!(StartStrategy.reconcile(wanted, &stored), want);
        }
    }
}
