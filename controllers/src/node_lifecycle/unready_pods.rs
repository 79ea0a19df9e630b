//! The pods of a node that is not ready: their condition Ready becomes False, so that no Service
//! sends them requests.

use std::sync::Arc;

use coracle_controller_runtime::cache::NamespacedName;
use coracle_controller_runtime::events::EventType;
use coracle_controller_runtime::{Error, ReconcileContext, ignore_conflict, ignore_not_found};
use coracle_kinds::conditions::status_patch;
use coracle_kinds::pods;
use coracle_volumes::indexes::ByNode;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::api::Patch;
use kube::{Resource, ResourceExt};
use serde_json::{Value, json};

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
            let Some(patch) = not_ready(pod, now) else { continue };
            let name = NamespacedName::of(pod.as_ref());
            let patched = ctx.api(&self.pods).patch_status_unread(&name, Patch::Strategic(patch)).await;
            if ignore_not_found(ignore_conflict(patched))?.flatten().is_some() {
                self.recorder.warning(pod.as_ref(), "NodeNotReady", "Node is not ready");
            }
        }
        Ok(())
    }
}

/// Returns the patch of the status of a pod that sets its condition Ready to False, or `None` if it
/// has no such condition, or is not ready already.
fn not_ready(pod: &Pod, now: Timestamp) -> Option<Value> {
    let ready = pods::conditions(pod).find(|condition| condition.type_ == "Ready")?;
    if ready.status == "False" {
        return None;
    }
    let condition = json!({"type": "Ready", "status": "False", "lastTransitionTime": Time(now)});
    let known = pods::conditions(pod).map(|known| known.type_.as_str());
    Some(json!({"metadata": {"uid": pod.metadata.uid}, "status": status_patch(known, &[condition])}))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_condition_ready_becomes_false_in_its_place() {
        let order = json!([{"type": "PodScheduled"}, {"type": "Ready"}]);
        for (ready, want) in [(None, None), (Some("False"), None), (Some("True"), Some(order))] {
            let ready = ready.map(|status| json!({"type": "Ready", "status": status, "reason": "Mine"}));
            let scheduled = json!({"type": "PodScheduled", "status": "True"});
            let conditions: Vec<Value> = [scheduled].into_iter().chain(ready.clone()).collect();
            let pod = json!({"metadata": {"uid": "u"}, "status": {"conditions": conditions}});
            let patch = not_ready(&serde_json::from_value(pod).unwrap(), Timestamp::UNIX_EPOCH);
            let got = patch.as_ref().map(|patch| patch["status"]["$setElementOrder/conditions"].clone());
            assert_eq!(got, want, "{ready:?}");
            let since = Time(Timestamp::UNIX_EPOCH);
            let condition = json!({"type": "Ready", "status": "False", "lastTransitionTime": since});
            let is_set = |patch: &Value| patch["status"]["conditions"] == json!([condition]);
            assert!(patch.as_ref().is_none_or(is_set), "{ready:?}: {patch:?}");
        }
    }
}
