//! Changes of single members of a pod.

use serde_json::Value;

/// Restores labels, annotations, finalizers and owner references, which subresource updates do not
/// change.
pub fn keep_metadata(pod: &mut Value, old: &Value) {
    for member in ["labels", "annotations", "finalizers", "ownerReferences"] {
        let kept = old.pointer("/metadata").and_then(|metadata| metadata.get(member)).cloned();
        set(&mut pod["metadata"], member, kept);
    }
}

/// Sets a member, or removes it.
pub fn set(object: &mut Value, member: &str, value: Option<Value>) {
    let Some(members) = object.as_object_mut() else { return };
    match value {
        Some(value) => members.insert(member.to_owned(), value),
        None => members.remove(member),
    };
}
