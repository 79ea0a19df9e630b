use k8s_openapi::api::apps::v1::StatefulSet;

use super::*;

fn pod_template(image: &str) -> PodTemplateSpec {
    let container = json!({
        "name": "c", "image": image, "imagePullPolicy": "IfNotPresent", "resources": {},
        "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File",
    });
    let spec = json!({
        "automountServiceAccountToken": false, "containers": [container], "dnsPolicy": "ClusterFirst",
        "restartPolicy": "Always", "schedulerName": "default-scheduler", "securityContext": {},
        "terminationGracePeriodSeconds": 0,
    });
    serde_json::from_value(json!({"metadata": {"labels": {"app": "web"}}, "spec": spec})).unwrap()
}

fn owner() -> StatefulSet {
    let meta = json!({"name": "web", "namespace": "n", "uid": "u", "annotations": {"note": "copied"}});
    serde_json::from_value(json!({"metadata": meta, "spec": {"selector": {}, "template": {}}})).unwrap()
}

fn revision(name: &str, number: i64, image: &str) -> Arc<ControllerRevision> {
    let metadata = ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() };
    Arc::new(ControllerRevision {
        metadata,
        data: Some(RawExtension(data(&pod_template(image)))),
        revision: number,
    })
}

/// Verifies names of revisions that a real cluster generated.
#[test]
fn revisions_are_named_as_the_real_controller_names_them() {
    for (image, collisions, want) in
        [("img:1", 0, "78c7599dd5"), ("img:1", 1, "78c7599dd4"), ("img:2", 1, "75584b5b59")]
    {
        assert_eq!(hash(&data(&pod_template(image)), collisions), want, "{image} {collisions}");
    }
    assert_eq!(name(&"x".repeat(230), "h"), format!("{}-h", "x".repeat(223)));
    assert_eq!(go_json(&json!({"b": "<\u{2028}&ü", "a": 1})), r#"{"a":1,"b":"\u003c\u2028\u0026ü"}"#);
}

#[test]
fn a_template_is_found_again() {
    let history = [revision("a", 1, "img:1"), revision("b", 4, "img:2")];
    for (image, revisions, want) in [
        ("img:2", &history[..], "last b"),
        ("img:1", &history, "again a 5"),
        ("img:3", &history, "new 5"),
        ("img:1", &[], "new 1"),
    ] {
        let shown = match match_template(&owner(), &pod_template(image), revisions, 0) {
            RevisionMatch::Latest(last) => format!("last {}", last.name_any()),
            RevisionMatch::Earlier(earlier, number) => format!("again {} {number}", earlier.name_any()),
            RevisionMatch::New(new) => format!("new {}", new.revision),
        };
        assert_eq!(shown, want, "{image}");
    }
    assert_eq!(template(&history[0]).unwrap(), pod_template("img:1"));
}

#[test]
fn a_new_revision_has_owner_labels_and_annotations() {
    let RevisionMatch::New(new) = match_template(&owner(), &pod_template("img:1"), &[], 0) else {
        panic!("it is new")
    };
    assert_eq!(new.metadata.name.as_deref(), Some("web-78c7599dd5"));
    assert_eq!(json!(new.metadata.labels), json!({"app": "web", HASH_LABEL: "78c7599dd5"}));
    assert_eq!(json!(new.metadata.annotations), json!({"note": "copied"}));
    let owners = json!([{
        "apiVersion": "apps/v1", "kind": "StatefulSet", "name": "web", "uid": "u", "controller": true, "blockOwnerDeletion": true,
    }]);
    assert_eq!(json!(new.metadata.owner_references), owners);
}

#[test]
fn the_oldest_unused_revisions_are_deleted_first() {
    let mut history =
        [revision("c", 3, ""), revision("b", 2, ""), revision("a", 1, ""), revision("d", 4, "")];
    sort(&mut history);
    for (limit, live, want) in [(10, "d", ""), (1, "d", "a b"), (0, "ad", "b c"), (-1, "d", "")] {
        let excess: Vec<_> =
            excess(&history, |name| live.contains(name), limit).map(|r| r.name_any()).collect();
        assert_eq!(excess.join(" "), want, "{limit}");
    }
}
