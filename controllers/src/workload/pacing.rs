//! How many pods an owner may create at once: creations keep pace with the pods that start to run.
//!
//! kube-controller-manager creates all pods that an owner wants, slowed down only by the rate of its requests. Without that rate an owner
//! of billions would fill the memory before anybody can intervene.

use std::borrow::Borrow;

use coracle_kinds::pods;
use k8s_openapi::api::core::v1::Pod;

/// The most pods of one owner that wait to be scheduled and started. Above it none are created until some of them run or end.
const MAX_PENDING: usize = 5000;

/// How many more pods an owner may create now.
///
/// - `owned`: the pods of the owner
pub fn allowed_creations(owned: &[impl Borrow<Pod>]) -> usize {
    let is_pending = |pod: &Pod| pods::is_active(pod) && pods::phase(pod) != "Running";
    let pending = owned.iter().filter(|pod| is_pending((*pod).borrow())).count();
    MAX_PENDING.saturating_sub(pending)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn only_pods_that_are_to_run_count() {
        let pod = |phase: &str, is_deleted: bool| -> Pod {
            let deleted = is_deleted.then_some("2026-01-01T00:00:00Z");
            let meta = json!({"deletionTimestamp": deleted});
            serde_json::from_value(json!({"metadata": meta, "status": {"phase": phase}})).unwrap()
        };
        for (phase, is_deleted, want) in [
            ("Pending", false, 0),
            ("", false, 0),
            ("Running", false, MAX_PENDING),
            ("Failed", false, MAX_PENDING),
            ("Succeeded", false, MAX_PENDING),
            ("Pending", true, MAX_PENDING),
        ] {
            let owned = vec![pod(phase, is_deleted); MAX_PENDING + 1];
            assert_eq!(allowed_creations(&owned), want, "{phase} {is_deleted}");
        }
    }
}
