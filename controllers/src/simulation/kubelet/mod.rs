//! The kubelets of the simulated nodes.
//!
//! A pod is looked at when it changes, when one of its claims does, and when something is due in it:
//! 1. pods of other nodes, ignored ones, and those that have ended are left alone, but for removing the latter;
//! 2. before anything runs in a pod its claims are asked of the server, and their volumes mounted ([`mounts`]);
//! 3. [`plan::plan`] moves the pod's [`life::Life`] on to now;
//! 4. if anything happened, the status is written, events tell of it, and the pod is removed once nothing runs that was to stop.
//!
//! Lives are kept in memory, so that they are exact and no status has to be read back; after a restart of the process they
//! are restored from the statuses. A pod that starts without delay is written once.

mod addresses;
pub mod life;
mod mounts;
mod plan;
mod script;
mod status;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use coracle_kinds::pods::{self, claims_of};
use coracle_kinds::storage::Volume;
use coracle_kinds::storage::attachment::{is_attached, volume_of};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod};
use kube::api::{Patch, PatchParams};
use kube::{Api, Client, Resource};

use super::node::SimulatedNode;
use super::{is_finished, is_ignored};
use crate::persistentvolume_binder::indexes::ByClaim;
use crate::runtime::cache::{Cache, NamespacedName};
use crate::runtime::clock::Clock;
use crate::runtime::events::Recorder;
use crate::runtime::{Controller, Error, Next, Sources, Turn, only_this, unless};
use crate::{Context, Initialize, Settings};
use addresses::Leases;
use life::{Happening, Life};
use mounts::{Mounted, Mounts};
use plan::{Plan, Seen, plan, waits_for_removal};
use script::Script;
use status::Addresses;

const NAME: &str = "kubelet";

pub struct Kubelet {
    client: Client,
    clock: Clock,
    recorder: Recorder,
    nodes: usize,
    pods: Arc<Cache<Pod>>,
    claims: Arc<Cache<PersistentVolumeClaim>>,
    volumes: Arc<Cache<PersistentVolume>>,
    mounts: Arc<Mounts>,
    records: Mutex<HashMap<NamespacedName, Record>>,
    /// None: the pods that were there from the start have yet to be asked for their addresses.
    leases: Mutex<Option<Leases>>,
}

/// What is known of a pod beside what the API shows.
#[derive(Clone, Default)]
struct Record {
    uid: String,
    life: Option<Life>,
    has_claims: bool,
    /// Complaints that were made.
    told: Vec<String>,
    is_removed: bool,
}

impl Initialize for Kubelet {
    fn is_possible(settings: &Settings) -> bool {
        settings.nodes > Some(0)
    }

    fn new(context: &Context) -> Kubelet {
        Kubelet {
            client: context.client.clone(),
            clock: context.clock.clone(),
            recorder: context.recorder(NAME),
            nodes: context.settings.nodes.unwrap_or(0),
            pods: context.cache(),
            claims: context.cache(),
            volumes: context.cache(),
            mounts: Arc::new(Mounts::new(context)),
            records: Mutex::default(),
            leases: Mutex::default(),
        }
    }
}

impl Controller for Kubelet {
    const NAME: &'static str = NAME;
    const QUEUE: &'static str = NAME;
    const WORKERS: usize = 16;
    type Key = NamespacedName;

    fn sources(&self, sources: &mut Sources<NamespacedName>) {
        let nodes = self.nodes;
        let is_ours = move |pod: &Arc<Pod>| {
            pods::node(pod).and_then(|name| SimulatedNode::named(name, nodes)).is_some()
        };
        sources.on(&self.pods, move |change, queue| {
            change
                .name()
                .filter(|_| change.states().any(is_ours))
                .into_iter()
                .for_each(|name| queue.add(name));
        });
        let (pods, mounts) = (self.pods.clone(), self.mounts.clone());
        sources.beside(|_| async move {
            pods.synced().await;
            mounts.sweep(&pods).await;
            std::future::pending().await
        });
        let pods = self.pods.clone();
        sources.on(&self.claims, move |change, queue| {
            let Some(claim) = change.name() else { return };
            let using = pods.by::<ByClaim>(&claim).into_iter().filter(is_ours);
            using.for_each(|pod| queue.add(NamespacedName::of(pod.as_ref())));
        });
        let (pods, volumes) = (self.pods.clone(), self.volumes.clone());
        sources.needs(&self.volumes).on(&self.mounts.attachments, move |change, queue| {
            let attached = change.new.as_deref().filter(|attachment| is_attached(attachment));
            let volume =
                attached.and_then(volume_of).and_then(|name| volumes.get(&NamespacedName::new("", name)));
            let Some(claim) = volume.and_then(|volume| volume.claim_name()) else { return };
            let using = pods.by::<ByClaim>(&claim).into_iter().filter(is_ours);
            using.for_each(|pod| queue.add(NamespacedName::of(pod.as_ref())));
        });
    }

    async fn reconcile(&self, key: &NamespacedName, turn: &Turn) -> Result<Next, Error> {
        let pod = self.pods.get(key).filter(|pod| !is_ignored(pod));
        let record = self.records().get(key).cloned();
        let Some((pod, node)) = pod.and_then(|pod| self.node(&pod).map(|node| (pod, node))) else {
            self.forget(key).await;
            return Ok(Next::Change);
        };
        let uid = pod.metadata.uid.clone().unwrap_or_default();
        let mut record = match record.filter(|record| record.uid == uid) {
            Some(record) => record,
            None => {
                self.forget(key).await;
                let has_claims = claims_of(&pod).next().is_some();
                Record { life: Life::restore(&pod), uid, has_claims, ..Record::default() }
            }
        };
        if is_finished(&pod) {
            self.leases(|leases| leases.give_back(&record.uid));
            record.life = None;
            if waits_for_removal(&pod) && !record.is_removed {
                self.remove(&pod).await?;
                record.is_removed = true;
            }
            self.records().insert(key.clone(), record);
            return Ok(Next::Change);
        }
        let (script, complaints) = Script::of(&pod);
        let recorder = self.recorder.on(&node.name());
        for complaint in complaints {
            record
                .tell(&complaint, || recorder.warning(pod.as_ref(), "InvalidSimulation", complaint.clone()));
        }
        let may_start =
            pod.metadata.deletion_timestamp.is_none() && !record.life.as_ref().is_some_and(Life::has_started);
        let mounted = if may_start { self.mounts.mount(&pod).await? } else { Mounted::Yes };
        if let Mounted::No(why) = &mounted {
            record.tell(why, || recorder.warning(pod.as_ref(), "FailedMount", why.clone()));
        }
        let is_mountable = matches!(mounted, Mounted::Yes);
        let now = self.clock.now();
        let addresses = Addresses { host: node.address(), pod: self.address(&pod, node, is_mountable) };
        let life = record.life.as_ref();
        let plan = plan(&Seen { pod: &pod, life, script: &script, is_mountable, addresses, now });
        let Plan { life, status, happenings, is_removed, wake } = plan;
        if let Some(status) = status {
            let api = Api::<Pod>::namespaced(self.client.clone(), &key.namespace);
            let patch = Patch::Strategic(status);
            let answer = api.patch_status(&key.name, &PatchParams::apply(NAME), &patch).await;
            // Gone, or another pod of the same name: the watch tells.
            let Some(pod) = unless(404, unless(409, answer))?.flatten() else { return Ok(Next::Change) };
            turn.wrote(&self.pods, &pod);
        }
        happenings.into_iter().for_each(|happening| tell(&recorder, &pod, happening));
        record.life = Some(life);
        self.records().insert(key.clone(), record.clone());
        if is_removed && !record.is_removed {
            self.remove(&pod).await?;
            record.is_removed = true;
            self.records().insert(key.clone(), record);
        }
        let delay = wake.map(|wake| Duration::try_from(wake.duration_since(now)).unwrap_or_default());
        Ok(delay.map_or(Next::Change, Next::After))
    }
}

impl Kubelet {
    fn node(&self, pod: &Pod) -> Option<SimulatedNode> {
        SimulatedNode::named(pods::node(pod)?, self.nodes)
    }

    fn address(&self, pod: &Pod, node: SimulatedNode, is_placed: bool) -> Option<std::net::Ipv4Addr> {
        let uid = pod.metadata.uid.as_deref().unwrap_or_default();
        let is_of_host = pod.spec.as_ref().is_some_and(|spec| spec.host_network == Some(true));
        match is_of_host {
            true => Some(node.address()),
            false if is_placed => self.leases(|leases| leases.take(node, uid)),
            false => None,
        }
    }

    async fn remove(&self, pod: &Pod) -> Result<(), Error> {
        let name = NamespacedName::of(pod);
        let api = Api::<Pod>::namespaced(self.client.clone(), &name.namespace);
        unless(404, unless(409, api.delete(&name.name, &only_this(pod).grace_period(0)).await))?;
        Ok(())
    }

    async fn forget(&self, key: &NamespacedName) {
        let record = self.records().remove(key);
        if let Some(record) = record {
            self.leases(|leases| leases.give_back(&record.uid));
            if record.has_claims {
                self.mounts.unmount(&record.uid).await;
            }
        }
    }

    fn records(&self) -> MutexGuard<'_, HashMap<NamespacedName, Record>> {
        // No code that can panic runs under the lock.
        self.records.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn leases<T>(&self, with: impl FnOnce(&mut Leases) -> T) -> T {
        let mut leases = self.leases.lock().unwrap_or_else(PoisonError::into_inner);
        with(leases.get_or_insert_with(|| self.restored_leases()))
    }

    fn restored_leases(&self) -> Leases {
        let mut leases = Leases::default();
        for pod in self.pods.all().into_iter().filter(|pod| !is_finished(pod)) {
            let address = pod.status.as_ref().and_then(|status| status.pod_ip.as_ref()?.parse().ok());
            if let (Some(node), Some(uid), Some(address)) = (self.node(&pod), &pod.metadata.uid, address) {
                leases.restore(node, uid, address);
            }
        }
        leases
    }
}

impl Record {
    /// Complains once.
    fn tell(&mut self, complaint: &str, tell: impl FnOnce()) {
        if !self.told.iter().any(|told| told == complaint) {
            self.told.push(complaint.to_owned());
            tell();
        }
    }
}

fn tell(recorder: &Recorder, pod: &Pod, happening: Happening) {
    let mut about = pod.object_ref(&());
    about.field_path = happening.field;
    recorder.event(about, happening.r#type, happening.reason, happening.message);
}
