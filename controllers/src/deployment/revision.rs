//! The new ReplicaSet of a Deployment, which is created or updated, and the revision of both.

use std::sync::Arc;

use coracle_controller_runtime::cache::NamespacedName;
use coracle_controller_runtime::{Error, is_namespace_terminating};
use coracle_kinds::template_hash::template_hash;
use coracle_object_meta::{annotation, controller_ref, is_controlled_by};
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet, ReplicaSetSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt;

use super::annotations::{self, REVISION};
use super::conditions::{self, PROGRESSING, condition};
use super::executor::Executor;
use super::replica_sets::{ReplicaSets, desired_replicas, replicas};
use super::template::{HASH_LABEL, equals_without_hash};
use super::{rolling, status};

/// The largest length of a name, in bytes.
const MAX_NAME_LENGTH: usize = 253;

impl Executor<'_> {
    /// Updates the new ReplicaSet, if it exists, from the Deployment; if it was up to date, the
    /// Deployment gets its revision.
    pub async fn sync_revision(&mut self, mut sets: ReplicaSets) -> Result<ReplicaSets, Error> {
        let Some(new) = &sets.new else { return Ok(sets) };
        if let Some(changed) = up_to_date(&self.deployment, new, sets.max_old_revision() + 1) {
            sets.new = Some(Arc::new(self.replica_sets().replace(&changed).await?));
            return Ok(sets);
        }
        let (mut status, now) = (self.status(), self.controller.clock.now());
        let revision = annotation(&new.metadata, REVISION).unwrap_or_default();
        let is_raised = annotations::set(&mut self.deployment.metadata, REVISION, revision);
        let is_unknown = status::progress_deadline(&self.deployment).is_some()
            && conditions::find(&status, PROGRESSING).is_none();
        if is_unknown {
            let message = format!("Found new replica set {:?}", new.name_any());
            conditions::set(&mut status, condition(PROGRESSING, "True", "FoundNewReplicaSet", message, now));
        }
        if is_raised || is_unknown {
            self.write_status(status).await?;
        }
        Ok(sets)
    }

    /// Creates the ReplicaSet of the Deployment's template, or finds it under the name that it
    /// would have. None: the namespace is terminating.
    pub async fn create_new_replica_set(
        &mut self,
        sets: &ReplicaSets,
    ) -> Result<Option<Arc<ReplicaSet>>, Error> {
        let revision = sets.max_old_revision() + 1;
        let Some(new) = new_replica_set(&self.deployment, sets, revision) else { return Ok(None) };
        let (name, now) = (new.name_any(), self.controller.clock.now());
        let (created, is_created) = match self.replica_sets().create(&new).await {
            Ok(created) => (Arc::new(created), true),
            Err(error) if is_namespace_terminating(&error) => return Ok(None),
            Err(kube::Error::Api(error)) if error.reason == "AlreadyExists" => {
                // The ReplicaSet is not among the claimed ones: the cache may lag behind.
                let existing = self.replica_sets().get(&NamespacedName::of(&new)).await?;
                match existing.filter(|set| self.is_of_template(set)) {
                    Some(set) => {
                        self.ctx.await_observed(&self.controller.replica_sets, &set);
                        (Arc::new(set), false)
                    }
                    None => {
                        // The next attempt uses another name.
                        let mut status = self.status();
                        status.collision_count = Some(status.collision_count.unwrap_or(0).saturating_add(1));
                        self.write_status(status).await?;
                        return Err(kube::Error::Api(error).into());
                    }
                }
            }
            Err(error) => {
                let error = Error::from(error);
                self.report_failure(&name, &error).await;
                return Err(error);
            }
        };
        if is_created && replicas(&created) > 0 {
            self.record_scaling(&name, 0, replicas(&created));
        }
        let mut status = self.status();
        let is_raised = annotations::set(&mut self.deployment.metadata, REVISION, &revision.to_string());
        let reports = is_created && status::progress_deadline(&self.deployment).is_some();
        if reports {
            let message = format!("Created new replica set {name:?}");
            conditions::set(
                &mut status,
                condition(PROGRESSING, "True", "NewReplicaSetCreated", message, now),
            );
        }
        if is_raised || reports {
            self.write_status(status).await?;
        }
        Ok(Some(created))
    }

    fn is_of_template(&self, set: &ReplicaSet) -> bool {
        let own = self.deployment.spec.as_ref().map(|spec| &spec.template);
        let its = set.spec.as_ref().and_then(|spec| spec.template.as_ref());
        let is_equal = own.zip(its).is_some_and(|(own, its)| equals_without_hash(own, its));
        is_equal && is_controlled_by(&set.metadata, &self.deployment)
    }

    /// Reports a failure in the status. An error of that write is ignored.
    async fn report_failure(&mut self, name: &str, error: &Error) {
        const REASON: &str = "ReplicaSetCreateError";
        let message = format!("Failed to create new replica set {name:?}: {}", error.message());
        if status::progress_deadline(&self.deployment).is_some() {
            let (mut status, now) = (self.status(), self.controller.clock.now());
            conditions::set(&mut status, condition(PROGRESSING, "False", REASON, message.clone(), now));
            if let Err(error) = self.write_status(status).await {
                tracing::debug!(%error, "the status was not written");
            }
        }
        self.controller.recorder.warning(&self.deployment, REASON, message);
    }
}

/// Returns the new ReplicaSet with the annotations that it should have, or `None` if it has them.
fn up_to_date(deployment: &Deployment, new: &ReplicaSet, revision: i64) -> Option<ReplicaSet> {
    let mut changed = new.clone();
    let is_copied = annotations::copy(deployment, &mut changed);
    let is_raised = annotations::raise_revision(&mut changed, revision);
    let seconds = |seconds: Option<i32>| seconds.filter(|seconds| *seconds != 0);
    let wanted = seconds(deployment.spec.as_ref().and_then(|spec| spec.min_ready_seconds));
    let spec = changed.spec.get_or_insert_default();
    let is_longer = seconds(spec.min_ready_seconds) != wanted;
    spec.min_ready_seconds = wanted;
    (is_copied || is_raised || is_longer).then_some(changed)
}

/// Returns the ReplicaSet to create for the Deployment's template.
fn new_replica_set(deployment: &Deployment, sets: &ReplicaSets, revision: i64) -> Option<ReplicaSet> {
    let spec = deployment.spec.as_ref()?;
    let collisions = deployment.status.as_ref().and_then(|status| status.collision_count);
    let hash = template_hash(&spec.template, collisions);
    let mut template = spec.template.clone();
    let labels = template.metadata.get_or_insert_default().labels.get_or_insert_default();
    labels.insert(HASH_LABEL.to_owned(), hash.clone());
    let labels = labels.clone();
    let mut selector = spec.selector.clone();
    selector.match_labels.get_or_insert_default().insert(HASH_LABEL.to_owned(), hash.clone());
    let name = deployment.name_any();
    let prefix = name.get(..MAX_NAME_LENGTH.saturating_sub(hash.len() + 1)).unwrap_or(&name);
    let metadata = ObjectMeta {
        name: Some(format!("{prefix}-{hash}")),
        namespace: deployment.namespace(),
        labels: Some(labels),
        owner_references: Some(vec![controller_ref(deployment)]),
        ..ObjectMeta::default()
    };
    let spec = ReplicaSetSpec {
        replicas: Some(rolling::new_size(deployment, sets)),
        min_ready_seconds: spec.min_ready_seconds,
        selector,
        template: Some(template),
    };
    let mut new = ReplicaSet { metadata, spec: Some(spec), status: None };
    annotations::copy(deployment, &mut new);
    annotations::raise_revision(&mut new, revision);
    annotations::set_sizes(&mut new, desired_replicas(deployment), rolling::max_replicas(deployment));
    Some(new)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn deployment(name: &str, status: Value) -> Deployment {
        let template = json!({"metadata": {"labels": {"app": "web", "x": "y"}}, "spec": {"containers": []}});
        let spec = json!({
            "replicas": 4, "minReadySeconds": 5, "selector": {"matchLabels": {"app": "web"}}, "template": template,
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"}},
        });
        let meta = json!({"name": name, "namespace": "n", "uid": "u", "annotations": {"note": "x"}});
        serde_json::from_value(json!({"metadata": meta, "spec": spec, "status": status})).unwrap()
    }

    #[test]
    fn a_new_replica_set_has_the_template_and_the_hash() {
        let new = new_replica_set(&deployment("web", json!({})), &ReplicaSets::default(), 3).unwrap();
        let name = new.name_any();
        let (start, hash) = name.rsplit_once('-').unwrap();
        let hashed = json!({"app": "web", "x": "y", HASH_LABEL: hash});
        let new = json!(new);
        assert_eq!(start, "web");
        assert_eq!(new["metadata"]["labels"], hashed);
        assert_eq!(new["spec"]["template"]["metadata"]["labels"], hashed);
        assert_eq!(new["spec"]["selector"], json!({"matchLabels": {"app": "web", HASH_LABEL: hash}}));
        assert_eq!([&new["spec"]["replicas"], &new["spec"]["minReadySeconds"]], [4, 5]);
        let noted = json!({
            "note": "x", REVISION: "3", annotations::DESIRED_REPLICAS: "4", annotations::MAX_REPLICAS: "5",
        });
        assert_eq!(new["metadata"]["annotations"], noted);
        let owner = json!([{
            "apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": "u", "controller": true,
            "blockOwnerDeletion": true,
        }]);
        assert_eq!(new["metadata"]["ownerReferences"], owner);
    }

    #[test]
    fn names_are_cut_and_change_after_a_collision() {
        let name = |deployment: &Deployment| {
            new_replica_set(deployment, &ReplicaSets::default(), 1).unwrap().name_any()
        };
        let long = "x".repeat(253);
        assert_eq!(name(&deployment(&long, json!({}))).len(), 253);
        let names = [json!({}), json!({"collisionCount": 1})].map(|status| name(&deployment("web", status)));
        assert_ne!(names[0], names[1]);
    }

    #[test]
    fn an_existing_one_follows_its_deployment() {
        let deployment = deployment("web", json!({}));
        let existing = |revision: &str, note: &str, seconds: i32| -> ReplicaSet {
            let meta = json!({"annotations": {REVISION: revision, "note": note, "gone": "x"}});
            let spec = json!({"selector": {}, "minReadySeconds": seconds});
            serde_json::from_value(json!({"metadata": meta, "spec": spec})).unwrap()
        };
        for (case, set, want) in [
            ("up to date", existing("2", "x", 5), None),
            ("a higher revision stays", existing("3", "x", 5), None),
            (
                "an annotation has changed",
                existing("2", "y", 5),
                Some(json!({REVISION: "2", "note": "x", "gone": "x"})),
            ),
            ("another time", existing("2", "x", 0), Some(json!({REVISION: "2", "note": "x", "gone": "x"}))),
            (
                "new again",
                existing("1", "x", 5),
                Some(json!({REVISION: "2", annotations::REVISION_HISTORY: "1", "note": "x", "gone": "x"})),
            ),
        ] {
            let changed = up_to_date(&deployment, &set, 2);
            assert_eq!(changed.as_ref().map(|set| json!(set.annotations())), want, "{case}");
            let seconds = changed.and_then(|set| set.spec?.min_ready_seconds);
            assert_eq!(seconds, want.map(|_| 5), "{case}");
        }
    }
}
