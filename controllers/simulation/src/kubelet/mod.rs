//! The kubelets of the simulated nodes.
//!
//! A pod is reconciled when it changes, when a claim of it does or an object that it refers to,
//! when annotations change that it inherits, and when something is due in it:
//! 1. pods of other nodes, of silent ones, ignored ones, and those that have ended are left alone,
//!    but for removing the latter;
//! 2. a pod that cannot be on its node, since it was bound without the scheduler, is rejected
//!    ([`admission`]);
//! 3. before anything runs in a pod its claims are read from the server, and their volumes mounted
//!    ([`mounts`]);
//! 4. [`plan::plan`] moves the pod's [`runtime_state::PodRuntimeState`] on to now;
//! 5. if anything happened, the status is written, events are recorded, and the pod is deleted once
//!    nothing runs that was to stop.
//!
//! Runtime states are kept in memory, so that they are exact and no status has to be read back;
//! after a restart of the process they are restored from the statuses. A pod that starts without
//! delay is written once.

mod admission;
mod inheritance;
mod ip_pool;
mod mounts;
mod plan;
mod pod;
mod references;
mod resize;
pub mod runtime_state;
mod status;
mod sub_paths;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use coracle_behavior::inheritance::overrides_of;
use coracle_behavior::{Images, MISSING_IMAGES, PodBehavior, Profile};
use coracle_clock::Clock;
use coracle_controller_runtime::cache::{Cache, NamespacedName};
use coracle_controller_runtime::events::Recorder;
use coracle_controller_runtime::{
    Action, Controller, Error, Initialize, ReconcileContext, Sources, ignore_conflict, ignore_not_found,
    uid_precondition,
};
use coracle_kinds::nodes::ready_status;
use coracle_kinds::pods::{self, pod_claims};
use coracle_kinds::storage::VolumeExt;
use coracle_kinds::storage::attachment::{is_attached, volume_of};
use coracle_object_meta::annotation;
use coracle_seed::Seed;
use coracle_volumes::indexes::{ByClaim, ByNode};
use k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim, Pod};
use kube::api::Patch;
use kube::{Resource, ResourceExt};
use parking_lot::{Mutex, MutexGuard};

use crate::node::SimulatedNode;
use crate::settings::{Context, Settings};
use crate::simulated::{is_ignored, is_silent};
use crate::timers::POD_LIFECYCLE;
use admission::{AdmittedPods, Rejection};
use inheritance::Inheritance;
use ip_pool::IpPool;
use mounts::{Mounted, Mounts};
use plan::{Observed, Plan, plan};
use pod::waits_for_removal;
use references::References;
use resize::WaitingResizes;
use runtime_state::{Obstacles, PodEvent, PodRuntimeState};
use status::Addresses;

const NAME: &str = "kubelet";

pub struct Kubelet {
    clock: Clock,
    recorder: Recorder,
    nodes: usize,
    profile: Profile,
    inheritance: Inheritance,
    /// None: they are not looked at.
    references: Option<References>,
    pods: Arc<Cache<Pod>>,
    claims: Arc<Cache<PersistentVolumeClaim>>,
    volumes: Arc<Cache<PersistentVolume>>,
    node_objects: Arc<Cache<Node>>,
    mounts: Arc<Mounts>,
    /// The number of times that a node came back after it was given up.
    returns: Arc<Mutex<HashMap<String, u32>>>,
    /// None: those of existing pods were not restored yet.
    admitted: Mutex<Option<AdmittedPods>>,
    resizes: WaitingResizes,
    records: Mutex<HashMap<NamespacedName, PodRecord>>,
    /// None: the addresses of existing pods were not restored yet.
    ip_pool: Mutex<Option<IpPool>>,
    seed: Option<Seed>,
}

/// The knowledge about a pod beside what the API shows.
#[derive(Clone, Default)]
struct PodRecord {
    uid: String,
    state: Option<PodRuntimeState>,
    has_claims: bool,
    /// Warnings that were reported.
    reported: HashSet<String>,
    is_deleted: bool,
    /// The number of returns of its node after which the status was written.
    returns: u32,
    /// The generation of the pod that the status was written for.
    generation: Option<i64>,
}

impl Initialize<Settings> for Kubelet {
    fn is_possible(settings: &Settings) -> bool {
        settings.nodes > Some(0)
    }

    fn new(context: &Context) -> Kubelet {
        Kubelet {
            clock: context.clock.clone(),
            recorder: context.recorder(NAME),
            nodes: context.settings.nodes.unwrap_or(0),
            profile: context.settings.profile,
            inheritance: Inheritance::new(context),
            references: (context.settings.profile == Profile::Realistic).then(|| References::new(context)),
            pods: context.cache(),
            claims: context.cache(),
            volumes: context.cache(),
            node_objects: context.cache(),
            mounts: Arc::new(Mounts::new(context)),
            returns: Arc::default(),
            admitted: Mutex::default(),
            resizes: WaitingResizes::default(),
            records: Mutex::default(),
            ip_pool: Mutex::default(),
            seed: context.settings.seed,
        }
    }
}

impl Controller for Kubelet {
    const NAME: &'static str = NAME;
    const QUEUE_NAME: &'static str = NAME;
    const WORKERS: usize = 16;
    type Key = NamespacedName;

    fn sources(&self, sources: &mut Sources<NamespacedName>) {
        let nodes = self.nodes;
        let is_ours = move |pod: &Arc<Pod>| {
            pods::node(pod).and_then(|name| SimulatedNode::named(name, nodes)).is_some()
        };
        let resizes = self.resizes.clone();
        sources.on(&self.pods, move |change, queue| {
            let waiting = resizes.unblocked_by(change.old.as_deref(), change.new.as_deref());
            waiting.into_iter().for_each(|name| queue.add(name));
            change
                .name()
                .filter(|_| change.states().any(is_ours))
                .into_iter()
                .for_each(|name| queue.add(name));
        });
        let pods = self.pods.clone();
        let pods_of = move |namespace: &str| -> Vec<Arc<Pod>> {
            pods.in_namespace(namespace).into_iter().filter(is_ours).collect()
        };
        self.inheritance.sources(sources, &pods_of);
        if let Some(references) = &self.references {
            references.sources(sources, &pods_of);
        }
        let (pods, returns, resizes) = (self.pods.clone(), self.returns.clone(), self.resizes.clone());
        sources.on(&self.node_objects, move |change, queue| {
            let ready = |node: &Arc<Node>| ready_status(node) == Some("True");
            let (Some(old), Some(new)) = (&change.old, &change.new) else { return };
            let allocatable =
                |node: &Arc<Node>| node.status.as_ref().and_then(|status| status.allocatable.clone());
            if allocatable(old) != allocatable(new) {
                resizes.waiting_on(&new.name_any()).into_iter().for_each(|name| queue.add(name));
            }
            let has_returned = !ready(old) && ready(new);
            let overrides = |node: &Arc<Node>| overrides_of(&node.metadata);
            if !has_returned && overrides(old) == overrides(new) {
                return;
            }
            let name = new.name_any();
            if has_returned {
                let mut returns = returns.lock();
                *returns.entry(name.clone()).or_default() += 1;
            }
            let here = pods.by::<ByNode>(&ByNode::key(&name)).into_iter().filter(is_ours);
            here.for_each(|pod| queue.add(NamespacedName::of(pod.as_ref())));
        });
        let (pods, mounts) = (self.pods.clone(), self.mounts.clone());
        sources.spawn(|_| async move {
            pods.synced().await;
            mounts.remove_orphans(&pods).await;
            std::future::pending().await
        });
        let pods = self.pods.clone();
        sources.on(&self.claims, move |change, queue| {
            let Some(claim) = change.name() else { return };
            let using = pods.by::<ByClaim>(&claim).into_iter().filter(is_ours);
            using.for_each(|pod| queue.add(NamespacedName::of(pod.as_ref())));
        });
        let (pods, volumes) = (self.pods.clone(), self.volumes.clone());
        sources.on(&self.mounts.attachments, move |change, queue| {
            let attached = change.new.as_deref().filter(|attachment| is_attached(attachment));
            let volume =
                attached.and_then(volume_of).and_then(|name| volumes.get(&NamespacedName::new("", name)));
            let Some(claim) = volume.and_then(|volume| volume.claim_name()) else { return };
            let using = pods.by::<ByClaim>(&claim).into_iter().filter(is_ours);
            using.for_each(|pod| queue.add(NamespacedName::of(pod.as_ref())));
        });
    }

    async fn reconcile(&self, key: &NamespacedName, ctx: &ReconcileContext) -> Result<Action, Error> {
        let pod = self.pods.get(key).filter(|pod| !is_ignored(pod));
        let Some((pod, node)) = pod.and_then(|pod| self.node(&pod).map(|node| (pod, node))) else {
            self.forget(key).await;
            return Ok(Action::AwaitChange);
        };
        let node_object = self.node_objects.get(&NamespacedName::new("", node.name()));
        if node_object.as_deref().is_some_and(is_silent) {
            return Ok(Action::AwaitChange);
        }
        let mut record = self.record(key, &pod).await;
        if pods::is_terminal(&pod) {
            self.references.iter().for_each(|references| references.set_waiting(key, false));
            self.resizes.remove(key);
            self.release(&record.uid);
            record.state = None;
            if waits_for_removal(&pod) && !record.is_deleted {
                self.delete_pod(&pod, ctx).await?;
                record.is_deleted = true;
            }
            self.records().insert(key.clone(), record);
            return Ok(Action::AwaitChange);
        }
        // It will be reconciled once the namespace is known.
        let Some((behavior, warnings)) = self.behavior(&pod, &record) else {
            return Ok(Action::AwaitChange);
        };
        let recorder = self.recorder.on(&node.name());
        if let Some(node) = node_object.as_deref().filter(|_| record.state.is_none())
            && let Err(rejection) = self.admit(&pod, node)
        {
            return self.reject(&pod, &rejection, &recorder, ctx).await;
        }
        for warning in warnings {
            record.report_once(&warning, || {
                recorder.warning(pod.as_ref(), "InvalidSimulation", warning.clone())
            });
        }
        let mut obstacles = self.obstacles(&pod, node_object.as_deref(), &mut record, &recorder, ctx).await?;
        obstacles.resize = self.allocate_resize(key, &pod, &record, node_object.as_deref()).err();
        let now = self.clock.now();
        let addresses = Addresses { host: node.address(), pod: self.address(&pod, node, !obstacles.volumes) };
        let state = record.state.as_ref();
        let returns = self.returns(node);
        let is_outdated = record.returns != returns || record.generation != pod.metadata.generation;
        let plan = plan(&Observed {
            pod: &pod,
            state,
            behavior: &behavior,
            obstacles: &obstacles,
            is_outdated,
            addresses,
            now,
        });
        let Plan { state, status, events, is_deleted, wake } = plan;
        if let Some(status) = status {
            let api = ctx.api(&self.pods).managed_by(NAME);
            let answer = api.patch_status_unread(key, Patch::Strategic(status)).await;
            // Deleted, or another pod of the same name: the watch will report it.
            if ignore_not_found(ignore_conflict(answer))?.flatten().is_none() {
                return Ok(Action::AwaitChange);
            }
        }
        events.into_iter().for_each(|event| record_event(&recorder, &pod, event));
        record.state = Some(state);
        record.returns = returns;
        record.generation = pod.metadata.generation;
        self.records().insert(key.clone(), record.clone());
        if is_deleted && !record.is_deleted {
            self.delete_pod(&pod, ctx).await?;
            record.is_deleted = true;
            self.records().insert(key.clone(), record);
        }
        let delay = wake.map(|wake| Duration::try_from(wake.duration_since(now)).unwrap_or_default());
        Ok(delay.map_or(Action::AwaitChange, |left| Action::Requeue(POD_LIFECYCLE.after(left))))
    }
}

impl Kubelet {
    fn node(&self, pod: &Pod) -> Option<SimulatedNode> {
        SimulatedNode::named(pods::node(pod)?, self.nodes)
    }

    /// Returns the record of a pod: the record of another pod of its name is replaced, and an
    /// unknown pod is restored from its status.
    async fn record(&self, key: &NamespacedName, pod: &Pod) -> PodRecord {
        let uid = pod.metadata.uid.clone().unwrap_or_default();
        let known = self.records().get(key).cloned();
        if let Some(record) = known.filter(|record| record.uid == uid) {
            return record;
        }
        self.forget(key).await;
        let has_claims = pod_claims(pod).next().is_some();
        let generation = pod.status.as_ref().and_then(|status| status.observed_generation);
        PodRecord {
            state: PodRuntimeState::restore(pod),
            uid,
            has_claims,
            generation,
            ..PodRecord::default()
        }
    }

    /// Returns the behavior of a pod, and the warnings about its annotations; None if it may not
    /// start, since its namespace is not known yet.
    fn behavior(&self, pod: &Pod, record: &PodRecord) -> Option<(PodBehavior, Vec<String>)> {
        let is_new = record.state.is_none() && pod.metadata.deletion_timestamp.is_none();
        let inherited = match self.inheritance.of(pod) {
            None if is_new => return None,
            inherited => inherited.unwrap_or_default(),
        };
        Some(PodBehavior::of(pod, &inherited, self.profile))
    }

    /// Returns the obstacles to the start of a pod: volumes that are not mounted, which events
    /// report, missing references and images.
    async fn obstacles(
        &self,
        pod: &Pod,
        node: Option<&Node>,
        record: &mut PodRecord,
        recorder: &Recorder,
        ctx: &ReconcileContext,
    ) -> Result<Obstacles, Error> {
        let may_start = pod.metadata.deletion_timestamp.is_none()
            && !record.state.as_ref().is_some_and(PodRuntimeState::has_started);
        let mounted = if may_start { self.mounts.mount(pod, ctx).await? } else { Mounted::Yes };
        if let Mounted::No(why) = &mounted {
            record.report_once(why, || recorder.warning(pod, "FailedMount", why.clone()));
        }
        let mut obstacles = self.missing_references(pod, record, recorder, ctx).await?;
        obstacles.volumes |= !matches!(mounted, Mounted::Yes);
        let is_followed = self.profile == Profile::Realistic;
        if is_followed && record.state.as_ref().is_none_or(|state| state.has_waiting(pod)) {
            for (container, problem) in sub_paths::problems(pod) {
                obstacles.configuration.entry(container).or_insert(problem);
            }
        }
        obstacles.missing_images = node.map(missing_images).unwrap_or_default();
        Ok(obstacles)
    }

    /// Returns the references that a pod lacks while one of its containers waits to be started.
    async fn missing_references(
        &self,
        pod: &Pod,
        record: &mut PodRecord,
        recorder: &Recorder,
        ctx: &ReconcileContext,
    ) -> Result<Obstacles, Error> {
        let waits = record.state.as_ref().is_none_or(|state| state.has_waiting(pod));
        let waits = waits && pod.metadata.deletion_timestamp.is_none() && references::has_any(pod);
        let Some(references) = &self.references else { return Ok(Obstacles::default()) };
        let key = NamespacedName::of(pod);
        if !waits {
            references.set_waiting(&key, false);
            return Ok(Obstacles::default());
        }
        let (volumes, obstacles) = references.missing(pod, ctx).await?;
        // An object that appears before the watch begins is in its first list.
        references.set_waiting(&key, obstacles.volumes || !obstacles.configuration.is_empty());
        for problem in volumes {
            record.report_once(&problem, || recorder.warning(pod, "FailedMount", problem.clone()));
        }
        Ok(obstacles)
    }

    fn address(&self, pod: &Pod, node: SimulatedNode, is_placed: bool) -> Option<std::net::Ipv4Addr> {
        let uid = pod.metadata.uid.as_deref().unwrap_or_default();
        let is_of_host = pod.spec.as_ref().is_some_and(|spec| spec.host_network == Some(true));
        match is_of_host {
            true => Some(node.address()),
            false if is_placed => {
                let choice = self.seed.map(|seed| {
                    let (namespace, name) = (pod.namespace().unwrap_or_default(), pod.name_any());
                    seed.number(&["pods", &namespace, &name])
                });
                self.ip_pool(|ip_pool| ip_pool.allocate(node, uid, choice))
            }
            false => None,
        }
    }

    async fn delete_pod(&self, pod: &Pod, ctx: &ReconcileContext) -> Result<(), Error> {
        let options = uid_precondition(pod).grace_period(0);
        ignore_not_found(ignore_conflict(ctx.api(&self.pods).delete(pod, &options).await))?;
        Ok(())
    }

    async fn forget(&self, key: &NamespacedName) {
        self.references.iter().for_each(|references| references.set_waiting(key, false));
        self.resizes.remove(key);
        let record = self.records().remove(key);
        if let Some(record) = record {
            self.release(&record.uid);
            if record.has_claims {
                self.mounts.unmount(&record.uid).await;
            }
        }
    }

    fn records(&self) -> MutexGuard<'_, HashMap<NamespacedName, PodRecord>> {
        self.records.lock()
    }

    fn ip_pool<T>(&self, with: impl FnOnce(&mut IpPool) -> T) -> T {
        let mut ip_pool = self.ip_pool.lock();
        with(ip_pool.get_or_insert_with(|| self.restored_ip_pool()))
    }

    /// Admits a pod to its node.
    ///
    /// # Errors
    /// It cannot be there.
    fn admit(&self, pod: &Pod, node: &Node) -> Result<(), Rejection> {
        self.allocate(node, |admitted| admitted.admit(pod, node))
    }

    /// Allocates the resources of the spec of a pod, if it has others.
    ///
    /// # Errors
    /// The message about what is not free on its node. The pod is reconciled when that may be.
    fn allocate_resize(
        &self,
        key: &NamespacedName,
        pod: &Pod,
        record: &PodRecord,
        node: Option<&Node>,
    ) -> Result<(), String> {
        let is_wanted =
            record.state.is_some() && pod.metadata.deletion_timestamp.is_none() && resize::is_wanted(pod);
        let Some(node) = node.filter(|_| is_wanted) else {
            let has_waited = self.resizes.remove(key);
            if record.state.is_some() && (has_waited || record.generation != pod.metadata.generation) {
                self.admitted(|admitted| admitted.reallocate(pod));
            }
            return Ok(());
        };
        // It is added before the attempt, so that resources which are freed later are not missed.
        self.resizes.add(key, &node.name_any());
        let waiting = self.resizes.waiting_on(&node.name_any());
        let waiting = waiting.iter().filter_map(|name| self.pods.get(name)).collect();
        let preceding = resize::preceding(waiting, pod);
        self.allocate(node, |admitted| {
            // They find what they have got when they are reconciled.
            preceding.iter().for_each(|other| drop(admitted.resize(other, node)));
            admitted.resize(pod, node)
        })
        .map_err(|rejection| rejection.message)?;
        self.resizes.remove(key);
        Ok(())
    }

    /// Allocates resources of a node, once more after those of pods that have ended are released.
    fn allocate(
        &self,
        node: &Node,
        attempt: impl Fn(&mut AdmittedPods) -> Result<(), Rejection>,
    ) -> Result<(), Rejection> {
        let rejection = match self.admitted(&attempt) {
            Ok(()) => return Ok(()),
            Err(rejection) => rejection,
        };
        // The end of another pod may have been observed and not yet handled.
        let Some(name) = &node.metadata.name else { return Err(rejection) };
        let here = self.pods.by::<ByNode>(&ByNode::key(name));
        let live = here.iter().filter(|pod| !pods::is_terminal(pod));
        let live = live.filter_map(|pod| pod.metadata.uid.as_deref()).collect();
        self.admitted(|admitted| {
            admitted.retain(name, &live);
            attempt(admitted)
        })
    }

    /// Writes that a pod was rejected.
    async fn reject(
        &self,
        pod: &Pod,
        rejection: &Rejection,
        recorder: &Recorder,
        ctx: &ReconcileContext,
    ) -> Result<Action, Error> {
        let patch = Patch::Strategic(status::rejected(pod, rejection, self.clock.now()));
        let answer = ctx.api(&self.pods).managed_by(NAME).patch_status(&NamespacedName::of(pod), patch).await;
        if ignore_not_found(ignore_conflict(answer))?.flatten().is_some() {
            recorder.warning(pod, &rejection.reason, rejection.message.clone());
        }
        Ok(Action::AwaitChange)
    }

    /// Releases what a pod had of its node.
    fn release(&self, uid: &str) {
        self.ip_pool(|ip_pool| ip_pool.release(uid));
        self.admitted(|admitted| admitted.release(uid));
    }

    fn admitted<T>(&self, with: impl FnOnce(&mut AdmittedPods) -> T) -> T {
        let mut admitted = self.admitted.lock();
        with(admitted.get_or_insert_with(|| {
            let running = |pod: &Arc<Pod>| !pods::is_terminal(pod) && PodRuntimeState::restore(pod).is_some();
            AdmittedPods::with(self.pods.all().into_iter().filter(running))
        }))
    }

    fn returns(&self, node: SimulatedNode) -> u32 {
        let returns = self.returns.lock();
        returns.get(&node.name()).copied().unwrap_or(0)
    }

    fn restored_ip_pool(&self) -> IpPool {
        let mut ip_pool = IpPool::default();
        for pod in self.pods.all().into_iter().filter(|pod| !pods::is_terminal(pod)) {
            let address = pod.status.as_ref().and_then(|status| status.pod_ip.as_ref()?.parse().ok());
            if let (Some(node), Some(uid), Some(address)) = (self.node(&pod), &pod.metadata.uid, address) {
                ip_pool.restore(node, uid, address);
            }
        }
        ip_pool
    }
}

impl PodRecord {
    /// Reports a warning once.
    fn report_once(&mut self, warning: &str, report: impl FnOnce()) {
        if self.reported.insert(warning.to_owned()) {
            report();
        }
    }
}

/// Returns the images that a node cannot pull. No other annotation of a node affects its pods.
fn missing_images(node: &Node) -> Images {
    annotation(&node.metadata, MISSING_IMAGES).and_then(|images| images.parse().ok()).unwrap_or_default()
}

fn record_event(recorder: &Recorder, pod: &Pod, event: PodEvent) {
    let mut about = pod.object_ref(&());
    about.field_path = event.field;
    recorder.event(about, event.r#type, event.reason, event.message);
}
