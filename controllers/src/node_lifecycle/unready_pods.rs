//! The pods of a node that is not ready: their condition Ready becomes False, so that no Service
//! sends them requests.

use std::sync::Arc;

use coracle_controller_runtime::cache::NamespacedName;
use coracle_controller_runtime::events::EventType;
use coracle_controller_runtime::{Error, ReconcileContext, ignore_conflict, ignore_not_found};
use coracle_kinds::pods;
use coracle_volumes::indexes::ByNode;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::Patch;
use kube::{Resource, ResourceExt};
use serde_json::json;

use super::NodeLifecycleController;

impl NodeLifecycleController {
    /// Marks the pods of a node that has just become unready, and what was left of it before.
    pub(super) async fn mark_pods(&self, node: &Node, observed: &str, current: &str, ctx: &ReconcileContext) {
        let name = node.name_any();
        let is_new = observed == "True" && current != "True";
        if is_new {
            let message = format!("Node {name} status is now: NodeNotReady");
            self.recorder.event(node.object_ref(&()), EventType::Normal, "NodeNotReady", message);
        }
        if !is_new && (observed == "True" || !self.state().unmarked.contains(&name)) {
            return;
        }
        let marked = self.mark_not_ready(&self.pods.by::<ByNode>(&ByNode::key(&name)), ctx).await;
        let mut state = self.state();
        match marked {
            Ok(()) => {
                state.unmarked.remove(&name);
            }
            Err(error) => {
                tracing::info!(node = name, %error, "not all pods of the node are marked as not ready");
                state.unmarked.insert(name);
            }
        }
    }

    /// Sets the condition Ready of pods to False, where they have one. Its reason and message stay.
    pub(super) async fn mark_not_ready(
        &self,
        pods: &[Arc<Pod>],
        ctx: &ReconcileContext,
    ) -> Result<(), Error> {
        let now = self.clock.now();
        for pod in pods {
            let ready = pods::conditions(pod).find(|condition| condition.type_ == "Ready");
            if ready.is_none_or(|ready| ready.status == "False") {
                continue;
            }
            let name = NamespacedName::of(pod.as_ref());
            let condition = json!({"type": "Ready", "status": "False", "lastTransitionTime": Time(now)});
            let patch = json!({"metadata": {"uid": pod.metadata.uid}, "status": {"conditions": [condition]}});
            let patched = ctx.api(&self.pods).patch_status_unread(&name, Patch::Strategic(patch)).await;
            if ignore_not_found(ignore_conflict(patched))?.flatten().is_some() {
                self.recorder.warning(pod.as_ref(), "NodeNotReady", "Node is not ready");
            }
        }
        Ok(())
    }
}
