//! Writes the changes planned by [`taints`], and adds the `NoExecute` taints at the rate that the
//! zones permit.

use std::sync::Arc;

use coracle_controller_runtime::cache::NamespacedName;
use coracle_controller_runtime::{Action, Error, ReconcileContext, ignore_conflict, ignore_not_found};
use coracle_kinds::nodes::ready_status;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::Patch;

use super::NodeLifecycleController;
use super::taints::{self, NodeChange, evicting_taints};
use crate::timers::NODE_EVICTION_RATE;

/// The number of attempts of a write that conflicts with other writers of the node.
const TRIES: usize = 5;

impl NodeLifecycleController {
    /// Taints the queued nodes that the rate limit permits now.
    pub(super) async fn taint_queued(&self, ctx: &ReconcileContext) -> Result<Action, Error> {
        loop {
            let now = self.clock.now();
            let next = self.state().zones.next(now);
            let Some((zone, name)) = next else { break };
            let Some(node) = self.node(&name) else { continue };
            // The node may have become ready in the meantime.
            let taints = ready_status(&node).and_then(evicting_taints);
            let Some((wanted, opposite)) = taints else { continue };
            match self.change(&node, taints::swap(wanted, opposite), ctx).await {
                Ok(is_changed) if is_changed => {
                    self.metrics.evictions.with_label_values(&[zone.as_str()]).inc();
                }
                Ok(_) => {}
                Err(error) => tracing::info!(node = name, %error, "the node is not tainted"),
            }
        }
        let wait = self.state().zones.wait(self.clock.now());
        Ok(wait.map_or(Action::AwaitChange, |left| Action::Requeue(NODE_EVICTION_RATE.after(left))))
    }

    /// Changes a node, if it has to be. Returns whether it was changed.
    pub(super) async fn change(
        &self,
        node: &Arc<Node>,
        plan: impl Fn(&Node, Time) -> Option<NodeChange>,
        ctx: &ReconcileContext,
    ) -> Result<bool, Error> {
        let (nodes, name) = (ctx.api(&self.nodes), NamespacedName::of(node.as_ref()));
        let mut node = node.clone();
        for _ in 0..TRIES {
            let Some(change) = plan(&node, Time(self.clock.now())) else { return Ok(false) };
            let patched = nodes.patch(&name, Patch::Merge(change.patch(&node))).await;
            match ignore_not_found(ignore_conflict(patched))? {
                None => return Ok(false),
                Some(Some(_)) => return Ok(true),
                Some(None) => {}
            }
            let Some(newer) = nodes.get(&name).await? else { return Ok(false) };
            if newer.metadata.uid != node.metadata.uid {
                return Ok(false);
            }
            node = Arc::new(newer);
        }
        Err(Error::Unfinished(format!("node {name} is being changed by others")))
    }
}
