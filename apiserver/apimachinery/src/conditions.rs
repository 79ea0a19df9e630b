//! The conditions of a status.
//!
//! Source: API conventions, "Typical status properties".

use serde_json::{Value, json};

/// Returns `true` if a status has a condition of that type with the status `True`.
pub fn is_true(status: &Value, condition_type: &str) -> bool {
    let conditions = status["conditions"].as_array().map(Vec::as_slice).unwrap_or_default();
    conditions.iter().any(|condition| condition["type"] == condition_type && condition["status"] == "True")
}

/// Sets a condition in a status. `lastTransitionTime` changes only with the condition's own status;
/// an empty reason or message is absent.
pub fn set(status: &mut Value, condition_type: &str, is_true: bool, reason: &str, message: &str, now: &str) {
    let text = if is_true { "True" } else { "False" };
    let mut condition = json!({"type": condition_type, "status": text, "lastTransitionTime": now});
    for (member, text) in [("reason", reason), ("message", message)] {
        if !text.is_empty() {
            condition[member] = text.into();
        }
    }
    if !status["conditions"].is_array() {
        status["conditions"] = json!([]);
    }
    let Some(conditions) = status["conditions"].as_array_mut() else { return };
    match conditions.iter_mut().find(|condition| condition["type"] == condition_type) {
        Some(old) => {
            if old["status"] == text {
                condition["lastTransitionTime"] = old["lastTransitionTime"].take();
            }
            *old = condition;
        }
        None => conditions.push(condition),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_change_with_the_status() {
        let mut status = json!({});
        set(&mut status, "Ready", false, "A", "a", "1");
        set(&mut status, "Ready", false, "B", "b", "2");
        let of = |status: &Value| {
            let condition = &status["conditions"][0];
            ["status", "reason", "lastTransitionTime"]
                .map(|member| condition[member].as_str().unwrap_or("").to_owned())
        };
        assert_eq!(of(&status), ["False", "B", "1"]);
        set(&mut status, "Ready", true, "C", "c", "3");
        set(&mut status, "Other", true, "D", "d", "4");
        assert_eq!(of(&status), ["True", "C", "3"]);
        assert_eq!(status["conditions"].as_array().map(Vec::len), Some(2));
    }
}
