//! Reconcile: what of a bootstrap object is restored when the server starts again.
//!
//! Operators may add to the default roles and bindings, and may keep one as they made it with the annotation
//! `rbac.authorization.kubernetes.io/autoupdate: "false"`; but what upgrades bring, and what was lost, comes back. The
//! specs of flow control's defaults are ours as long as their annotation says so. Everything else stays as it is found.

use serde_json::{Map, Value};

use crate::access::coverage::{Limits, missing};
use crate::access::rules::Rule;

const RBAC_AUTOUPDATE: &str = "rbac.authorization.kubernetes.io/autoupdate";
const FLOW_AUTOUPDATE: &str = "apf.kubernetes.io/autoupdate-spec";

/// What is to be done about a stored object.
#[derive(Clone, Debug, PartialEq)]
pub enum Reconciled {
    Keep,
    /// Store this instead.
    Update(Value),
    /// Delete the stored one and make this: a binding cannot change its role.
    Recreate(Value),
}

/// Compares a bootstrap object with the stored one of its name.
pub fn reconcile(wanted: &Value, stored: &Value) -> Reconciled {
    let annotation = |name: &str| stored["metadata"]["annotations"][name].as_str().unwrap_or("");
    let restored = match wanted["kind"].as_str().unwrap_or("") {
        "ClusterRole" | "Role" | "ClusterRoleBinding" | "RoleBinding"
            if annotation(RBAC_AUTOUPDATE) == "false" =>
        {
            return Reconciled::Keep;
        }
        "ClusterRole" | "Role" => role(wanted, stored),
        "ClusterRoleBinding" | "RoleBinding" if wanted["roleRef"] != stored["roleRef"] => {
            return Reconciled::Recreate(wanted.clone());
        }
        "ClusterRoleBinding" | "RoleBinding" => {
            with_metadata(wanted, added(stored, "subjects", items(&wanted["subjects"])))
        }
        "FlowSchema" | "PriorityLevelConfiguration" if annotation(FLOW_AUTOUPDATE) == "true" => {
            with(stored, "spec", wanted["spec"].clone())
        }
        _ => return Reconciled::Keep,
    };
    if restored == *stored { Reconciled::Keep } else { Reconciled::Update(restored) }
}

fn role(wanted: &Value, stored: &Value) -> Value {
    let mut restored = stored.clone();
    if wanted["aggregationRule"].is_object() {
        // The rules of such a role are its controller's.
        let rule = added(
            &stored["aggregationRule"],
            "clusterRoleSelectors",
            items(&wanted["aggregationRule"]["clusterRoleSelectors"]),
        );
        restored = with(&restored, "aggregationRule", rule);
    } else {
        if let Some(role) = restored.as_object_mut() {
            role.remove("aggregationRule");
        }
        let (stored, wanted) = (Rule::of_role(stored), Rule::of_role(wanted));
        // Of a role that is too large to be compared all comes back.
        let lost =
            missing(&stored, &wanted, Limits::STANDARD).map_or(wanted.clone(), |missing| missing.rules());
        restored = added(&restored, "rules", &lost.iter().map(Rule::to_value).collect::<Vec<_>>());
    }
    with_metadata(wanted, restored)
}

/// Labels and annotations come back; where both have a key, the stored value stays.
fn with_metadata(wanted: &Value, object: Value) -> Value {
    let mut metadata = object["metadata"].clone();
    for name in ["labels", "annotations"] {
        let mut both: Map<String, Value> = wanted["metadata"][name].as_object().cloned().unwrap_or_default();
        both.extend(metadata[name].as_object().cloned().unwrap_or_default());
        if !both.is_empty() {
            metadata = with(&metadata, name, both.into());
        }
    }
    with(&object, "metadata", metadata)
}

/// The object with these entries in a list of it, each once.
fn added(object: &Value, list: &str, entries: &[Value]) -> Value {
    let mut all = items(&object[list]).to_vec();
    for entry in entries {
        if !all.contains(entry) {
            all.push(entry.clone());
        }
    }
    if all.is_empty() { object.clone() } else { with(object, list, all.into()) }
}

fn with(object: &Value, member: &str, value: Value) -> Value {
    let mut members = object.as_object().cloned().unwrap_or_default();
    members.insert(member.to_owned(), value);
    members.into()
}

fn items(list: &Value) -> &[Value] {
    list.as_array().map_or(&[], Vec::as_slice)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn roles_get_back_what_they_lost() {
        let get = json!({"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]});
        let both = json!({"verbs": ["get", "list"], "apiGroups": [""], "resources": ["pods"]});
        let list = json!({"verbs": ["list"], "apiGroups": [""], "resources": ["pods"]});
        let role = |metadata: Value, rules: Value| json!({"kind": "ClusterRole", "metadata": metadata, "rules": rules});
        let labels = json!({"labels": {"a": "b"}});
        let own = json!({"annotations": {RBAC_AUTOUPDATE: "false"}});
        for (case, stored, want) in [
            ("as it was", role(labels.clone(), json!([both])), Reconciled::Keep),
            (
                "more than was",
                role(json!({"labels": {"a": "b", "c": "d"}}), json!([both, {"verbs": ["x"]}])),
                Reconciled::Keep,
            ),
            (
                "less than was",
                role(labels.clone(), json!([get])),
                Reconciled::Update(role(labels.clone(), json!([get, list]))),
            ),
            (
                "no label",
                role(json!({}), json!([both])),
                Reconciled::Update(role(labels.clone(), json!([both]))),
            ),
            ("another value", role(json!({"labels": {"a": "x"}}), json!([both])), Reconciled::Keep),
            ("left alone", role(own, json!([])), Reconciled::Keep),
        ] {
            assert_eq!(reconcile(&role(labels.clone(), json!([both])), &stored), want, "{case}");
        }
    }

    #[test]
    fn aggregated_roles_keep_their_rules() {
        let aggregated = |selectors: Value, rules: Value| json!({"kind": "ClusterRole", "metadata": {}, "aggregationRule": {"clusterRoleSelectors": selectors}, "rules": rules});
        let wanted = aggregated(json!([{"matchLabels": {"a": "b"}}]), json!([{"verbs": ["get"]}]));
        let stored = aggregated(json!([{"matchLabels": {"c": "d"}}]), json!([]));
        let want = aggregated(json!([{"matchLabels": {"c": "d"}}, {"matchLabels": {"a": "b"}}]), json!([]));
        assert_eq!(reconcile(&wanted, &stored), Reconciled::Update(want.clone()));
        assert_eq!(reconcile(&wanted, &want), Reconciled::Keep);
    }

    #[test]
    fn bindings_and_flow_control() {
        let binding = |role: &str, subjects: Value| json!({"kind": "RoleBinding", "metadata": {}, "roleRef": {"name": role}, "subjects": subjects});
        let flow = |annotation: &str, precedence: i64| json!({"kind": "FlowSchema", "metadata": {"annotations": {FLOW_AUTOUPDATE: annotation}}, "spec": {"matchingPrecedence": precedence}});
        let wanted = binding("r", json!([{"name": "a"}]));
        for (wanted, stored, want) in [
            (
                &wanted,
                binding("r", json!([{"name": "b"}])),
                Reconciled::Update(binding("r", json!([{"name": "b"}, {"name": "a"}]))),
            ),
            (&wanted, binding("r", json!([{"name": "a"}, {"name": "b"}])), Reconciled::Keep),
            (&wanted, binding("x", json!([{"name": "a"}])), Reconciled::Recreate(wanted.clone())),
            (&flow("true", 1), flow("true", 2), Reconciled::Update(flow("true", 1))),
            (&flow("true", 1), flow("false", 2), Reconciled::Keep),
            (&json!({"kind": "Namespace"}), json!({"kind": "Namespace", "spec": {}}), Reconciled::Keep),
        ] {
            assert_eq!(reconcile(wanted, &stored), want);
        }
    }
}
