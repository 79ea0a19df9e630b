use serde_json::json;

use super::*;
use crate::schema::schema;

fn kind(group: &str, kind: &str) -> TypeRef {
    schema().kind(group, "v1", kind).unwrap().into()
}

/// Returns the written and removed fields between two pods with these specs.
fn pod_comparison(old: Value, new: Value) -> (Value, Value) {
    let comparison = compare(Some(&json!({"spec": old})), &json!({"spec": new}), &kind("", "Pod"));
    let spec = |set: FieldPathSet| set.into_value()["f:spec"].take();
    (spec(comparison.written), spec(comparison.removed))
}

#[test]
fn a_new_object_owns_what_it_adds_to_the_empty_go_object() {
    for (case, id, object, want) in [
        (
            "a map is owned itself",
            kind("", "ConfigMap"),
            json!({"metadata": {"name": "a"}, "data": {"k": "v"}}),
            json!({"f:data": {".": {}, "f:k": {}}, "f:metadata": {"f:name": {}}}),
        ),
        (
            "members that are always printed are changed, not added",
            kind("apps", "Deployment"),
            json!({"metadata": {}, "spec": {"replicas": 2, "selector": {"matchLabels": {"a": "b"}}, "template": {
                "metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "resources": {}}]}}}}),
            json!({"f:spec": {"f:replicas": {}, "f:selector": {}, "f:template": {
                "f:metadata": {"f:labels": {".": {}, "f:a": {}}},
                "f:spec": {"f:containers": {"k:{\"name\":\"c\"}": {".": {}, "f:name": {}, "f:resources": {}}}}}}}),
        ),
        (
            "keys are sorted, and have defaults",
            kind("", "Service"),
            json!({"spec": {"ports": [{"port": 80, "targetPort": 80}], "selector": {"a": "b"}}}),
            json!({"f:spec": {"f:ports": {".": {}, "k:{\"port\":80,\"protocol\":\"TCP\"}": {
                ".": {}, "f:port": {}, "f:targetPort": {}}}, "f:selector": {}}}),
        ),
        (
            "sets own their values, items that are one value themselves",
            kind("", "ConfigMap"),
            json!({"metadata": {"finalizers": ["a/b"], "ownerReferences": [{"uid": "u", "name": "n", "kind": "k", "apiVersion": "v1"}]}}),
            json!({"f:metadata": {"f:finalizers": {".": {}, "v:\"a/b\"": {}},
                "f:ownerReferences": {".": {}, "k:{\"uid\":\"u\"}": {}}}}),
        ),
        (
            "an empty struct is a leaf; a time that was never set is there",
            kind("", "Pod"),
            json!({"spec": {"volumes": [{"name": "v", "emptyDir": {}}]}, "status": {"conditions": [{"type": "Ready", "status": "True"}]}}),
            json!({"f:spec": {"f:volumes": {".": {}, "k:{\"name\":\"v\"}": {".": {}, "f:emptyDir": {}, "f:name": {}}}},
                "f:status": {"f:conditions": {".": {}, "k:{\"type\":\"Ready\"}": {
                    ".": {}, "f:lastProbeTime": {}, "f:lastTransitionTime": {}, "f:status": {}, "f:type": {}}}}}),
        ),
    ] {
        let comparison = compare(None, &object, &id);
        assert_eq!(comparison.written.into_value(), want, "{case}");
        assert!(comparison.removed.is_empty(), "{case}");
    }
}

#[test]
fn two_objects_differ_in_fields() {
    let container = |image: &str| json!({"containers": [{"name": "c", "image": image}]});
    let leaf = |path: Value| path;
    for (case, old, new, written, removed) in [
        ("nothing", container("a"), container("a"), Value::Null, Value::Null),
        (
            "a changed leaf",
            container("a"),
            container("b"),
            leaf(json!({"f:containers": {"k:{\"name\":\"c\"}": {"f:image": {}}}})),
            Value::Null,
        ),
        (
            "an order is nobody's",
            json!({"hostAliases": [{"ip": "1"}, {"ip": "2"}]}),
            json!({"hostAliases": [{"ip": "2"}, {"ip": "1"}]}),
            Value::Null,
            Value::Null,
        ),
        (
            "a removed map goes with its entries",
            json!({"overhead": {"cpu": "1"}}),
            json!({}),
            Value::Null,
            json!({"f:overhead": {".": {}, "f:cpu": {}}}),
        ),
        (
            "an atomic list is one value",
            json!({"tolerations": [{"key": "a"}]}),
            json!({"tolerations": [{"key": "b"}]}),
            json!({"f:tolerations": {}}),
            Value::Null,
        ),
        (
            "items that come to share a key are one",
            json!({"hostAliases": [{"ip": "1"}]}),
            json!({"hostAliases": [{"ip": "1"}, {"ip": "1"}]}),
            json!({"f:hostAliases": {"k:{\"ip\":\"1\"}": {}}}),
            json!({"f:hostAliases": {"k:{\"ip\":\"1\"}": {".": {}, "f:ip": {}}}}),
        ),
    ] {
        assert_eq!(pod_comparison(old, new), (written, removed), "{case}");
    }
}

#[test]
fn apply_counts_leaves_and_items() {
    let object = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"securityContext": {}, "tolerations": [],
        "containers": [{"name": "c", "ports": [{"containerPort": 1}]}]}});
    let want = json!({"f:metadata": {"f:labels": {"f:a": {}}}, "f:spec": {"f:securityContext": {}, "f:tolerations": {},
        "f:containers": {"k:{\"name\":\"c\"}": {".": {}, "f:name": {},
            "f:ports": {"k:{\"containerPort\":1,\"protocol\":\"TCP\"}": {".": {}, "f:containerPort": {}}}}}}});
    assert_eq!(fields(&object, &kind("", "Pod")).into_value(), want);
}
