//! Writes what [`plan`](super::plan) decided: bindings, claims, the victims of preemptions, and why
//! a pod has no node.

use std::sync::Arc;

use coracle_controller_runtime::cache::NamespacedName;
use coracle_controller_runtime::events::{Action, EventType};
use coracle_controller_runtime::{
    Error, ReconcileContext, ignore_conflict, ignore_not_found, uid_precondition,
};
use coracle_kinds::conditions::status_patch;
use coracle_kinds::pods;
use coracle_kinds::storage::SELECTED_NODE;
use coracle_volumes::bind;
use k8s_openapi::api::core::v1::{Pod, PodCondition};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::{Patch, PostParams};
use kube::{Api, Resource};
use serde_json::{Value, json};

use super::Scheduler;
use super::cluster_events::Effect;
use super::pod_info::{NAME, is_waiting, nominated_node, priority, uid};
use super::preemption;
use super::volume_binding::{VolumeBinding, selected_node};

pub(super) const MANAGER: &str = "kube-scheduler";

/// The reason of the condition of a pod that no node fits.
pub(super) const UNSCHEDULABLE: &str = "Unschedulable";
/// The reason of the condition of a pod after an error.
pub(super) const ERROR: &str = "SchedulerError";

/// The effect of a rejection on the node that the pod is nominated for.
#[derive(Clone, Copy)]
pub enum Nomination<'a> {
    /// The pod stays nominated, if it is.
    Unchanged,
    /// The pod is nominated for this node.
    For(&'a str),
    /// The pod is not nominated any more.
    Ends,
}

fn condition_types(pod: &Pod) -> impl Iterator<Item = &str> {
    let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.map(|condition| condition.type_.as_str())
}

impl Scheduler {
    /// Binds a pod to a node.
    pub(super) async fn bind(&self, pod: Arc<Pod>, node: String) -> Result<(), Error> {
        let name = NamespacedName::of(pod.as_ref());
        let api = Api::<Pod>::namespaced(self.unrecorded.clone(), &name.namespace);
        let binding = json!({
            "apiVersion": "v1", "kind": "Binding",
            "metadata": {"namespace": name.namespace, "name": name.name, "uid": pod.metadata.uid},
            "target": {"kind": "Node", "name": node},
        });
        let post = PostParams { field_manager: Some(MANAGER.to_owned()), ..PostParams::default() };
        let bound = api.create_subresource::<_, Value>("binding", &name.name, &post, &binding).await;
        match bound {
            Ok(_) => {
                let message = format!("Successfully assigned {name} to {node}");
                self.recorder.action(pod.as_ref(), EventType::Normal, "Scheduled", "Binding", message);
                Ok(())
            }
            Err(error) => {
                self.known().remove(uid(&pod));
                // The node is free again for others.
                self.events.count(Effect::OnAll);
                match error {
                    // Deleted, terminating, or bound by another scheduler: the watch will report
                    // it.
                    kube::Error::Api(status) if matches!(status.code, 404 | 409) => Ok(()),
                    error => Err(error.into()),
                }
            }
        }
    }

    /// Binds a volume to a claim from its side, or annotates the claim with the node for the
    /// provisioner; the binder does the rest.
    pub(super) async fn bind_volume(
        &self,
        binding: &VolumeBinding,
        node: &str,
        ctx: &ReconcileContext,
    ) -> Result<(), Error> {
        let VolumeBinding { claim, volume } = binding;
        if let Some(volume) = volume {
            if let Some(changed) = bind::volume_to_claim(volume, claim) {
                ctx.api(&self.storage.volumes).managed_by(MANAGER).replace(&changed).await?;
            }
            return Ok(());
        }
        if selected_node(claim) == Some(node) {
            return Ok(());
        }
        let name = NamespacedName::of(claim.as_ref());
        let patch = Patch::Merge(json!({
            "metadata": {"uid": claim.metadata.uid, "annotations": {SELECTED_NODE: node}}
        }));
        ctx.api(&self.storage.claims).managed_by(MANAGER).patch(&name, patch).await?;
        Ok(())
    }

    /// Deletes the victims of a preemption, and nominates the pod for their node.
    pub(super) async fn preempt(
        &self,
        pod: &Pod,
        message: &str,
        node: &str,
        victims: &[Arc<Pod>],
        ctx: &ReconcileContext,
    ) -> Result<(), Error> {
        for victim in victims {
            // Another preemption may have got it.
            if !pods::is_terminating(victim) {
                self.evict(pod, node, victim, ctx).await?;
            }
        }
        self.report_unschedulable(pod, UNSCHEDULABLE, message, Nomination::For(node), ctx).await?;
        // Pods of lower priority that were nominated for the node lose the nomination.
        for other in self.pods.all() {
            if nominated_node(&other) == Some(node) && is_waiting(&other) && priority(&other) < priority(pod)
            {
                let patch =
                    json!({"metadata": {"uid": other.metadata.uid}, "status": {"nominatedNodeName": null}});
                self.patch_status(&other, patch, ctx).await?;
            }
        }
        Ok(())
    }

    /// Deletes a pod in favor of another one.
    async fn evict(
        &self,
        preemptor: &Pod,
        node: &str,
        victim: &Pod,
        ctx: &ReconcileContext,
    ) -> Result<(), Error> {
        let condition = PodCondition {
            type_: "DisruptionTarget".to_owned(),
            status: "True".to_owned(),
            reason: Some(preemption::REASON.to_owned()),
            message: Some(format!("{NAME}: preempting to accommodate a higher priority pod")),
            observed_generation: victim.metadata.generation,
            last_transition_time: Some(Time(self.clock.now())),
            ..PodCondition::default()
        };
        let status = status_patch(condition_types(victim), &[condition]);
        let patch = json!({"metadata": {"uid": victim.metadata.uid}, "status": status});
        if self.patch_status(victim, patch, ctx).await?.is_none() {
            return Ok(());
        }
        let deleted = ctx.api(&self.pods).delete(victim, &uid_precondition(victim)).await;
        if ignore_not_found(ignore_conflict(deleted))?.flatten().is_some() {
            let uid = preemptor.metadata.uid.as_deref().unwrap_or_default();
            let related = Some(preemptor.object_ref(&()));
            let action = Action { name: "Preempting", related };
            let message = format!("Preempted by pod {uid} on node {node}");
            self.recorder.action(victim, EventType::Normal, "Preempted", action, message);
        }
        Ok(())
    }

    /// Writes the condition and the event of a pod that no node fits, unless it has them; and its
    /// nomination.
    pub(super) async fn report_unschedulable(
        &self,
        pod: &Pod,
        reason: &str,
        message: &str,
        nomination: Nomination<'_>,
        ctx: &ReconcileContext,
    ) -> Result<(), Error> {
        let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
        let known = conditions.into_iter().find(|condition| condition.type_ == "PodScheduled");
        let is_written = |c: &PodCondition| c.status == "False" && c.message.as_deref() == Some(message);
        let nominated = match nomination {
            Nomination::Unchanged => nominated_node(pod),
            Nomination::For(node) => Some(node),
            Nomination::Ends => None,
        };
        let is_nominated = nominated_node(pod) == nominated;
        if known.is_some_and(is_written) && is_nominated {
            return Ok(());
        }
        self.recorder.action(pod, EventType::Warning, "FailedScheduling", "Scheduling", message);
        let since = known.filter(|condition| condition.status == "False");
        let since = since.and_then(|condition| condition.last_transition_time.clone());
        let condition = PodCondition {
            type_: "PodScheduled".to_owned(),
            status: "False".to_owned(),
            reason: Some(reason.to_owned()),
            message: Some(message.to_owned()),
            observed_generation: pod.metadata.generation,
            last_transition_time: since.or(Some(Time(self.clock.now()))),
            ..PodCondition::default()
        };
        let mut status = status_patch(condition_types(pod), &[condition]);
        if !is_nominated {
            status["nominatedNodeName"] = json!(nominated);
        }
        let patch = json!({"metadata": {"uid": pod.metadata.uid}, "status": status});
        self.patch_status(pod, patch, ctx).await.map(drop)
    }

    /// Nominates a pod for the node that it will be bound to.
    pub(super) async fn nominate(&self, pod: &Pod, node: &str, ctx: &ReconcileContext) -> Result<(), Error> {
        if nominated_node(pod) == Some(node) {
            return Ok(());
        }
        let patch = json!({"metadata": {"uid": pod.metadata.uid}, "status": {"nominatedNodeName": node}});
        self.patch_status(pod, patch, ctx).await.map(drop)
    }

    /// Patches the status of a pod. None: it was deleted, or is another one by now.
    async fn patch_status(
        &self,
        pod: &Pod,
        patch: Value,
        ctx: &ReconcileContext,
    ) -> Result<Option<Pod>, Error> {
        let api = ctx.api(&self.pods).managed_by(MANAGER);
        let answer = api.patch_status(&NamespacedName::of(pod), Patch::Strategic(patch)).await;
        Ok(ignore_not_found(ignore_conflict(answer))?.flatten())
    }
}
