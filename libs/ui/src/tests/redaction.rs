use serde_json::json;

use crate::{redact, redact_field};

#[test]
fn values_of_secrets_are_removed_and_their_names_stay() {
    // kubectl, kapp and Rancher keep what they applied in annotations of their own.
    let annotations = json!({"kubectl.kubernetes.io/last-applied-configuration": "hunter2", "kapp.k14s.io/original": "{\"x\":\"hunter2\"}",
                             "objectset.rio.cattle.io/applied": "hunter2"});
    let secret = json!({"metadata": {"labels": {"a": "b"}, "annotations": annotations}, "data": {"password": "hunter2", "n": 1},
                        "stringData": {"x": "hunter2"}, "type": "Opaque"});
    let mut redacted = secret.clone();
    redact("secrets", &mut redacted);
    assert!(!redacted.to_string().contains("hunter2"), "{redacted}");
    assert_eq!(redacted["data"].as_object().map(serde_json::Map::len), Some(2));
    assert_eq!(redacted["metadata"]["annotations"]["kapp.k14s.io/original"], "(redacted)");
    assert_eq!((&redacted["metadata"]["labels"]["a"], &redacted["type"]), (&json!("b"), &json!("Opaque")));
    let mut other = secret.clone();
    redact("configmaps", &mut other);
    assert_eq!(other, secret);
    for shape in [
        json!(null),
        json!([]),
        json!({"data": "hunter2", "metadata": 5}),
        json!({"data": ["hunter2"]}),
        json!({"metadata": {"annotations": ["hunter2"]}}),
    ] {
        let mut shape = shape;
        redact("secrets", &mut shape);
        assert!(!shape.to_string().contains("hunter2"), "{shape}");
    }
}

#[test]
fn values_of_fields_of_secrets_are_removed_but_for_plain_metadata() {
    for (resource, path, is_shown) in [
        ("secrets", ".data.password", false),
        ("secrets", ".data", false),
        ("secrets", ".stringData[\"a.b\"]", false),
        ("secrets", ".metadata.annotations", false),
        ("secrets", ".metadata.annotations[\"kapp.k14s.io/original\"]", false),
        ("secrets", ".metadata.annotations[\"kubectl.kubernetes.io/last-applied-configuration\"]", false),
        ("secrets", ".", false),
        ("secrets", ".metadata", false),
        ("secrets", ".typeX", false),
        ("secrets", ".type", true),
        ("secrets", ".metadata.labels.app", true),
        ("secrets", ".metadata.finalizers[0]", true),
        ("configmaps", ".data.password", true),
    ] {
        let (mut from, mut to, mut absent) = (Some(json!("hunter2")), Some(json!({"a": "hunter2"})), None);
        redact_field(resource, path, [&mut from, &mut to, &mut absent]);
        let want = if is_shown {
            (json!("hunter2"), json!({"a": "hunter2"}))
        } else {
            ("(redacted)".into(), "(redacted)".into())
        };
        assert_eq!(from.zip(to), Some(want), "{resource} {path}");
        assert_eq!(absent, None);
    }
}
