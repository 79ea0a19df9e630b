//! persistentvolumeclaim-protection-controller: keeps a claim from being deleted while a pod uses
//! it.
//!
//! A claim is reconciled when it changes, and when a pod that uses it is deleted, has ended or has
//! no node:
//! 1. a claim that is not terminating has the finalizer `kubernetes.io/pvc-protection`;
//! 2. a terminating claim keeps it while a pod uses it according to the cache;
//! 3. then all pods of the namespace are read from the server, and the finalizer is removed if none
//!    uses the claim.
//!
//! A pod without a node does not count: a kubelet does not start pods with terminating claims. A
//! pod that ended counts until it is deleted.

mod live;

use std::sync::Arc;

use coracle_controller_runtime::cache::{Cache, Change, NamespacedName};
use coracle_controller_runtime::{
    Action, Controller, Error, Initialize, ReconcileContext, Sources, ignore_not_found,
};
use coracle_kinds::pods::{self, is_terminated, pod_claims};
use coracle_object_meta::{has_finalizer, is_controlled_by, set_finalizer};
use coracle_volumes::indexes::ByClaim;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube::ResourceExt;

use crate::settings::{Context, Settings};
use live::LivePods;

const PROTECTION: &str = "kubernetes.io/pvc-protection";

pub struct PersistentVolumeClaimProtectionController {
    claims: Arc<Cache<PersistentVolumeClaim>>,
    pods: Arc<Cache<Pod>>,
    live_pods: LivePods,
}

impl Initialize<Settings> for PersistentVolumeClaimProtectionController {
    fn new(context: &Context) -> PersistentVolumeClaimProtectionController {
        PersistentVolumeClaimProtectionController {
            claims: context.cache(),
            pods: context.cache(),
            live_pods: LivePods::new(context.unrecorded.clone()),
        }
    }
}

impl Controller for PersistentVolumeClaimProtectionController {
    const NAME: &'static str = "persistentvolumeclaim-protection-controller";
    const QUEUE_NAME: &'static str = "pvcprotection";
    /// Workers that wait for a list of the live pods share the next one.
    const WORKERS: usize = 32;
    type Key = NamespacedName;

    fn sources(&self, sources: &mut Sources<NamespacedName>) {
        sources.on_each(&self.claims).on(&self.pods, |change, queue| {
            for pod in freeing(change) {
                let namespace = pod.namespace().unwrap_or_default();
                pod_claims(pod).for_each(|claim| queue.add(NamespacedName::new(&namespace, claim.name)));
            }
        });
    }

    async fn reconcile(&self, name: &NamespacedName, ctx: &ReconcileContext) -> Result<Action, Error> {
        let Some(claim) = self.claims.get(name) else { return Ok(Action::AwaitChange) };
        let is_terminating = claim.metadata.deletion_timestamp.is_some();
        let is_protected = has_finalizer(&claim.metadata, PROTECTION);
        let has_to_change = match (is_terminating, is_protected) {
            (true, true) => !self.is_used(&claim).await?,
            (false, protected) => !protected,
            (true, false) => false,
        };
        if has_to_change {
            let mut changed = claim.as_ref().clone();
            set_finalizer(&mut changed.metadata, PROTECTION, !is_protected);
            ignore_not_found(ctx.api(&self.claims).replace(&changed).await)?;
        }
        Ok(Action::AwaitChange)
    }
}

impl PersistentVolumeClaimProtectionController {
    async fn is_used(&self, claim: &PersistentVolumeClaim) -> Result<bool, Error> {
        let namespace = claim.namespace().unwrap_or_default();
        let known = self.pods.by::<ByClaim>(&NamespacedName::of(claim));
        if known.iter().any(|pod| uses_claim(pod, claim)) {
            return Ok(true);
        }
        Ok(self.live_pods.list(&namespace).await?.iter().any(|pod| uses_claim(pod, claim)))
    }
}

/// Iterates over the pods that may have freed their claims by a change: deleted ones, ended ones,
/// those without a node. The same name may have become another pod.
fn freeing(change: &Change<Pod>) -> impl Iterator<Item = &Pod> {
    let gone = change
        .old
        .as_deref()
        .filter(|old| change.new.as_deref().is_none_or(|new| new.metadata.uid != old.metadata.uid));
    let changed = change.new.as_deref().filter(|new| is_terminated(new) || pods::node(new).is_none());
    gone.into_iter().chain(changed)
}

/// Returns `true` if a pod keeps a claim from being deleted.
fn uses_claim(pod: &Pod, claim: &PersistentVolumeClaim) -> bool {
    let is_shut_down =
        pod.metadata.deletion_timestamp.is_some() && pod.metadata.deletion_grace_period_seconds == Some(0);
    pods::node(pod).is_some()
        && pod_claims(pod).any(|named| {
            let is_meant = claim.metadata.name.as_ref() == Some(&named.name);
            is_meant && (!named.is_ephemeral || (!is_shut_down && is_controlled_by(&claim.metadata, pod)))
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn who_holds_a_claim() {
        let by_name = json!({"name": "v", "persistentVolumeClaim": {"claimName": "c"}});
        let other = json!({"name": "v", "persistentVolumeClaim": {"claimName": "d"}});
        let ephemeral = json!({"name": "e", "ephemeral": {}});
        let deleted = json!({"deletionTimestamp": "2026-01-01T00:00:00Z", "deletionGracePeriodSeconds": 0});
        let terminating =
            json!({"deletionTimestamp": "2026-01-01T00:00:00Z", "deletionGracePeriodSeconds": 30});
        for (case, claim, meta, node, phase, volume, want) in [
            ("runs", "c", json!({}), "n", "Running", &by_name, true),
            ("pending on a node", "c", json!({}), "n", "Pending", &by_name, true),
            ("not placed", "c", json!({}), "", "Pending", &by_name, false),
            ("ended", "c", json!({}), "n", "Succeeded", &by_name, true),
            ("failed", "c", json!({}), "n", "Failed", &by_name, true),
            ("terminating", "c", terminating.clone(), "n", "Running", &by_name, true),
            ("shut down", "c", deleted.clone(), "n", "Running", &by_name, true),
            ("another claim", "c", json!({}), "n", "Running", &other, false),
            ("ephemeral", "p-e", json!({}), "n", "Running", &ephemeral, true),
            ("ephemeral, terminating", "p-e", terminating, "n", "Running", &ephemeral, true),
            ("ephemeral, shut down", "p-e", deleted, "n", "Running", &ephemeral, false),
        ] {
            let mut meta = meta;
            meta["name"] = json!("p");
            meta["uid"] = json!("1");
            let pod: Pod = object(json!({
                "metadata": meta, "spec": {"containers": [], "nodeName": node, "volumes": [volume]}, "status": {"phase": phase},
            }));
            let owner =
                json!({"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "1", "controller": true});
            let owned: PersistentVolumeClaim =
                object(json!({"metadata": {"name": claim, "ownerReferences": [owner]}}));
            assert_eq!(uses_claim(&pod, &owned), want, "{case}");
        }
    }

    fn object<K: k8s_openapi::serde::de::DeserializeOwned>(value: Value) -> K {
        serde_json::from_value(value).unwrap()
    }
}
