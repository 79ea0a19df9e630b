//! The strategy for the objects of the start: their field managers, and their reconciliation.
//!
//! Default roles and bindings are restored by [`rbac`]. The specs of the default flow control
//! objects are restored as long as their annotation requests it. Everything else is left unchanged.

use std::borrow::Cow;

use coracle_apiserver::registry::{BootstrapStrategy, ReconcileAction};
use serde_json::Value;

use crate::rbac;

const AUTOUPDATE_SPEC: &str = "apf.kubernetes.io/autoupdate-spec";

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

fn flow_control(wanted: &Value, stored: &Value) -> ReconcileAction {
    let is_automatic = stored["metadata"]["annotations"][AUTOUPDATE_SPEC] == "true";
    if !is_automatic || stored.get("spec") == wanted.get("spec") {
        return ReconcileAction::Keep;
    }
    let mut restored = stored.clone();
    restored["spec"] = wanted["spec"].clone();
    ReconcileAction::Update(restored)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn bindings_and_flow_control_are_restored() {
        let binding = |role: &str, subjects: Value| json!({"kind": "RoleBinding", "metadata": {}, "roleRef": {"name": role}, "subjects": subjects});
        let flow = |annotation: &str, precedence: i64| json!({"kind": "FlowSchema", "metadata": {"annotations": {AUTOUPDATE_SPEC: annotation}}, "spec": {"matchingPrecedence": precedence}});
        let wanted = binding("r", json!([{"name": "a"}]));
        for (wanted, stored, want) in [
            (
                &wanted,
                binding("r", json!([{"name": "b"}])),
                ReconcileAction::Update(binding("r", json!([{"name": "b"}, {"name": "a"}]))),
            ),
            (&wanted, binding("r", json!([{"name": "a"}, {"name": "b"}])), ReconcileAction::Keep),
            (&wanted, binding("x", json!([{"name": "a"}])), ReconcileAction::Recreate(wanted.clone())),
            (&flow("true", 1), flow("true", 2), ReconcileAction::Update(flow("true", 1))),
            (&flow("true", 1), flow("false", 2), ReconcileAction::Keep),
            (&json!({"kind": "Namespace"}), json!({"kind": "Namespace", "spec": {}}), ReconcileAction::Keep),
        ] {
            assert_eq!(StartStrategy.reconcile(wanted, &stored), want);
        }
    }
}
