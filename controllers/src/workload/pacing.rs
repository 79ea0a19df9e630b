//! The pace at which an owner of very many pods creates them: creations keep pace with the pods
//! that start to run.
//!
//! kube-controller-manager creates all pods that an owner wants, slowed down only by the rate of
//! its requests. Without that rate an owner of billions would fill the memory before anybody can
//! intervene.

use std::borrow::Borrow;

use coracle_kinds::pods;
use k8s_openapi::api::core::v1::Pod;

/// The maximum number of pods that an owner may want without pacing.
const MAX_UNPACED: usize = 5000;

/// The maximum number of pending pods of an owner that wants more than `MAX_UNPACED`.
const MAX_PENDING: usize = 250;

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
