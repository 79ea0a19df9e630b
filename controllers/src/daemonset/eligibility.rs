//! The eligibility of a node for a pod of a set.
//!
//! Source: kube-controller-manager's `NodeShouldRunDaemonPod`.

use coracle_kinds::node_affinity::matches_node_affinity;
use coracle_kinds::taints::{NO_EXECUTE, NO_SCHEDULE, is_tolerated, taints};
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{Node, Toleration};

use super::pods::tolerations;

/// The eligibility of a node for a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Eligibility {
    /// A pod is created if there is none.
    Run,
    /// No pod is created, and an existing one stays.
    Continue,
    /// An existing pod is deleted.
    Stop,
}

/// A set's requirements on a node. They are the same for all nodes.
pub struct Requirements<'a> {
    set: &'a DaemonSet,
    tolerations: Vec<Toleration>,
}

impl Requirements<'_> {
    /// Returns the requirements of a set.
    pub fn of(set: &DaemonSet) -> Requirements<'_> {
        let spec = set.spec.as_ref().and_then(|spec| spec.template.spec.as_ref());
        Requirements { set, tolerations: spec.map(tolerations).unwrap_or_default() }
    }

    /// Returns the eligibility of a node, which does not depend on its resources and its readiness.
    pub fn eligibility(&self, node: &Node) -> Eligibility {
        let spec = self.set.spec.as_ref().and_then(|spec| spec.template.spec.as_ref());
        let Some(spec) = spec else { return Eligibility::Stop };
        let is_elsewhere = spec.node_name.as_deref().is_some_and(|name| {
            !name.is_empty() && node.metadata.name.as_deref().unwrap_or_default() != name
        });
        if is_elsewhere || !matches_node_affinity(spec, node) {
            return Eligibility::Stop;
        }
        let has_untolerated = |effect: &str| {
            let mut of_effect = taints(node).iter().filter(|taint| taint.effect == effect);
            of_effect.any(|taint| !is_tolerated(taint, Some(&self.tolerations)))
        };
        match (has_untolerated(NO_EXECUTE), has_untolerated(NO_SCHEDULE)) {
            (true, _) => Eligibility::Stop,
            (false, true) => Eligibility::Continue,
            (false, false) => Eligibility::Run,
        }
    }

    /// Returns `true` if a pod is created on a node that has none.
    pub fn should_run(&self, node: &Node) -> bool {
        self.eligibility(node) == Eligibility::Run
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn nodes_are_eligible_by_name_affinity_and_taints() {
        use Eligibility::*;
        let affinity = |value: &str| {
            let term = json!({"matchExpressions": [{"key": "disk", "operator": "In", "values": [value]}]});
            let required =
                json!({"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}});
            json!({"affinity": {"nodeAffinity": required}})
        };
        let taint = |key: &str, effect: &str| json!([{"key": key, "effect": effect}]);
        let none = json!([]);
        for (case, spec, taints, want) in [
            ("any", json!({}), none.clone(), Run),
            ("by its name", json!({"nodeName": "a"}), none.clone(), Run),
            ("by another name", json!({"nodeName": "b"}), none.clone(), Stop),
            ("selected", json!({"nodeSelector": {"disk": "ssd"}}), none.clone(), Run),
            ("not selected", json!({"nodeSelector": {"disk": "hdd"}}), none.clone(), Stop),
            ("by affinity", affinity("ssd"), none.clone(), Run),
            ("not by affinity", affinity("hdd"), none, Stop),
            ("no new pods", json!({}), taint("k", "NoSchedule"), Continue),
            ("no pods", json!({}), taint("k", "NoExecute"), Stop),
            ("rather none", json!({}), taint("k", "PreferNoSchedule"), Run),
            ("tolerated", json!({"tolerations": [{"operator": "Exists"}]}), taint("k", "NoExecute"), Run),
            ("cordoned", json!({}), taint("node.kubernetes.io/unschedulable", "NoSchedule"), Run),
            ("not ready", json!({}), taint("node.kubernetes.io/not-ready", "NoExecute"), Run),
            ("a new node", json!({}), taint("node.kubernetes.io/not-ready", "NoSchedule"), Continue),
            (
                "no network",
                json!({}),
                taint("node.kubernetes.io/network-unavailable", "NoSchedule"),
                Continue,
            ),
            (
                "the host's network",
                json!({"hostNetwork": true}),
                taint("node.kubernetes.io/network-unavailable", "NoSchedule"),
                Run,
            ),
        ] {
            let mut spec = spec;
            spec["containers"] = json!([]);
            let set: Value = json!({"metadata": {}, "spec": {"selector": {}, "template": {"spec": spec}}});
            let set: DaemonSet = serde_json::from_value(set).unwrap();
            let node =
                json!({"metadata": {"name": "a", "labels": {"disk": "ssd"}}, "spec": {"taints": taints}});
            let node: Node = serde_json::from_value(node).unwrap();
            assert_eq!(Requirements::of(&set).eligibility(&node), want, "{case}");
        }
    }
}
