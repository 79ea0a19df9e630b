//! The loop over claims: observe, [`plan`], act.

pub mod plan;

use std::sync::Arc;
use std::time::Duration;

use coracle_kinds::meta::{annotate, annotation};
use coracle_kinds::pods;
use coracle_kinds::storage::{BETA_STORAGE_PROVISIONER, BIND_COMPLETED, Claim, STORAGE_PROVISIONER, Volume};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::storage::v1::StorageClass;
use kube::{Resource, ResourceExt};

use super::metrics::{EndToEnd, Operation, Retroactive};
use super::{COMPONENT, NAME, RESYNC, Writer, bind, in_tree};
use crate::persistentvolume_binder::csi_migration::Migration;
use crate::persistentvolume_binder::indexes::{ByClaim, ByMeaning};
use crate::runtime::cache::{Cache, NamespacedName};
use crate::runtime::clock::Clock;
use crate::runtime::events::Recorder;
use crate::runtime::{Controller, Error, Next, Sources, Turn};
use crate::{Context, Initialize};
use plan::{Around, Notice, Plan, plan};

/// For how long a volume is available at least, though a claim waits for it: clients wait for that phase, and kube-controller-manager
/// takes up to its whole period.
const FREE: Duration = Duration::from_secs(2);

pub struct Claims {
    look: Look,
    writer: Writer,
    recorder: Recorder,
    clock: Clock,
    migration: Migration,
    provisioning: EndToEnd,
    retroactive: Retroactive,
}

/// What a claim is judged by.
pub struct Look {
    pub claims: Arc<Cache<PersistentVolumeClaim>>,
    volumes: Arc<Cache<PersistentVolume>>,
    pub classes: Arc<Cache<StorageClass>>,
    pods: Arc<Cache<Pod>>,
}

impl Look {
    pub fn new(context: &Context) -> Look {
        Look {
            claims: context.cache(),
            volumes: context.cache(),
            classes: context.cache(),
            pods: context.cache(),
        }
    }

    pub fn around(&self, claim: &PersistentVolumeClaim) -> Around {
        let is_searching =
            claim.volume_name().is_empty() && annotation(&claim.metadata, BIND_COMPLETED).is_none();
        let named = (!claim.volume_name().is_empty())
            .then(|| self.volumes.get(&NamespacedName::new("", claim.volume_name())))
            .flatten();
        if !is_searching {
            return Around { named, ..Around::default() };
        }
        Around {
            named,
            volumes: self.free_volumes(claim),
            classes: self.classes.all(),
            waiting_pods: self.waiting_pods(claim),
        }
    }

    /// The volumes that are meant for nobody else.
    fn free_volumes(&self, claim: &PersistentVolumeClaim) -> Vec<Arc<PersistentVolume>> {
        let mut volumes = self.volumes.by::<ByMeaning>(&NamespacedName::of(claim));
        volumes.extend(self.volumes.by::<ByMeaning>(&ByMeaning::NOBODY));
        volumes
    }

    fn waiting_pods(&self, claim: &PersistentVolumeClaim) -> Vec<String> {
        let pods = self.pods.by::<ByClaim>(&NamespacedName::of(claim));
        let waiting = pods.iter().filter(|pod| is_waiting(pod));
        waiting.map(|pod| pod.name_any()).collect()
    }
}

/// The claims without a volume of which something is true.
fn unbound(
    claims: &Cache<PersistentVolumeClaim>,
    is_so: impl Fn(&PersistentVolumeClaim) -> bool,
) -> Vec<NamespacedName> {
    let all = claims.all().into_iter();
    let unbound = all.filter(|claim| annotation(&claim.metadata, BIND_COMPLETED).is_none() && is_so(claim));
    unbound.map(|claim| NamespacedName::of(claim.as_ref())).collect()
}

/// Whether no node was found for a pod yet.
fn is_waiting(pod: &Pod) -> bool {
    pods::node(pod).is_none() && !coracle_kinds::pods::is_terminated(pod)
}

impl Initialize for Claims {
    fn new(context: &Context) -> Claims {
        Claims {
            look: Look::new(context),
            writer: Writer::new(context),
            recorder: context.recorder(COMPONENT),
            clock: context.clock.clone(),
            migration: Migration::of(&context.settings),
            provisioning: EndToEnd::new(context, Operation::Provision),
            retroactive: Retroactive::new(context),
        }
    }
}

impl Controller for Claims {
    const NAME: &'static str = NAME;
    const QUEUE: &'static str = "claims";
    type Key = NamespacedName;

    fn sources(&self, sources: &mut Sources<NamespacedName>) {
        let (waiting, waiting_too) = (self.look.claims.clone(), self.look.claims.clone());
        let claims = self.look.claims.clone();
        sources
            .on_each(&self.look.claims)
            .on(&self.look.volumes, move |change, queue| {
                if let Some(claim) = change.object().and_then(|volume| volume.claim_name()) {
                    queue.add(claim);
                }
                // A volume that anyone may have: whoever waits for one looks at it, though not at once.
                if let Some(volume) = change.new.as_ref().filter(|volume| volume.phase() == "Available") {
                    let suited = unbound(&waiting, |claim| claim.class() == volume.class());
                    suited.into_iter().for_each(|claim| queue.add_after(claim, FREE));
                }
            })
            .on(&self.look.classes, move |change, queue| {
                let name = change.name().map(|name| name.name).unwrap_or_default();
                // It may be the default of those that have none.
                let concerned = unbound(&waiting_too, |claim| !claim.has_class() || claim.class() == name);
                concerned.into_iter().for_each(|claim| queue.add(claim));
            })
            .needs(&self.look.pods)
            .periodically(RESYNC, &self.clock, move |queue| {
                claims.all().iter().for_each(|claim| queue.offer(NamespacedName::of(claim.as_ref())));
            });
    }

    async fn reconcile(&self, name: &NamespacedName, turn: &Turn) -> Result<Next, Error> {
        let Some(claim) = self.look.claims.get(name) else {
            self.provisioning.forget(name);
            return Ok(Next::Change);
        };
        let claim = match plan::marked(&claim, self.migration) {
            Some(marked) => Arc::new(self.writer.claim(marked, turn).await?),
            None => claim,
        };
        let around = self.look.around(&claim);
        match plan(&claim, &around) {
            Plan::Bind(volume) => {
                self.writer.bind(&claim, &volume, turn).await?;
                self.provisioning.end(name);
            }
            Plan::SetClass(class) => {
                let mut claim = claim.as_ref().clone();
                claim.spec.get_or_insert_default().storage_class_name = Some(class);
                let written = self.writer.claim(claim, turn).await;
                self.retroactive.observe(written.is_ok());
                written?;
            }
            Plan::Provision(class) => self.provision(&claim, &class, turn).await?,
            Plan::Tell(notice) => self.tell(&claim, &notice),
            Plan::Wait(notice) => {
                notice.iter().for_each(|notice| self.tell(&claim, notice));
                self.phase(&claim, "Pending", turn).await?;
            }
            Plan::Refuse(notice) => {
                self.tell(&claim, &notice);
                return Err(Error::Unfinished(format!("claim {name}: {}", notice.message)));
            }
            Plan::Lose(notice) if claim.phase() != "Lost" => {
                self.phase(&claim, "Lost", turn).await?;
                self.tell(&claim, &notice);
            }
            Plan::Lose(_) => {}
        }
        Ok(Next::Change)
    }
}

impl Claims {
    fn tell(&self, claim: &PersistentVolumeClaim, notice: &Notice) {
        self.recorder.event(claim.object_ref(&()), notice.r#type, notice.reason, notice.message.clone());
    }

    async fn phase(&self, claim: &PersistentVolumeClaim, phase: &str, turn: &Turn) -> Result<(), Error> {
        if let Some(changed) = bind::claim_phase(claim, phase, None) {
            self.writer.claim_status(changed, turn).await?;
        }
        Ok(())
    }

    /// Says on the claim who shall provision it, and tells that one waits where it is somebody else.
    async fn provision(
        &self,
        claim: &PersistentVolumeClaim,
        class: &StorageClass,
        turn: &Turn,
    ) -> Result<(), Error> {
        let is_in_tree = match in_tree::provides(&class.provisioner, self.migration) {
            Ok(is_in_tree) => is_in_tree,
            Err(refusal) => {
                self.tell(claim, &Notice::warning("ProvisioningFailed", refusal));
                return Ok(());
            }
        };
        if is_in_tree && claim.spec.as_ref().is_some_and(|spec| spec.data_source.is_some()) {
            let plugin = &class.provisioner;
            let refusal = format!(
                "plugin {plugin:?} is not a CSI plugin. Only CSI plugin can provision a claim with a datasource"
            );
            self.tell(claim, &Notice::warning("ProvisioningFailed", refusal));
            return Ok(());
        }
        let provisioner = self.migration.driver(&class.provisioner).unwrap_or(&class.provisioner);
        self.provisioning.begin(&NamespacedName::of(claim), provisioner);
        if annotation(&claim.metadata, STORAGE_PROVISIONER) != Some(provisioner) {
            let mut claim = claim.clone();
            annotate(&mut claim.metadata, BETA_STORAGE_PROVISIONER, provisioner);
            annotate(&mut claim.metadata, STORAGE_PROVISIONER, provisioner);
            let claim = plan::marked(&claim, self.migration).unwrap_or(claim);
            self.writer.claim(claim, turn).await?;
        }
        if !is_in_tree {
            let message = format!(
                "Waiting for a volume to be created either by the external provisioner '{provisioner}' or manually by the system administrator. If volume creation is delayed, please verify that the provisioner is running and correctly registered."
            );
            self.tell(claim, &Notice::normal("ExternalProvisioning", message));
        }
        Ok(())
    }
}
