//! The semantics of pods, as they are written. `coracle-kinds` has the same for controllers, which
//! work with typed pods.

use serde_json::Value;

use crate::conditions;

/// Returns `true` if a pod has ended: its phase is `Succeeded` or `Failed`.
pub fn is_terminal(pod: &Value) -> bool {
    matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed"))
}

/// Returns `true` if a pod has the condition `Ready`.
pub fn is_ready(pod: &Value) -> bool {
    conditions::is_true(&pod["status"], "Ready")
}

/// Returns `true` if an init container is a sidecar: it keeps running beside the app containers.
pub fn is_sidecar(container: &Value) -> bool {
    container["restartPolicy"] == "Always"
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_pod_is_terminal_in_the_last_phases_only() {
        for (phase, want) in [("Pending", false), ("Running", false), ("Succeeded", true), ("Failed", true)] {
            assert_eq!(is_terminal(&json!({"status": {"phase": phase}})), want, "{phase}");
        }
        assert!(!is_terminal(&json!({})));
    }

    #[test]
    fn a_pod_is_ready_if_its_condition_is_true() {
        let pod = |status| json!({"status": {"conditions": [{"type": "Ready", "status": status}]}});
        assert!(is_ready(&pod("True")));
        assert!(!is_ready(&pod("False")));
        assert!(!is_ready(&json!({})));
    }
}
