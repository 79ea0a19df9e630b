//! The ReplicaSets of a Deployment: the new one, which has its template, and the old ones.

use std::sync::Arc;

use k8s_openapi::api::apps::v1::{Deployment, DeploymentSpec, ReplicaSet, ReplicaSetStatus};
use kube::ResourceExt;

use super::annotations;
use super::template::equals_without_hash;

/// The ReplicaSets of a Deployment.
#[derive(Clone, Debug, Default)]
pub(super) struct ReplicaSets {
    /// The one with the Deployment's template.
    pub new: Option<Arc<ReplicaSet>>,
    /// All others, from the oldest to the youngest.
    pub old: Vec<Arc<ReplicaSet>>,
}

impl ReplicaSets {
    /// Sorts the ReplicaSets. If several have the template, the oldest is the new one, independent
    /// of its name and hash.
    pub fn of(spec: &DeploymentSpec, mut sets: Vec<Arc<ReplicaSet>>) -> ReplicaSets {
        sort_by_age(&mut sets);
        let is_new = |set: &Arc<ReplicaSet>| {
            let template = set.spec.as_ref().and_then(|spec| spec.template.as_ref());
            template.is_some_and(|template| equals_without_hash(template, &spec.template))
        };
        let new = sets.iter().position(is_new).map(|index| sets.remove(index));
        ReplicaSets { new, old: sets }
    }

    /// Iterates over the old ones, then the new one.
    pub fn all(&self) -> impl Iterator<Item = &Arc<ReplicaSet>> {
        self.old.iter().chain(&self.new)
    }

    /// Iterates over the ReplicaSets with a size above 0.
    pub fn active(&self) -> impl Iterator<Item = &Arc<ReplicaSet>> {
        self.all().filter(|set| replicas(set) > 0)
    }

    /// Iterates over the old ones that want pods.
    pub fn old_active(&self) -> impl Iterator<Item = &Arc<ReplicaSet>> {
        self.old.iter().filter(|set| replicas(set) > 0)
    }

    /// Returns the highest revision of the old ReplicaSets.
    pub fn max_old_revision(&self) -> i64 {
        self.old.iter().filter_map(|set| annotations::revision(&set.metadata)).max().unwrap_or(0).max(0)
    }
}

/// Sorts ReplicaSets from the oldest to the youngest.
pub(super) fn sort_by_age(sets: &mut [Arc<ReplicaSet>]) {
    sets.sort_by_cached_key(|set| (set.metadata.creation_timestamp.clone(), set.name_any()));
}

/// Returns the desired number of pods of a ReplicaSet.
pub(super) fn replicas(set: &ReplicaSet) -> i32 {
    set.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1)
}

/// Returns the desired number of pods of all these ReplicaSets.
pub(super) fn total<'a>(sets: impl Iterator<Item = &'a Arc<ReplicaSet>>) -> i32 {
    sets.fold(0, |total, set| total.saturating_add(replicas(set)))
}

/// Returns a number from the status, or 0 without a status.
pub(super) fn reported(set: &ReplicaSet, number: impl Fn(&ReplicaSetStatus) -> Option<i32>) -> i32 {
    set.status.as_ref().and_then(number).unwrap_or(0)
}

/// Returns the number of available pods of a ReplicaSet.
pub(super) fn available(set: &ReplicaSet) -> i32 {
    reported(set, |status| status.available_replicas)
}

/// A change of the size of a ReplicaSet. Of several changes of one the last counts.
#[derive(Clone, Debug)]
pub(super) struct Resize {
    pub set: Arc<ReplicaSet>,
    pub to: i32,
}

impl Resize {
    pub fn new(set: &Arc<ReplicaSet>, to: i32) -> Resize {
        Resize { set: Arc::clone(set), to }
    }

    /// Returns the resize of a ReplicaSet, or `None` if it already has that size.
    pub fn unless_equal(set: &Arc<ReplicaSet>, to: i32) -> Option<Resize> {
        (replicas(set) != to).then(|| Resize::new(set, to))
    }
}

/// Returns the desired number of pods of a Deployment.
pub(super) fn desired_replicas(deployment: &Deployment) -> i32 {
    deployment.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_oldest_with_the_template_is_the_new_one() {
        let set = |name: &str, created: u8, image: &str, revision: &str| -> Arc<ReplicaSet> {
            let template = json!({
                "metadata": {"labels": {"app": "web", "pod-template-hash": name}},
                "spec": {"containers": [{"name": "c", "image": image}]},
            });
            let created = format!("2026-01-01T00:00:0{created}Z");
            let meta = json!({
                "name": name, "creationTimestamp": created, "annotations": {annotations::REVISION: revision},
            });
            let spec = json!({"selector": {}, "template": template});
            Arc::new(serde_json::from_value(json!({"metadata": meta, "spec": spec})).unwrap())
        };
        let template = json!({"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": "b"}]}});
        let spec: DeploymentSpec =
            serde_json::from_value(json!({"selector": {}, "template": template})).unwrap();
        let all = vec![
            set("d", 4, "c", "x"),
            set("c", 3, "b", "3"),
            set("b", 2, "b", "7"),
            set("a", 2, "b", "6"),
            set("e", 1, "a", "5"),
        ];
        let found = ReplicaSets::of(&spec, all);
        assert_eq!(found.new.as_ref().map(|set| set.name_any()).as_deref(), Some("a"));
        assert_eq!(found.old.iter().map(|set| set.name_any()).collect::<Vec<_>>(), ["e", "b", "c", "d"]);
        assert_eq!(found.max_old_revision(), 7);
        assert_eq!(ReplicaSets::of(&spec, Vec::new()).max_old_revision(), 0);
    }
}
