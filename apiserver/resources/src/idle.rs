//! Kinds that are stored without having an effect, and the warnings about them. A webhook that denies everything but
//! is never called makes tests pass that should fail.

use std::collections::BTreeSet;

use serde_json::Value;

/// The `Warning` for a client that creates or updates an object without effect; None if the object has one. The real
/// server, where such objects have an effect, has no such warning.
pub fn warning(group: &str, kind: &str, object: &Value) -> Option<String> {
    match (group, kind) {
        ("apiextensions.k8s.io", "CustomResourceDefinition") => definition_warning(object),
        _ => None,
    }
}

/// What of a schema has no effect.
const IDLE_RULES: [&str; 5] = ["allOf", "anyOf", "oneOf", "not", "format"];
/// Formats without a meaning for validation.
const FORMATS: [&str; 5] = ["int32", "int64", "float", "double", "password"];

/// A definition has an effect, but not all of it.
fn definition_warning(definition: &Value) -> Option<String> {
    let mut idle = BTreeSet::new();
    let versions = definition.pointer("/spec/versions").and_then(Value::as_array).into_iter().flatten();
    for version in versions {
        if let Some(schema) = version.pointer("/schema/openAPIV3Schema") {
            find_idle_rules(schema, &mut idle);
        }
    }
    if idle.is_empty() {
        return None;
    }
    let idle: Vec<&str> = idle.into_iter().collect();
    Some(format!("coracle does not evaluate {} yet: it has no effect on custom resources", idle.join(", ")))
}

fn find_idle_rules(schema: &Value, idle: &mut BTreeSet<&'static str>) {
    let Some(members) = schema.as_object() else { return };
    for rule in IDLE_RULES {
        let known = |value: &Value| rule == "format" && FORMATS.iter().any(|format| value == format);
        // Either of an integer and a string needs no rule.
        let by_type =
            rule == "anyOf" && members.get("x-kubernetes-int-or-string") == Some(&Value::Bool(true));
        if members.get(rule).is_some_and(|value| !known(value) && !by_type) {
            idle.insert(rule);
        }
    }
    for inner in ["items", "additionalProperties"] {
        members.get(inner).into_iter().for_each(|inner| find_idle_rules(inner, idle));
    }
    let properties = members.get("properties").and_then(Value::as_object).into_iter().flatten();
    properties.for_each(|(_, property)| find_idle_rules(property, idle));
}

#[cfg(test)]
mod tests {
    #[test]
    fn parts_of_definitions_without_effect_are_warned_about() {
        let definition = |schema: Value, strategy: &str| json!({"spec": {"conversion": {"strategy": strategy}, "versions": [{"schema": {"openAPIV3Schema": schema}}]}});
        let warned =
            |definition: &Value| warning("apiextensions.k8s.io", "CustomResourceDefinition", definition);
        let plain = json!({"type": "object", "properties": {
            "a": {"type": "integer", "format": "int32", "minimum": 1},
            "b": {"x-kubernetes-int-or-string": true, "anyOf": [{"type": "integer"}, {"type": "string"}]},
            "format": {"type": "string"},
        }});
        assert_eq!(warned(&definition(plain.clone(), "None")), None);
        assert_eq!(warned(&definition(plain, "Webhook")), None);
        let ruled = json!({"type": "object", "properties": {"list": {"type": "array", "items": {
            "type": "string", "format": "uri", "not": {"type": "integer"}, "x-kubernetes-validations": [{"rule": "true"}],
        }}}});
        for (definition, want) in [(definition(ruled, "None"), "format, not")] {
            let text = format!("coracle does not evaluate {want} yet: it has no effect on custom resources");
            assert_eq!(warned(&definition), Some(text));
        }
    }

    use super::*;
    use serde_json::json;

    #[test]
    fn what_has_an_effect_is_not_warned_about() {
        const POLICIES: &str = "admissionregistration.k8s.io";
        let service = json!({"spec": {"service": {"name": "s", "namespace": "n"}}});
        for (group, kind, object) in [
            (POLICIES, "ValidatingWebhookConfiguration", json!({"webhooks": [{"name": "w"}]})),
            (POLICIES, "ValidatingAdmissionPolicy", json!({})),
            ("apiregistration.k8s.io", "APIService", service),
            ("apps", "Deployment", json!({})),
        ] {
            assert_eq!(warning(group, kind, &object), None, "{kind}");
        }
    }
}
