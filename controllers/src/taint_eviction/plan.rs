//! The decision whether and when a pod is evicted. Pure: it depends on the pod, its node, the
//! earlier decision and the time.

use coracle_kinds::pods;
use coracle_kinds::taints::{Tolerated, no_execute_taints, tolerated_for};
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::jiff::{SignedDuration, Timestamp};

/// The eviction of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Eviction {
    /// The uid of the pod.
    pub uid: String,
    /// The time at which the taints were observed.
    pub since: Timestamp,
    /// The time at which the pod is deleted.
    pub due: Timestamp,
    /// Whether the pod was deleted.
    pub is_done: bool,
}

#[derive(Debug, PartialEq, Eq)]
pub enum Step {
    /// There is nothing to evict.
    Forget,
    /// The pod was deleted before.
    Keep,
    Wait(Eviction),
    Evict(Eviction),
}

#[derive(Debug, PartialEq, Eq)]
pub struct Plan {
    /// Whether an earlier eviction that is not due yet is canceled.
    pub is_cancelled: bool,
    pub step: Step,
}

/// Decides about a pod.
///
/// - `since`: the time at which its taints were observed, if there is no earlier decision
pub fn plan(
    pod: Option<&Pod>,
    node: Option<&Node>,
    known: Option<&Eviction>,
    since: Timestamp,
    now: Timestamp,
) -> Plan {
    let is_pending = known.is_some_and(|known| !known.is_done);
    let uid = pod.and_then(|pod| pod.metadata.uid.as_deref());
    // Another pod of the name has nothing to do with the one before.
    let is_other = known.is_some_and(|known| Some(known.uid.as_str()) != uid);
    let known = known.filter(|_| !is_other);
    let forget = Plan { is_cancelled: is_pending, step: Step::Forget };
    let (Some(pod), Some(node)) = (pod, node) else { return forget };
    if pods::node(pod) != node.metadata.name.as_deref() || no_execute_taints(node).next().is_none() {
        return forget;
    }
    let tolerations = pod.spec.as_ref().and_then(|spec| spec.tolerations.as_deref()).unwrap_or_default();
    let eviction = |due| {
        let uid = uid.unwrap_or_default().to_owned();
        Eviction { uid, since: known.map_or(since, |known| known.since), due, is_done: false }
    };
    let (due, is_cancelled) = match tolerated_for(no_execute_taints(node), tolerations) {
        Tolerated::Forever => return forget,
        // A timer that runs is not changed by other tolerations or taints, only overtaken.
        Tolerated::For(time) if !time.is_zero() => {
            let time = SignedDuration::try_from(time).unwrap_or(SignedDuration::MAX);
            let fresh = since.saturating_add(time).unwrap_or(Timestamp::MAX);
            (known.map_or(fresh, |known| known.due), is_pending && is_other)
        }
        Tolerated::For(_) | Tolerated::No => {
            (now, known.map_or(is_pending, |known| !known.is_done && known.due > now))
        }
    };
    let step = match known {
        Some(known) if known.is_done => Step::Keep,
        _ if due <= now => Step::Evict(eviction(due)),
        _ => Step::Wait(eviction(due)),
    };
    Plan { is_cancelled, step }
}

/// Returns the time at which the taints of a pod's node were observed, if there is no earlier
/// decision about the pod.
///
/// - `resumed`: the start of a fork, which takes it that earlier taints were observed at once
pub fn observed_since(
    pod: Option<&Pod>,
    node: Option<&Node>,
    resumed: Option<Timestamp>,
    now: Timestamp,
) -> Timestamp {
    let (Some(pod), Some(node), Some(resumed)) = (pod, node, resumed) else { return now };
    tainted_since(pod, node).filter(|since| *since < resumed).unwrap_or(now)
}

/// Returns the time from which the oldest taint has been on the node of a pod; None if it is not
/// known.
fn tainted_since(pod: &Pod, node: &Node) -> Option<Timestamp> {
    let tainted = no_execute_taints(node).filter_map(|taint| Some(taint.time_added.as_ref()?.0)).min()?;
    let scheduled = pods::conditions(pod).find(|condition| condition.type_ == "PodScheduled");
    let scheduled = scheduled.and_then(|condition| Some(condition.last_transition_time.as_ref()?.0));
    Some(scheduled.map_or(tainted, |scheduled| scheduled.max(tainted)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn node(keys: &[&str]) -> Node {
        let taints: Vec<Value> = keys.iter().map(|key| json!({"key": key, "effect": "NoExecute"})).collect();
        serde_json::from_value(json!({"metadata": {"name": "n"}, "spec": {"taints": taints}})).unwrap()
    }

    fn pod(tolerations: &[(&str, Option<i64>)]) -> Pod {
        let tolerations: Vec<Value> = tolerations
            .iter()
            .map(|(key, seconds)| json!({"key": key, "operator": "Exists", "tolerationSeconds": seconds}))
            .collect();
        let spec = json!({"nodeName": "n", "containers": [], "tolerations": tolerations});
        serde_json::from_value(json!({"metadata": {"name": "p", "uid": "u"}, "spec": spec})).unwrap()
    }

    fn eviction(uid: &str, since: i64, due: i64, is_done: bool) -> Eviction {
        Eviction { uid: uid.to_owned(), since: at(since), due: at(due), is_done }
    }

    #[test]
    fn pods_are_evicted_when_their_tolerations_end() {
        let ten = || pod(&[("a", Some(10))]);
        let pending = || Some(eviction("u", 90, 105, false));
        let cancelled = Plan { is_cancelled: true, step: Step::Forget };
        let nothing = Plan { is_cancelled: false, step: Step::Forget };
        let plans = |is_cancelled, step| Plan { is_cancelled, step };
        for (case, the_pod, the_node, known, want) in [
            ("no taints", Some(ten()), Some(node(&[])), None, nothing),
            ("no pod", None, None, None, Plan { is_cancelled: false, step: Step::Forget }),
            ("the pod is deleted", None, None, pending(), cancelled),
            (
                "the taints are removed",
                Some(ten()),
                Some(node(&[])),
                pending(),
                Plan { is_cancelled: true, step: Step::Forget },
            ),
            (
                "tolerated for ever",
                Some(pod(&[("a", None)])),
                Some(node(&["a"])),
                pending(),
                Plan { is_cancelled: true, step: Step::Forget },
            ),
            (
                "for a time",
                Some(ten()),
                Some(node(&["a"])),
                None,
                plans(false, Step::Wait(eviction("u", 100, 110, false))),
            ),
            (
                "a timer is not moved",
                Some(pod(&[("a", Some(1))])),
                Some(node(&["a"])),
                pending(),
                plans(false, Step::Wait(eviction("u", 90, 105, false))),
            ),
            (
                "the time is over",
                Some(ten()),
                Some(node(&["a"])),
                Some(eviction("u", 90, 100, false)),
                plans(false, Step::Evict(eviction("u", 90, 100, false))),
            ),
            (
                "not tolerated",
                Some(ten()),
                Some(node(&["b"])),
                None,
                plans(false, Step::Evict(eviction("u", 100, 100, false))),
            ),
            (
                "overtaken",
                Some(ten()),
                Some(node(&["a", "b"])),
                pending(),
                plans(true, Step::Evict(eviction("u", 90, 100, false))),
            ),
            (
                "for no time",
                Some(pod(&[("a", Some(0))])),
                Some(node(&["a"])),
                None,
                plans(false, Step::Evict(eviction("u", 100, 100, false))),
            ),
            (
                "deleted before",
                Some(ten()),
                Some(node(&["a"])),
                Some(eviction("u", 80, 90, true)),
                plans(false, Step::Keep),
            ),
            (
                "another pod",
                Some(ten()),
                Some(node(&["a"])),
                Some(eviction("v", 80, 105, false)),
                plans(true, Step::Wait(eviction("u", 100, 110, false))),
            ),
        ] {
            let plan = plan(the_pod.as_ref(), the_node.as_ref(), known.as_ref(), at(100), at(100));
            assert_eq!(plan, want, "{case}");
        }
    }

    #[test]
    fn a_fork_goes_on_from_the_time_of_the_taint() {
        let taint = json!({"key": "a", "effect": "NoExecute", "timeAdded": at(50)});
        let node: Node = serde_json::from_value(
            json!({"metadata": {"name": "n"}, "spec": {"taints": [taint, {"key": "b", "effect": "NoExecute"}]}}),
        )
        .unwrap();
        let mut pod = pod(&[("a", Some(60)), ("b", Some(90))]);
        assert_eq!(tainted_since(&pod, &node), Some(at(50)));
        let wait = |since| plan(Some(&pod), Some(&node), None, at(since), at(100)).step;
        let eviction =
            |since, due| Eviction { uid: "u".to_owned(), since: at(since), due: at(due), is_done: false };
        assert_eq!(wait(50), Step::Wait(eviction(50, 110)));
        assert_eq!(wait(30), Step::Evict(eviction(30, 90)));
        let scheduled = json!({"conditions": [
            {"type": "PodScheduled", "status": "True", "lastTransitionTime": at(70)},
        ]});
        pod.status = serde_json::from_value(scheduled).unwrap();
        assert_eq!(tainted_since(&pod, &node), Some(at(70)));
    }
}
