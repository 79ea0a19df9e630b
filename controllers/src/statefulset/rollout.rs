//! The next pods to delete in a rolling update. They are created again like any missing pod.

use std::sync::Arc;

use coracle_kinds::pods;
use k8s_openapi::api::apps::v1::{RollingUpdateStatefulSetStrategy, StatefulSet};
use k8s_openapi::api::core::v1::Pod;

use super::identity::{replicas, revision};
use crate::workload::int_or_percent::{Round, scaled_value};

pub(super) fn is_rolling(set: &StatefulSet) -> bool {
    strategy(set) == Some("RollingUpdate")
}

fn strategy(set: &StatefulSet) -> Option<&str> {
    set.spec.as_ref()?.update_strategy.as_ref()?.type_.as_deref()
}

fn rolling(set: &StatefulSet) -> Option<&RollingUpdateStatefulSetStrategy> {
    set.spec.as_ref()?.update_strategy.as_ref()?.rolling_update.as_ref()
}

/// Returns the partition: the number of pods, from the lowest ordinal on, that an update does not
/// delete.
pub(super) fn partition(set: &StatefulSet) -> usize {
    usize::try_from(rolling(set).and_then(|rolling| rolling.partition).unwrap_or(0)).unwrap_or(0)
}

/// Returns `true` if a missing pod is created with the current revision, and `false` if it gets the
/// update revision.
///
/// - `index`: the position of the pod, counted from the first ordinal
pub(super) fn is_below_partition(set: &StatefulSet, index: usize) -> bool {
    let current = set.status.as_ref().and_then(|status| status.current_replicas).unwrap_or(0);
    match rolling(set) {
        Some(_) => index < partition(set),
        None => is_rolling(set) && index < usize::try_from(current).unwrap_or(0),
    }
}

/// Returns the number of pods that may be unavailable during an update, if the gate
/// MaxUnavailableStatefulSet is on.
pub(super) fn max_unavailable(set: &StatefulSet) -> i32 {
    let most = rolling(set).and_then(|rolling| rolling.max_unavailable.as_ref());
    let number = most.and_then(|most| scaled_value(most, replicas(set), Round::Down));
    number.unwrap_or(1).max(1)
}

/// Returns the pods to delete, from the highest ordinal down.
///
/// - `replicas`: the pods above the partition, in the order of their ordinals
/// - `free`: the largest number of pods to delete, if the gate MaxUnavailableStatefulSet is on.
///   `None` deletes one pod, and none while an updated pod is unavailable.
pub(super) fn outdated(
    set: &StatefulSet,
    replicas: &[Arc<Pod>],
    update: &str,
    is_unavailable: impl Fn(&Pod) -> bool,
    free: Option<usize>,
) -> Vec<Arc<Pod>> {
    if strategy(set) == Some("OnDelete") {
        return Vec::new();
    }
    // Without a partition a missing pod is created of the current revision, and deleted once it
    // exists.
    let is_there = |pod: &Pod| !pods::phase(pod).is_empty() && !pods::is_terminating(pod);
    let is_outdated = |pod: &Pod| revision(pod) != update && is_there(pod);
    let targets = replicas.iter().rev();
    match free {
        None => {
            let first = targets.into_iter().find(|pod| is_outdated(pod) || is_unavailable(pod));
            first.filter(|pod| is_outdated(pod)).into_iter().cloned().collect()
        }
        Some(free) => targets.filter(|pod| is_outdated(pod)).take(free).cloned().collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn set(strategy: Value) -> StatefulSet {
        let spec = json!({"replicas": 5, "selector": {}, "template": {}, "updateStrategy": strategy});
        serde_json::from_value(json!({"spec": spec, "status": {"replicas": 5, "currentReplicas": 2}}))
            .unwrap()
    }

    /// Builds pods from letters: `o` old, `n` new, `O` and `N` not available, `t` old and
    /// terminating, `-` old and not created yet.
    fn pods(letters: &str) -> Vec<Arc<Pod>> {
        let pod = |(ordinal, letter): (usize, char)| {
            let revision = if letter.eq_ignore_ascii_case(&'n') { "new" } else { "old" };
            let labels = json!({"controller-revision-hash": revision, "letter": letter.to_string()});
            let mut pod = json!({"metadata": {"name": ordinal.to_string(), "labels": labels}});
            if letter != '-' {
                pod["status"] = json!({"phase": "Running"});
            }
            if letter == 't' {
                pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
            }
            Arc::new(serde_json::from_value(pod).unwrap())
        };
        letters.chars().enumerate().map(pod).collect()
    }

    fn is_unavailable(pod: &Pod) -> bool {
        ["O", "N", "t", "-"].contains(&pod.metadata.labels.as_ref().unwrap()["letter"].as_str())
    }

    #[test]
    fn an_update_replaces_the_highest_ordinal_first() {
        let rolling = |rest: Value| json!({"type": "RollingUpdate", "rollingUpdate": rest});
        for (case, strategy, replicas, free, want) in [
            ("the highest first", rolling(json!({})), "ooo", None, "2"),
            ("one after the other", rolling(json!({})), "oon", None, "1"),
            ("waits for the new one", rolling(json!({})), "ooN", None, ""),
            ("does not wait for an old one", rolling(json!({})), "ooO", None, "2"),
            ("waits for one that goes", rolling(json!({})), "oot", None, ""),
            ("waits for one that is still to come", json!({"type": "RollingUpdate"}), "oo-", None, ""),
            ("without a partition", json!({"type": "RollingUpdate"}), "onn", None, "0"),
            ("never by itself", json!({"type": "OnDelete"}), "ooo", None, ""),
            ("several at once", rolling(json!({})), "ooooo", Some(2), "4 3"),
            ("none is free", rolling(json!({})), "ooNNo", Some(0), ""),
            ("not what is still to come", rolling(json!({})), "on-", Some(1), "0"),
        ] {
            let taken = outdated(&set(strategy), &pods(replicas), "new", is_unavailable, free);
            let taken: Vec<_> = taken.iter().map(|pod| pod.metadata.name.as_deref().unwrap()).collect();
            assert_eq!(taken.join(" "), want, "{case}");
        }
    }

    #[test]
    fn what_is_below_the_partition_comes_back_as_it_was() {
        for (strategy, want) in [
            (json!({"type": "RollingUpdate", "rollingUpdate": {"partition": 3}}), 3),
            (json!({"type": "RollingUpdate"}), 2),
            (json!({"type": "OnDelete"}), 0),
        ] {
            let set = set(strategy);
            assert_eq!((0..5).take_while(|index| is_below_partition(&set, *index)).count(), want);
        }
    }

    #[test]
    fn shares_are_rounded_down_to_one_at_least() {
        for (most, want) in [
            (json!(null), 1),
            (json!(3), 3),
            (json!(0), 1),
            (json!("50%"), 2),
            (json!("10%"), 1),
            (json!("x"), 1),
        ] {
            let set = set(json!({"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": most}}));
            assert_eq!(max_unavailable(&set), want, "{most}");
        }
    }
}
