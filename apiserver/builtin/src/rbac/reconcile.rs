//! Reconciliation of the default roles and bindings at each start.
//!
//! Operators may extend them, and may opt out with the annotation
//! `rbac.authorization.kubernetes.io/autoupdate: "false"`; otherwise missing rules and subjects,
//! and those that upgrades add, are restored.

use coracle_apiserver::registry::ReconcileAction;
use serde_json::{Map, Value};

use super::coverage::{CoverageLimits, missing};
use super::rules::PolicyRule;

const AUTOUPDATE: &str = "rbac.authorization.kubernetes.io/autoupdate";

/// Compares a default role or binding with the stored one of its name.
pub fn reconcile(wanted: &Value, stored: &Value) -> ReconcileAction {
    if stored["metadata"]["annotations"][AUTOUPDATE] == "false" {
        return ReconcileAction::Keep;
    }
    let restored = match wanted["kind"].as_str().unwrap_or("") {
        "ClusterRole" | "Role" => role(wanted, stored),
        // A binding cannot change its role.
        _ if wanted["roleRef"] != stored["roleRef"] => return ReconcileAction::Recreate(wanted.clone()),
        _ => with_metadata(wanted, added(stored, "subjects", items(&wanted["subjects"]))),
    };
    if restored == *stored { ReconcileAction::Keep } else { ReconcileAction::Update(restored) }
}

fn role(wanted: &Value, stored: &Value) -> Value {
    let mut restored = stored.clone();
    if wanted["aggregationRule"].is_object() {
        // The rules of an aggregated role are its controller's.
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
        let (stored, wanted) = (PolicyRule::of_role(stored), PolicyRule::of_role(wanted));
        // All rules of a role that is too large to compare are restored.
        let lost = missing(&stored, &wanted, CoverageLimits::STANDARD)
            .map_or(wanted.clone(), |missing| missing.rules());
        restored = added(&restored, "rules", &lost.iter().map(PolicyRule::to_value).collect::<Vec<_>>());
    }
    with_metadata(wanted, restored)
}

/// Restores labels and annotations; for keys that both have, the stored value is kept.
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

/// Adds entries to a list of an object, each once.
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
    use serde_json::json;

    use super::*;

    #[test]
    fn missing_rules_are_restored() {
        let get = json!({"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]});
        let both = json!({"verbs": ["get", "list"], "apiGroups": [""], "resources": ["pods"]});
        let list = json!({"verbs": ["list"], "apiGroups": [""], "resources": ["pods"]});
        let role = |metadata: Value, rules: Value| json!({"kind": "ClusterRole", "metadata": metadata, "rules": rules});
        let labels = json!({"labels": {"a": "b"}});
        let own = json!({"annotations": {AUTOUPDATE: "false"}});
        for (case, stored, want) in [
            ("as it was", role(labels.clone(), json!([both])), ReconcileAction::Keep),
            (
                "more than was",
                role(json!({"labels": {"a": "b", "c": "d"}}), json!([both, {"verbs": ["x"]}])),
                ReconcileAction::Keep,
            ),
            (
                "less than was",
                role(labels.clone(), json!([get])),
                ReconcileAction::Update(role(labels.clone(), json!([get, list]))),
            ),
            (
                "no label",
                role(json!({}), json!([both])),
                ReconcileAction::Update(role(labels.clone(), json!([both]))),
            ),
            ("another value", role(json!({"labels": {"a": "x"}}), json!([both])), ReconcileAction::Keep),
            ("left alone", role(own, json!([])), ReconcileAction::Keep),
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
        assert_eq!(reconcile(&wanted, &stored), ReconcileAction::Update(want.clone()));
        assert_eq!(reconcile(&wanted, &want), ReconcileAction::Keep);
    }
}
