//! Decides which pods are deleted, and for which reason.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::time::Duration;

use coracle_kinds::conditions::status_patch;
use coracle_kinds::pods;
use k8s_openapi::api::core::v1::{Node, Pod, PodCondition};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";
const DISRUPTION_TARGET: &str = "DisruptionTarget";

/// The reason for a deletion; the labels of the metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reason {
    /// It has ended, and there are too many like it.
    Terminated,
    /// It is terminating, and its node will not come back.
    OutOfService,
    /// Its node does not exist.
    Orphaned,
    /// It is terminating, and never had a node to be terminated on.
    Unscheduled,
}

impl Reason {
    pub fn label(self) -> &'static str {
        match self {
            Reason::Terminated => "terminated",
            Reason::OutOfService => "out-of-service",
            Reason::Orphaned => "orphaned",
            Reason::Unscheduled => "unscheduled",
        }
    }
}

/// Returns the pods to delete, except orphaned ones. Terminated pods are deleted only in excess of
/// `threshold`: evicted ones first, then the oldest.
pub fn pods_to_delete<'a>(
    pods: impl Iterator<Item = &'a Pod> + Clone,
    nodes: &BTreeMap<&str, &Node>,
    threshold: usize,
) -> Vec<(&'a Pod, Reason)> {
    let has_ended = |pod: &&Pod| !matches!(pods::phase(pod), "Pending" | "Running" | "Unknown");
    let mut ended: Vec<&Pod> = pods.clone().filter(has_ended).collect();
    let too_many = ended.len().saturating_sub(threshold);
    if too_many > 0 {
        ended.sort_by_key(|pod| {
            let evicted = pod.status.as_ref().and_then(|s| s.reason.as_deref()) == Some("Evicted");
            let meta = &pod.metadata;
            let created = meta.creation_timestamp.as_ref().map(|time| time.0);
            (Reverse(pods::phase(pod) == "Failed" && evicted), created, meta.name.clone())
        });
    }
    let ended = ended.into_iter().take(too_many).map(|pod| (pod, Reason::Terminated));
    let out_of_service = |pod: &&Pod| {
        let node = pods::node(pod).and_then(|node| nodes.get(node));
        pods::is_terminating(pod) && node.is_some_and(|node| !is_ready(node) && is_out_of_service(node))
    };
    let stuck = pods.clone().filter(out_of_service).map(|pod| (pod, Reason::OutOfService));
    let unscheduled = pods.filter(|pod| pods::is_terminating(pod) && pods::node(pod).is_none());
    ended.chain(stuck).chain(unscheduled.map(|pod| (pod, Reason::Unscheduled))).collect()
}

fn is_ready(node: &Node) -> bool {
    let conditions = node.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    conditions.iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

fn is_out_of_service(node: &Node) -> bool {
    let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_deref()).unwrap_or_default();
    taints.iter().any(|taint| taint.key == OUT_OF_SERVICE)
}

/// Nodes that pods refer to but the cache lacks, with the time since when. The cache may lag, so a
/// node is only looked up after a delay.
#[derive(Debug, Default)]
pub struct Quarantine(BTreeMap<String, Timestamp>);

impl Quarantine {
    /// Returns `true` if no node is missing.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Records missing nodes and returns those missing for `long_enough`. A node that reappears, or
    /// is returned, starts over.
    pub fn observe<'a>(
        &mut self,
        pods: impl Iterator<Item = &'a Pod>,
        nodes: &BTreeMap<&str, &Node>,
        long_enough: Duration,
        now: Timestamp,
    ) -> Vec<String> {
        let long_enough = SignedDuration::try_from(long_enough).unwrap_or(SignedDuration::MAX);
        self.0.retain(|node, _| !nodes.contains_key(node.as_str()));
        for node in pods.filter_map(pods::node).filter(|node| !nodes.contains_key(node)) {
            if !self.0.contains_key(node) {
                self.0.insert(node.to_owned(), now);
            }
        }
        let over: Vec<String> = self
            .0
            .iter()
            .filter(|(_, since)| now.duration_since(**since) >= long_enough)
            .map(|(n, _)| n.clone())
            .collect();
        over.iter().for_each(|node| {
            self.0.remove(node);
        });
        over
    }
}

/// Returns the pods on a node that does not exist.
pub fn orphans_of_node<'a>(node: &str, pods: impl Iterator<Item = &'a Pod>) -> Vec<(&'a Pod, Reason)> {
    pods.filter(|pod| pods::node(pod) == Some(node)).map(|pod| (pod, Reason::Orphaned)).collect()
}

/// Returns the status patch that marks a pod Failed before deletion; None if it is already
/// terminal.
pub fn failed_status(pod: &Pod, reason: Reason, now: Timestamp) -> Option<Value> {
    if matches!(pods::phase(pod), "Succeeded" | "Failed") {
        return None;
    }
    let is_target =
        |condition: &&PodCondition| condition.type_ == DISRUPTION_TARGET && condition.status == "True";
    let since = || {
        let conditions = pod.status.as_ref()?.conditions.as_ref()?;
        conditions.iter().find(is_target)?.last_transition_time.clone()
    };
    let target = || PodCondition {
        type_: DISRUPTION_TARGET.to_owned(),
        status: "True".to_owned(),
        reason: Some("DeletionByPodGC".to_owned()),
        message: Some("PodGC: node no longer exists".to_owned()),
        observed_generation: pod.metadata.generation,
        last_transition_time: since().or(Some(Time(now))),
        ..PodCondition::default()
    };
    let mut status = match reason {
        Reason::Orphaned => {
            let known = pods::conditions(pod).map(|known| known.type_.as_str());
            status_patch(known, &[target()])
        }
        Reason::Terminated | Reason::OutOfService | Reason::Unscheduled => json!({}),
    };
    status["phase"] = json!("Failed");
    if let Some(generation) = pod.metadata.generation {
        status["observedGeneration"] = json!(generation);
    }
    Some(status)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(name: &str, phase: &str, node: &str, terminating: bool, more: serde_json::Value) -> Pod {
        let mut pod = json!({
            "metadata": {"name": name, "generation": 1}, "spec": {"containers": [], "nodeName": node},
            "status": {"phase": phase},
        });
        if terminating {
            pod["metadata"]["deletionTimestamp"] = "1970-01-01T00:00:00Z".into();
        }
        for (key, value) in more.as_object().into_iter().flatten() {
            let (member, key) = key.split_once('.').unwrap();
            pod[member][key] = value.clone();
        }
        serde_json::from_value(pod).unwrap()
    }

    fn node(name: &str, ready: &str, taint: &str) -> Node {
        let node = json!({
            "metadata": {"name": name}, "spec": {"taints": [{"key": taint, "effect": "NoExecute"}]},
            "status": {"conditions": [{"type": "Ready", "status": ready}]},
        });
        serde_json::from_value(node).unwrap()
    }

    fn by_name(nodes: &[Node]) -> BTreeMap<&str, &Node> {
        nodes.iter().map(|node| (node.metadata.name.as_deref().unwrap(), node)).collect()
    }

    #[test]
    fn terminated_stuck_and_unscheduled_pods_are_deleted() {
        let nodes = [
            node("up", "True", OUT_OF_SERVICE),
            node("down", "Unknown", OUT_OF_SERVICE),
            node("asleep", "Unknown", "other"),
        ];
        let at = |second: &str| json!({"metadata.creationTimestamp": format!("1970-01-01T00:00:{second}Z")});
        let none = json!({});
        for (case, pods, want) in [
            ("running", vec![pod("a", "Running", "up", false, none.clone())], &[][..]),
            (
                "the oldest over the threshold",
                vec![
                    pod("a", "Failed", "up", false, at("03")),
                    pod("b", "Succeeded", "up", false, at("01")),
                    pod("c", "Failed", "up", false, at("02")),
                ],
                &[("b", Reason::Terminated)],
            ),
            (
                "evicted ones first",
                vec![
                    pod("a", "Failed", "up", false, at("01")),
                    pod("b", "Succeeded", "up", false, at("02")),
                    pod("c", "Failed", "up", false, json!({"status.reason": "Evicted"})),
                ],
                &[("c", Reason::Terminated)],
            ),
            (
                "terminating, by their nodes",
                vec![
                    pod("a", "Running", "up", true, none.clone()),
                    pod("b", "Running", "down", true, none.clone()),
                    pod("c", "Running", "down", false, none.clone()),
                    pod("d", "Running", "asleep", true, none.clone()),
                    pod("e", "Pending", "", true, none.clone()),
                    pod("f", "Pending", "", false, none.clone()),
                    pod("g", "Running", "gone", true, none.clone()),
                ],
                &[("b", Reason::OutOfService), ("e", Reason::Unscheduled)],
            ),
        ] {
            let due = pods_to_delete(pods.iter(), &by_name(&nodes), 2);
            let got: Vec<_> =
                due.iter().map(|(pod, reason)| (pod.metadata.name.as_deref().unwrap(), *reason)).collect();
            assert_eq!(got, want, "{case}");
        }
    }

    #[test]
    fn a_node_is_missed_for_some_time_first() {
        let pods = [pod("a", "Running", "n", false, json!({})), pod("b", "Pending", "", false, json!({}))];
        let mut quarantine = Quarantine::default();
        let mut observe = |second, nodes: &[Node]| {
            let now = Timestamp::from_second(second).unwrap();
            quarantine.observe(pods.iter(), &by_name(nodes), Duration::from_secs(40), now)
        };
        assert_eq!(observe(0, &[]), [""; 0]);
        assert_eq!(observe(20, &[]), [""; 0]);
        assert_eq!(observe(30, &[node("n", "True", "")]), [""; 0]);
        assert_eq!(observe(50, &[]), [""; 0], "it came back meanwhile");
        assert_eq!(observe(90, &[]), ["n"]);
        assert_eq!(observe(110, &[]), [""; 0], "what is found again waits again");
    }

    #[test]
    fn pods_are_marked_failed_before_deletion() {
        let now = Timestamp::UNIX_EPOCH;
        let ready = json!({"status.conditions": [{"type": "Ready", "status": "True"}]});
        let target = json!({
            "type": DISRUPTION_TARGET, "status": "True", "reason": "DeletionByPodGC",
            "message": "PodGC: node no longer exists", "observedGeneration": 1,
            "lastTransitionTime": Time(now),
        });
        let orphaned = json!({
            "phase": "Failed", "observedGeneration": 1, "conditions": [target],
            "$setElementOrder/conditions": [{"type": "Ready"}, {"type": DISRUPTION_TARGET}],
        });
        let failed = json!({"phase": "Failed", "observedGeneration": 1});
        for (case, phase, reason, want) in [
            ("running", "Running", Reason::OutOfService, Some(failed)),
            ("orphaned", "Running", Reason::Orphaned, Some(orphaned)),
            ("ended", "Succeeded", Reason::Orphaned, None),
        ] {
            let status = failed_status(&pod("a", phase, "n", false, ready.clone()), reason, now);
            assert_eq!(status, want, "{case}");
        }
    }
}
