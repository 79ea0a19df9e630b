//! The controllers of a control plane, and its simulation.

use std::sync::Arc;

use coracle_behavior::{AddressBlock, Profile};
use coracle_clock::Clock;
use coracle_controller_runtime::cache::CachedObjects;
use coracle_controller_runtime::leader;
use coracle_controller_runtime::metrics::Metrics;
use coracle_controller_runtime::supervise::Readiness;
use coracle_controller_runtime::{Context, ObservePasses, run_selected};
use coracle_controllers::Settings;
use coracle_seed::Identities;
use coracle_simulation::NODES;
use coracle_storage::StoreError;
use futures::future::{BoxFuture, FutureExt, join};
use kube::Client;
use tokio::sync::oneshot;
use tokio::task::{JoinHandle, JoinSet};

use super::phase::{Phase, Started};
use super::within_limit;
use crate::controllers;

/// The controllers and the simulation of a control plane, with what they run with.
#[derive(Clone)]
pub struct Controllers {
    /// The client of all of them. Its user agent names the controller that makes a request; the
    /// first part of it owns what is written.
    pub client: Client,
    pub clock: Clock,
    pub metrics: Metrics,
    pub readiness: Readiness,
    pub settings: Settings,
    /// The number of nodes to simulate.
    pub nodes: usize,
    pub profile: Profile,
    pub load_balancer_addresses: Option<AddressBlock>,
    pub identities: Arc<Identities>,
    /// Whether no other server has the same store.
    pub is_alone: bool,
    /// The caches of the controllers, for those of forks.
    pub cached: CachedObjects,
    /// For a fork, the cached objects of its origin, and the revision up to which both have the
    /// same objects.
    pub origin: Option<(CachedObjects, u64)>,
    /// Returns `true` if a controller is selected, by its name, such as `kube-scheduler` and
    /// `kubelet`.
    pub is_selected: Arc<dyn Fn(&str) -> bool + Send + Sync>,
    /// Observes their passes.
    pub passes: Option<ObservePasses>,
}

impl Controllers {
    /// Starts those that are selected. Where others run controllers on the same store, they run in
    /// one process at a time.
    pub fn start(self, started: &mut Started) {
        match self.is_alone {
            true => {
                let mut tasks = JoinSet::new();
                tasks.spawn(self.run());
                started.push(tasks);
            }
            false => {
                let (stop, stopped) = oneshot::channel();
                let work = tokio::spawn(self.run_elected(stopped));
                started.push(Elected { stop, work });
            }
        }
    }

    /// Runs those that are selected until the future is dropped. They share their caches.
    fn run(self) -> BoxFuture<'static, ()> {
        let simulation = coracle_simulation::Settings {
            nodes: Some(self.nodes),
            profile: self.profile,
            load_balancer_addresses: self.load_balancer_addresses,
            seed: self.identities.seed(),
            volumes: self.settings.volumes.clone(),
        };
        let is_fork = self.origin.is_some();
        let context = Context::new(self.client, self.clock, self.metrics, self.settings)
            .observed_by(self.passes)
            .with_identity(self.identities.of_process("controllers"))
            .sharing(self.cached, self.origin);
        // With others this server serves a definition when it reads what they wrote.
        let context = if self.is_alone { context.with_prompt_discovery() } else { context };
        let is_selected = |name: &str| (self.is_selected)(name);
        let controllers: Vec<_> =
            coracle_controllers::CONTROLLERS.iter().filter(|known| is_selected(known.name)).collect();
        let mut simulated: Vec<_> =
            coracle_simulation::CONTROLLERS.iter().filter(|known| is_selected(known.name)).collect();
        // Without a controller or a node there is nothing to simulate.
        if !controllers.is_empty() || !simulated.is_empty() || self.nodes > 0 {
            simulated.extend(coracle_simulation::ALWAYS);
        }
        let simulation = context.with_settings(simulation);
        let readiness = self.readiness;
        let nodes = run_selected(simulation.clone(), [&NODES], readiness.clone());
        let simulation = run_selected(simulation, simulated, readiness.clone());
        let controllers = run_selected(context, controllers, readiness.clone());
        let others = async move {
            // Whoever starts a control plane waits for its nodes. A fork has them already.
            if !is_fork {
                within_limit(readiness.of(NODES.name)).await;
            }
            join(controllers, simulation).await
        };
        join(nodes, others).map(drop).boxed()
    }

    /// Runs them whenever this process holds the lease of kube-controller-manager, until `stop` is
    /// sent. A lease that is lost is competed for again.
    async fn run_elected(self, mut stop: oneshot::Receiver<()>) {
        loop {
            let stopped = async {
                // A dropped sender stops the controllers as well.
                let _ = (&mut stop).await;
            };
            let context = Context::new(self.client.clone(), self.clock.clone(), self.metrics.clone(), ());
            let work = self.clone();
            let lead = async move { work.run().await };
            match leader::run_elected(
                &context,
                controllers::identity(&self.identities),
                lead.boxed(),
                stopped.boxed(),
            )
            .await
            {
                Ok(()) => return,
                Err(error) => tracing::warn!(%error, "another server may run the controllers"),
            }
        }
    }
}

/// Controllers that run while this process holds the lease, which it releases when they are
/// stopped.
struct Elected {
    stop: oneshot::Sender<()>,
    work: JoinHandle<()>,
}

impl Phase for Elected {
    fn abort(&mut self) {
        self.work.abort();
    }

    fn stop(self: Box<Self>) -> BoxFuture<'static, Result<(), StoreError>> {
        let Elected { stop, work } = *self;
        async move {
            // The election may have ended already.
            let _ = stop.send(());
            let _ = work.await;
            Ok(())
        }
        .boxed()
    }
}
