//! The number of volumes of a CSI driver that can be attached to a node.
//!
//! Source: kube-scheduler's plugin NodeVolumeLimits, without the volumes in a pod's own spec.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use coracle_controller_runtime::cache::{Cache, NamespacedName};
use coracle_kinds::pods::pod_claims;
use coracle_kinds::storage::ClaimExt;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::storage::v1::{CSINode, StorageClass, VolumeAttachment};

use super::candidate::{Candidate, Rejection};
use super::node_info::NodeInfo;

/// A driver, and the handle of a volume of it.
type CsiVolume = (String, String);

/// The caches that volumes of pods are found in.
#[derive(Clone)]
pub struct VolumeCaches {
    pub claims: Arc<Cache<PersistentVolumeClaim>>,
    pub volumes: Arc<Cache<PersistentVolume>>,
    pub classes: Arc<Cache<StorageClass>>,
}

/// The limits of all nodes in one scheduling cycle.
#[derive(Default)]
pub struct VolumeLimits {
    /// By node and driver.
    limits: HashMap<String, BTreeMap<String, usize>>,
    /// The attached volumes, by node.
    attached: HashMap<String, BTreeSet<CsiVolume>>,
    caches: Option<VolumeCaches>,
}

impl VolumeLimits {
    /// Returns the limits of the nodes. Attachments are read only if there are limits.
    pub fn new(
        nodes: &[Arc<CSINode>],
        attachments: impl FnOnce() -> Vec<Arc<VolumeAttachment>>,
        caches: &VolumeCaches,
    ) -> VolumeLimits {
        let mut limits: HashMap<String, BTreeMap<String, usize>> = HashMap::new();
        for node in nodes {
            for driver in &node.spec.drivers {
                let count = driver.allocatable.as_ref().and_then(|allocatable| allocatable.count);
                let Some(count) = count.and_then(|count| usize::try_from(count).ok()) else { continue };
                let of_node = limits.entry(node.metadata.name.clone().unwrap_or_default()).or_default();
                of_node.insert(driver.name.clone(), count);
            }
        }
        if limits.is_empty() {
            return VolumeLimits::default();
        }
        let mut attached: HashMap<String, BTreeSet<CsiVolume>> = HashMap::new();
        for attachment in attachments() {
            let spec = &attachment.spec;
            let name = spec.source.persistent_volume_name.as_deref().unwrap_or_default();
            let volume = caches.volumes.get(&NamespacedName::new("", name));
            if let Some((_, handle)) = volume.and_then(|volume| csi_volume(&volume)) {
                let of_node = attached.entry(spec.node_name.clone()).or_default();
                of_node.insert((spec.attacher.clone(), handle));
            }
        }
        VolumeLimits { limits, attached, caches: Some(caches.clone()) }
    }

    /// Rejects a node to which the volumes of a pod cannot be attached beside the others.
    pub fn rejection(&self, candidate: &Candidate, node: &NodeInfo) -> Option<Rejection> {
        let (limits, caches) = (self.limits.get(node.name())?, self.caches.as_ref()?);
        let mut new = caches.volumes_of(candidate.pod);
        if new.is_empty() {
            return None;
        }
        let mut present: BTreeSet<CsiVolume> =
            node.pods.iter().flat_map(|pod| caches.volumes_of(pod)).collect();
        new.retain(|volume| !present.contains(volume));
        present.extend(self.attached.get(node.name()).into_iter().flatten().cloned());
        let count = |volumes: &BTreeSet<CsiVolume>, driver: &str| {
            volumes.iter().filter(|(of, _)| of == driver).count()
        };
        let exceeds = |(driver, limit): (&String, &usize)| {
            let wanted = count(&new, driver);
            wanted > 0 && count(&present, driver) + wanted > *limit
        };
        match limits.iter().any(exceeds) {
            true => Rejection::resolvable("node(s) exceed max volume count"),
            false => None,
        }
    }
}

impl VolumeCaches {
    /// Returns the volumes of a pod's claims, as far as they are or will be of a CSI driver.
    fn volumes_of(&self, pod: &Pod) -> BTreeSet<CsiVolume> {
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        let claims = pod_claims(pod).filter_map(|named| {
            let name = NamespacedName::new(namespace, &named.name);
            Some((self.claims.get(&name)?, name))
        });
        claims.filter_map(|(claim, name)| self.volume_of(&claim, &name)).collect()
    }

    fn volume_of(&self, claim: &PersistentVolumeClaim, name: &NamespacedName) -> Option<CsiVolume> {
        let volume = match claim.volume_name() {
            "" => None,
            volume => self.volumes.get(&NamespacedName::new("", volume)),
        };
        match volume {
            Some(volume) => csi_volume(&volume),
            // It will be provisioned, and counts as one that no other pod uses.
            None => {
                let class = self.classes.get(&NamespacedName::new("", claim.class()))?;
                Some((class.provisioner.clone(), format!("claim {name}")))
            }
        }
    }
}

fn csi_volume(volume: &PersistentVolume) -> Option<CsiVolume> {
    let csi = volume.spec.as_ref()?.csi.as_ref()?;
    Some((csi.driver.clone(), csi.volume_handle.clone()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scheduler::dynamic_resources::DeviceSnapshot;
    use crate::scheduler::requests::PodRequests;
    use crate::scheduler::volume_binding::Claims;
    use k8s_openapi::api::core::v1::PodSpec;
    use serde_json::{Value, json};

    fn pod(claims: &[&str]) -> Arc<Pod> {
        let volume = |name: &&str| json!({"name": name, "persistentVolumeClaim": {"claimName": name}});
        let volumes: Vec<Value> = claims.iter().map(volume).collect();
        let spec = json!({"containers": [], "volumes": volumes});
        Arc::new(
            serde_json::from_value(json!({"metadata": {"namespace": "n", "name": "p"}, "spec": spec}))
                .unwrap(),
        )
    }

    #[test]
    fn volumes_of_a_driver_are_counted_on_a_node() {
        // The claims a, b and c have volumes of the driver x, d will have one, and o has another.
        let claims = ["a", "b", "c", "d", "o"].map(|name| {
            let volume = if name == "d" { "" } else { name };
            let spec = json!({"storageClassName": "x", "volumeName": volume});
            serde_json::from_value::<PersistentVolumeClaim>(
                json!({"metadata": {"namespace": "n", "name": name}, "spec": spec}),
            )
            .unwrap()
        });
        let volumes = ["a", "b", "c", "o"].map(|name| {
            let spec = match name {
                "o" => json!({"hostPath": {"path": "/"}}),
                name => json!({"csi": {"driver": "x", "volumeHandle": name}}),
            };
            serde_json::from_value::<PersistentVolume>(json!({"metadata": {"name": name}, "spec": spec}))
                .unwrap()
        });
        let class: StorageClass =
            serde_json::from_value(json!({"metadata": {"name": "x"}, "provisioner": "x"})).unwrap();
        let caches = VolumeCaches {
            claims: Arc::new(Cache::with(claims)),
            volumes: Arc::new(Cache::with(volumes)),
            classes: Arc::new(Cache::with([class])),
        };
        for (case, there, attached, wanted, limit, want) in [
            ("no limit", &["a"][..], &[][..], &["b"][..], None, true),
            ("room for one", &["a"], &[], &["b"], Some(2), true),
            ("full", &["a", "b"], &[], &["c"], Some(2), false),
            ("one to be provisioned", &["a", "b"], &[], &["d"], Some(2), false),
            ("the same volume", &["a", "b"], &[], &["a"], Some(2), true),
            ("of no driver", &["a", "b"], &[], &["o"], Some(2), true),
            ("still attached", &["a"], &["b"], &["c"], Some(2), false),
            ("attached for a pod", &["a"], &["a"], &["c"], Some(2), true),
        ] {
            let driver = json!({"name": "x", "nodeID": "a", "allocatable": limit.map(|count| json!({"count": count}))});
            let csi_node: CSINode =
                serde_json::from_value(json!({"metadata": {"name": "a"}, "spec": {"drivers": [driver]}}))
                    .unwrap();
            let attachments = attached.iter().map(|name| {
                let spec =
                    json!({"attacher": "x", "nodeName": "a", "source": {"persistentVolumeName": name}});
                Arc::new(serde_json::from_value(json!({"metadata": {}, "spec": spec})).unwrap())
            });
            let limits = VolumeLimits::new(&[Arc::new(csi_node)], || attachments.collect(), &caches);
            let mut node = NodeInfo::new(serde_json::from_value(json!({"metadata": {"name": "a"}})).unwrap());
            node.add_pod(pod(there));
            let (pod, devices, spec) = (pod(wanted), DeviceSnapshot::default(), PodSpec::default());
            let requests = PodRequests::default();
            let devices = devices.devices_of(&pod, &requests).unwrap();
            let candidate = Candidate {
                pod: &pod,
                spec: &spec,
                requests,
                claims: Claims::default(),
                devices,
                siblings: None,
                volume_limits: &limits,
            };
            assert_eq!(limits.rejection(&candidate, &node).is_none(), want, "{case}");
        }
    }
}
