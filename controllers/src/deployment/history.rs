//! The history: old ReplicaSets without pods, kept for rollbacks, and the way back to one of them.

use std::sync::Arc;

use coracle_object_meta::{annotation, remove_annotation};
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use kube::ResourceExt;

use super::annotations::{self, ROLLBACK_TO};
use super::replica_sets::{ReplicaSets, replicas, reported};
use super::template::{equals_without_hash, without_hash};

/// Returns the old ReplicaSets to delete. Those beyond the limit that still have pods are kept, and
/// no others are deleted in their place.
pub(super) fn excess(deployment: &Deployment, old: &[Arc<ReplicaSet>]) -> Vec<Arc<ReplicaSet>> {
    let limit = deployment.spec.as_ref().and_then(|spec| spec.revision_history_limit);
    let Some(limit) = limit.filter(|limit| *limit != i32::MAX) else { return Vec::new() };
    let mut history: Vec<_> =
        old.iter().filter(|set| set.metadata.deletion_timestamp.is_none()).cloned().collect();
    // They are sorted by age, and stay so within a revision.
    history.sort_by_key(|set| annotations::revision(&set.metadata).unwrap_or(0));
    let excess = history.len().saturating_sub(usize::try_from(limit).unwrap_or(0));
    history.truncate(excess);
    history.retain(|set| is_unused(set));
    history
}

fn is_unused(set: &ReplicaSet) -> bool {
    let observed = set.status.as_ref().and_then(|status| status.observed_generation);
    replicas(set) == 0
        && reported(set, |status| Some(status.replicas)) == 0
        && observed.unwrap_or(0) >= set.metadata.generation.unwrap_or(0)
}

/// Returns the revision that the rollback annotation requests; 0 is the previous one. A value that
/// is not a number requests nothing.
pub(super) fn rollback_to(deployment: &Deployment) -> Option<i64> {
    annotation(&deployment.metadata, ROLLBACK_TO)?.parse().ok()
}

/// The outcome of a rollback request.
#[derive(Debug, PartialEq)]
pub(super) enum Rollback {
    /// The Deployment with the template and the annotations of the ReplicaSet, and the revision.
    To(Box<Deployment>, i64),
    /// The revision has the template that the Deployment has.
    Unchanged,
    /// No such revision; the message of the event.
    NotFound(&'static str),
}

/// Finds the revision to roll back to. The request is still in the Deployment.
pub(super) fn rollback(deployment: &Deployment, revision: i64, sets: &ReplicaSets) -> Rollback {
    let revision_of = |set: &Arc<ReplicaSet>| annotations::revision(&set.metadata);
    let mut revision = revision;
    if revision == 0 {
        let mut revisions: Vec<i64> = sets.all().filter_map(revision_of).collect();
        revisions.sort_unstable();
        revision = revisions.into_iter().rev().nth(1).unwrap_or(0);
        if revision == 0 {
            return Rollback::NotFound("Unable to find last revision.");
        }
    }
    let Some(set) = sets.all().find(|set| revision_of(set) == Some(revision)) else {
        return Rollback::NotFound("Unable to find the revision to rollback to.");
    };
    let template = set.spec.as_ref().and_then(|spec| spec.template.as_ref());
    let mut restored = deployment.clone();
    let (Some(spec), Some(template)) = (&mut restored.spec, template) else { return Rollback::Unchanged };
    if equals_without_hash(&spec.template, template) {
        return Rollback::Unchanged;
    }
    spec.template = without_hash(template);
    let mut kept = deployment.annotations().clone();
    kept.retain(|key, _| annotations::is_skipped(key));
    let copied = set.annotations().iter().filter(|(key, _)| !annotations::is_skipped(key));
    kept.extend(copied.map(|(key, value)| (key.clone(), value.clone())));
    restored.metadata.annotations = Some(kept);
    Rollback::To(Box::new(without_request(restored)), revision)
}

/// Returns a Deployment without the rollback request.
pub(super) fn without_request(mut deployment: Deployment) -> Deployment {
    remove_annotation(&mut deployment.metadata, ROLLBACK_TO);
    deployment
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn set(name: &str, revision: Value, template: &str, more: Value) -> Arc<ReplicaSet> {
        let labels = json!({"app": "web", "pod-template-hash": name});
        let spec = json!({"containers": [{"name": "c", "image": template}]});
        let annotations = json!({"deployment.kubernetes.io/revision": revision, "note": name});
        let mut set = json!({
            "metadata": {"name": name, "generation": 1, "annotations": annotations},
            "spec": {"replicas": 0, "selector": {}, "template": {"metadata": {"labels": labels}, "spec": spec}},
            "status": {"replicas": 0, "observedGeneration": 1},
        });
        for (pointer, value) in more.as_object().unwrap() {
            let (parent, field) = pointer.rsplit_once('/').unwrap();
            set.pointer_mut(parent).unwrap()[field] = value.clone();
        }
        Arc::new(serde_json::from_value(set).unwrap())
    }

    fn deployment(limit: Value, annotations: Value) -> Deployment {
        let spec = json!({"containers": [{"name": "c", "image": "c"}]});
        let template = json!({"metadata": {"labels": {"app": "web"}}, "spec": spec});
        let spec = json!({"selector": {}, "template": template, "revisionHistoryLimit": limit});
        serde_json::from_value(json!({"metadata": {"name": "web", "annotations": annotations}, "spec": spec}))
            .unwrap()
    }

    #[test]
    fn the_oldest_revisions_beyond_the_limit_are_deleted_if_unused() {
        let old = [
            set("c", json!("3"), "x", json!({})),
            set("a", json!("1"), "x", json!({})),
            set("b", json!("2"), "x", json!({"/spec/replicas": 1})),
            set("e", json!("5"), "x", json!({"/metadata/deletionTimestamp": "2026-01-01T00:00:00Z"})),
            set("d", json!("4"), "x", json!({"/metadata/generation": 2})),
        ];
        for (limit, want) in [
            (json!(10), ""),
            (json!(4), ""),
            (json!(3), "a"),
            (json!(2), "a"),
            (json!(1), "a c"),
            (json!(0), "a c"),
            (json!(i32::MAX), ""),
            (json!(null), ""),
        ] {
            let deleted = excess(&deployment(limit.clone(), json!({})), &old);
            let names: Vec<_> = deleted.iter().map(|set| set.name_any()).collect();
            assert_eq!(names.join(" "), want, "{limit}");
        }
    }

    #[test]
    fn a_rollback_puts_template_and_annotations_back() {
        let sets = ReplicaSets {
            old: vec![set("a", json!("1"), "a", json!({})), set("b", json!("2"), "b", json!({}))],
            new: Some(set("c", json!("3"), "c", json!({}))),
        };
        let annotations = json!({ROLLBACK_TO: "1", "mine": "x", annotations::REVISION: "3"});
        let deployment = deployment(json!(10), annotations);
        assert_eq!(rollback_to(&deployment), Some(1));
        for (case, to, want) in
            [("one by its number", 1, Some(("a", 1))), ("the last", 0, Some(("b", 2))), ("the same", 3, None)]
        {
            match (rollback(&deployment, to, &sets), want) {
                (Rollback::To(restored, revision), Some((name, number))) => {
                    assert_eq!(revision, number, "{case}");
                    let want = json!({"note": name, annotations::REVISION: "3"});
                    assert_eq!(json!(restored.annotations()), want, "{case}");
                    let template = json!(restored.spec.unwrap().template);
                    assert_eq!(template["metadata"]["labels"], json!({"app": "web"}), "{case}");
                    assert_eq!(template["spec"]["containers"][0]["image"], name, "{case}");
                }
                (Rollback::Unchanged, None) => {}
                (outcome, _) => panic!("{case}: {outcome:?}"),
            }
        }
        let gone = Rollback::NotFound("Unable to find the revision to rollback to.");
        assert_eq!(rollback(&deployment, 7, &sets), gone);
        let alone = ReplicaSets { old: Vec::new(), new: sets.new };
        assert_eq!(rollback(&deployment, 0, &alone), Rollback::NotFound("Unable to find last revision."));
    }
}
