//! Conditions that subresources of a Pod set.

use serde_json::{Value, json};

/// Sets a condition of the pod to True. Its time is that of its last transition.
pub fn set_condition(pod: &mut Value, kind: &str, reason: &str, message: &str, now: &str) {
    let mut condition = json!({"type": kind, "status": "True", "lastTransitionTime": now});
    for (member, text) in [("reason", reason), ("message", message)] {
        if !text.is_empty() {
            condition[member] = text.into();
        }
    }
    let conditions = &mut pod["status"]["conditions"];
    if !conditions.is_array() {
        *conditions = json!([]);
    }
    let Some(conditions) = conditions.as_array_mut() else { return };
    match conditions.iter_mut().find(|condition| condition["type"] == kind) {
        Some(present) => {
            if present["status"] == "True" {
                condition["lastTransitionTime"] = present["lastTransitionTime"].clone();
            }
            *present = condition;
        }
        None => conditions.push(condition),
    }
}
