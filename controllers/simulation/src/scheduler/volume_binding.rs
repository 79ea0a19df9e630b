//! Volume binding: a pod cannot be scheduled until each of its claims exists, and is bound or may
//! wait for the pod's node.
//!
//! Claims that may wait are bound on the chosen node: to a free volume that can be reached from it,
//! or by a provisioner that reads the node's name from an annotation.

use std::sync::Arc;

use coracle_controller_runtime::cache::{Cache, NamespacedName};
use coracle_kinds::node_affinity::{label, selects};
use coracle_kinds::pods::{PodClaim, pod_claims};
use coracle_kinds::storage::{BIND_COMPLETED, ClaimExt, SELECTED_NODE, VolumeExt, waits_for_consumer};
use coracle_object_meta::{annotation, is_controlled_by};
use coracle_volumes::search;
use k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::storage::v1::StorageClass;
use kube::ResourceExt;

use crate::settings::Context;

/// The provisioner of classes without dynamic provisioning.
const NO_PROVISIONER: &str = "kubernetes.io/no-provisioner";

/// The caches of claims, volumes and classes.
pub struct Storage {
    pub claims: Arc<Cache<PersistentVolumeClaim>>,
    pub volumes: Arc<Cache<PersistentVolume>>,
    pub classes: Arc<Cache<StorageClass>>,
}

/// A pod's claims, if none of them keeps it from being scheduled.
#[derive(Debug, Default)]
pub struct Claims {
    /// The volumes of the bound claims.
    pub volumes: Vec<Arc<PersistentVolume>>,
    /// The claims that wait for the pod's node, the smallest first.
    pub waiting: Vec<Waiting>,
    /// The names of the claims that only one pod may use at a time.
    pub exclusive: Vec<String>,
    /// The unbound volumes that the waiting claims could be bound to.
    free: Vec<Arc<PersistentVolume>>,
}

/// A claim that waits for its pod to have a node.
#[derive(Clone, Debug)]
pub struct Waiting {
    pub claim: Arc<PersistentVolumeClaim>,
    class: Arc<StorageClass>,
}

/// The binding of a claim on a node.
#[derive(Clone, Debug)]
pub struct VolumeBinding {
    pub claim: Arc<PersistentVolumeClaim>,
    /// The volume; None if it has to be provisioned.
    pub volume: Option<Arc<PersistentVolume>>,
}

impl Storage {
    pub fn new(context: &Context) -> Storage {
        Storage { claims: context.cache(), volumes: context.cache(), classes: context.cache() }
    }

    /// Returns the claims of a pod.
    ///
    /// # Errors
    /// The scheduler's message, if the pod fits no node.
    pub fn of(&self, pod: &Pod) -> Result<Claims, String> {
        let mut claims = Claims::default();
        let mut is_unbound = false;
        for named in pod_claims(pod) {
            let claim = self.claim(pod, &named)?;
            let modes = claim.spec.as_ref().and_then(|spec| spec.access_modes.as_ref());
            if modes.into_iter().flatten().any(|mode| mode == "ReadWriteOncePod") {
                claims.exclusive.push(named.name.clone());
            }
            let volume = claim.volume_name();
            // The binder writes the phase last. Without it no kubelet would start the pod.
            let is_bound = claim.phase() == "Bound" && annotation(&claim.metadata, BIND_COMPLETED).is_some();
            match (volume, self.class_that_waits(&claim)) {
                (volume, _) if !volume.is_empty() && is_bound => {
                    claims.volumes.extend(self.volumes.get(&NamespacedName::new("", volume)));
                }
                ("", Some(class)) => claims.waiting.push(Waiting { claim, class }),
                _ => is_unbound = true,
            }
        }
        if is_unbound {
            return Err("pod has unbound immediate PersistentVolumeClaims".to_owned());
        }
        if !claims.waiting.is_empty() {
            claims.waiting.sort_by_key(|waiting| waiting.claim.requested());
            let is_meant = |volume: &PersistentVolume| {
                claims.waiting.iter().any(|waiting| is_meant_for(volume, &waiting.claim))
            };
            let mut free = self.volumes.all();
            // A volume that refers to a claim is bound before the claim is.
            free.retain(|volume| volume.phase() == "Available" || is_meant(volume));
            claims.free = free;
        }
        Ok(claims)
    }

    fn claim(&self, pod: &Pod, named: &PodClaim<'_>) -> Result<Arc<PersistentVolumeClaim>, String> {
        let PodClaim { name, is_ephemeral, .. } = named;
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        let Some(claim) = self.claims.get(&NamespacedName::new(namespace, name)) else {
            return Err(match is_ephemeral {
                true => format!(
                    "waiting for ephemeral volume controller to create the persistentvolumeclaim {name:?}"
                ),
                false => format!("persistentvolumeclaim {name:?} not found"),
            });
        };
        if claim.phase() == "Lost" {
            let volume = claim.volume_name();
            return Err(format!(
                "persistentvolumeclaim {name:?} bound to non-existent persistentvolume {volume:?}"
            ));
        }
        if claim.metadata.deletion_timestamp.is_some() {
            return Err(format!("persistentvolumeclaim {name:?} is being deleted"));
        }
        if *is_ephemeral && !is_controlled_by(&claim.metadata, pod) {
            let pod = NamespacedName::of(pod);
            return Err(format!("PVC {namespace}/{name} was not created for pod {pod} (pod is not owner)"));
        }
        Ok(claim)
    }

    fn class_that_waits(&self, claim: &PersistentVolumeClaim) -> Option<Arc<StorageClass>> {
        let class = self.classes.get(&NamespacedName::new("", claim.class()))?;
        waits_for_consumer(&class).then_some(class)
    }
}

impl Claims {
    /// Returns `true` if the waiting claims can be bound on a node.
    pub fn can_bind_on(&self, node: &Node) -> bool {
        self.waiting.is_empty() || self.bindings_on(node).is_some()
    }

    /// Returns the bindings of the waiting claims on a node, or `None` if one of them cannot be
    /// bound there.
    pub fn bindings_on(&self, node: &Node) -> Option<Vec<VolumeBinding>> {
        let mut free: Vec<_> = self.free.iter().filter(|volume| reaches(volume, node)).cloned().collect();
        let mut served = Vec::new();
        for Waiting { claim, class } in &self.waiting {
            let volume = match selected_node(claim) {
                Some(name) if name != node.name_any() => return None,
                Some(_) => None,
                None => search::best(claim, &free, false).cloned(),
            };
            if let Some(volume) = &volume {
                free.retain(|other| !Arc::ptr_eq(other, volume));
            } else if !provisions(class, node) {
                return None;
            }
            served.push(VolumeBinding { claim: claim.clone(), volume });
        }
        Some(served)
    }

    /// Returns `true` if each waiting claim has a volume, or has this node as its selected node.
    pub fn are_assigned_to(&self, node: &str) -> bool {
        self.waiting.iter().all(|Waiting { claim, .. }| {
            selected_node(claim) == Some(node) || self.free.iter().any(|volume| is_meant_for(volume, claim))
        })
    }
}

/// Returns `true` if a class provisions volumes that can be reached from a node.
fn provisions(class: &StorageClass, node: &Node) -> bool {
    let topologies = class.allowed_topologies.as_deref().unwrap_or_default();
    let allows = |term: &k8s_openapi::api::core::v1::TopologySelectorTerm| {
        let mut expressions = term.match_label_expressions.iter().flatten();
        expressions.all(|e| label(node, &e.key).is_some_and(|value| e.values.iter().any(|v| v == value)))
    };
    let is_made = !matches!(class.provisioner.as_str(), "" | NO_PROVISIONER);
    is_made && (topologies.is_empty() || topologies.iter().any(allows))
}

/// Returns `true` if a volume can be reached from a node.
pub fn reaches(volume: &PersistentVolume, node: &Node) -> bool {
    let affinity = volume.spec.as_ref().and_then(|spec| spec.node_affinity.as_ref());
    let required = affinity.and_then(|affinity| affinity.required.as_ref());
    required.is_none_or(|selector| selects(selector, node))
}

fn is_meant_for(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> bool {
    volume.is_bound_to(claim)
        && volume.claim_ref().is_some_and(|reference| reference.uid == claim.metadata.uid)
}

/// Returns the node that the scheduler selected for a claim.
pub fn selected_node(claim: &PersistentVolumeClaim) -> Option<&str> {
    annotation(&claim.metadata, SELECTED_NODE).filter(|node| !node.is_empty())
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
                "terminating",
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

    #[test]
    fn claims_are_served_on_nodes() {
        let node = |name: &str| -> Node {
            serde_json::from_value(json!({"metadata": {"name": name, "labels": {"zone": name}}})).unwrap()
        };
        let claim = |name: &str, size: &str, selected: &str| -> PersistentVolumeClaim {
            serde_json::from_value(json!({
                "metadata": {"namespace": "n", "name": name, "uid": name, "annotations": {SELECTED_NODE: selected}},
                "spec": {"storageClassName": "later", "resources": {"requests": {"storage": size}}},
            }))
            .unwrap()
        };
        let volume = |name: &str, size: &str, zone: &str| -> PersistentVolume {
            let requirement = json!({"key": "zone", "operator": "In", "values": [zone]});
            serde_json::from_value(json!({
                "metadata": {"name": name}, "status": {"phase": "Available"},
                "spec": {
                    "storageClassName": "later", "capacity": {"storage": size},
                    "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [requirement]}]}},
                },
            }))
            .unwrap()
        };
        let by_hand = json!({"metadata": {"name": "later"}, "provisioner": NO_PROVISIONER});
        let made = json!({"metadata": {"name": "later"}, "provisioner": "x"});
        let only_b = json!({
            "metadata": {"name": "later"}, "provisioner": "x",
            "allowedTopologies": [{"matchLabelExpressions": [{"key": "zone", "values": ["b"]}]}],
        });
        let here = volume("here", "1Gi", "a");
        let large = volume("large", "5Gi", "a");
        let there = volume("there", "1Gi", "b");
        let one = || vec![claim("c", "1Gi", "")];
        let two = || vec![claim("c", "1Gi", ""), claim("d", "1Gi", "")];
        for (case, class, claims, free, want) in [
            ("a free one", &by_hand, one(), vec![&there, &large, &here], Some(vec!["here"])),
            ("elsewhere", &by_hand, one(), vec![&there], None),
            ("elsewhere, but made", &made, one(), vec![&there], Some(vec![""])),
            ("made elsewhere only", &only_b, one(), vec![], None),
            ("one each", &by_hand, two(), vec![&here, &large], Some(vec!["here", "large"])),
            ("one for two", &by_hand, two(), vec![&here], None),
            ("one for two, one made", &made, two(), vec![&here], Some(vec!["here", ""])),
            ("assigned here", &made, vec![claim("c", "1Gi", "a")], vec![&here], Some(vec![""])),
            ("assigned there", &made, vec![claim("c", "1Gi", "b")], vec![&here], None),
        ] {
            let class = Arc::new(serde_json::from_value::<StorageClass>(class.clone()).unwrap());
            let waiting =
                claims.into_iter().map(|claim| Waiting { claim: Arc::new(claim), class: class.clone() });
            let claims = Claims {
                waiting: waiting.collect(),
                free: free.into_iter().cloned().map(Arc::new).collect(),
                ..Claims::default()
            };
            let served = claims.bindings_on(&node("a"));
            let names = served.map(|served| {
                let name = |binding: &VolumeBinding| binding.volume.as_ref().map(|volume| volume.name_any());
                served.iter().map(|binding| name(binding).unwrap_or_default()).collect::<Vec<_>>()
            });
            let want = want.map(|names| names.into_iter().map(str::to_owned).collect::<Vec<_>>());
            assert_eq!(names, want, "{case}");
        }
    }
}
