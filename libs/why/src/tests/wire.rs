//! Explanations and trees in JSON and as text.

use serde_json::json;

use super::fake::{claim, cluster, node, pod, terminating, using};
use super::{NOW, explained};
use crate::{Explanation, Question, Tree, explain, tree};

/// Returns the name of a question in JSON.
pub fn name(question: Question) -> &'static str {
    match question {
        Question::Present => "present",
        Question::NotReady => "notReady",
        Question::Gone => "gone",
    }
}

#[test]
fn an_explanation_in_json_has_the_members_that_apply_and_is_read_again() {
    let cluster = cluster([
        node("node-0"),
        terminating(claim("data", "Bound"), &["kubernetes.io/pvc-protection"]),
        using(pod("web-0"), &["data"]),
    ]);
    let explanation = explained(&cluster, "persistentvolumeclaims data").unwrap();
    let written = serde_json::to_value(&explanation).unwrap();
    let sentence = "persistentvolumeclaim/data was marked for deletion at 10:03:00Z (2 minutes ago), and is still there because its finalizer \
        kubernetes.io/pvc-protection is still set. The persistentvolumeclaim-protection-controller removes it once no pod uses the \
        claim; pod/web-0 still uses it. To change that: kubectl delete pods web-0 -n shop";
    assert_eq!(
        written,
        json!({"object": "persistentvolumeclaim/shop/data", "answers": [{"question": "present", "sentence": sentence, "causes": [
            {
                "object": "persistentvolumeclaim/shop/data", "field": "metadata.finalizers: kubernetes.io/pvc-protection",
                "waitsFor": "the persistentvolumeclaim-protection-controller, which removes it once no pod uses the claim; \
                    pod/web-0 still uses it",
                "remedy": "kubectl delete pods web-0 -n shop",
            },
            {
                "object": "pod/shop/web-0", "field": "spec.volumes: data",
                "waitsFor": "the deletion of the pod, which uses the claim",
                "remedy": "kubectl delete pods web-0 -n shop",
            },
        ]}]})
    );
    assert_eq!(serde_json::from_value::<Explanation>(written).unwrap(), explanation);
    assert_eq!(
        explanation.to_string(),
        "persistentvolumeclaim/shop/data\n\
         Why is it still there?\n  \
         persistentvolumeclaim/data was marked for deletion at 10:03:00Z (2 minutes ago), and is still\n  \
         there because its finalizer kubernetes.io/pvc-protection is still set. The\n  \
         persistentvolumeclaim-protection-controller removes it once no pod uses the claim; pod/web-0 still\n  \
         uses it.\n  \
         To change that: kubectl delete pods web-0 -n shop\n    \
         - persistentvolumeclaim/shop/data: metadata.finalizers: kubernetes.io/pvc-protection; the\n      \
         persistentvolumeclaim-protection-controller, which removes it once no pod uses the claim;\n      \
         pod/web-0 still uses it\n    \
         - pod/shop/web-0: spec.volumes: data; the deletion of the pod, which uses the claim"
    );
}

#[test]
fn a_text_is_as_wide_as_the_terminal() {
    let cluster = cluster([
        node("node-0"),
        terminating(claim("data", "Bound"), &["kubernetes.io/pvc-protection"]),
        using(pod("web-0"), &["data"]),
    ]);
    let explanation = explained(&cluster, "persistentvolumeclaims data").unwrap();
    for columns in [60, 130] {
        let text = format!("{explanation:columns$}");
        let lines = text.lines().filter(|line| !line.contains("To change that: "));
        let longest = lines.map(str::len).max().unwrap_or_default();
        assert!(longest <= columns && longest > columns - 25, "{columns}: {text}");
    }
}

#[test]
fn an_object_that_is_as_it_should_be_has_no_answers() {
    let cluster = cluster([node("node-0"), pod("web-0")]);
    let explanation = explained(&cluster, "pods web-0").unwrap();
    assert_eq!(
        serde_json::to_value(&explanation).unwrap(),
        json!({"object": "pod/shop/web-0", "answers": []})
    );
    assert_eq!(
        explanation.to_string(),
        "pod/shop/web-0\n  It exists, it is not being deleted, and nothing is known to keep it from being ready."
    );
}

#[test]
fn an_object_that_was_never_seen_has_no_explanation_and_no_tree() {
    assert_eq!(explain(&cluster([]), "pods", "shop", "web-0", NOW.parse().unwrap()), None);
    assert_eq!(tree(&cluster([]), "pods", "shop", "web-0"), None);
}

#[test]
fn a_tree_in_json_is_read_again() {
    let tree = tree(&cluster([node("node-0"), pod("web-0")]), "pods", "shop", "web-0").unwrap();
    let written = serde_json::to_value(&tree).unwrap();
    assert_eq!(written, json!({"root": {"object": "pod/shop/web-0", "state": "ready", "isRequested": true}}));
    assert_eq!(serde_json::from_value::<Tree>(written).unwrap(), tree);
}
