use serde_json::{Value, json};

use crate::{redact, redact_log};

#[test]
fn values_of_secrets_are_removed_and_their_names_stay() {
    let applied = "kubectl.kubernetes.io/last-applied-configuration";
    let secret = json!({"metadata": {"annotations": {applied: "hunter2", "a": "b"}}, "data": {"password": "hunter2", "n": 1},
                        "stringData": {"x": "hunter2"}, "type": "Opaque"});
    let mut redacted = secret.clone();
    redact("secrets", &mut redacted);
    assert!(!redacted.to_string().contains("hunter2"), "{redacted}");
    assert_eq!(redacted["data"].as_object().map(serde_json::Map::len), Some(2));
    assert_eq!(
        (&redacted["metadata"]["annotations"]["a"], &redacted["type"]),
        (&json!("b"), &json!("Opaque"))
    );
    let mut other = secret.clone();
    redact("configmaps", &mut other);
    assert_eq!(other, secret);
    for shape in
        [json!(null), json!([]), json!({"data": "hunter2", "metadata": 5}), json!({"data": ["hunter2"]})]
    {
        let mut shape = shape;
        redact("secrets", &mut shape);
        assert!(!shape.to_string().contains("hunter2"), "{shape}");
    }
}

#[test]
fn values_of_secrets_are_removed_from_a_log_but_for_plain_metadata() {
    let entry = |resource: &str, path: &str| json!({"resource": resource, "fields": [{"path": path, "from": "hunter2", "to": {"a": "hunter2"}}]});
    for (resource, path, is_shown) in [
        ("secrets", ".data.password", false),
        ("secrets", ".data", false),
        ("secrets", ".stringData[\"a.b\"]", false),
        ("secrets", ".metadata.annotations", false),
        ("secrets", ".metadata.annotations[\"kubectl.kubernetes.io/last-applied-configuration\"]", false),
        ("secrets", ".", false),
        ("secrets", ".metadata", false),
        ("secrets", ".typeX", false),
        ("secrets", ".type", true),
        ("secrets", ".metadata.labels.app", true),
        ("secrets", ".metadata.finalizers[0]", true),
        ("configmaps", ".data.password", true),
    ] {
        let mut log = json!({"entries": [entry(resource, path)]});
        redact_log(&mut log);
        assert_eq!(log.to_string().contains("hunter2"), is_shown, "{resource} {path}: {log}");
    }
    let mut other = json!({"entries": 1});
    redact_log(&mut other);
    assert_eq!(other, json!({"entries": 1}));
    redact_log(&mut Value::Null);
}
