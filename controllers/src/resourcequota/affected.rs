//! The quotas that a change affects.

use std::time::Duration;

use coracle_controller_runtime::cache::{Cache, NamespacedName};
use coracle_controller_runtime::queue::Queue;
use k8s_openapi::api::core::v1::{ResourceQuota, ResourceQuotaSpec};

use crate::timers::RESOURCE_QUOTA_BATCH;

/// Deletions at one time are counted once: with many pods in a namespace a count is not cheap. The
/// usage follows a deletion about as soon as on a real cluster, so that what is deleted can be
/// replaced at once.
const TOGETHER: Duration = Duration::from_millis(15);

/// Iterates over the names of the resources that a quota limits.
pub fn limited(spec: &ResourceQuotaSpec) -> impl Iterator<Item = &str> {
    spec.hard.iter().flat_map(|hard| hard.keys()).map(String::as_str)
}

/// Enqueues, after a moment, the affected quotas of a namespace, or of all namespaces.
pub fn enqueue_affected(
    quotas: &Cache<ResourceQuota>,
    namespace: Option<&str>,
    queue: &Queue<NamespacedName>,
    is_affected: impl Fn(&ResourceQuotaSpec) -> bool,
) {
    let candidates = namespace.map_or_else(|| quotas.all(), |namespace| quotas.in_namespace(namespace));
    let affected = candidates.iter().filter(|quota| quota.spec.as_ref().is_some_and(&is_affected));
    affected.for_each(|quota| {
        queue.add_after(NamespacedName::of(quota.as_ref()), RESOURCE_QUOTA_BATCH.after(TOGETHER))
    });
}
