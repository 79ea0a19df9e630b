//! Volume binding: a pod cannot be scheduled until each of its claims exists, and is bound or may
//! wait for the pod's node.
//!
//! Claims that may wait are bound on the chosen node: to a free volume that can be reached from it,
//! or by a provisioner that reads the node's name from an annotation.

use std::collections::BTreeMap;
use std::sync::Arc;

use coracle_controller_runtime::cache::{Cache, NamespacedName};
use coracle_kinds::node_affinity::{label, selects};
use coracle_kinds::pods::{PodClaim, pod_claims};
use coracle_kinds::storage::{BIND_COMPLETED, ClaimExt, SELECTED_NODE, VolumeExt, waits_for_consumer};
use coracle_object_meta::{annotation, is_controlled_by};
use coracle_quantity::Quantity;
use coracle_volumes::search;
use k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::storage::v1::{CSIDriver, CSINode, CSIStorageCapacity, StorageClass, VolumeAttachment};
use kube::ResourceExt;
use kube::core::{Selector, SelectorExt};

use super::volume_limits::{VolumeCaches, VolumeLimits};
use crate::settings::Context;

/// The reasons why claims cannot be bound on a node.
const NO_VOLUME: &str = "node(s) didn't find available persistent volumes to bind";
const NO_STORAGE: &str = "node(s) did not have enough free storage";
/// The provisioner of classes without dynamic provisioning.
const NO_PROVISIONER: &str = "kubernetes.io/no-provisioner";

/// The caches of claims, volumes and classes.
pub struct Storage {
    pub claims: Arc<Cache<PersistentVolumeClaim>>,
    pub volumes: Arc<Cache<PersistentVolume>>,
    pub classes: Arc<Cache<StorageClass>>,
    pub drivers: Arc<Cache<CSIDriver>>,
    pub capacities: Arc<Cache<CSIStorageCapacity>>,
    pub csi_nodes: Arc<Cache<CSINode>>,
    pub attachments: Arc<Cache<VolumeAttachment>>,
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
    /// The free storage that the driver of the class has announced; None if it announces none.
    capacities: Option<Vec<Arc<CSIStorageCapacity>>>,
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
        Storage {
            claims: context.cache(),
            volumes: context.cache(),
            classes: context.cache(),
            drivers: context.cache(),
            capacities: context.cache(),
            csi_nodes: context.cache(),
            attachments: context.cache(),
        }
    }

    /// Returns the limits of the nodes' CSI drivers.
    pub fn limits(&self) -> VolumeLimits {
        let caches = VolumeCaches {
            claims: self.claims.clone(),
            volumes: self.volumes.clone(),
            classes: self.classes.clone(),
        };
        VolumeLimits::new(&self.csi_nodes.all(), || self.attachments.all(), &caches)
    }

    /// Returns the claims of a pod.
    ///
    /// # Errors
    /// The scheduler's message, if the pod fits no node.
    pub fn of(&self, pod: &Pod) -> Result<Claims, String> {
        let mut claims = Claims::default();
        let (mut is_unbound, mut missing) = (false, None);
        for named in pod_claims(pod) {
            let claim = self.claim(pod, &named)?;
            let modes = claim.spec.as_ref().and_then(|spec| spec.access_modes.as_ref());
            if modes.into_iter().flatten().any(|mode| mode == "ReadWriteOncePod") {
                claims.exclusive.push(named.name.clone());
            }
            let volume = claim.volume_name();
            match (volume, self.class_that_waits(&claim)) {
                (volume, _) if is_bound(&claim) => match self.volumes.get(&NamespacedName::new("", volume)) {
                    Some(volume) => claims.volumes.push(volume),
                    None => missing = missing.or(Some(volume.to_owned())),
                },
                ("", Some(class)) => {
                    let capacities = self.capacities_of(&class);
                    claims.waiting.push(Waiting { claim, class, capacities });
                }
                _ => is_unbound = true,
            }
        }
        if is_unbound {
            return Err("pod has unbound immediate PersistentVolumeClaims".to_owned());
        }
        if let Some(volume) = missing {
            return Err(format!("persistentvolume {volume:?} not found"));
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

    /// Returns the free storage for a class, if its driver announces it.
    fn capacities_of(&self, class: &StorageClass) -> Option<Vec<Arc<CSIStorageCapacity>>> {
        let driver = self.drivers.get(&NamespacedName::new("", &class.provisioner))?;
        let mut capacities = self.capacities.all();
        capacities.retain(|capacity| Some(&capacity.storage_class_name) == class.metadata.name.as_ref());
        (driver.spec.storage_capacity == Some(true)).then_some(capacities)
    }

    fn class_that_waits(&self, claim: &PersistentVolumeClaim) -> Option<Arc<StorageClass>> {
        let class = self.classes.get(&NamespacedName::new("", claim.class()))?;
        waits_for_consumer(&class).then_some(class)
    }
}

impl Claims {
    /// Returns the bindings of the waiting claims on a node.
    ///
    /// # Errors
    /// The reason why one of them cannot be bound there.
    pub fn bindings_on(&self, node: &Node) -> Result<Vec<VolumeBinding>, &'static str> {
        let mut free: Vec<_> = self.free.iter().filter(|volume| reaches(volume, node)).cloned().collect();
        let mut served = Vec::new();
        for Waiting { claim, class, capacities } in &self.waiting {
            let volume = match selected_node(claim) {
                Some(name) if name != node.name_any() => return Err(NO_VOLUME),
                Some(_) => None,
                None => search::best(claim, &free, false).cloned(),
            };
            if let Some(volume) = &volume {
                free.retain(|other| !Arc::ptr_eq(other, volume));
            } else if !provisions(class, node) {
                return Err(NO_VOLUME);
            } else if !capacities.as_ref().is_none_or(|all| suffices(all, claim, node)) {
                return Err(NO_STORAGE);
            }
            served.push(VolumeBinding { claim: claim.clone(), volume });
        }
        Ok(served)
    }
}

/// Returns `true` if the free storage that a node can reach suffices for a claim.
fn suffices(capacities: &[Arc<CSIStorageCapacity>], claim: &PersistentVolumeClaim, node: &Node) -> bool {
    let requests = claim.spec.as_ref().and_then(|spec| spec.resources.as_ref()?.requests.as_ref());
    if requests.is_none_or(|requests| !requests.contains_key("storage")) {
        return true;
    }
    let none = BTreeMap::new();
    let labels = node.metadata.labels.as_ref().unwrap_or(&none);
    let wanted = claim.requested();
    capacities.iter().any(|capacity| {
        let limit = capacity.maximum_volume_size.as_ref().or(capacity.capacity.as_ref());
        let limit = limit.and_then(|limit| limit.0.parse::<Quantity>().ok());
        let selector = capacity.node_topology.clone().and_then(|nodes| Selector::try_from(nodes).ok());
        limit.is_some_and(|limit| limit.value() >= wanted.value())
            && selector.is_some_and(|selector| selector.matches(labels))
    })
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
