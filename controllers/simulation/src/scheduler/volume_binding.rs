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
            match (volume, self.class_that_waits(&claim)) {
                (volume, _) if is_bound(&claim) => {
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

    /// Returns `true` if all claims of a pod are bound, and a kubelet would start the pod: the
    /// binder writes the phase last.
    pub fn are_claims_bound(&self, pod: &Pod) -> bool {
        self.claims_of(pod)
            .all(|claim| claim.is_some_and(|claim| is_bound(&claim) && claim.phase() == "Bound"))
    }

    /// Returns `true` if the claims of a pod that is to be on a node are bound there, or may still
    /// be. If a provisioner cannot serve the node, it removes the node's name from the claim, and
    /// the pod has to be scheduled again.
    ///
    /// Source: kube-scheduler's `checkBindings`.
    pub fn may_bind_on(&self, pod: &Pod, node: &Node) -> bool {
        self.claims_of(pod).all(|claim| claim.is_some_and(|claim| self.may_bind(&claim, node)))
    }

    fn may_bind(&self, claim: &PersistentVolumeClaim, node: &Node) -> bool {
        let volume = match claim.volume_name() {
            "" => self.volumes.all().into_iter().find(|volume| is_meant_for(volume, claim)),
            name => self.volumes.get(&NamespacedName::new("", name)),
        };
        let is_for_node = selected_node(claim) == Some(&node.name_any());
        match volume {
            Some(volume) => {
                let is_kept = is_bound(claim) || is_for_node || is_meant_for(&volume, claim);
                is_kept && reaches(&volume, node)
            }
            // A provisioner works on it, or the watch has not reported the volume.
            None => is_for_node || is_bound(claim),
        }
    }

    fn claims_of(&self, pod: &Pod) -> impl Iterator<Item = Option<Arc<PersistentVolumeClaim>>> {
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        pod_claims(pod).map(move |named| self.claims.get(&NamespacedName::new(namespace, &named.name)))
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

/// Returns `true` if the binder has bound a claim. The phase does not count.
fn is_bound(claim: &PersistentVolumeClaim) -> bool {
    !claim.volume_name().is_empty() && annotation(&claim.metadata, BIND_COMPLETED).is_some()
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
mod tests;
