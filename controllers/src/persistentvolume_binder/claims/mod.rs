//! The loop over claims: observe, [`plan`], execute.

pub mod plan;

use std::sync::Arc;
use std::time::Duration;

use coracle_clock::Clock;
use coracle_controller_runtime::cache::{Cache, NamespacedName};
use coracle_controller_runtime::events::Recorder;
use coracle_controller_runtime::{Action, Controller, Error, Initialize, ReconcileContext, Sources};
use coracle_kinds::pods;
use coracle_kinds::storage::{
    BETA_STORAGE_PROVISIONER, BIND_COMPLETED, ClaimExt, STORAGE_PROVISIONER, VolumeExt,
};
use coracle_object_meta::{annotation, set_annotation};
use coracle_volumes::bind;
use coracle_volumes::indexes::{ByClaim, ByClaimRef};
use coracle_volumes::migration::Migration;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::storage::v1::StorageClass;
use kube::{Resource, ResourceExt};

use super::metrics::{EndToEnd, Operation, Retroactive};
use super::writer::Writer;
use super::{COMPONENT, NAME, RESYNC, in_tree};
use crate::settings::{Context, Settings};
use crate::timers::{VOLUME_AVAILABLE, VOLUME_RESYNC};
use plan::{ClaimContext, EventRecord, Plan, plan};

/// The shortest time for which a volume is available, even if a claim waits for it: clients wait
/// for that phase, and kube-controller-manager takes up to its whole period.
const MIN_AVAILABLE: Duration = Duration::from_secs(2);

pub struct ClaimController {
    lister: ClaimLister,
    writer: Writer,
    recorder: Recorder,
    clock: Clock,
    migration: Migration,
    provisioning: EndToEnd,
    retroactive: Retroactive,
}

/// The caches from which the context of a claim is read.
pub struct ClaimLister {
    pub claims: Arc<Cache<PersistentVolumeClaim>>,
    volumes: Arc<Cache<PersistentVolume>>,
    pub classes: Arc<Cache<StorageClass>>,
    pods: Arc<Cache<Pod>>,
}

impl ClaimLister {
    pub fn new(context: &Context) -> ClaimLister {
        ClaimLister {
            claims: context.cache(),
            volumes: context.cache(),
            classes: context.cache(),
            pods: context.cache(),
        }
    }

    pub fn claim_context(&self, claim: &PersistentVolumeClaim) -> ClaimContext {
        let is_searching =
            claim.volume_name().is_empty() && annotation(&claim.metadata, BIND_COMPLETED).is_none();
        let named = (!claim.volume_name().is_empty())
            .then(|| self.volumes.get(&NamespacedName::new("", claim.volume_name())))
            .flatten();
        if !is_searching {
            return ClaimContext { named, ..ClaimContext::default() };
        }
        ClaimContext {
            named,
            volumes: self.free_volumes(claim),
            classes: self.classes.all(),
            waiting_pods: self.waiting_pods(claim),
        }
    }

    /// Returns the volumes that refer to this claim or to none.
    fn free_volumes(&self, claim: &PersistentVolumeClaim) -> Vec<Arc<PersistentVolume>> {
        let mut volumes = self.volumes.by::<ByClaimRef>(&NamespacedName::of(claim));
        volumes.extend(self.volumes.by::<ByClaimRef>(&ByClaimRef::NONE));
        volumes
    }

    fn waiting_pods(&self, claim: &PersistentVolumeClaim) -> Vec<String> {
        let pods = self.pods.by::<ByClaim>(&NamespacedName::of(claim));
        let waiting = pods.iter().filter(|pod| is_waiting(pod));
        waiting.map(|pod| pod.name_any()).collect()
    }
}

/// Returns the claims that are not bound and satisfy a predicate.
fn unbound(
    claims: &Cache<PersistentVolumeClaim>,
    is_so: impl Fn(&PersistentVolumeClaim) -> bool,
) -> Vec<NamespacedName> {
    let all = claims.all().into_iter();
    let unbound = all.filter(|claim| annotation(&claim.metadata, BIND_COMPLETED).is_none() && is_so(claim));
    unbound.map(|claim| NamespacedName::of(claim.as_ref())).collect()
}

/// Returns `true` if a pod has no node yet and has not ended.
fn is_waiting(pod: &Pod) -> bool {
    pods::node(pod).is_none() && !coracle_kinds::pods::is_terminated(pod)
}

impl Initialize<Settings> for ClaimController {
    fn new(context: &Context) -> ClaimController {
        ClaimController {
            lister: ClaimLister::new(context),
            writer: Writer::new(context),
            recorder: context.recorder(COMPONENT),
            clock: context.clock.clone(),
            migration: context.settings.volumes.migration,
            provisioning: EndToEnd::new(context, Operation::Provision),
            retroactive: Retroactive::new(context),
        }
    }
}

impl Controller for ClaimController {
    const NAME: &'static str = NAME;
    const QUEUE_NAME: &'static str = "claims";
    type Key = NamespacedName;

    fn sources(&self, sources: &mut Sources<NamespacedName>) {
        let (waiting, waiting_too) = (self.lister.claims.clone(), self.lister.claims.clone());
        let claims = self.lister.claims.clone();
        sources
            .on_each(&self.lister.claims)
            .on(&self.lister.volumes, move |change, queue| {
                if let Some(claim) = change.object().and_then(|volume| volume.claim_name()) {
                    queue.add(claim);
                }
                // An available volume: the claims that wait for one are enqueued, after a delay.
                if let Some(volume) = change.new.as_ref().filter(|volume| volume.phase() == "Available") {
                    let suited = unbound(&waiting, |claim| claim.class() == volume.class());
                    suited
                        .into_iter()
                        .for_each(|claim| queue.add_after(claim, VOLUME_AVAILABLE.after(MIN_AVAILABLE)));
                }
            })
            .on(&self.lister.classes, move |change, queue| {
                let name = change.name().map(|name| name.name).unwrap_or_default();
                // The class may be the default for claims without one.
                let concerned = unbound(&waiting_too, |claim| !claim.has_class() || claim.class() == name);
                concerned.into_iter().for_each(|claim| queue.add(claim));
            })
            .periodically(VOLUME_RESYNC.after(RESYNC), &self.clock, move |queue| {
                claims.all().iter().for_each(|claim| queue.offer(NamespacedName::of(claim.as_ref())));
            });
    }

    async fn reconcile(&self, name: &NamespacedName, ctx: &ReconcileContext) -> Result<Action, Error> {
        let Some(claim) = self.lister.claims.get(name) else {
            self.provisioning.forget(name);
            return Ok(Action::AwaitChange);
        };
        let claim = match plan::annotated(&claim, self.migration) {
            Some(marked) => Arc::new(self.writer.claim(marked, ctx).await?),
            None => claim,
        };
        let claim_context = self.lister.claim_context(&claim);
        match plan(&claim, &claim_context) {
            Plan::Bind(volume) => {
                self.writer.bind(&claim, &volume, ctx).await?;
                self.provisioning.end(name);
            }
            Plan::SetClass(class) => {
                let mut claim = claim.as_ref().clone();
                claim.spec.get_or_insert_default().storage_class_name = Some(class);
                let written = self.writer.claim(claim, ctx).await;
                self.retroactive.observe(written.is_ok());
                written?;
            }
            Plan::Provision(class) => self.provision(&claim, &class, ctx).await?,
            Plan::RecordEvent(event) => self.record(&claim, &event),
            Plan::Wait(event) => {
                event.iter().for_each(|event| self.record(&claim, event));
                self.phase(&claim, "Pending", ctx).await?;
            }
            Plan::Fail(event) => {
                self.record(&claim, &event);
                return Err(Error::Unfinished(format!("claim {name}: {}", event.message)));
            }
            Plan::Lose(event) if claim.phase() != "Lost" => {
                self.phase(&claim, "Lost", ctx).await?;
                self.record(&claim, &event);
            }
            Plan::Lose(_) => {}
        }
        Ok(Action::AwaitChange)
    }
}

impl ClaimController {
    fn record(&self, claim: &PersistentVolumeClaim, event: &EventRecord) {
        self.recorder.event(claim.object_ref(&()), event.r#type, event.reason, event.message.clone());
    }

    async fn phase(
        &self,
        claim: &PersistentVolumeClaim,
        phase: &str,
        ctx: &ReconcileContext,
    ) -> Result<(), Error> {
        if let Some(changed) = bind::claim_phase(claim, phase, None) {
            self.writer.claim_status(changed, ctx).await?;
        }
        Ok(())
    }

    /// Annotates the claim with its provisioner, and records an event if that is an external one.
    async fn provision(
        &self,
        claim: &PersistentVolumeClaim,
        class: &StorageClass,
        ctx: &ReconcileContext,
    ) -> Result<(), Error> {
        let is_in_tree = match in_tree::provides(&class.provisioner, self.migration) {
            Ok(is_in_tree) => is_in_tree,
            Err(refusal) => {
                self.record(claim, &EventRecord::warning("ProvisioningFailed", refusal));
                return Ok(());
            }
        };
        if is_in_tree && claim.spec.as_ref().is_some_and(|spec| spec.data_source.is_some()) {
            let plugin = &class.provisioner;
            let refusal = format!(
                "plugin {plugin:?} is not a CSI plugin. Only CSI plugin can provision a claim with a datasource"
            );
            self.record(claim, &EventRecord::warning("ProvisioningFailed", refusal));
            return Ok(());
        }
        let provisioner = self.migration.driver(&class.provisioner).unwrap_or(&class.provisioner);
        self.provisioning.begin(&NamespacedName::of(claim), provisioner);
        if annotation(&claim.metadata, STORAGE_PROVISIONER) != Some(provisioner) {
            let mut claim = claim.clone();
            set_annotation(&mut claim.metadata, BETA_STORAGE_PROVISIONER, provisioner);
            set_annotation(&mut claim.metadata, STORAGE_PROVISIONER, provisioner);
            let claim = plan::annotated(&claim, self.migration).unwrap_or(claim);
            self.writer.claim(claim, ctx).await?;
        }
        if !is_in_tree {
            let message = format!(
                "Waiting for a volume to be created either by the external provisioner '{provisioner}' or manually by the system administrator. If volume creation is delayed, please verify that the provisioner is running and correctly registered."
            );
            self.record(claim, &EventRecord::normal("ExternalProvisioning", message));
        }
        Ok(())
    }
}
