//! persistentvolume-attach-detach-controller: requests that CSI volumes be attached to the nodes of
//! the pods that use them.
//!
//! A volume is reconciled when it, its claim, one of its attachments, or a pod that uses it
//! changes:
//! 1. its attachments and the nodes of its pods are compared ([`plan`]);
//! 2. VolumeAttachments are created and deleted; the driver's external-attacher attaches and
//!    detaches;
//! 3. pods get an event when their volume is attached, or with the reason why it cannot be.
//!
//! Another queue keeps the list of attached volumes in the status of each node (`node_status.rs`).
//!
//! Only nodes with the annotation for it are handled, and only drivers whose CSIDriver requires
//! attachment. A client's attachment is not touched: only attachments with the name that this
//! controller generates for a volume and a node are deleted. The controller remembers its
//! attachments of a deleted volume; a process that did not observe the volume ignores its
//! attachments.

mod node_status;
mod plan;

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use coracle_controller_runtime::cache::{Cache, NamespacedName};
use coracle_controller_runtime::events::Recorder;
use coracle_controller_runtime::queue::Queue;
use coracle_controller_runtime::{
    Action, Controller, Error, Initialize, ReconcileContext, Sources, ignore_conflict, ignore_not_found,
    run_all, start_part, uid_precondition,
};
use coracle_kinds::pods::{self, is_terminated, pod_claims};
use coracle_kinds::storage::attachment::{self, attachment, is_attached, volume_of};
use coracle_kinds::storage::{ClaimExt, VolumeExt};
use coracle_object_meta::annotation;
use coracle_volumes::attachment::needs_attachment;
use coracle_volumes::indexes::{ByClaim, ByVolume};
use k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::storage::v1::{CSIDriver, VolumeAttachment};
use kube::ResourceExt;
use parking_lot::{Mutex, MutexGuard};

use crate::settings::{Context, Settings};
use node_status::NodeStatusController;
use plan::{Observed, plan};

pub const NAME: &str = "persistentvolume-attach-detach-controller";

/// The annotation of a node that leaves its attachments to this controller.
const MANAGED: &str = "volumes.kubernetes.io/controller-managed-attach-detach";

/// Runs both queues.
pub async fn run(context: Context, ready: impl FnOnce()) {
    let parts = [start_part::<_, AttachDetachController>, start_part::<_, NodeStatusController>];
    run_all(context, &parts, ready).await;
}

pub struct AttachDetachController {
    recorder: Recorder,
    volumes: Arc<Cache<PersistentVolume>>,
    claims: Arc<Cache<PersistentVolumeClaim>>,
    pods: Arc<Cache<Pod>>,
    nodes: Arc<Cache<Node>>,
    drivers: Arc<Cache<CSIDriver>>,
    attachments: Arc<Cache<VolumeAttachment>>,
    notifications: Mutex<PodNotifications>,
    /// The attachments managed by this controller, by volume.
    managed: Mutex<HashMap<NamespacedName, HashSet<String>>>,
}

/// The events that pods have received, or are about to receive.
#[derive(Default)]
struct PodNotifications {
    /// The attachments that were created.
    attaching: HashSet<String>,
    /// The nodes that have to wait for a volume.
    refused: HashMap<NamespacedName, BTreeSet<String>>,
}

impl Initialize<Settings> for AttachDetachController {
    fn new(context: &Context) -> AttachDetachController {
        AttachDetachController {
            recorder: context.recorder("attachdetach-controller"),
            volumes: context.cache(),
            claims: context.cache(),
            pods: context.cache(),
            nodes: context.cache(),
            drivers: context.cache(),
            attachments: context.cache(),
            notifications: Mutex::default(),
            managed: Mutex::default(),
        }
    }
}

impl Controller for AttachDetachController {
    const NAME: &'static str = NAME;
    const QUEUE_NAME: &'static str = "attach_detach";
    /// A volume.
    type Key = NamespacedName;

    fn sources(&self, sources: &mut Sources<NamespacedName>) {
        let claims = self.claims.clone();
        sources
            .on_each_if(&self.volumes, |change| {
                let is_csi = change.states().any(|volume| attachment::is_csi(volume));
                is_csi && change.changed(|volume| volume.claim_ref().cloned())
            })
            .on(&self.claims, |change, queue| {
                if change.changed(|claim| (claim.volume_name().to_owned(), claim.phase().to_owned())) {
                    change.states().for_each(|claim| enqueue_volume(claim, queue));
                }
            })
            .on(&self.pods, move |change, queue| {
                let Some(pod) = change.object() else { return };
                if change.changed(|pod| (pods::node(pod).map(str::to_owned), is_terminated(pod))) {
                    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
                    let names = pod_claims(pod).map(|claim| NamespacedName::new(namespace, claim.name));
                    names
                        .filter_map(|name| claims.get(&name))
                        .for_each(|claim| enqueue_volume(&claim, queue));
                }
            })
            .on(&self.attachments, |change, queue| {
                let is_terminating =
                    |attachment: &VolumeAttachment| attachment.metadata.deletion_timestamp.is_some();
                if change.changed(|attachment| (is_terminating(attachment), is_attached(attachment))) {
                    let volume = change.object().and_then(|attachment| volume_of(attachment));
                    volume.into_iter().for_each(|volume| queue.add(NamespacedName::new("", volume)));
                }
            });
    }

    async fn reconcile(&self, name: &NamespacedName, ctx: &ReconcileContext) -> Result<Action, Error> {
        let known = self.volumes.get(name);
        let attachments = self.managed(name, known.as_deref());
        let volume = known.filter(|volume| needs_attachment(volume, &self.drivers));
        let pods = volume.as_ref().map(|volume| self.pods_of(volume)).unwrap_or_default();
        self.record_attached(name, &attachments, &pods);
        let nodes =
            pods.iter().filter_map(|pod| pods::node(pod)).filter(|node| self.is_managed(node)).collect();
        let plan = plan(&Observed { volume: volume.as_deref(), nodes, attachments: &attachments });
        let api = ctx.api(&self.attachments);
        for gone in plan.detach {
            ignore_not_found(ignore_conflict(api.delete(gone, &uid_precondition(gone)).await))?;
            self.notifications().attaching.remove(&gone.name_any());
        }
        for node in plan.attach {
            let Some(wanted) = volume.as_deref().and_then(|volume| attachment(volume, node)) else {
                continue;
            };
            ignore_conflict(api.create(&wanted).await)?;
            self.notifications().attaching.insert(wanted.name_any());
        }
        self.record_refused(name, plan.refuse, &pods);
        Ok(Action::AwaitChange)
    }
}

impl AttachDetachController {
    fn notifications(&self) -> MutexGuard<'_, PodNotifications> {
        self.notifications.lock()
    }

    /// Returns the attachments of a volume that have names of this controller.
    fn managed(
        &self,
        name: &NamespacedName,
        volume: Option<&PersistentVolume>,
    ) -> Vec<Arc<VolumeAttachment>> {
        let mut attachments = self.attachments.by::<ByVolume>(name);
        let mut managed = self.managed.lock();
        let before = managed.remove(name).unwrap_or_default();
        attachments.retain(|known| {
            let made = volume.and_then(|volume| attachment(volume, &known.spec.node_name));
            before.contains(&known.name_any()) || made.is_some_and(|made| made.name_any() == known.name_any())
        });
        if !attachments.is_empty() {
            let names = attachments.iter().map(|attachment| attachment.name_any()).collect();
            managed.insert(name.clone(), names);
        }
        attachments
    }

    /// Records on pods that their volume was attached, once.
    fn record_attached(
        &self,
        volume: &NamespacedName,
        attachments: &[Arc<VolumeAttachment>],
        pods: &[Arc<Pod>],
    ) {
        for attachment in attachments.iter().filter(|attachment| is_attached(attachment)) {
            if self.notifications().attaching.remove(&attachment.name_any()) {
                let node = attachment.spec.node_name.as_str();
                let there = pods.iter().filter(|pod| pods::node(pod) == Some(node));
                // The message ends with a space, as in kube-controller-manager.
                let message = format!("AttachVolume.Attach succeeded for volume {:?} ", volume.name);
                there.for_each(|pod| {
                    self.recorder.normal(pod.as_ref(), "SuccessfulAttachVolume", message.clone());
                });
            }
        }
    }

    /// Records on pods that another node has their volume, once.
    fn record_refused(&self, volume: &NamespacedName, nodes: Vec<&str>, pods: &[Arc<Pod>]) {
        let refused: BTreeSet<String> = nodes.into_iter().map(str::to_owned).collect();
        let known = match refused.is_empty() {
            true => self.notifications().refused.remove(volume),
            false => self.notifications().refused.insert(volume.clone(), refused.clone()),
        };
        for new in refused.difference(&known.unwrap_or_default()) {
            let (here, elsewhere): (Vec<_>, Vec<_>) =
                pods.iter().partition(|pod| pods::node(pod) == Some(new));
            for pod in here {
                let message = plan::refusal(&volume.name, pod, &elsewhere);
                self.recorder.warning(pod.as_ref(), "FailedAttachVolume", message);
            }
        }
    }

    /// Returns the pods on nodes that use a volume.
    fn pods_of(&self, volume: &PersistentVolume) -> Vec<Arc<Pod>> {
        let Some(name) = volume.claim_name() else { return Vec::new() };
        let is_bound = |claim: &PersistentVolumeClaim| {
            claim.phase() == "Bound" && claim.volume_name() == volume.name_any() && volume.is_bound_to(claim)
        };
        if !self.claims.get(&name).is_some_and(|claim| is_bound(&claim)) {
            return Vec::new();
        }
        let mut pods = self.pods.by::<ByClaim>(&name);
        pods.retain(|pod| pods::node(pod).is_some() && !is_terminated(pod));
        pods
    }

    fn is_managed(&self, node: &str) -> bool {
        self.nodes.get(&NamespacedName::new("", node)).is_some_and(|node| is_managed(&node))
    }
}

/// Returns `true` if the attachments of a node are left to this controller.
fn is_managed(node: &Node) -> bool {
    annotation(&node.metadata, MANAGED) == Some("true")
}

/// Enqueues the volume of a claim.
fn enqueue_volume(claim: &PersistentVolumeClaim, queue: &Queue<NamespacedName>) {
    if !claim.volume_name().is_empty() {
        queue.add(NamespacedName::new("", claim.volume_name()));
    }
}
