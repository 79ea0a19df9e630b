use serde_json::json;

use super::*;

fn causes(errors: &Errors) -> Vec<String> {
    errors.iter().map(ToString::to_string).collect()
}

#[test]
fn owner_references_print_as_in_go() {
    let object = json!({"metadata": {"name": "a", "ownerReferences": [
        {"apiVersion": "v1", "kind": "Event", "name": "e", "uid": "1", "controller": true},
        {"apiVersion": "a/b/c", "kind": "Pod", "name": "p", "uid": "2", "blockOwnerDeletion": false, "controller": true},
    ]}});
    let mut errors = Errors::new();
    validate_owner_references(&Field::root(&object).walk("metadata.ownerReferences"), &mut errors);
    assert_eq!(
        causes(&errors),
        [
            r#"metadata.ownerReferences: Invalid value: {"apiVersion":"v1","kind":"Event","name":"e","uid":"1","controller":true}: /v1, Kind=Event is disallowed from being an owner"#,
            r#"metadata.ownerReferences.apiVersion: Invalid value: "a/b/c": version must not be empty"#,
            concat!(
                r#"metadata.ownerReferences: Invalid value: [{"apiVersion":"v1","kind":"Event","name":"e","uid":"1","controller":true},"#,
                r#"{"apiVersion":"a/b/c","kind":"Pod","name":"p","uid":"2","controller":true,"blockOwnerDeletion":false}]: "#,
                r#"Only one reference can have Controller set to true. Found "true" in references for Event/e and Pod/p"#
            ),
        ]
    );
}

/// A class of devices does not validate its `generateName` itself.
#[test]
fn a_generate_name_is_a_segment_of_a_path_at_least() {
    let object = json!({"metadata": {"name": "a", "generateName": "10.0.0.0/8"}});
    for (rule, want) in [
        (
            NameRule::LongName,
            vec![r#"metadata.generateName: Invalid value: "10.0.0.0/8": may not contain '/'"#],
        ),
        // Its own rule has reported it.
        (NameRule::Subdomain, vec![]),
    ] {
        let (mut errors, identity) = (Errors::new(), Identity { namespaced: false, name: rule });
        let validation = MetadataValidation::USUAL;
        validate_create_generic(&Field::root(&object), identity, &validation, &mut errors);
        assert_eq!(causes(&errors), want, "{rule:?}");
    }
}

#[test]
fn a_deleted_object_gets_no_new_finalizers() {
    let old = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["a/b"]}});
    let new = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["a/d", "a/c", "a/b"]}});
    let mut errors = Errors::new();
    validate_object_meta_update(&Field::root(&new), &Field::root(&old), Finalizers::Standard, &mut errors);
    assert_eq!(
        causes(&errors),
        [
            r#"metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted, found new finalizers []string{"a/c", "a/d"}"#
        ]
    );
}
