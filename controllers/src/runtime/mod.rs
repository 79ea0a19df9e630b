//! The one loop that every controller runs in.
//!
//! ```text
//!   caches ──► sources ──► queue ──► worker: observe, plan, act ──► the API ──► caches
//!               (keys)   (each key    │                                          │
//!                          once)      └──── waits until its own writes ◄─────────┘
//!                                           are seen, then gives the key back
//! ```
//!
//! A controller is a [`Controller`]: what wakes it ([`Controller::sources`]) and what it does about a key
//! ([`Controller::reconcile`]). By custom its folder has `mod.rs` for the two, `plan.rs` for the pure decision with its
//! table of tests, and more files only where they are needed. What goes wrong is retried, later each time; a panic starts the controller
//! again ([`supervise`]).

pub mod cache;
pub mod clock;
pub mod events;
pub mod leader;
pub mod metrics;
pub mod queue;
pub mod resources;
pub mod supervise;
#[cfg(test)]
mod tests;

use std::any::{Any, TypeId};
use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap};
use std::future::Future;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use futures::FutureExt;
use futures::future::{BoxFuture, join_all};
use kube::api::{DeleteParams, Preconditions};
use kube::{Client, Resource};
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use cache::{Cache, Cached, Change, NamespacedName, Write};
use clock::Clock;
use events::{Broadcaster, Recorder};
use metrics::Metrics;
use queue::{Key, Queue};
use resources::Resources;
use supervise::Supervisor;

/// What every controller works with. Cloning is cheap; the caches end with the last clone.
#[derive(Clone)]
pub struct Context {
    pub client: Client,
    pub clock: Clock,
    pub metrics: Metrics,
    pub settings: Arc<Settings>,
    broadcaster: Broadcaster,
    caches: Arc<Mutex<Caches>>,
    resources: Arc<OnceLock<Arc<Resources>>>,
    identity: Arc<str>,
}

/// What the controllers cannot learn from the API.
#[derive(Clone)]
pub struct Settings {
    /// For how long a namespace that begins to go is left as it is. What was admitted to it before may still have to be stored,
    /// and not every API server may know yet that it is going.
    pub namespace_grace: Duration,
    /// The certificates, in PEM, by which clients know the API server; without them they are not published.
    pub root_ca: Option<String>,
    /// Signs the claims of a token; without it no tokens are made.
    pub sign: Option<Sign>,
    /// How many nodes to simulate. None: scheduling is somebody else's, as it is beside another cluster.
    pub nodes: Option<usize>,
    /// Whether a feature gate is on, by Kubernetes' name.
    pub is_enabled: IsEnabled,
    /// Where the directories are that stand for volumes (`volumes/`), and what pods see of them (`pods/`).
    pub data: PathBuf,
}

/// The gate that lets the CSI driver `coracle.csi` do what `kubernetes.io/host-path` does; Kubernetes has none of that name.
pub const HOST_PATH_MIGRATION: &str = "CSIMigrationHostPath";

pub type IsEnabled = Arc<dyn Fn(&str) -> bool + Send + Sync>;

/// None where it fails.
pub type Sign = Arc<dyn Fn(&serde_json::Value) -> Option<String> + Send + Sync>;

impl Default for Settings {
    /// As far as kube-controller-manager has a default.
    fn default() -> Settings {
        Settings {
            namespace_grace: Duration::from_secs(5),
            root_ca: None,
            sign: None,
            nodes: None,
            // Of those that the controllers ask for no other is off by default.
            is_enabled: Arc::new(|gate| gate != HOST_PATH_MIGRATION),
            data: "/tmp/hostpath_pv".into(),
        }
    }
}

#[derive(Default)]
struct Caches {
    by_kind: HashMap<TypeId, Arc<dyn Any + Send + Sync>>,
    /// The tasks that keep them fresh, stopped when this is dropped.
    tasks: JoinSet<()>,
}

impl Context {
    pub fn new(client: Client, clock: Clock, metrics: Metrics, settings: Settings) -> Context {
        let supervisor = Supervisor::new(clock.clone(), metrics.clone());
        let broadcaster = Broadcaster::start(client.clone(), clock.clone(), supervisor);
        Context {
            client,
            clock,
            metrics,
            settings: Arc::new(settings),
            broadcaster,
            caches: Arc::default(),
            resources: Arc::default(),
            identity: uuid::Uuid::new_v4().to_string().into(),
        }
    }

    /// The cache of a kind, begun when it is first asked for.
    pub fn cache<K: Cached>(&self) -> Arc<Cache<K>> {
        let mut caches = self.caches.lock().unwrap_or_else(PoisonError::into_inner);
        let caches = &mut *caches;
        let known = caches.by_kind.entry(TypeId::of::<K>()).or_insert_with(|| {
            let cache = Arc::new(Cache::<K>::empty());
            let (watching, client, supervisor) = (cache.clone(), self.client.clone(), Supervisor::of(self));
            let start = move || {
                let (cache, client) = (watching.clone(), client.clone());
                async move { cache.run(client).await }
            };
            let name = format!("cache of {}", K::plural(&()));
            caches.tasks.spawn(async move { supervisor.run(&name, start).await });
            cache
        });
        // The map is keyed by the type.
        known.clone().downcast().unwrap_or_else(|_| Arc::new(Cache::empty()))
    }

    /// What the API serves, kept fresh from when it is first asked for.
    pub fn resources(&self) -> Arc<Resources> {
        let start = || {
            let resources = Arc::new(Resources::new(self.client.clone()));
            // Not the context: the caches end with the last one.
            let (definitions, services) = (self.cache(), self.cache());
            let (fresh, clock, supervisor) = (resources.clone(), self.clock.clone(), Supervisor::of(self));
            let start =
                move || fresh.clone().run(clock.clone(), Arc::clone(&definitions), Arc::clone(&services));
            let keeping_fresh = async move { supervisor.run("discovery", start).await };
            self.caches.lock().unwrap_or_else(PoisonError::into_inner).tasks.spawn(keeping_fresh);
            resources
        };
        self.resources.get_or_init(start).clone()
    }

    /// Makes events in the name of a component.
    pub fn recorder(&self, component: &str) -> Recorder {
        self.broadcaster.recorder(component)
    }

    /// Which process this is, among all that ever were.
    pub fn identity(&self) -> &str {
        &self.identity
    }

    pub fn queue<K: Key>(&self, name: &str) -> Queue<K> {
        Queue::new(self.clock.clone(), self.metrics.queue(name), LONGEST_RETRY)
    }
}

/// client-go's default.
const LONGEST_RETRY: Duration = Duration::from_secs(1000);

/// Why a pass over a key did not reach its end. All of these are tried again.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The API refused or could not be reached.
    #[error(transparent)]
    Api(#[from] kube::Error),
    /// Something is not as it must be yet, and nobody will tell when it is.
    #[error("{0}")]
    Unfinished(String),
}

impl Error {
    /// Whether the API answered with this code.
    pub fn is(&self, code: u16) -> bool {
        matches!(self, Error::Api(kube::Error::Api(status)) if status.code == code)
    }
}

/// The answer of the API without the errors of this code: what they say is no news to the caller.
///
/// # Errors
/// Any other error.
pub fn unless<T>(code: u16, answer: kube::Result<T>) -> kube::Result<Option<T>> {
    match answer {
        Err(kube::Error::Api(status)) if status.code == code => Ok(None),
        answer => answer.map(Some),
    }
}

/// Deletes this object, and no other of its name.
pub fn only_this(object: &impl Resource) -> DeleteParams {
    let preconditions = Preconditions { uid: object.meta().uid.clone(), resource_version: None };
    DeleteParams::default().preconditions(preconditions)
}

/// Whether a create was refused because the namespace is gone or going, which ends the matter.
pub fn is_namespace_going(error: &kube::Error) -> bool {
    let kube::Error::Api(status) = error else { return false };
    let causes = status.details.iter().flat_map(|details| &details.causes);
    status.code == 404 || causes.into_iter().any(|cause| cause.reason == "NamespaceTerminating")
}

/// When to look at a key again, if nothing happens before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    Change,
    After(Duration),
}

/// A controller of one queue.
pub trait Controller: Sized + Send + Sync + 'static {
    /// Its name in kube-controller-manager.
    const NAME: &'static str;
    /// Its queue's name in the metrics.
    const QUEUE: &'static str;
    /// How many keys are worked on at the same time.
    const WORKERS: usize = 5;
    /// How long a key waits at most after a failure.
    const LONGEST_RETRY: Duration = LONGEST_RETRY;
    type Key: Key;

    /// Whether it can do its work at all; one that cannot is not started.
    fn is_possible(_: &Settings) -> bool {
        true
    }

    fn new(context: &Context) -> Self;

    /// Says which keys to look at when something changes.
    fn sources(&self, sources: &mut Sources<Self::Key>);

    /// Brings what belongs to a key closer to what it should be. It is called for keys that have gone as well.
    fn reconcile(&self, key: &Self::Key, turn: &mut Turn)
    -> impl Future<Output = Result<Next, Error>> + Send;

    /// A key that came up again had to wait for a cache to see what was written to objects of this group and resource.
    fn held_back(&self, _group: &str, _resource: &str) {}
}

/// What wakes a controller.
pub struct Sources<K> {
    queue: Queue<K>,
    pumps: JoinSet<()>,
    synced: Vec<BoxFuture<'static, ()>>,
}

impl<K: Key> Sources<K> {
    /// Calls `wake` with each change of a kind, those that made what exists included.
    pub fn on<T: Cached>(
        &mut self,
        cache: &Arc<Cache<T>>,
        wake: impl Fn(&Change<T>, &Queue<K>) + Send + 'static,
    ) -> &mut Sources<K> {
        let (queue, cache) = (self.queue.clone(), cache.clone());
        let mut changes = cache.subscribe();
        self.pumps.spawn(async move {
            while let Some(change) = changes.recv().await {
                wake(&change, &queue);
            }
        });
        self.needs(&cache)
    }

    /// Looks at these keys at first, whatever happens.
    pub fn at_first(&mut self, keys: impl IntoIterator<Item = K>) -> &mut Sources<K> {
        keys.into_iter().for_each(|key| self.queue.add(key));
        self
    }

    /// Waits for a cache before the first key is looked at, without being woken by it.
    pub fn needs<T: Cached>(&mut self, cache: &Arc<Cache<T>>) -> &mut Sources<K> {
        let cache = cache.clone();
        self.synced.push(async move { cache.synced().await }.boxed());
        self
    }

    /// Runs a task beside the workers that adds keys in its own time.
    pub fn beside<F>(&mut self, task: impl FnOnce(Queue<K>) -> F) -> &mut Sources<K>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        self.pumps.spawn(task(self.queue.clone()));
        self
    }

    /// Looks at a key now and then, whatever happens.
    pub fn every(&mut self, period: Duration, clock: &Clock, key: K) -> &mut Sources<K> {
        let (queue, clock) = (self.queue.clone(), clock.clone());
        self.pumps.spawn(async move {
            loop {
                queue.add(key.clone());
                clock.sleep(period).await;
            }
        });
        self
    }

    /// Calls `wake` now and then, whatever happens.
    pub fn periodically(
        &mut self,
        period: Duration,
        clock: &Clock,
        wake: impl Fn(&Queue<K>) + Send + 'static,
    ) -> &mut Sources<K> {
        let (queue, clock) = (self.queue.clone(), clock.clone());
        self.pumps.spawn(async move {
            loop {
                clock.sleep(period).await;
                wake(&queue);
            }
        });
        self
    }
}

impl Sources<NamespacedName> {
    /// Looks at each object of a kind that changes.
    pub fn on_each<T: Cached>(&mut self, cache: &Arc<Cache<T>>) -> &mut Sources<NamespacedName> {
        self.on_each_if(cache, |_| true)
    }

    /// Looks at each object of a kind that changes in a way that concerns the controller.
    pub fn on_each_if<T: Cached>(
        &mut self,
        cache: &Arc<Cache<T>>,
        concerns: impl Fn(&Change<T>) -> bool + Send + 'static,
    ) -> &mut Sources<NamespacedName> {
        self.on(cache, move |change, queue| {
            change.name().filter(|_| concerns(change)).into_iter().for_each(|name| queue.add(name));
        })
    }
}

/// One pass over a key: remembers what was written, to be seen before the next pass.
#[derive(Default)]
pub struct Turn {
    writes: Vec<(GroupResource, BoxFuture<'static, ()>)>,
}

type GroupResource = (Cow<'static, str>, Cow<'static, str>);

impl Turn {
    /// Remembers an answer to a create, an update or a patch.
    pub fn wrote<T: Cached>(&mut self, cache: &Arc<Cache<T>>, answer: &T) {
        self.remember(cache, Write::Revision(cache::revision(answer)));
    }

    /// Remembers a delete that was not refused.
    pub fn deleted<T: Cached>(&mut self, cache: &Arc<Cache<T>>, object: &T) {
        let uid = object.meta().uid.clone().unwrap_or_default();
        self.remember(cache, Write::Deleted(NamespacedName::of(object), uid));
    }

    fn remember<T: Cached>(&mut self, cache: &Arc<Cache<T>>, write: Write) {
        let cache = cache.clone();
        self.writes.push(((T::group(&()), T::plural(&())), async move { cache.saw(&write).await }.boxed()));
    }

    /// Waits until all was seen, and returns what that took a while for. A watch that broke at the wrong time must not hold the key
    /// for ever.
    async fn settle(self, clock: &Clock) -> BTreeSet<GroupResource> {
        const LONGEST: Duration = Duration::from_secs(10);
        let writes = self.writes.into_iter();
        let unseen = writes.filter_map(|(resource, mut write)| {
            (&mut write).now_or_never().is_none().then_some((resource, write))
        });
        let (late, unseen): (_, Vec<_>) = unseen.unzip();
        // One after the other, so that what is seen wakes one of them, not all.
        let all = async {
            for write in unseen {
                write.await;
            }
        };
        tokio::select! {
            () = all => {}
            () = clock.sleep(LONGEST) => tracing::debug!("own writes were not seen in time"),
        }
        late
    }
}

/// Runs a controller until the future is dropped. `ready` is called once all its sources are known.
///
/// # Panics
/// If the controller does; [`supervise`] starts it again.
pub async fn run<C: Controller>(context: Context, controller: C, ready: impl FnOnce()) {
    let queue = Queue::new(context.clock.clone(), context.metrics.queue(C::QUEUE), C::LONGEST_RETRY);
    let mut sources = Sources { queue: queue.clone(), pumps: JoinSet::new(), synced: Vec::new() };
    controller.sources(&mut sources);
    join_all(std::mem::take(&mut sources.synced)).await;
    ready();
    let controller = Arc::new(controller);
    let mut tasks = sources.pumps;
    for _ in 0..C::WORKERS {
        let (controller, queue, clock) = (controller.clone(), queue.clone(), context.clock.clone());
        tasks.spawn(async move {
            loop {
                work(controller.as_ref(), &queue, &clock).await;
            }
        });
    }
    until_one_panics(tasks).await;
}

/// Makes a controller and runs it, and tells when it knows all it needs.
pub type Part = fn(Context, oneshot::Sender<()>) -> BoxFuture<'static, ()>;

/// A controller as a part of what bears one name.
pub fn part<C: Controller>(context: Context, synced: oneshot::Sender<()>) -> BoxFuture<'static, ()> {
    let controller = C::new(&context);
    let ready = move || {
        // Who does not wait for it need not be told.
        let _ = synced.send(());
    };
    run(context, controller, ready).boxed()
}

/// Runs parts until the future is dropped. `ready` is called once all of them know all they need.
///
/// # Panics
/// If one of them does.
pub async fn together(context: Context, parts: &[Part], ready: impl FnOnce()) {
    let start = |part: &Part| {
        let (told, synced) = oneshot::channel();
        (part(context.clone(), told), synced)
    };
    let (running, synced): (Vec<_>, Vec<_>) = parts.iter().map(start).unzip();
    let all_synced = async {
        join_all(synced).await;
        ready();
    };
    futures::join!(join_all(running), all_synced);
}

async fn work<C: Controller>(controller: &C, queue: &Queue<C::Key>, clock: &Clock) {
    let key = queue.next().await;
    let mut turn = Turn::default();
    let outcome = controller.reconcile(&key, &mut turn).await;
    let late = turn.settle(clock).await;
    if queue.is_wanted(&key) {
        late.iter().for_each(|(group, resource)| controller.held_back(group, resource));
    }
    match outcome {
        Ok(next) => {
            queue.forget(&key);
            if let Next::After(delay) = next {
                queue.add_after(key.clone(), delay);
            }
        }
        Err(error) => {
            tracing::info!(controller = C::NAME, %key, %error, "will try again");
            queue.retry(key.clone());
        }
    }
    queue.done(&key);
}

/// Waits for tasks that have no end of their own.
///
/// # Panics
/// As soon as one of them did.
pub async fn until_one_panics(mut tasks: JoinSet<()>) {
    while let Some(ended) = tasks.join_next().await {
        if let Err(error) = ended
            && let Ok(panic) = error.try_into_panic()
        {
            std::panic::resume_unwind(panic);
        }
    }
    std::future::pending().await
}
