//! The shared dependencies of all controllers.

use std::any::TypeId;
use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use coracle_clock::Clock;
use futures::future::join_all;
use kube::Client;
use kube::core::ApiResource;
use parking_lot::Mutex;
use tokio::task::JoinSet;

use super::cache::{self, Cache, Cached, CachedObjects, Decode, Indexer, ListScope};
use super::demand::Demand;
use super::discovery::Discovery;
use super::events::{Broadcaster, Recorder};
use super::metrics::Metrics;
use super::pass::ObservePasses;
use super::queue::{FIRST_RETRY, Key, MAX_RETRY, Queue};
use super::supervise::Supervisor;

/// The shared dependencies of all controllers: clients, clock, caches, metrics. Cloning is cheap;
/// the caches end with the last clone.
pub struct Context<S> {
    /// The client of reads, and of writes of kinds without a cache, which nothing waits for.
    pub unrecorded: Client,
    /// Observes the passes of the controllers.
    pub(super) observer: Option<ObservePasses>,
    /// The time.
    pub clock: Clock,
    /// The metrics of all controllers.
    pub metrics: Metrics,
    /// The configuration of the controllers. The runtime does not read it.
    pub settings: Arc<S>,
    broadcaster: Broadcaster,
    caches: Arc<Mutex<Caches>>,
    /// The caches requested through this context, which its controller needs.
    needed: Arc<Mutex<Vec<Arc<Indexer>>>>,
    resources: Arc<OnceLock<Arc<Discovery>>>,
    has_prompt_discovery: bool,
    /// The caches of this context, for those of forks.
    cached: CachedObjects,
    /// The caches of a server that this one is a fork of, which have the same objects up to a
    /// revision.
    origin: Option<(CachedObjects, u64)>,
    identity: Arc<str>,
}

impl<S> Clone for Context<S> {
    fn clone(&self) -> Context<S> {
        Context {
            unrecorded: self.unrecorded.clone(),
            observer: self.observer.clone(),
            clock: self.clock.clone(),
            metrics: self.metrics.clone(),
            settings: self.settings.clone(),
            broadcaster: self.broadcaster.clone(),
            caches: self.caches.clone(),
            needed: self.needed.clone(),
            resources: self.resources.clone(),
            has_prompt_discovery: self.has_prompt_discovery,
            cached: self.cached.clone(),
            origin: self.origin.clone(),
            identity: self.identity.clone(),
        }
    }
}

#[derive(Default)]
struct Caches {
    by_kind: HashMap<(TypeId, ListScope), Arc<Indexer>>,
    /// The tasks that keep them fresh, stopped when this is dropped.
    tasks: JoinSet<()>,
}

impl<S> Context<S> {
    /// Creates a context without any caches.
    ///
    /// - `settings`: the configuration of the controllers
    pub fn new(client: Client, clock: Clock, metrics: Metrics, settings: S) -> Context<S> {
        let supervisor = Supervisor::new(clock.clone(), metrics.clone());
        let broadcaster = Broadcaster::start(client.clone(), clock.clone(), supervisor);
        Context {
            unrecorded: client,
            observer: None,
            clock,
            metrics,
            settings: Arc::new(settings),
            broadcaster,
            caches: Arc::default(),
            needed: Arc::default(),
            resources: Arc::default(),
            has_prompt_discovery: false,
            cached: CachedObjects::default(),
            origin: None,
            identity: uuid::Uuid::new_v4().to_string().into(),
        }
    }

    /// Returns the context with this identity in place of a random one.
    pub fn with_identity(mut self, identity: uuid::Uuid) -> Context<S> {
        self.identity = identity.to_string().into();
        self
    }

    /// Marks the server as one whose discovery has a custom resource before watches report its
    /// definition as established. The controllers then do not wait for another refresh of
    /// discovery.
    pub fn with_prompt_discovery(mut self) -> Context<S> {
        self.has_prompt_discovery = true;
        self
    }

    /// Adds the caches of this context to `cached`, and takes initial objects from the server that
    /// this one is a fork of.
    ///
    /// - `origin`: the caches of that server, and the revision up to which both have the same
    ///   objects
    pub fn sharing(mut self, cached: CachedObjects, origin: Option<(CachedObjects, u64)>) -> Context<S> {
        (self.cached, self.origin) = (cached, origin);
        self
    }

    /// Returns the context with an observer of the passes of its controllers.
    pub fn observed_by(self, observer: Option<ObservePasses>) -> Context<S> {
        Context { observer, ..self }
    }

    /// Returns a context for one controller. It shares the caches, and records those that the
    /// controller requests.
    pub fn of_controller(&self) -> Context<S> {
        Context { needed: Arc::default(), ..self.clone() }
    }

    /// Waits until all caches requested through this context so far are synced.
    pub(super) async fn synced(&self) {
        let needed = self.needed.lock().clone();
        join_all(needed.into_iter().map(Indexer::synced)).await;
    }

    /// Returns a context with other settings. It shares the caches.
    pub fn with_settings<T>(&self, settings: T) -> Context<T> {
        Context {
            unrecorded: self.unrecorded.clone(),
            observer: self.observer.clone(),
            clock: self.clock.clone(),
            metrics: self.metrics.clone(),
            settings: Arc::new(settings),
            broadcaster: self.broadcaster.clone(),
            caches: self.caches.clone(),
            needed: Arc::default(),
            resources: self.resources.clone(),
            has_prompt_discovery: self.has_prompt_discovery,
            cached: self.cached.clone(),
            origin: self.origin.clone(),
            identity: self.identity.clone(),
        }
    }

    /// Returns the cache of a kind, and starts it at the first call. The requesting controller
    /// starts once the cache is synced.
    pub fn cache<K: Cached>(&self) -> Arc<Cache<K>> {
        self.cache_within(ListScope::default())
    }

    /// Returns a cache of some objects of a kind, for controllers that need only a few of many. No
    /// other objects are watched, decoded or stored.
    pub fn cache_within<K: Cached>(&self, scope: ListScope) -> Arc<Cache<K>> {
        let resource = ApiResource::erase::<K>(&());
        let indexer = self.indexer((TypeId::of::<K>(), scope), resource, cache::decode::<K>);
        self.needed.lock().push(indexer.clone());
        Arc::new(Cache::of(indexer))
    }

    /// Returns a cache of a kind that is watched only while there is demand. It is for controllers
    /// that wait for such objects occasionally, since a watch of all writes of a kind has a cost.
    /// No controller waits until it is synced. Between watches it keeps its last content.
    pub fn cache_on_demand<K: Cached>(&self) -> (Arc<Cache<K>>, Demand) {
        let indexer = Arc::new(Indexer::new(self.clock.activity().clone()));
        let (demand, mut demanded) = Demand::new();
        let (watching, client, clock) = (indexer.clone(), self.unrecorded.clone(), self.clock.clone());
        let resource = ApiResource::erase::<K>(&());
        let (name, supervisor) = (format!("cache of {} on demand", resource.plural), self.supervisor());
        let keeping_fresh = async move {
            // The loop ends when the last `Demand` is dropped.
            while demanded.wait_for(|is_demanded| *is_demanded).await.is_ok() {
                let start = || {
                    let watched = (resource.clone(), ListScope::default());
                    cache::run(
                        watching.clone(),
                        client.clone(),
                        watched,
                        clock.clone(),
                        cache::decode::<K>,
                        None,
                    )
                };
                tokio::select! {
                    () = supervisor.run(&name, start) => {}
                    _ = demanded.wait_for(|is_demanded| !*is_demanded) => {}
                }
            }
        };
        self.caches.lock().tasks.spawn(keeping_fresh);
        (Arc::new(Cache::of(indexer)), demand)
    }

    /// Returns the store of a cache, and starts its watch at the first call.
    fn indexer(
        &self,
        (kind, scope): (TypeId, ListScope),
        resource: ApiResource,
        decode: Decode,
    ) -> Arc<Indexer> {
        let mut caches = self.caches.lock();
        let Caches { by_kind, tasks } = &mut *caches;
        let known = by_kind.entry((kind, scope)).or_insert_with(|| {
            let indexer = Arc::new(Indexer::new(self.clock.activity().clone()));
            let (watching, client, clock) = (indexer.clone(), self.unrecorded.clone(), self.clock.clone());
            let (name, supervisor) = (format!("cache of {}", resource.plural), self.supervisor());
            let watched = (resource, scope);
            self.cached.add((kind, scope), &indexer);
            let shared = self.origin.as_ref().and_then(|(origin, until)| origin.until((kind, scope), *until));
            let start = move || {
                let (watching, client, shared) = (watching.clone(), client.clone(), shared.clone());
                cache::run(watching, client, watched.clone(), clock.clone(), decode, shared)
            };
            tasks.spawn(async move { supervisor.run(&name, start).await });
            indexer
        });
        known.clone()
    }

    /// Returns discovery, and starts its refreshes at the first call.
    pub fn discovery(&self) -> Arc<Discovery> {
        let start = || {
            let resources = Arc::new(Discovery::new(
                self.unrecorded.clone(),
                self.has_prompt_discovery,
                self.clock.activity().clone(),
            ));
            // The task must not own the context, since the caches end with the last one. The
            // controller that requests discovery first does not need these caches either.
            let others = self.of_controller();
            let (definitions, services) = (others.cache(), others.cache());
            let (fresh, clock, supervisor) = (resources.clone(), self.clock.clone(), self.supervisor());
            let start =
                move || fresh.clone().run(clock.clone(), Arc::clone(&definitions), Arc::clone(&services));
            let keeping_fresh = async move { supervisor.run("discovery", start).await };
            self.caches.lock().tasks.spawn(keeping_fresh);
            resources
        };
        self.resources.get_or_init(start).clone()
    }

    /// Records events as a component.
    pub fn recorder(&self, component: &str) -> Recorder {
        self.broadcaster.recorder(component)
    }

    /// Restarts tasks after a panic, which this context counts.
    pub fn supervisor(&self) -> Supervisor {
        Supervisor::new(self.clock.clone(), self.metrics.clone())
    }

    /// Returns the identity of this process, a UUID.
    pub fn identity(&self) -> &str {
        &self.identity
    }

    /// Creates a queue with client-go's backoff.
    ///
    /// - `name`: in the metrics
    pub fn queue<K: Key>(&self, name: &str) -> Queue<K> {
        Queue::new(self.clock.clone(), self.metrics.queue(name), [FIRST_RETRY, MAX_RETRY])
    }
}
