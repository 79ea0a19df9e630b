//! The annotations that record revisions and sizes on Deployments and their ReplicaSets.

use coracle_object_meta::{annotation, set_annotation};
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

pub(super) const REVISION: &str = "deployment.kubernetes.io/revision";
/// The revisions that a ReplicaSet had before it became the new one again.
pub(super) const REVISION_HISTORY: &str = "deployment.kubernetes.io/revision-history";
/// The size of the Deployment at the last sync, for the detection of changes.
pub(super) const DESIRED_REPLICAS: &str = "deployment.kubernetes.io/desired-replicas";
/// The size and the surge of the Deployment, the base of proportional scaling.
pub(super) const MAX_REPLICAS: &str = "deployment.kubernetes.io/max-replicas";
/// A request to go back to a revision.
pub(super) const ROLLBACK_TO: &str = "deprecated.deployment.rollback.to";
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// The largest size of a revision history, in bytes.
const MAX_HISTORY: usize = 2000;

/// Returns `true` if an annotation is never copied between a Deployment and its ReplicaSets.
pub(super) fn is_skipped(key: &str) -> bool {
    [LAST_APPLIED, REVISION, REVISION_HISTORY, DESIRED_REPLICAS, MAX_REPLICAS, ROLLBACK_TO].contains(&key)
}

/// Returns the revision, or 0 if there is none. Returns `None` if it is not a number.
pub(super) fn revision(meta: &ObjectMeta) -> Option<i64> {
    annotation(meta, REVISION).map_or(Some(0), |text| text.parse().ok())
}

/// Returns the number of replicas in an annotation.
pub(super) fn size(set: &ReplicaSet, name: &str) -> Option<i32> {
    annotation(&set.metadata, name)?.parse().ok()
}

/// Sets an annotation. Returns whether its value changed.
pub(super) fn set(meta: &mut ObjectMeta, name: &str, value: &str) -> bool {
    let changes = annotation(meta, name) != Some(value);
    if changes {
        set_annotation(meta, name, value);
    }
    changes
}

/// Copies the annotations of a Deployment to a ReplicaSet, which keeps those that the Deployment no
/// longer has. Returns whether the ReplicaSet has changed.
pub(super) fn copy(deployment: &Deployment, replica_set: &mut ReplicaSet) -> bool {
    let annotations = deployment.metadata.annotations.iter().flatten();
    let copied = annotations.filter(|(key, _)| !is_skipped(key));
    copied.fold(false, |changed, (key, value)| set(&mut replica_set.metadata, key, value) || changed)
}

/// Records the size of the Deployment, and the size with its surge. Returns whether they changed.
pub(super) fn set_sizes(set: &mut ReplicaSet, desired: i32, max: i32) -> bool {
    let desired = self::set(&mut set.metadata, DESIRED_REPLICAS, &desired.to_string());
    self::set(&mut set.metadata, MAX_REPLICAS, &max.to_string()) || desired
}

/// Raises the revision of the new ReplicaSet, and records a former one. Returns whether it changed.
pub(super) fn raise_revision(set: &mut ReplicaSet, to: i64) -> bool {
    let meta = &mut set.metadata;
    let former = annotation(meta, REVISION).map(str::to_owned);
    let number = match former.as_deref() {
        None | Some("") => 0,
        Some(text) => match text.parse::<i64>() {
            Ok(number) => number,
            // A value that is not a number was written by another client, and is kept.
            Err(_) => return false,
        },
    };
    if number >= to {
        return false;
    }
    set_annotation(meta, REVISION, &to.to_string());
    if let Some(former) = former
        && let Some(history) = appended(annotation(meta, REVISION_HISTORY).unwrap_or_default(), &former)
    {
        set_annotation(meta, REVISION_HISTORY, &history);
    }
    true
}

/// Returns a history with another entry. It drops the oldest entries if the history would be too
/// long, and returns `None` if the entry alone is too long.
fn appended(history: &str, entry: &str) -> Option<String> {
    if history.is_empty() {
        return Some(entry.to_owned());
    }
    let mut rest = Some(history);
    while let Some(kept) = rest {
        if kept.len() + 1 + entry.len() <= MAX_HISTORY {
            return Some(format!("{kept},{entry}"));
        }
        rest = kept.split_once(',').map(|(_, later)| later);
    }
    (entry.len() <= MAX_HISTORY).then(|| entry.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn replica_set(annotations: Value) -> ReplicaSet {
        serde_json::from_value(json!({"metadata": {"annotations": annotations}})).unwrap()
    }

    #[test]
    fn a_revision_is_raised_and_the_former_one_noted() {
        let long = vec!["1234567"; 250].join(",");
        let kept = vec!["1234567"; 249].join(",");
        for (case, revision, history, to, want) in [
            ("the first", json!(null), json!(null), 1, Some(("1", None))),
            ("as it is", json!("2"), json!(null), 2, None),
            ("never lowered", json!("3"), json!(null), 2, None),
            ("again the new one", json!("1"), json!(null), 3, Some(("3", Some("1")))),
            ("once more", json!("3"), json!("1"), 5, Some(("5", Some("1,3")))),
            ("no number", json!("x"), json!(null), 5, None),
            ("a long history", json!("7654321"), json!(long), 9999999, Some(("9999999", Some("long")))),
        ] {
            let mut annotations = json!({REVISION: revision, REVISION_HISTORY: history});
            annotations.as_object_mut().unwrap().retain(|_, value| !value.is_null());
            let mut set = replica_set(annotations);
            let before = set.clone();
            let changed = raise_revision(&mut set, to);
            assert_eq!(changed, want.is_some(), "{case}");
            let Some((revision, history)) = want else {
                assert_eq!(set, before, "{case}");
                continue;
            };
            let extended = format!("{kept},7654321");
            let history = history.map(|text| if text == "long" { extended.as_str() } else { text });
            assert_eq!(annotation(&set.metadata, REVISION), Some(revision), "{case}");
            assert_eq!(annotation(&set.metadata, REVISION_HISTORY), history, "{case}");
        }
    }

    #[test]
    fn annotations_are_added_and_changed_but_never_removed() {
        let annotations = json!({"a": "1", "b": "2", LAST_APPLIED: "{}", REVISION: "4", ROLLBACK_TO: "1"});
        let meta =
            json!({"metadata": {"annotations": annotations}, "spec": {"selector": {}, "template": {}}});
        let deployment: Deployment = serde_json::from_value(meta).unwrap();
        let mut set = replica_set(json!({"b": "old", "c": "3"}));
        assert!(copy(&deployment, &mut set));
        assert_eq!(set, replica_set(json!({"a": "1", "b": "2", "c": "3"})));
        assert!(!copy(&deployment, &mut set));
        assert!(set_sizes(&mut set, 2, 3));
        assert!(!set_sizes(&mut set, 2, 3));
        assert!(set_sizes(&mut set, 2, 4));
        assert_eq!((size(&set, DESIRED_REPLICAS), size(&set, MAX_REPLICAS)), (Some(2), Some(4)));
    }
}
