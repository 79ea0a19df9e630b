//! What a pod's claims allow: nothing until each of them exists, and either is bound or may wait for the pod's node.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod, Volume};
use k8s_openapi::api::storage::v1::StorageClass;

use crate::runtime::Context;
use crate::runtime::cache::{Cache, NamespacedName};

/// Tells a provisioner on which node a claim's pod will run.
pub const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
const BIND_COMPLETED: &str = "pv.kubernetes.io/bind-completed";
const CLASS: &str = "volume.beta.kubernetes.io/storage-class";

/// Where claims and what they lead to are looked up.
pub struct Storage {
    pub claims: Arc<Cache<PersistentVolumeClaim>>,
    pub volumes: Arc<Cache<PersistentVolume>>,
    pub classes: Arc<Cache<StorageClass>>,
}

/// A pod's claims, none of which keeps it from being placed.
#[derive(Debug, Default)]
pub struct Claims {
    /// The volumes of those that are bound.
    pub volumes: Vec<Arc<PersistentVolume>>,
    /// Those that wait for the pod to have a node.
    pub waiting: Vec<Arc<PersistentVolumeClaim>>,
}

impl Storage {
    pub fn new(context: &Context) -> Storage {
        Storage { claims: context.cache(), volumes: context.cache(), classes: context.cache() }
    }

    /// A pod's claims.
    ///
    /// # Errors
    /// Why the pod cannot be placed anywhere, in the scheduler's words.
    pub fn of(&self, pod: &Pod) -> Result<Claims, String> {
        let mut claims = Claims::default();
        let mut is_unbound = false;
        for volume in pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten()) {
            let Some(claim) = self.claim(pod, volume)? else { continue };
            let volume_name = volume_name(&claim);
            // The binder writes the phase last. Without it no kubelet would start the pod.
            let is_bound = phase(&claim) == Some("Bound") && annotation(&claim, BIND_COMPLETED).is_some();
            if volume_name.is_some() && is_bound {
                let name = NamespacedName::new("", volume_name.unwrap_or_default());
                claims.volumes.extend(self.volumes.get(&name));
            } else if volume_name.is_none() && self.waits_for_consumer(&claim) {
                claims.waiting.push(claim);
            } else {
                is_unbound = true;
            }
        }
        match is_unbound {
            true => Err("pod has unbound immediate PersistentVolumeClaims".to_owned()),
            false => Ok(claims),
        }
    }

    fn claim(&self, pod: &Pod, volume: &Volume) -> Result<Option<Arc<PersistentVolumeClaim>>, String> {
        let Some(name) = claim_name(pod, volume) else { return Ok(None) };
        let is_ephemeral = volume.ephemeral.is_some();
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        let Some(claim) = self.claims.get(&NamespacedName::new(namespace, &name)) else {
            return Err(match is_ephemeral {
                true => format!(
                    "waiting for ephemeral volume controller to create the persistentvolumeclaim {name:?}"
                ),
                false => format!("persistentvolumeclaim {name:?} not found"),
            });
        };
        if phase(&claim) == Some("Lost") {
            let volume = volume_name(&claim).unwrap_or_default();
            return Err(format!(
                "persistentvolumeclaim {name:?} bound to non-existent persistentvolume {volume:?}"
            ));
        }
        if claim.metadata.deletion_timestamp.is_some() {
            return Err(format!("persistentvolumeclaim {name:?} is being deleted"));
        }
        if is_ephemeral && !is_controlled_by(&claim, pod) {
            let pod = NamespacedName::of(pod);
            return Err(format!("PVC {namespace}/{name} was not created for pod {pod} (pod is not owner)"));
        }
        Ok(Some(claim))
    }

    fn waits_for_consumer(&self, claim: &PersistentVolumeClaim) -> bool {
        let class = annotation(claim, CLASS)
            .or_else(|| claim.spec.as_ref().and_then(|spec| spec.storage_class_name.as_deref()));
        let class = class.and_then(|name| self.classes.get(&NamespacedName::new("", name)));
        class.is_some_and(|class| class.volume_binding_mode.as_deref() == Some("WaitForFirstConsumer"))
    }
}

/// The name of the claim behind a volume, if there is one.
pub fn claim_name(pod: &Pod, volume: &Volume) -> Option<String> {
    if let Some(source) = &volume.persistent_volume_claim {
        return Some(source.claim_name.clone());
    }
    let pod = pod.metadata.name.as_deref().unwrap_or_default();
    volume.ephemeral.as_ref().map(|_| format!("{pod}-{}", volume.name))
}

fn is_controlled_by(claim: &PersistentVolumeClaim, pod: &Pod) -> bool {
    let mut owners = claim.metadata.owner_references.iter().flatten();
    owners.any(|owner| owner.controller == Some(true) && Some(&owner.uid) == pod.metadata.uid.as_ref())
}

/// The node that was chosen for a claim.
pub fn selected_node(claim: &PersistentVolumeClaim) -> Option<&str> {
    annotation(claim, SELECTED_NODE)
}

fn phase(claim: &PersistentVolumeClaim) -> Option<&str> {
    claim.status.as_ref()?.phase.as_deref()
}

fn volume_name(claim: &PersistentVolumeClaim) -> Option<&str> {
    claim.spec.as_ref()?.volume_name.as_deref().filter(|name| !name.is_empty())
}

fn annotation<'a>(claim: &'a PersistentVolumeClaim, name: &str) -> Option<&'a str> {
    claim.metadata.annotations.as_ref()?.get(name).map(String::as_str)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn claims_hold_pods_back() {
        let pod: Pod = serde_json::from_value(json!({
            "metadata": {"namespace": "n", "name": "p", "uid": "u"},
            "spec": {"containers": [], "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]},
        }))
        .unwrap();
        let mut ephemeral = pod.clone();
        ephemeral.spec.as_mut().unwrap().volumes =
            serde_json::from_value(json!([{"name": "v", "ephemeral": {}}])).unwrap();
        let claim = |name: &str, more: Value| {
            let mut claim = json!({"metadata": {"namespace": "n", "name": name}});
            for part in ["metadata", "spec", "status"] {
                for (key, value) in more[part].as_object().into_iter().flatten() {
                    claim[part][key] = value.clone();
                }
            }
            serde_json::from_value::<PersistentVolumeClaim>(claim).unwrap()
        };
        let bound = json!({
            "metadata": {"annotations": {BIND_COMPLETED: "yes"}},
            "spec": {"volumeName": "pv"}, "status": {"phase": "Bound"},
        });
        let mut nearly = bound.clone();
        nearly["status"]["phase"] = json!("Pending");
        for (case, pod, claim, want) in [
            ("missing", &pod, None, r#"persistentvolumeclaim "c" not found"#),
            ("bound", &pod, Some(claim("c", bound.clone())), "1 volumes, 0 waiting"),
            (
                "about to be bound",
                &pod,
                Some(claim("c", nearly)),
                "pod has unbound immediate PersistentVolumeClaims",
            ),
            (
                "immediate",
                &pod,
                Some(claim("c", json!({"spec": {"storageClassName": "now"}}))),
                "pod has unbound immediate PersistentVolumeClaims",
            ),
            (
                "waits for the pod",
                &pod,
                Some(claim("c", json!({"spec": {"storageClassName": "later"}}))),
                "0 volumes, 1 waiting",
            ),
            (
                "names a volume already",
                &pod,
                Some(claim("c", json!({"spec": {"storageClassName": "later", "volumeName": "pv"}}))),
                "pod has unbound immediate PersistentVolumeClaims",
            ),
            (
                "going",
                &pod,
                Some(claim("c", json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}))),
                r#"persistentvolumeclaim "c" is being deleted"#,
            ),
            (
                "lost",
                &pod,
                Some(claim("c", json!({"spec": {"volumeName": "pv"}, "status": {"phase": "Lost"}}))),
                r#"persistentvolumeclaim "c" bound to non-existent persistentvolume "pv""#,
            ),
            (
                "ephemeral, not made",
                &ephemeral,
                None,
                r#"waiting for ephemeral volume controller to create the persistentvolumeclaim "p-v""#,
            ),
            (
                "ephemeral, another's",
                &ephemeral,
                Some(claim("p-v", bound)),
                "PVC n/p-v was not created for pod n/p (pod is not owner)",
            ),
        ] {
            let class = |name: &str, mode: &str| {
                let class =
                    json!({"metadata": {"name": name}, "provisioner": "x", "volumeBindingMode": mode});
                serde_json::from_value::<StorageClass>(class).unwrap()
            };
            let volume = serde_json::from_value(json!({"metadata": {"name": "pv"}})).unwrap();
            let storage = Storage {
                claims: Arc::new(Cache::with(claim)),
                volumes: Arc::new(Cache::with([volume])),
                classes: Arc::new(Cache::with([
                    class("now", "Immediate"),
                    class("later", "WaitForFirstConsumer"),
                ])),
            };
            let got = match storage.of(pod) {
                Ok(claims) => {
                    format!("{} volumes, {} waiting", claims.volumes.len(), claims.waiting.len())
                }
                Err(reason) => reason,
            };
            assert_eq!(got, want, "{case}");
        }
    }
}
