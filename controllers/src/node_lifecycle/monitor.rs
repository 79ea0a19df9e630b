//! The check of all nodes: finds new and silent nodes and changes of readiness, and updates their
//! zones.

use std::collections::BTreeMap;
use std::sync::Arc;

use coracle_controller_runtime::batch::execute_all;
use coracle_controller_runtime::cache::NamespacedName;
use coracle_controller_runtime::events::EventType;
use coracle_controller_runtime::{Error, ReconcileContext};
use coracle_kinds::conditions::status_patch;
use coracle_kinds::nodes::ready_status;
use coracle_kinds::taints::{NO_EXECUTE, has_taint};
use k8s_openapi::api::core::v1::{Node, NodeCondition};
use kube::api::Patch;
use kube::{Resource, ResourceExt};
use serde_json::{Value, json};

use super::health::NodeHealth;
use super::taints::{self, evicting_taints};
use super::zones::{Disruption, zone_of};
use super::{LEASES, NodeLifecycleController};

/// The number of nodes that are checked concurrently.
const CONCURRENT_CHECKS: usize = 8;

impl NodeLifecycleController {
    /// Checks all nodes.
    pub(super) async fn monitor(&self, ctx: &ReconcileContext) -> Result<(), Error> {
        let nodes = self.nodes.all();
        for node in self.register(&nodes) {
            self.change(&node, taints::make_reachable, ctx).await?;
        }
        let checks = nodes.iter().map(|node| self.check(node, ctx));
        let mut ready_by_zone: BTreeMap<String, Vec<bool>> = BTreeMap::new();
        for is_ready in execute_all(checks, CONCURRENT_CHECKS).await.into_iter().flatten() {
            ready_by_zone.entry(is_ready.0).or_default().push(is_ready.1);
        }
        let now = self.clock.now();
        let mut gone: Vec<String> = self.state().zones.names().cloned().collect();
        gone.retain(|zone| !ready_by_zone.contains_key(zone));
        self.metrics.report_zones(&gone, &ready_by_zone);
        let disruption = self.state().zones.observe(&ready_by_zone, now);
        match disruption {
            Disruption::Unchanged => {}
            Disruption::Begins => {
                for node in &nodes {
                    self.change(node, taints::make_reachable, ctx).await?;
                }
            }
            // The grace period of all nodes starts again.
            Disruption::Ends => self.state().health.values_mut().for_each(|health| health.probe = now),
        }
        if self.state().zones.has_queued() {
            self.queue.get().into_iter().for_each(|queue| queue.add(super::Key::Evictions));
        }
        Ok(())
    }

    /// Records which nodes were added and deleted since the last time. Returns the former; none that
    /// another one has observed until now.
    fn register(&self, nodes: &[Arc<Node>]) -> Vec<Arc<Node>> {
        let mut added = Vec::new();
        let (mut deleted, is_first) = {
            let mut state = self.state();
            (std::mem::take(&mut state.known), !std::mem::replace(&mut state.has_registered, true))
        };
        let is_reported = !(is_first && self.goes_on);
        if !is_reported {
            self.resume(nodes);
        }
        let mut known = BTreeMap::new();
        for node in nodes {
            let (name, about) = (node.name_any(), node.object_ref(&()));
            match deleted.remove(&name) {
                Some(_) => {}
                None => {
                    let message = format!("Node {name} event: Registered Node {name} in Controller");
                    if is_reported {
                        self.recorder.event(about.clone(), EventType::Normal, "RegisteredNode", message);
                        added.push(node.clone());
                    }
                }
            }
            known.insert(name, about);
        }
        let mut state = self.state();
        state.known = known;
        for (name, about) in deleted {
            let message = format!("Node {name} event: Removing Node {name} from Controller");
            self.recorder.event(about, EventType::Normal, "RemovingNode", message);
            state.health.remove(&name);
            state.unmarked.remove(&name);
            state.zones.remove(&name);
        }
        added
    }

    /// Takes the health of nodes over from the one that has observed them until now.
    fn resume(&self, nodes: &[Arc<Node>]) {
        let now = self.clock.now();
        for node in nodes {
            let name = node.name_any();
            let lease = self.leases.get(&NamespacedName::new(LEASES, &name));
            let health = NodeHealth::resume(node, lease.as_deref(), now);
            self.state().health.insert(name, health);
        }
    }

    /// Checks one node. Returns its zone and whether it is ready; None if it does not count.
    async fn check(&self, node: &Arc<Node>, ctx: &ReconcileContext) -> Option<(String, bool)> {
        let _timer = self.metrics.node_duration.with_label_values::<&str>(&[]).start_timer();
        let (name, now) = (node.name_any(), self.clock.now());
        let lease = self.leases.get(&NamespacedName::new(LEASES, &name));
        let health = {
            let mut state = self.state();
            let health = NodeHealth::observe(state.health.get(&name), node, lease.as_deref(), now);
            state.health.insert(name.clone(), health.clone());
            health
        };
        let observed = ready_status(node).unwrap_or("Unknown").to_owned();
        let mut node = node.clone();
        if let Some(conditions) = health.overdue(&node, now) {
            let patch = Patch::Strategic(with_conditions(&node, &conditions));
            match ctx.api(&self.nodes).patch_status(&NamespacedName::new("", &name), patch).await {
                Ok(written) => node = Arc::new(written),
                Err(error) => {
                    tracing::info!(node = name, %error, "the health of the node is not updated");
                    return None;
                }
            }
        }
        let current = ready_status(&node).map(str::to_owned);
        if let Some(current) = &current {
            if let Err(error) = self.follow_readiness(&node, current, ctx).await {
                tracing::info!(node = name, %error, "the taints of the node are not updated");
            }
            self.mark_pods(&node, &observed, current, ctx).await;
        }
        let counts = !node.labels().contains_key("node.kubernetes.io/exclude-disruption");
        counts.then(|| (zone_of(&node), current.as_deref() == Some("True")))
    }

    /// Adds, exchanges or removes the `NoExecute` taint of a node.
    async fn follow_readiness(
        &self,
        node: &Arc<Node>,
        status: &str,
        ctx: &ReconcileContext,
    ) -> Result<(), Error> {
        let Some((wanted, opposite)) = evicting_taints(status) else {
            self.state().zones.remove(&node.name_any());
            return self.change(node, taints::make_reachable, ctx).await.map(|_| ());
        };
        if has_taint(node, opposite, NO_EXECUTE) {
            return self.change(node, taints::swap(wanted, opposite), ctx).await.map(|_| ());
        }
        if !has_taint(node, wanted, NO_EXECUTE) {
            self.state().zones.enqueue(&zone_of(node), &node.name_any(), self.clock.now());
        }
        Ok(())
    }
}

/// Returns the patch that sets conditions of this version of a node.
fn with_conditions(node: &Node, conditions: &[NodeCondition]) -> Value {
    let known = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let known = known.map(|condition| condition.type_.as_str());
    json!({
        "metadata": {"resourceVersion": node.metadata.resource_version},
        "status": status_patch(known, conditions),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_conditions_of_a_silent_node_stay_in_order() {
        let condition = |r#type: &str| json!({"type": r#type, "status": "Unknown"});
        let conditions = ["MemoryPressure", "NetworkUnavailable", "Ready"].map(condition);
        let node = json!({"metadata": {"resourceVersion": "7"}, "status": {"conditions": conditions}});
        let changed = ["Ready", "MemoryPressure", "PIDPressure"].map(condition);
        let changed = serde_json::from_value::<Vec<NodeCondition>>(json!(changed)).unwrap();
        let patch = with_conditions(&serde_json::from_value(node).unwrap(), &changed);
        assert_eq!(patch["metadata"], json!({"resourceVersion": "7"}));
        let types = |list: &Value| {
            let types = list.as_array().unwrap().iter().map(|item| item["type"].as_str().unwrap());
            types.collect::<Vec<_>>().join(" ")
        };
        let order = types(&patch["status"]["$setElementOrder/conditions"]);
        assert_eq!(order, "MemoryPressure NetworkUnavailable Ready PIDPressure");
        assert_eq!(types(&patch["status"]["conditions"]), "MemoryPressure Ready PIDPressure");
    }
}
