//! The validation of metadata, as the kinds combine it.

use coracle_apimachinery::field::{Errors, Field};
use coracle_apimachinery::strategy::validate;
use coracle_apimachinery::validation::metadata::{Identity, NameRule, validate_create, validate_update};
use serde_json::json;

use crate::behavior;

#[test]
fn new_metadata_is_validated() {
    for (case, kind, metadata, want) in [
        ("nothing wrong", "ConfigMap", json!({"name": "a.b", "namespace": "ns"}), vec![]),
        (
            "an invalid generateName is reported twice",
            "ConfigMap",
            json!({"generateName": "_x-", "name": "_x-abcde", "namespace": "ns"}),
            vec!["metadata.generateName", "metadata.name"],
        ),
        (
            "the letter before a base's dash is never looked at",
            "ConfigMap",
            json!({"generateName": "xY-", "name": "xy-abcde", "namespace": "ns"}),
            vec![],
        ),
        ("a label's name", "Namespace", json!({"name": "a.b"}), vec!["metadata.name"]),
        (
            "a namespace where there is none",
            "Namespace",
            json!({"name": "a", "namespace": "b"}),
            vec!["metadata.namespace"],
        ),
        ("a path segment", "Role", json!({"name": "a:B", "namespace": "ns"}), vec![]),
        (
            "labels, annotations and finalizers",
            "ConfigMap",
            json!({"name": "a", "namespace": "ns", "labels": {"-": "-"}, "annotations": {"A/b": "", "/": ""}, "finalizers": ["nope"]}),
            vec![
                "metadata.labels",
                "metadata.labels",
                "metadata.annotations",
                "metadata.annotations",
                "metadata.annotations",
                "metadata.finalizers[0]",
            ],
        ),
        (
            "a finalizer without a domain",
            "Lease",
            json!({"name": "a", "namespace": "ns", "finalizers": ["nope"]}),
            vec![],
        ),
    ] {
        let group = match kind {
            "Role" => "rbac.authorization.k8s.io",
            "Lease" => "coordination.k8s.io",
            _ => "",
        };
        let object = json!({"metadata": metadata, "rules": []});
        let behavior = behavior(group, kind);
        let mut errors = Errors::new();
        let identity = Identity { namespaced: kind != "Namespace", name: behavior.name };
        validate_create(&Field::root(&object), identity, &behavior.metadata, &mut errors);
        let fields: Vec<&str> = errors.iter().map(|e| e.field.as_str()).collect();
        assert_eq!(fields, want, "{case}: {errors:?}");
    }
}

/// Compares with kube-apiserver's response to an update that adds the label `a=-`, the finalizer
/// `x` (no domain), the annotation `-` and a deletionTimestamp: the number of times that each error
/// is reported.
#[test]
fn updates_report_errors_repeatedly() {
    let old = json!({"metadata": {"name": "a", "namespace": "ns", "uid": "u"}});
    let new = json!({"metadata": {"name": "a", "namespace": "ns", "uid": "u", "deletionTimestamp": "2026-01-01T00:00:00Z",
        "labels": {"a": "-"}, "annotations": {"-": ""}, "finalizers": ["x"]}});
    for (group, kind, label, immutable, finalizer) in [
        ("", "ConfigMap", 4, 2, 2),
        ("", "Secret", 4, 2, 2),
        ("", "Service", 3, 2, 1),
        ("", "PersistentVolume", 4, 1, 2),
        ("", "LimitRange", 3, 1, 1),
        ("", "Event", 2, 1, 0),
        ("apps", "Deployment", 3, 2, 1),
        ("coordination.k8s.io", "Lease", 3, 2, 0),
        ("rbac.authorization.k8s.io", "Role", 4, 2, 2),
    ] {
        let behavior = behavior(group, kind);
        let errors = validate::changed(&new, &old, &behavior, true, behavior.metadata.on_update);
        let count = |field| errors.iter().filter(|e| e.field == field).count();
        assert_eq!(
            (count("metadata.labels"), count("metadata.deletionTimestamp"), count("metadata.finalizers[0]")),
            (label, immutable, finalizer),
            "{kind}"
        );
        assert_eq!(count("metadata.annotations"), label, "{kind}");
    }
}

#[test]
fn checks_run_in_the_order_of_the_kind() {
    let object = json!({"metadata": {"name": "a", "finalizers": ["bad one"]}});
    let object = Field::root(&object);
    for (group, kind, want) in [
        // Only the whole-metadata check reports names that are not qualified.
        (
            "",
            "ConfigMap",
            "metadata.finalizers metadata.finalizers[0] metadata.finalizers metadata.finalizers[0]",
        ),
        (
            "",
            "Namespace",
            "metadata.finalizers metadata.finalizers metadata.finalizers[0] metadata.finalizers[0]",
        ),
        ("batch", "CronJob", "metadata.finalizers metadata.finalizers[0]"),
    ] {
        let rules = behavior(group, kind).metadata;
        let (identity, mut errors) =
            (Identity { namespaced: false, name: NameRule::PathSegment }, Errors::new());
        validate_update(&object, &object, identity, rules.finalizers, rules.on_update, &mut errors);
        let fields: Vec<&str> = errors.iter().map(|error| error.field.as_str()).collect();
        assert_eq!(fields.join(" "), want, "{kind}");
    }
}
