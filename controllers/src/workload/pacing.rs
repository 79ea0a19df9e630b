//! The pace at which an owner of very many pods creates them: creations keep pace with the pods
//! that start to run.
//!
//! kube-controller-manager creates all pods that an owner wants, slowed down only by the rate of
//! its requests. Without that rate an owner of billions would fill the memory before anybody can
//! intervene. Pods that their kubelet rejects are replaced again and again; without a rate, thousands
//! of them in a second.

use std::borrow::Borrow;
use std::time::Duration;

use coracle_kinds::pods;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;

/// The maximum number of pods that an owner may want without pacing.
const MAX_UNPACED: usize = 5000;

/// The maximum number of pending pods of an owner that wants more than `MAX_UNPACED`.
const MAX_PENDING: usize = 250;

/// The pods of an owner that are replaced in a second after their kubelets have rejected them:
/// kube-controller-manager's requests in a second.
const MAX_REPLACED: usize = 20;

/// The time after which more of them are replaced.
pub const UNTIL_NEXT_REPLACEMENTS: Duration = Duration::from_secs(1);

/// The time for which the rejection of a pod counts.
const REJECTION_COUNTS: Duration = Duration::from_secs(60);

/// Returns the number of pods that may be created while kubelets reject them; None if they have
/// rejected none lately.
///
/// - `owned`: all pods of the owner
pub fn allowed_replacements<'a>(owned: impl Iterator<Item = &'a Pod>, now: Timestamp) -> Option<usize> {
    let age =
        |pod: &Pod| Duration::try_from(now.duration_since(pod.metadata.creation_timestamp.as_ref()?.0)).ok();
    let rejected: Vec<Duration> = owned.filter(|pod| was_rejected(pod)).filter_map(age).collect();
    let youngest = rejected.iter().min().filter(|age| **age < REJECTION_COUNTS)?;
    let is_recent = |age: &&Duration| **age < UNTIL_NEXT_REPLACEMENTS;
    let recent = if is_recent(&youngest) { rejected.iter().filter(is_recent).count() } else { 0 };
    Some(MAX_REPLACED.saturating_sub(recent))
}

/// Returns `true` if the kubelet of a pod has not let it start.
fn was_rejected(pod: &Pod) -> bool {
    let never_started = pod
        .status
        .as_ref()
        .is_some_and(|status| status.reason.is_some() && status.container_statuses.is_none());
    pods::phase(pod) == "Failed" && never_started
}

/// Returns the number of pods that an owner may create now.
///
/// - `wanted`: the number of pods that it should have
/// - `owned`: the pods that it has
pub fn allowed_creations(wanted: usize, owned: &[impl Borrow<Pod>]) -> usize {
    if wanted <= MAX_UNPACED {
        return wanted;
    }
    let is_pending = |pod: &Pod| pods::is_active(pod) && pods::phase(pod) != "Running";
    let pending = owned.iter().filter(|pod| is_pending((*pod).borrow())).count();
    MAX_PENDING.saturating_sub(pending)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn rejected_pods_are_replaced_at_a_bounded_rate() {
        let created: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let pod = |status: serde_json::Value| -> Pod {
            let meta = json!({"creationTimestamp": created});
            serde_json::from_value(json!({"metadata": meta, "status": status})).unwrap()
        };
        let rejected = json!({"phase": "Failed", "reason": "NodeAffinity"});
        let ended = json!({"phase": "Failed", "reason": "Evicted", "containerStatuses": [{"name": "c"}]});
        for (case, status, count, millis, want) in [
            ("none", json!({"phase": "Running"}), 100, 500, None),
            ("pods that ran", ended, 100, 500, None),
            ("some", rejected.clone(), 15, 500, Some(5)),
            ("as many as may be", rejected.clone(), 30, 900, Some(0)),
            ("in the next second", rejected.clone(), 30, 1000, Some(20)),
            ("a minute later", rejected, 30, 60_000, None),
        ] {
            let now = created + Duration::from_millis(millis);
            assert_eq!(allowed_replacements(vec![pod(status); count].iter(), now), want, "{case}");
        }
    }

    #[test]
    fn only_owners_of_many_pods_wait_for_pods_that_are_to_run() {
        let pod = |phase: &str, is_deleted: bool| -> Pod {
            let deleted = is_deleted.then_some("2026-01-01T00:00:00Z");
            let meta = json!({"deletionTimestamp": deleted});
            serde_json::from_value(json!({"metadata": meta, "status": {"phase": phase}})).unwrap()
        };
        for (phase, is_deleted, want) in [
            ("Pending", false, 100),
            ("", false, 100),
            ("Running", false, 250),
            ("Failed", false, 250),
            ("Succeeded", false, 250),
            ("Pending", true, 250),
        ] {
            let owned = vec![pod(phase, is_deleted); 150];
            assert_eq!(allowed_creations(5001, &owned), want, "{phase} {is_deleted}");
            assert_eq!(allowed_creations(5000, &owned), 5000, "{phase} {is_deleted}");
        }
        assert_eq!(allowed_creations(usize::MAX, &vec![pod("Pending", false); 600]), 0);
    }
}
