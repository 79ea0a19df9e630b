//! The mounts of pods: links `pods/UID/volumes/NAME` to the directories of volumes. They exist
//! before anything of a pod runs, and until it is removed.

use std::collections::HashSet;
use std::sync::Arc;

use coracle_controller_runtime::cache::{Cache, NamespacedName};
use coracle_controller_runtime::{Error, ReconcileContext};
use coracle_kinds::pods::{self, pod_claims};
use coracle_kinds::storage::attachment::{attachment, is_attached};
use coracle_kinds::storage::{BIND_COMPLETED, ClaimExt};
use coracle_volumes::attachment::needs_attachment;
use coracle_volumes::confined_fs::{Name, Root, blocking};
use coracle_volumes::migration::CSI_DRIVER;
use coracle_volumes::provisioner::directories::Directories;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::storage::v1::{CSIDriver, VolumeAttachment};
use kube::ResourceExt;

use crate::settings::Context;

pub struct Mounts {
    directories: Directories,
    /// A directory that contains only links. Their targets are never changed through them.
    pods: Root,
    claims: Arc<Cache<PersistentVolumeClaim>>,
    volumes: Arc<Cache<PersistentVolume>>,
    drivers: Arc<Cache<CSIDriver>>,
    pub attachments: Arc<Cache<VolumeAttachment>>,
}

/// The result of mounting the volumes of a pod.
pub enum Mounted {
    Yes,
    /// Some claims are being bound, or some volumes are not attached yet; the kubelet watches for it.
    NotYet,
    /// The volumes cannot be mounted: the kubelet's message.
    No(String),
}

impl Mounts {
    pub fn new(context: &Context) -> Mounts {
        Mounts {
            directories: Directories::new(&context.settings.volumes.data),
            pods: Root::new(&context.settings.volumes.data.own, ["pods"]),
            claims: context.cache(),
            volumes: context.cache(),
            drivers: context.cache(),
            attachments: context.cache(),
        }
    }

    /// Mounts the volumes of a pod's claims. It reads the claims from the server like a kubelet,
    /// since a pod must not run with a claim that is deleted.
    pub async fn mount(&self, pod: &Pod, ctx: &ReconcileContext) -> Result<Mounted, Error> {
        if self.waits_for_attachment(pod) {
            return Ok(Mounted::NotYet);
        }
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        let (mut bound, mut failed, mut problems) = (Vec::new(), Vec::new(), Vec::new());
        let mut is_binding = false;
        for claim in pod_claims(pod) {
            let name = &claim.name;
            let live = ctx.api(&self.claims).get(&NamespacedName::new(namespace, name)).await?;
            if live.as_ref().is_some_and(is_being_bound) {
                is_binding = true;
                continue;
            }
            let problem = match live {
                None => Some(format!(
                    "failed to fetch PVC from API server: persistentvolumeclaims {name:?} not found"
                )),
                Some(object) => {
                    let problem = problem(&object).map(str::to_owned);
                    bound.push((claim.volume, object));
                    problem
                }
            };
            if let Some(problem) = problem {
                failed.push(claim.volume);
                problems.push(format!("error processing PVC {namespace}/{name}: {problem}"));
            }
        }
        if !problems.is_empty() {
            let volumes = failed.join(" ");
            return Ok(Mounted::No(format!(
                "Unable to attach or mount volumes: unmounted volumes=[{volumes}], unattached volumes=[], \
                 failed to process volumes=[{volumes}]: {}",
                problems.join("; ")
            )));
        }
        if is_binding {
            return Ok(Mounted::NotYet);
        }
        let uid = pod.metadata.uid.as_deref().unwrap_or_default();
        for (name, claim) in bound {
            let volume = NamespacedName::new("", claim.volume_name());
            let Some(volume) = ctx.api(&self.volumes).get(&volume).await? else { continue };
            if !self.is_attached(&volume, pod) {
                return Ok(Mounted::NotYet);
            }
            if let Err(error) = self.publish(uid, name, &volume).await {
                let volume = claim.volume_name();
                return Ok(Mounted::No(format!("MountVolume.SetUp failed for volume {volume:?} : {error}")));
            }
        }
        Ok(Mounted::Yes)
    }

    /// Returns `true` if the pod has to wait for an attachment only, as far as the caches know. Then
    /// nothing need be read from the server.
    fn waits_for_attachment(&self, pod: &Pod) -> bool {
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        let claims =
            pod_claims(pod).map(|claim| self.claims.get(&NamespacedName::new(namespace, claim.name)));
        let Some(claims) = claims.collect::<Option<Vec<_>>>() else { return false };
        let volume = |claim: &Arc<PersistentVolumeClaim>| {
            self.volumes.get(&NamespacedName::new("", claim.volume_name()))
        };
        claims.iter().all(|claim| problem(claim).is_none())
            && claims.iter().filter_map(volume).any(|volume| !self.is_attached(&volume, pod))
    }

    /// Returns `true` if a volume is attached to the pod's node, or need not be. Only volumes of
    /// the simulated CSI driver are attached, and only if its CSIDriver requires that.
    fn is_attached(&self, volume: &PersistentVolume, pod: &Pod) -> bool {
        let source = volume.spec.as_ref().and_then(|spec| spec.csi.as_ref());
        if source.is_none_or(|source| source.driver != CSI_DRIVER) || !needs_attachment(volume, &self.drivers)
        {
            return true;
        }
        let known = pods::node(pod)
            .and_then(|node| attachment(volume, node))
            .and_then(|wanted| self.attachments.get(&NamespacedName::new("", wanted.name_any())));
        known.is_some_and(|known| known.metadata.deletion_timestamp.is_none() && is_attached(&known))
    }

    /// Creates the link to a volume, if the volume is a directory of this machine.
    async fn publish(&self, uid: &str, name: &str, volume: &PersistentVolume) -> Result<(), String> {
        let Some(target) = self.directories.of(volume) else { return Ok(()) };
        self.directories.inherit(volume).await?;
        let source = volume.spec.as_ref().and_then(|spec| spec.csi.as_ref());
        if source.is_some_and(|source| source.driver == CSI_DRIVER) {
            // A client may have created the volume by hand, without its directory.
            self.directories.make(volume).await?;
        }
        let names = (Name::new(uid), Name::new("volumes"), Name::new(name));
        let (Some(uid), Some(volumes), Some(name)) = names else {
            return Err(format!("pod {uid:?} or its volume {name:?} cannot be a file's name"));
        };
        let pods = self.pods.clone();
        let linked = blocking(move || pods.link(&[&uid, &volumes], &name, &target)).await;
        linked.map_err(|error| error.to_string())
    }

    /// Removes the mounts of a pod.
    pub async fn unmount(&self, uid: &str) {
        if let Some(uid) = Name::new(uid) {
            self.remove(uid).await;
        }
    }

    /// Removes mounts of deleted pods that a killed process left behind.
    pub async fn remove_orphans(&self, pods: &Cache<Pod>) {
        let root = self.pods.clone();
        let Ok(left) = blocking(move || root.entries()).await else { return };
        // Afterwards, as a pod is known before it gets a directory.
        let known: HashSet<Name> =
            pods.all().iter().filter_map(|pod| Name::new(pod.metadata.uid.as_deref()?)).collect();
        for uid in left.into_iter().filter(|uid| !known.contains(uid)) {
            self.remove(uid).await;
        }
    }

    /// Removes links without following them.
    async fn remove(&self, uid: Name) {
        let pods = self.pods.clone();
        if let Err(error) = blocking(move || pods.remove(&uid)).await {
            tracing::info!(%error, "the volumes of a pod are not removed");
        }
    }
}

/// Returns `true` for a claim that is bound, whose status is about to say so. Its pod may have been
/// scheduled already.
fn is_being_bound(claim: &PersistentVolumeClaim) -> bool {
    claim.metadata.deletion_timestamp.is_none()
        && claim.phase() == "Pending"
        && !claim.volume_name().is_empty()
        && claim.annotations().contains_key(BIND_COMPLETED)
}

fn problem(claim: &PersistentVolumeClaim) -> Option<&'static str> {
    match (claim.phase(), claim.volume_name()) {
        _ if claim.metadata.deletion_timestamp.is_some() => Some("PVC is being deleted"),
        ("Bound", "") => Some("PVC has empty pvc.Spec.VolumeName"),
        ("Bound", _) => None,
        _ => Some("PVC is not bound"),
    }
}
