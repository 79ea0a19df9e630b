//! Changes of a node's taints and labels. Pure.

use std::collections::BTreeMap;

use coracle_kinds::taints::{NO_EXECUTE, NO_SCHEDULE, NOT_READY, UNREACHABLE, UNSCHEDULABLE, taints};
use k8s_openapi::api::core::v1::{Node, Taint};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::{Value, json};

/// The taints that follow from conditions: type and status of the condition, and the key.
const BY_CONDITION: [(&str, &str, &str); 6] = [
    ("Ready", "False", NOT_READY),
    ("Ready", "Unknown", UNREACHABLE),
    ("MemoryPressure", "True", "node.kubernetes.io/memory-pressure"),
    ("DiskPressure", "True", "node.kubernetes.io/disk-pressure"),
    ("NetworkUnavailable", "True", "node.kubernetes.io/network-unavailable"),
    ("PIDPressure", "True", "node.kubernetes.io/pid-pressure"),
];

/// Labels, and the deprecated ones that have the same values.
const LABELS: [(&str, &str); 2] =
    [("kubernetes.io/os", "beta.kubernetes.io/os"), ("kubernetes.io/arch", "beta.kubernetes.io/arch")];

/// A change of a node.
#[derive(Debug, PartialEq)]
pub struct NodeChange {
    /// The complete new list of taints; None if they do not change.
    taints: Option<Vec<Taint>>,
    /// Labels to be set.
    labels: BTreeMap<&'static str, String>,
}

impl NodeChange {
    /// Returns the merge patch for this version of the node. It conflicts with any other version.
    pub fn patch(&self, node: &Node) -> Value {
        let mut patch = json!({"metadata": {"resourceVersion": node.metadata.resource_version}});
        if !self.labels.is_empty() {
            patch["metadata"]["labels"] = json!(self.labels);
        }
        if let Some(taints) = &self.taints {
            patch["spec"] = json!({"taints": (!taints.is_empty()).then_some(taints)});
        }
        patch
    }
}

/// Returns the taint that a node gets for the status of its condition Ready, and the taint that is
/// removed from it.
pub fn evicting_taints(status: &str) -> Option<(&'static str, &'static str)> {
    match status {
        "False" => Some((NOT_READY, UNREACHABLE)),
        "Unknown" => Some((UNREACHABLE, NOT_READY)),
        _ => None,
    }
}

/// Sets the `NoSchedule` taints that follow from a node's conditions and removes the others; adds
/// missing deprecated labels. Admission taints each new node as not ready: that taint stays until a
/// kubelet has reported the condition.
pub fn follow_conditions(node: &Node, now: Time) -> Option<NodeChange> {
    let conditions = || node.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let from_conditions = BY_CONDITION
        .iter()
        .filter(|(r#type, status, _)| conditions().any(|c| c.type_ == *r#type && c.status == *status))
        .map(|(.., key)| *key);
    let is_cordoned = node.spec.as_ref().is_some_and(|spec| spec.unschedulable == Some(true));
    let wanted: Vec<&str> = from_conditions.chain(is_cordoned.then_some(UNSCHEDULABLE)).collect();
    let is_reported = conditions().any(|condition| condition.type_ == "Ready");
    let is_ours = |taint: &Taint| {
        taint.effect == NO_SCHEDULE
            && (taint.key == UNSCHEDULABLE || BY_CONDITION.iter().any(|(.., key)| *key == taint.key))
            && (taint.key != NOT_READY || is_reported)
    };
    let taints = exchange(
        node,
        NO_SCHEDULE,
        &wanted,
        |taint| is_ours(taint) && !wanted.contains(&taint.key.as_str()),
        now,
    );
    let label = |key: &str| node.metadata.labels.as_ref().and_then(|labels| labels.get(key));
    let labels: BTreeMap<_, _> = LABELS
        .into_iter()
        .filter(|(key, deprecated)| label(key).is_some() && label(key) != label(deprecated))
        .filter_map(|(key, deprecated)| Some((deprecated, label(key)?.clone())))
        .collect();
    (taints.is_some() || !labels.is_empty()).then_some(NodeChange { taints, labels })
}

/// Removes the `NoExecute` taints of silent and unready nodes.
pub fn make_reachable(node: &Node, now: Time) -> Option<NodeChange> {
    only_taints(exchange(node, NO_EXECUTE, &[], |taint| is_evicting(taint, &[NOT_READY, UNREACHABLE]), now))
}

/// Adds one of these taints to a node, and removes the other.
pub fn swap(wanted: &'static str, opposite: &'static str) -> impl Fn(&Node, Time) -> Option<NodeChange> {
    move |node, now| {
        only_taints(exchange(node, NO_EXECUTE, &[wanted], |taint| is_evicting(taint, &[opposite]), now))
    }
}

fn only_taints(taints: Option<Vec<Taint>>) -> Option<NodeChange> {
    taints.map(|taints| NodeChange { taints: Some(taints), labels: BTreeMap::new() })
}

fn is_evicting(taint: &Taint, keys: &[&str]) -> bool {
    taint.effect == NO_EXECUTE && keys.contains(&taint.key.as_str())
}

/// Returns the taints of a node after some were removed and missing ones added, or `None` if
/// nothing changes.
fn exchange(
    node: &Node,
    effect: &str,
    wanted: &[&str],
    is_removed: impl Fn(&Taint) -> bool,
    now: Time,
) -> Option<Vec<Taint>> {
    let present = taints(node);
    let has = |key: &str| present.iter().any(|taint| taint.key == key && taint.effect == effect);
    let kept = present.iter().filter(|taint| !is_removed(taint)).cloned();
    let added = wanted.iter().filter(|key| !has(key)).map(|key| Taint {
        key: (*key).to_owned(),
        effect: effect.to_owned(),
        time_added: Some(now.clone()),
        value: None,
    });
    let is_changed = wanted.iter().any(|key| !has(key)) || present.iter().any(&is_removed);
    is_changed.then(|| kept.chain(added).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::jiff::Timestamp;

    fn node(taints: &str, conditions: &str, is_cordoned: bool) -> Node {
        let taint = |text: &str| {
            let (key, effect) = text.split_once(':').unwrap();
            json!({"key": full(key), "effect": effect})
        };
        let condition = |text: &str| {
            let (r#type, status) = text.split_once('=').unwrap();
            json!({"type": r#type, "status": status})
        };
        let taints: Vec<Value> = taints.split_whitespace().map(taint).collect();
        let conditions: Vec<Value> = conditions.split_whitespace().map(condition).collect();
        serde_json::from_value(json!({
            "spec": {"taints": taints, "unschedulable": is_cordoned}, "status": {"conditions": conditions},
        }))
        .unwrap()
    }

    fn full(key: &str) -> String {
        if key == "mine" { key.to_owned() } else { format!("node.kubernetes.io/{key}") }
    }

    fn text(change: Option<NodeChange>) -> Option<String> {
        let short = |taint: &Taint| {
            let key = taint.key.trim_start_matches("node.kubernetes.io/");
            format!("{key}:{}{}", taint.effect, if taint.time_added.is_some() { "*" } else { "" })
        };
        Some(change?.taints?.iter().map(short).collect::<Vec<_>>().join(" "))
    }

    fn now() -> Time {
        Time(Timestamp::UNIX_EPOCH)
    }

    #[test]
    fn taints_follow_conditions() {
        for (case, taints, conditions, is_cordoned, want) in [
            ("ready", "", "Ready=True", false, None),
            ("new, without conditions", "not-ready:NoSchedule", "", false, None),
            ("ready for the first time", "not-ready:NoSchedule", "Ready=True", false, Some("")),
            (
                "not ready",
                "mine:NoSchedule",
                "Ready=False",
                false,
                Some("mine:NoSchedule not-ready:NoSchedule*"),
            ),
            ("unknown", "not-ready:NoSchedule", "Ready=Unknown", false, Some("unreachable:NoSchedule*")),
            ("as it is", "unreachable:NoSchedule", "Ready=Unknown", false, None),
            (
                "under pressure",
                "",
                "Ready=True DiskPressure=True PIDPressure=False",
                false,
                Some("disk-pressure:NoSchedule*"),
            ),
            ("cordoned", "", "Ready=True", true, Some("unschedulable:NoSchedule*")),
            ("uncordoned", "unschedulable:NoSchedule", "Ready=True", false, Some("")),
            ("another effect", "unreachable:NoExecute", "Ready=True", false, None),
        ] {
            let change = follow_conditions(&node(taints, conditions, is_cordoned), now());
            assert_eq!(text(change).as_deref(), want, "{case}");
        }
    }

    #[test]
    fn evicting_taints_are_exchanged() {
        let swap = swap(UNREACHABLE, NOT_READY);
        for (taints, reachable, swapped) in [
            ("", None, Some("unreachable:NoExecute*")),
            ("not-ready:NoExecute", Some(""), Some("unreachable:NoExecute*")),
            ("unreachable:NoExecute", Some(""), None),
            (
                "not-ready:NoSchedule mine:NoExecute",
                None,
                Some("not-ready:NoSchedule mine:NoExecute unreachable:NoExecute*"),
            ),
        ] {
            let node = node(taints, "", false);
            assert_eq!(text(make_reachable(&node, now())).as_deref(), reachable, "{taints}");
            assert_eq!(text(swap(&node, now())).as_deref(), swapped, "{taints}");
        }
    }

    #[test]
    fn deprecated_labels_are_completed() {
        let mut node = node("", "Ready=True", false);
        let labels =
            [("kubernetes.io/os", "linux"), ("kubernetes.io/arch", "a"), ("beta.kubernetes.io/arch", "a")];
        node.metadata.labels = Some(labels.map(|(key, value)| (key.to_owned(), value.to_owned())).into());
        let change = follow_conditions(&node, now()).unwrap();
        let patch = change.patch(&node);
        assert_eq!(patch["metadata"]["labels"], json!({"beta.kubernetes.io/os": "linux"}));
        assert_eq!(patch.get("spec"), None);
    }
}
