//! The decision about a ReplicaSet: the number of pods to create, or the pods to delete.

use std::sync::Arc;

use coracle_kinds::pods;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;

use crate::workload::pacing;
use crate::workload::pod_control::BURST_REPLICAS;
use crate::workload::ranking::sort_with_ranks;
use crate::workload::replica_owner::ReplicaOwner;

#[derive(Debug)]
pub(super) enum Plan {
    /// There are as many pods as desired or as may be created now, or the owner is terminating.
    Rest,
    /// This number of pods is missing.
    Create(usize),
    /// These are too many.
    Delete(Vec<Arc<Pod>>),
}

/// Decides about the pods of an owner. At most [`BURST_REPLICAS`] pods are created or deleted at
/// once, and no more are created than [`pacing`] allows.
///
/// - `active`: the active pods of the owner
/// - `replaceable`: the number of pods that may be created while kubelets reject them
/// - `related`: returns the pods for finding nodes with several of them; called only if victims
///   have to be chosen
/// - `has_cost`: whether the pod deletion cost counts
pub(super) fn plan<O: ReplicaOwner>(
    owner: &O,
    active: &[Arc<Pod>],
    replaceable: Option<usize>,
    related: impl FnOnce() -> Vec<Arc<Pod>>,
    has_cost: bool,
    now: Timestamp,
) -> Plan {
    if owner.meta().deletion_timestamp.is_some() {
        return Plan::Rest;
    }
    let wanted = usize::try_from(owner.replicas()).unwrap_or(0);
    let missing = wanted.saturating_sub(active.len());
    let surplus = active.len().saturating_sub(wanted).min(BURST_REPLICAS);
    if missing > 0 {
        let allowed = pacing::allowed_creations(wanted, active).min(replaceable.unwrap_or(usize::MAX));
        let number = missing.min(BURST_REPLICAS).min(allowed);
        return if number > 0 { Plan::Create(number) } else { Plan::Rest };
    }
    if surplus == 0 {
        return Plan::Rest;
    }
    let mut victims = active.to_vec();
    if surplus < active.len() {
        victims = sort_with_ranks(victims, &related(), has_cost, now);
        victims.truncate(surplus);
    }
    Plan::Delete(victims)
}

/// Returns the ages of the ready victims, as multiples of the age of the youngest ready pod.
pub(super) fn deletion_age_ratios(active: &[Arc<Pod>], victims: &[Arc<Pod>], now: Timestamp) -> Vec<f64> {
    if victims.len() == active.len() {
        return Vec::new();
    }
    let age = |pod: &Arc<Pod>| {
        let created = pod.metadata.creation_timestamp.as_ref().filter(|_| pods::is_ready(pod))?;
        Some(now.duration_since(created.0).as_secs_f64())
    };
    let youngest = active.iter().filter_map(age).fold(f64::INFINITY, f64::min);
    let ratios = victims.iter().filter_map(age).map(|age| age / youngest);
    ratios.filter(|ratio| ratio.is_finite()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::apps::v1::ReplicaSet;
    use serde_json::json;

    fn replica_set(replicas: i32, is_terminating: bool) -> ReplicaSet {
        let deleted = is_terminating.then_some("2026-01-01T00:00:00Z");
        let spec = json!({"replicas": replicas, "selector": {}, "template": {}});
        serde_json::from_value(json!({"metadata": {"deletionTimestamp": deleted}, "spec": spec})).unwrap()
    }

    fn pods(count: usize) -> Vec<Arc<Pod>> {
        let pod = |index: usize| {
            // Every second one is bound to a node.
            let node = index.is_multiple_of(2).then_some("node-0");
            let spec = json!({"containers": [], "nodeName": node});
            let meta = json!({"name": index.to_string(), "creationTimestamp": "2026-01-01T00:00:00Z"});
            Arc::new(serde_json::from_value(json!({"metadata": meta, "spec": spec})).unwrap())
        };
        (0..count).map(pod).collect()
    }

    #[test]
    fn pods_are_created_or_deleted_up_to_the_wanted_number() {
        let now = "2026-01-01T00:01:00Z".parse().unwrap();
        for (case, wanted, is_terminating, active, want) in [
            ("none is there", 3, false, 0, "+3"),
            ("some are missing", 3, false, 1, "+2"),
            ("as wanted", 3, false, 3, ""),
            ("a burst is bounded", 1200, false, 100, "+500"),
            ("nor does one of few wait for them to run", 5000, false, 700, "+500"),
            ("of many some may wait to run", 5001, false, 240, "+10"),
            ("no more before some of them run", i32::MAX, false, 250, ""),
            ("too many, unassigned ones first", 2, false, 4, "-1 -3"),
            ("all, in any order", 0, false, 2, "-0 -1"),
            ("a terminating owner creates nothing", 3, true, 0, ""),
            ("and deletes nothing", 0, true, 3, ""),
        ] {
            let plan = plan(&replica_set(wanted, is_terminating), &pods(active), None, Vec::new, true, now);
            let text = match plan {
                Plan::Rest => String::new(),
                Plan::Create(number) => format!("+{number}"),
                Plan::Delete(victims) => {
                    let mut names: Vec<_> = victims
                        .iter()
                        .map(|pod| format!("-{}", pod.metadata.name.as_ref().unwrap()))
                        .collect();
                    names.sort();
                    names.join(" ")
                }
            };
            assert_eq!(text, want, "{case}");
        }
        let create = |replaceable| plan(&replica_set(5, false), &[], replaceable, Vec::new, true, now);
        assert!(matches!(create(Some(2)), Plan::Create(2)));
        assert!(matches!(create(Some(0)), Plan::Rest));
        let Plan::Delete(victims) = plan(&replica_set(0, false), &pods(700), None, Vec::new, true, now)
        else {
            panic!("nothing is deleted")
        };
        assert_eq!(victims.len(), 500);
    }

    #[test]
    fn ages_are_compared_with_the_youngest_ready_pod() {
        let ready = |created: &str| {
            let status = json!({"conditions": [{"type": "Ready", "status": "True"}]});
            let meta = json!({"creationTimestamp": created});
            Arc::new(serde_json::from_value::<Pod>(json!({"metadata": meta, "status": status})).unwrap())
        };
        let (old, young) = (ready("2026-01-01T00:00:00Z"), ready("2026-01-01T00:00:30Z"));
        let now = "2026-01-01T00:01:00Z".parse().unwrap();
        let active = [old.clone(), young.clone(), pods(1)[0].clone()];
        assert_eq!(deletion_age_ratios(&active, &[old, pods(1)[0].clone()], now), [2.0]);
        assert_eq!(
            deletion_age_ratios(std::slice::from_ref(&young), std::slice::from_ref(&young), now),
            [0.0; 0]
        );
    }
}
