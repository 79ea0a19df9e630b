//! The consumers of a claim, and the cleanup of a claim without consumers.

use std::sync::Arc;

use coracle_kinds::pods;
use coracle_object_meta::{controller_of, has_finalizer, set_finalizer};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::{ResourceClaim, ResourceClaimConsumerReference};
use kube::ResourceExt;

/// The finalizer that keeps an allocated claim until it is deallocated.
pub const FINALIZER: &str = "resource.kubernetes.io/delete-protection";
/// The maximum number of consumers that a claim may have.
const MAX_CONSUMERS: usize = 256;

/// A step in the cleanup of a claim. The next step follows from its result.
#[derive(Debug, PartialEq)]
pub enum Step {
    ReplaceStatus(Box<ResourceClaim>),
    RemoveFinalizer(Box<ResourceClaim>),
    Delete,
}

/// Returns the next step, or `None` if the claim needs no cleanup.
///
/// - `pod`: returns the pod of this name in the claim's namespace
pub fn plan(claim: &ResourceClaim, pod: impl Fn(&str) -> Option<Arc<Pod>>) -> Option<Step> {
    let consumers = consumers(claim);
    let remaining: Vec<_> =
        consumers.iter().filter(|consumer| is_consumed_by(consumer, &pod)).cloned().collect();
    let is_allocated = claim.status.as_ref().is_some_and(|status| status.allocation.is_some());
    let (is_unused, is_terminating) = (remaining.is_empty(), claim.metadata.deletion_timestamp.is_some());
    // A claim that was never used stays allocated: a driver may reserve it after its allocation.
    let gives_up = is_unused && is_terminating && has_finalizer(&claim.metadata, FINALIZER);
    if remaining.len() < consumers.len() || gives_up && is_allocated {
        let mut changed = claim.clone();
        let status = changed.status.get_or_insert_default();
        status.reserved_for = Some(remaining).filter(|remaining| !remaining.is_empty());
        if is_unused && has_finalizer(&claim.metadata, FINALIZER) {
            status.allocation = None;
        }
        return Some(Step::ReplaceStatus(Box::new(changed)));
    }
    if gives_up {
        return Some(Step::RemoveFinalizer(Box::new(without_finalizer(claim))));
    }
    let owner = controller_of(&claim.metadata).filter(|owner| owner.kind == "Pod")?;
    // The garbage collector deletes the claims of a deleted pod.
    let is_done = pod(&owner.name).is_some_and(|pod| pod.uid().as_ref() != Some(&owner.uid) || is_done(&pod));
    (is_unused && is_done && !is_terminating).then_some(Step::Delete)
}

/// Returns a claim without its finalizer, after its status was replaced. Returns `None` if it still
/// needs that, or has none.
pub fn released(claim: &ResourceClaim) -> Option<ResourceClaim> {
    let is_allocated = claim.status.as_ref().is_some_and(|status| status.allocation.is_some());
    (!is_allocated && has_finalizer(&claim.metadata, FINALIZER)).then(|| without_finalizer(claim))
}

fn without_finalizer(claim: &ResourceClaim) -> ResourceClaim {
    let mut changed = claim.clone();
    set_finalizer(&mut changed.metadata, FINALIZER, false);
    changed
}

/// Returns a claim with one more consumer. Returns `None` if the claim is not allocated, has this
/// consumer already, or has the largest permitted number of them.
pub fn with_consumer(claim: &ResourceClaim, pod: &Pod) -> Option<ResourceClaim> {
    claim.status.as_ref()?.allocation.as_ref()?;
    let uid = pod.uid()?;
    let consumers = consumers(claim);
    if consumers.len() >= MAX_CONSUMERS || consumers.iter().any(|consumer| consumer.uid == uid) {
        return None;
    }
    let mut changed = claim.clone();
    let consumer = ResourceClaimConsumerReference {
        resource: "pods".to_owned(),
        name: pod.name_any(),
        uid,
        ..ResourceClaimConsumerReference::default()
    };
    changed.status.get_or_insert_default().reserved_for.get_or_insert_default().push(consumer);
    Some(changed)
}

fn consumers(claim: &ResourceClaim) -> &[ResourceClaimConsumerReference] {
    let reserved = claim.status.as_ref().and_then(|status| status.reserved_for.as_deref());
    reserved.unwrap_or_default()
}

/// Returns `true` if a consumer still exists. A consumer that is not a pod always counts as
/// existing.
fn is_consumed_by(consumer: &ResourceClaimConsumerReference, pod: impl Fn(&str) -> Option<Arc<Pod>>) -> bool {
    let is_pod = consumer.resource == "pods" && consumer.api_group.as_deref().unwrap_or_default().is_empty();
    !is_pod
        || pod(&consumer.name).is_some_and(|pod| pod.uid().as_ref() == Some(&consumer.uid) && !is_done(&pod))
}

/// Returns `true` if a pod has ended or will never start.
fn is_done(pod: &Pod) -> bool {
    pods::is_terminal(pod) || pods::is_terminating(pod) && pods::node(pod).is_none()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn pod(phase: &str, more: Value) -> Pod {
        let mut pod = json!({
            "metadata": {"name": "p", "uid": "u"}, "spec": {"containers": [], "nodeName": "n"},
            "status": {"phase": phase},
        });
        if more["terminating"] == true {
            pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        }
        if more["unbound"] == true {
            pod["spec"]["nodeName"] = json!(null);
        }
        if let Some(uid) = more.get("uid") {
            pod["metadata"]["uid"] = uid.clone();
        }
        serde_json::from_value(pod).unwrap()
    }

    /// Builds a claim from letters: `r`: reserved for the pod, `x`: for another consumer, `a`:
    /// allocated, `f`: with the finalizer, `o`: owned by the pod.
    fn claim(letters: &str) -> ResourceClaim {
        let has = |letter: char| letters.contains(letter);
        let mut reserved = Vec::new();
        if has('r') {
            reserved.push(json!({"resource": "pods", "name": "p", "uid": "u"}));
        }
        if has('x') {
            reserved.push(json!({"apiGroup": "g", "resource": "things", "name": "p", "uid": "v"}));
        }
        let owner = json!([{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u", "controller": true}]);
        serde_json::from_value(json!({
            "metadata": {
                "name": "c", "finalizers": if has('f') { json!([FINALIZER]) } else { json!(null) },
                "deletionTimestamp": if has('t') { json!("2026-01-01T00:00:00Z") } else { json!(null) },
                "ownerReferences": if has('o') { owner } else { json!(null) },
            },
            "spec": {},
            "status": {
                "allocation": if has('a') { json!({}) } else { json!(null) },
                "reservedFor": if reserved.is_empty() { json!(null) } else { json!(reserved) },
            },
        }))
        .unwrap()
    }

    fn letters(claim: &ResourceClaim) -> String {
        let status = claim.status.clone().unwrap_or_default();
        let reserved = status.reserved_for.unwrap_or_default();
        let mut letters = String::new();
        letters.extend(reserved.iter().map(|consumer| if consumer.resource == "pods" { 'r' } else { 'x' }));
        letters.extend(status.allocation.map(|_| 'a'));
        letters.extend(has_finalizer(&claim.metadata, FINALIZER).then_some('f'));
        letters.extend(controller_of(&claim.metadata).map(|_| 'o'));
        letters.extend(claim.metadata.deletion_timestamp.as_ref().map(|_| 't'));
        letters
    }

    #[test]
    fn claims_are_given_back_step_by_step() {
        let running = || Some(pod("Running", json!({})));
        let ended = || Some(pod("Succeeded", json!({})));
        let replaced = || Some(pod("Running", json!({"uid": "w"})));
        let unbound = || Some(pod("Pending", json!({"terminating": true, "unbound": true})));
        let terminating = || Some(pod("Running", json!({"terminating": true})));
        for (case, before, pod, want) in [
            ("consumed", "rafo", running(), None),
            ("still consumed", "rafo", terminating(), None),
            ("not yet allocated", "o", running(), None),
            ("its pod ended", "rafo", ended(), Some("status fo")),
            ("its pod is gone", "raf", None, Some("status f")),
            ("its pod was replaced", "rafo", replaced(), Some("status fo")),
            ("its pod never starts", "rafo", unbound(), Some("status fo")),
            ("another consumer remains", "rxaf", None, Some("status xaf")),
            ("given up", "fo", ended(), Some("delete")),
            ("being deleted", "fot", ended(), Some("finalizer ot")),
            ("allocated and being deleted", "aft", None, Some("status ft")),
            ("consumed and being deleted", "raft", running(), None),
            ("not yet reserved", "af", None, None),
            ("protected before its allocation", "f", None, None),
            ("all is done", "o", ended(), Some("delete")),
            ("made for a pod that is gone", "o", None, None),
            ("nobody's", "", None, None),
            ("allocated without a finalizer", "a", None, None),
        ] {
            let pod = pod.map(Arc::new);
            let step = plan(&claim(before), |_| pod.clone()).map(|step| match step {
                Step::ReplaceStatus(claim) => format!("status {}", letters(&claim)),
                Step::RemoveFinalizer(claim) => format!("finalizer {}", letters(&claim)),
                Step::Delete => "delete".to_owned(),
            });
            assert_eq!(step.as_deref(), want, "{case}");
        }
    }

    #[test]
    fn a_claim_that_was_given_back_needs_no_finalizer() {
        for (claimed, want) in [("f", Some("")), ("fo", Some("o")), ("af", None), ("a", None), ("", None)] {
            assert_eq!(released(&claim(claimed)).as_ref().map(letters).as_deref(), want, "{claimed}");
        }
    }

    #[test]
    fn a_bound_pod_consumes_an_allocated_claim() {
        let pod = pod("Running", json!({}));
        for (before, want) in [("ao", Some("rao")), ("rao", None), ("o", None), ("xa", Some("xra"))] {
            let changed = with_consumer(&claim(before), &pod);
            assert_eq!(changed.as_ref().map(letters).as_deref(), want, "{before}");
        }
    }
}
