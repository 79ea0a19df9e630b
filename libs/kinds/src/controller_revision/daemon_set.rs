//! The revisions of DaemonSets: their names have another hash, and pods carry the hash alone.

use coracle_object_meta::controller_ref;
use k8s_openapi::api::apps::v1::{ControllerRevision, DaemonSet};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::apimachinery::pkg::runtime::RawExtension;
use kube::ResourceExt;

use super::{data, name};
use crate::template_hash::template_hash;

/// The label of revisions and pods with the hash of their template.
pub const HASH_LABEL: &str = "controller-revision-hash";

/// Builds a revision of the template of a DaemonSet.
///
/// - `number`: its place in the history
pub fn new_revision(set: &DaemonSet, number: i64) -> ControllerRevision {
    let template = set.spec.as_ref().map(|spec| spec.template.clone()).unwrap_or_default();
    let collisions = set.status.as_ref().and_then(|status| status.collision_count);
    let data = data(&template);
    let hash = template_hash(&template, collisions);
    let mut labels = template.metadata.and_then(|meta| meta.labels).unwrap_or_default();
    labels.insert(HASH_LABEL.to_owned(), hash.clone());
    let metadata = ObjectMeta {
        name: Some(name(&set.name_any(), &hash)),
        namespace: set.namespace(),
        labels: Some(labels),
        annotations: set.metadata.annotations.clone(),
        owner_references: Some(vec![controller_ref(set)]),
        ..ObjectMeta::default()
    };
    ControllerRevision { metadata, data: Some(RawExtension(data)), revision: number }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn a_collision_changes_the_name() {
        let named = |image: &str, collisions: Value| {
            let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": image}]}});
            let set = json!({
                "metadata": {"name": "d", "namespace": "n", "uid": "u"},
                "spec": {"selector": {}, "template": template},
                "status": {
                    "collisionCount": collisions, "currentNumberScheduled": 0, "desiredNumberScheduled": 0,
                    "numberMisscheduled": 0, "numberReady": 0,
                },
            });
            let revision = new_revision(&serde_json::from_value(set).unwrap(), 1);
            let hash = revision.metadata.labels.as_ref().unwrap()[HASH_LABEL].clone();
            assert_eq!(revision.name_any(), format!("d-{hash}"));
            assert!(hash.bytes().all(|letter| b"456789bcdf".contains(&letter)), "{hash}");
            hash
        };
        let first = named("i:1", json!(null));
        assert_eq!(first, named("i:1", json!(null)));
        for (image, collisions) in [("i:2", json!(null)), ("i:1", json!(0)), ("i:1", json!(1))] {
            assert_ne!(first, named(image, collisions.clone()), "{image} {collisions}");
        }
    }
}
