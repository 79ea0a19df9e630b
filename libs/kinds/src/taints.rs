//! Taints of nodes, and the tolerations of pods for them.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, Taint, Toleration};

/// The taint of nodes that are not ready.
pub const NOT_READY: &str = "node.kubernetes.io/not-ready";
/// The taint of nodes whose kubelet is silent.
pub const UNREACHABLE: &str = "node.kubernetes.io/unreachable";
/// The taint of cordoned nodes.
pub const UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";

/// The effect that keeps pods from being scheduled.
pub const NO_SCHEDULE: &str = "NoSchedule";
/// The effect that evicts pods too.
pub const NO_EXECUTE: &str = "NoExecute";

/// Returns the taints of a node.
pub fn taints(node: &Node) -> &[Taint] {
    node.spec.as_ref().and_then(|spec| spec.taints.as_deref()).unwrap_or_default()
}

/// Iterates over the taints of a node that evict pods.
pub fn no_execute_taints(node: &Node) -> impl Iterator<Item = &Taint> {
    taints(node).iter().filter(|taint| taint.effect == NO_EXECUTE)
}

/// Returns `true` if a node has a taint of this key and effect.
pub fn has_taint(node: &Node, key: &str, effect: &str) -> bool {
    taints(node).iter().any(|taint| taint.key == key && taint.effect == effect)
}

/// Returns `true` if any of the tolerations tolerates a taint.
pub fn is_tolerated(taint: &Taint, tolerations: Option<&[Toleration]>) -> bool {
    tolerations.into_iter().flatten().any(|toleration| tolerates(toleration, taint))
}

/// Returns `true` if a toleration tolerates a taint.
pub fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
    let is_any_or = |wanted: &Option<String>, value: &str| {
        wanted.as_deref().is_none_or(|wanted| wanted.is_empty() || wanted == value)
    };
    let values = (toleration.value.as_deref().unwrap_or(""), taint.value.as_deref().unwrap_or(""));
    is_any_or(&toleration.effect, &taint.effect)
        && is_any_or(&toleration.key, &taint.key)
        && match toleration.operator.as_deref() {
            Some("Exists") => true,
            None | Some("" | "Equal") => values.0 == values.1,
            Some(_) => false,
        }
}

/// For how long a pod may stay on a node with taints of the effect NoExecute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tolerated {
    /// A taint is not tolerated.
    No,
    /// The taints are tolerated for this long after they were observed.
    For(Duration),
    /// The taints are tolerated without a limit.
    Forever,
}

/// Returns the duration for which tolerations tolerate taints together. Of the tolerations for one
/// taint the first counts.
///
/// Source: kube-controller-manager's `GetMatchingTolerations` and `getMinTolerationTime`.
pub fn tolerated_for<'a>(taints: impl Iterator<Item = &'a Taint>, tolerations: &[Toleration]) -> Tolerated {
    let mut shortest: Option<i64> = None;
    for taint in taints {
        let Some(toleration) = tolerations.iter().find(|toleration| tolerates(toleration, taint)) else {
            return Tolerated::No;
        };
        if let Some(seconds) = toleration.toleration_seconds {
            shortest = Some(shortest.map_or(seconds, |shortest| shortest.min(seconds)));
        }
    }
    match shortest {
        None => Tolerated::Forever,
        Some(seconds) => Tolerated::For(Duration::from_secs(u64::try_from(seconds).unwrap_or(0))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn pods_stay_as_long_as_all_taints_are_tolerated() {
        let taint = |key: &str| {
            let taint = json!({"key": key, "value": "v", "effect": NO_EXECUTE});
            serde_json::from_value::<Taint>(taint).unwrap()
        };
        let both = || vec![taint("a"), taint("b")];
        let exists = |key: &str, seconds: Option<i64>| json!({"key": key, "operator": "Exists", "effect": NO_EXECUTE, "tolerationSeconds": seconds});
        let seconds = |seconds| Tolerated::For(Duration::from_secs(seconds));
        for (case, taints, tolerations, want) in [
            ("no taint", vec![], json!([]), Tolerated::Forever),
            ("no toleration", vec![taint("a")], json!([]), Tolerated::No),
            ("one of two", both(), json!([exists("a", None)]), Tolerated::No),
            ("both", both(), json!([exists("a", None), exists("b", None)]), Tolerated::Forever),
            ("the shortest", both(), json!([exists("a", Some(9)), exists("b", Some(3))]), seconds(3)),
            ("one has an end", both(), json!([exists("a", Some(9)), exists("b", None)]), seconds(9)),
            ("below zero", vec![taint("a")], json!([exists("a", Some(-3))]), seconds(0)),
            (
                "the first counts",
                vec![taint("a")],
                json!([exists("a", Some(9)), exists("a", Some(3))]),
                seconds(9),
            ),
            ("by value", vec![taint("a")], json!([{"key": "a", "value": "v"}]), Tolerated::Forever),
            ("another value", vec![taint("a")], json!([{"key": "a", "value": "w"}]), Tolerated::No),
            (
                "another effect",
                vec![taint("a")],
                json!([{"key": "a", "operator": "Exists", "effect": "NoSchedule"}]),
                Tolerated::No,
            ),
            ("everything", both(), json!([{"operator": "Exists"}]), Tolerated::Forever),
        ] {
            let tolerations: Vec<Toleration> = serde_json::from_value(tolerations).unwrap();
            assert_eq!(tolerated_for(taints.iter(), &tolerations), want, "{case}");
        }
    }
}
