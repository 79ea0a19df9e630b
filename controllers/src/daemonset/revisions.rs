//! Keeps the ControllerRevisions of a set.

use std::sync::Arc;

use coracle_controller_runtime::cache::NamespacedName;
use coracle_controller_runtime::controller_ref::{candidates, claim_objects};
use coracle_controller_runtime::{Error, ReconcileContext, ignore_not_found, uid_precondition};
use coracle_kinds::controller_revision::contains_template;
use coracle_kinds::controller_revision::daemon_set::{HASH_LABEL, new_revision};
use coracle_object_meta::selector_matches;
use k8s_openapi::api::apps::v1::{ControllerRevision, DaemonSet};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::Patch;
use kube::core::Selector;
use serde_json::json;

use super::DaemonSetController;
use super::history::{History, hash};

impl DaemonSetController {
    /// Lists the revisions of a set. Those without the hash label get it.
    pub(super) async fn history(
        &self,
        set: &DaemonSet,
        selector: &Selector,
        ctx: &ReconcileContext,
    ) -> Result<History, Error> {
        let found = candidates(&set.metadata, &self.revisions);
        let matches = |revision: &ControllerRevision| selector_matches(selector, &revision.metadata);
        let mut revisions = claim_objects((&self.sets, set), &self.revisions, found, matches, ctx).await?;
        for revision in &mut revisions {
            if hash(revision).is_none() {
                let mut labelled = revision.as_ref().clone();
                let labels = labelled.metadata.labels.get_or_insert_default();
                labels.insert(HASH_LABEL.to_owned(), revision.name_any());
                *revision = Arc::new(ctx.api(&self.revisions).replace(&labelled).await?);
            }
        }
        Ok(History::of(set, revisions))
    }

    /// Returns the one revision of the current template, under the highest number.
    pub(super) async fn current_revision(
        &self,
        set: &DaemonSet,
        history: &History,
        pods: &[Arc<Pod>],
        ctx: &ReconcileContext,
    ) -> Result<Arc<ControllerRevision>, Error> {
        let number = history.next_number();
        let Some((current, surplus)) = history.current.split_first() else {
            return self.create_revision(set, number, ctx).await.map(Arc::new);
        };
        for revision in surplus {
            self.relabel_pods(revision, current, pods, ctx).await?;
        }
        self.truncate_history(surplus.to_vec(), ctx).await?;
        if current.revision >= number {
            return Ok(current.clone());
        }
        let raised = ControllerRevision { revision: number, ..current.as_ref().clone() };
        Ok(Arc::new(ctx.api(&self.revisions).replace(&raised).await?))
    }

    /// Deletes revisions.
    pub(super) async fn truncate_history(
        &self,
        revisions: Vec<Arc<ControllerRevision>>,
        ctx: &ReconcileContext,
    ) -> Result<(), Error> {
        for revision in revisions {
            let this = uid_precondition(revision.as_ref());
            ignore_not_found(ctx.api(&self.revisions).delete(&revision, &this).await)?;
        }
        Ok(())
    }

    async fn create_revision(
        &self,
        set: &DaemonSet,
        number: i64,
        ctx: &ReconcileContext,
    ) -> Result<ControllerRevision, Error> {
        let (api, revision) = (ctx.api(&self.revisions), new_revision(set, number));
        match api.create(&revision).await {
            Err(kube::Error::Api(status)) if status.reason == "AlreadyExists" => {
                let Some(taken) = api.get(&NamespacedName::of(&revision)).await? else {
                    return Err(kube::Error::Api(status).into());
                };
                let template = set.spec.as_ref().map(|spec| spec.template.clone()).unwrap_or_default();
                if !contains_template(&taken, &template) {
                    return self.count_collision(set, ctx).await;
                }
                ctx.await_observed(&self.revisions, &taken);
                Ok(taken)
            }
            created => Ok(created?),
        }
    }

    /// Increments the collision count, which changes the hash of the next attempt, and returns an
    /// error.
    async fn count_collision(
        &self,
        set: &DaemonSet,
        ctx: &ReconcileContext,
    ) -> Result<ControllerRevision, Error> {
        let (api, name) = (ctx.api(&self.sets), NamespacedName::of(set));
        let Some(mut live) = api.get(&name).await? else {
            return Err(Error::Unfinished(format!("DaemonSet {name} is deleted")));
        };
        let known = set.status.as_ref().and_then(|status| status.collision_count);
        let status = live.status.get_or_insert_default();
        if status.collision_count != known {
            return Err(Error::Unfinished(format!(
                "found a stale collision count ({known:?}, expected {:?}) of DaemonSet {} while processing; will retry until it is updated",
                status.collision_count,
                set.name_any()
            )));
        }
        status.collision_count = Some(known.unwrap_or(0).saturating_add(1));
        api.replace_status(&live).await?;
        Err(Error::Unfinished(format!("the hash of DaemonSet {} collides", set.name_any())))
    }

    /// Gives the pods of a revision the hash of another one of the same template.
    async fn relabel_pods(
        &self,
        from: &ControllerRevision,
        to: &ControllerRevision,
        pods: &[Arc<Pod>],
        ctx: &ReconcileContext,
    ) -> Result<(), Error> {
        let (Some(from), Some(to)) = (hash(from), hash(to)) else { return Ok(()) };
        for pod in pods.iter().filter(|pod| from != to && super::pods::has_hash(pod, from)) {
            let patch = Patch::Merge(json!({"metadata": {"labels": {HASH_LABEL: to}}}));
            let name = NamespacedName::of(pod.as_ref());
            ignore_not_found(ctx.api(&self.pods).patch(&name, patch).await)?;
        }
        Ok(())
    }
}
