//! Kinds that are stored without having an effect, and the warnings about them. A webhook that denies everything but
//! is never called makes tests pass that should fail.

use serde_json::Value;

/// The `Warning` for a client that creates or updates an object without effect; None if the object has one. The real
/// server, where such objects have an effect, has no such warning.
pub fn warning(group: &str, kind: &str, object: &Value) -> Option<String> {
    let missing = match (group, kind) {
        (
            "admissionregistration.k8s.io",
            "MutatingWebhookConfiguration" | "ValidatingWebhookConfiguration",
        ) => "does not call admission webhooks",
        ("admissionregistration.k8s.io", _) => "does not evaluate admission policies",
        // One without a service only states that this server has the group.
        ("apiregistration.k8s.io", "APIService") if object.pointer("/spec/service").is_some() => {
            "does not proxy requests to aggregated API servers"
        }
        _ => return None,
    };
    Some(format!("coracle {missing} yet: this {kind} is stored and has no effect"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn fields_without_effect_are_warned_about() {
        const POLICIES: &str = "admissionregistration.k8s.io";
        let service = json!({"spec": {"service": {"name": "s", "namespace": "n"}}});
        for (group, kind, object, want) in [
            (POLICIES, "ValidatingWebhookConfiguration", json!({}), Some("admission webhooks")),
            (POLICIES, "MutatingWebhookConfiguration", json!({}), Some("admission webhooks")),
            (POLICIES, "ValidatingAdmissionPolicy", json!({}), Some("admission policies")),
            (POLICIES, "ValidatingAdmissionPolicyBinding", json!({}), Some("admission policies")),
            (POLICIES, "MutatingAdmissionPolicy", json!({}), Some("admission policies")),
            (POLICIES, "MutatingAdmissionPolicyBinding", json!({}), Some("admission policies")),
            ("apiregistration.k8s.io", "APIService", service, Some("aggregated API servers")),
            ("apiregistration.k8s.io", "APIService", json!({"spec": {}}), None),
            ("apps", "Deployment", json!({}), None),
        ] {
            let warned = warning(group, kind, &object);
            assert_eq!(warned.is_some(), want.is_some(), "{kind}");
            if let (Some(warned), Some(want)) = (warned, want) {
                assert!(
                    warned.contains(want)
                        && warned.ends_with(&format!("this {kind} is stored and has no effect")),
                    "{warned}"
                );
            }
        }
    }
}
