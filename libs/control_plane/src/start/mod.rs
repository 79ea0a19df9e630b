//! The start of a control plane, phase by phase, and its end.
//!
//! | file | phase | what ends it |
//! | --- | --- | --- |
//! | `beginning.rs` | the next two, in the order of a first start or of a fork | |
//! | `preparation.rs` | configuration files, the audit log, the port | dropping it |
//! | `storage.rs` | the store | it is closed |
//! | `access.rs` | keys and certificates | new files are on disk |
//! | `registry.rs` | the registry, the objects of the start, those about the server | nothing of it runs |
//! | `volumes.rs` | the directory of the volumes | it is removed, if it is a temporary one, once no fork reads it |
//! | `serving.rs`, `background.rs`, `health.rs` | the API server | its own work ends, requests finish, and records are flushed |
//! | `controllers.rs`, `settings.rs` | the controllers and the simulation | they end, and the lease is released |
//!
//! A phase that runs something adds itself to [`Started`] (`phase.rs`). That stops them in reverse
//! order: after a phase that fails, at the shutdown, and where the control plane or the future that
//! starts it is dropped.

mod access;
mod background;
mod beginning;
mod blocking;
mod clock_file;
mod controllers;
mod health;
mod origin;
mod phase;
mod preparation;
mod registry;
mod serving;
mod settings;
mod storage;
#[cfg(test)]
mod tests;
mod volumes;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use coracle_apiserver::access::certificates::Certificates;
use coracle_apiserver::registry::ObjectIndex;
use coracle_apiserver::serve::Api;
use coracle_apiserver::telemetry::health::Hook;
use coracle_controller_runtime::cache::CachedObjects;
use coracle_controller_runtime::current_controller;
use coracle_controller_runtime::metrics::Metrics;
use coracle_controller_runtime::supervise::Readiness;
use coracle_seed::Identities;
use coracle_storage::{Revision, Store, StoreError};
use coracle_testing_api::{Sessions, Testing};
use futures::future::BoxFuture;
use http::HeaderValue;
use tokio::task::JoinSet;

use access::Access;
use controllers::Controllers;
use phase::Started;

pub use origin::Origin;
pub use phase::Phase;

use beginning::Beginning;
use serving::{Parts, Served};
use settings::settings;
use volumes::VolumeDirectories;

use crate::client::client;
use crate::error::Error;
use crate::forks::{EndOfFamily, Family, ForksOf, OfFamily};
use crate::kinds::Kinds;
use crate::options::Options;
use crate::recording::Recording;

/// Ends what waits for the control plane, such as an advance of its clock, before anything else ends.
struct EndOfTesting(Testing);

impl Phase for EndOfTesting {
    fn abort(&mut self) {
        self.0.end();
    }

    fn stop(self: Box<Self>) -> BoxFuture<'static, Result<(), StoreError>> {
        self.0.end();
        Box::pin(std::future::ready(Ok(())))
    }
}

/// The user of the controllers, as kube-controller-manager's.
const CONTROLLER_MANAGER: &str = "system:kube-controller-manager";

/// The bucket of nodes.
const NODES: &str = "nodes";

/// Returns the user agent of the controller that makes a request.
fn user_agent() -> HeaderValue {
    let agent = current_controller().map(|name| {
        coracle_simulation::user_agent(name).unwrap_or_else(|| coracle_controllers::user_agent(name))
    });
    let agent = agent.and_then(|agent| HeaderValue::try_from(agent).ok());
    agent.unwrap_or_else(|| HeaderValue::from_static(coracle_controllers::USER_AGENT))
}

/// The timeout of the initial sync of the controllers' caches.
const CONTROLLERS_START: Duration = Duration::from_secs(10);

/// Waits for the start of controllers, not beyond the timeout: `/readyz` reports what is missing
/// then.
#[expect(clippy::disallowed_methods, reason = "the caller waits for a bounded time")]
async fn within_limit(started: impl Future<Output = ()>) {
    let _ = tokio::time::timeout(CONTROLLERS_START, started).await;
}

/// A control plane that serves.
pub struct Running {
    pub api: Api,
    pub certificates: Arc<Certificates>,
    pub address: SocketAddr,
    /// The clock, and the state of rest.
    pub testing: Testing,
    /// The sessions of the page; None without the endpoints for tests.
    pub sessions: Option<Arc<Sessions>>,
    /// Finished when the shutdown begins.
    pub shutdown: Hook,
    pub store: Store<ObjectIndex>,
    /// The state from which forks of this control plane start.
    pub origin: Arc<Origin>,
    /// The revision of the store that it began with.
    pub began_at: Revision,
    pub started: Started,
}

/// The place of a control plane among those that have one origin.
pub struct Kinship<'a> {
    pub family: Arc<Family>,
    /// The control plane that it is a fork of; None if it is not a fork.
    pub origin: Option<&'a Origin>,
    /// The name of the fork; "" for one without a name, or if it is not a fork.
    pub name: &'a str,
}

/// Starts all phases. Those that were started are stopped if one fails, before this returns.
///
/// # Errors
/// The error of the phase that failed.
pub async fn start(options: Options, kinds: Kinds, kinship: Kinship<'_>) -> Result<Running, Error> {
    let mut started = Started::none();
    // A start that fails leaves no record behind.
    let record =
        options.record.clone().filter(|path| kinship.origin.is_none() && path.symlink_metadata().is_err());
    // The first phase, so that its end is the last: requests below its address that are under way
    // lead to forks.
    match kinship.origin {
        None => started.push(EndOfFamily(kinship.family.clone())),
        Some(_) => started.push(OfFamily(kinship.family.clone())),
    }
    match start_phases(&options.within_ranges(), kinds, kinship, &mut started).await {
        Ok((Served { api, certificates, address, testing, sessions, shutdown }, origin, began_at)) => {
            // The last phase, so that its end is the first.
            started.push(EndOfTesting(testing.clone()));
            let store = origin.store.clone();
            Ok(Running {
                api,
                certificates,
                address,
                testing,
                sessions,
                shutdown,
                store,
                origin,
                began_at,
                started,
            })
        }
        Err(error) => {
            // The phase has logged what it could not stop.
            let _ = started.stop().await;
            // It may not have been created.
            let _ = record.map(std::fs::remove_file);
            Err(error)
        }
    }
}

async fn start_phases(
    options: &Options,
    kinds: Kinds,
    Kinship { family, origin, name }: Kinship<'_>,
    started: &mut Started,
) -> Result<(Served, Arc<Origin>, Revision), Error> {
    let beginning = match origin {
        None => Beginning::new(options, kinds, started).await?,
        Some(origin) => Beginning::with(origin, options, started).await?,
    };
    let Beginning { mut preparation, resources, store, rbac, initial_objects, .. } = beginning;
    let Beginning { keys, known_definitions, remote, refusals, .. } = beginning;
    let began_at = store.revision();
    let recording = match origin {
        None => preparation.recording.take().inspect(|recording| family.record(recording.clone())),
        Some(origin) => {
            let recording = origin.recording.as_ref();
            recording.map(|recording| recording.fork(name, began_at, &preparation.clock))
        }
    };
    if let Some(recording) = &recording {
        recording.observe(&store).await.map_err(|error| Error::Bootstrap(error.to_string()))?;
    }
    let identities = Arc::new(Identities::new(options.seed, store.revision().0));
    let listener = preparation.listener.address();
    let token_file = preparation.token_file.clone();
    let (access, new_files) = Access::new(options, keys, token_file, origin, rbac, listener)?;
    let written = access::write(new_files, started);
    let volumes = VolumeDirectories::new(options, &std::env::temp_dir(), origin, started);
    let origin_of_forks = Arc::new(Origin {
        volumes: volumes.clone(),
        options: options.clone(),
        kinds,
        fork: name.to_owned(),
        lineage: family.lineage(origin.map(|origin| &origin.lineage)),
        store: store.clone(),
        resources: resources.clone(),
        known_definitions: known_definitions.clone(),
        remote: remote.clone(),
        rbac: access.rbac.clone(),
        certificates: access.certificates.clone(),
        signing_key: access.signing_key.clone(),
        token_file: preparation.token_file.take(),
        clock: preparation.clock.clone(),
        recording: recording.clone(),
        cached: CachedObjects::default(),
        address: listener,
        ancestors: access.ancestors.clone(),
        refused_ports: access.refused_ports.clone(),
    });
    let registry = registry::assemble(options, &preparation, &access, &store, resources, identities.clone());
    let identity_lease = match options.open {
        None => {
            registry::store_initial_objects(&registry, options, &preparation, &access, initial_objects)
                .await?
        }
        Some(_) => None,
    };
    let server_objects = match options.open {
        None => Some(registry::server_objects(&registry, options, &preparation, &access)?),
        Some(_) => None,
    };
    written.await?;
    let readiness = Readiness::default();
    let settings =
        settings(options, &access, volumes.directories, preparation.features.clone(), origin.is_some());
    let metrics = Metrics::new(preparation.metrics.registry().clone());
    let (clock, is_selected) = (preparation.clock.clone(), preparation.is_selected.clone());
    let clock_file = clock_file::begin(options.data_dir.as_deref(), preparation.manual_clock.is_some())?;
    let parts = Parts {
        options,
        kinds,
        preparation,
        access,
        registry,
        identity_lease,
        server_objects,
        refusals,
        readiness: &readiness,
        clock_file,
        recording: recording.clone(),
        known_definitions,
        remote,
        forks: ForksOf { family, origin: origin_of_forks.clone() },
    };
    let served = serving::start(parts, started);
    let starting = clock.activity().begin();
    // A fork of a record has the nodes of the record.
    let nodes = match options.of_record {
        true => store.snapshot().bucket(NODES).iter().count(),
        false => options.nodes,
    };
    let controllers = Controllers {
        client: client(&served.api.for_control_plane(), CONTROLLER_MANAGER, user_agent),
        clock,
        metrics,
        readiness: readiness.clone(),
        settings,
        nodes,
        profile: options.simulation_profile,
        load_balancer_addresses: options.load_balancer_addresses,
        identities,
        is_alone: !store.has_other_writers(),
        cached: origin_of_forks.cached.clone(),
        origin: origin.map(|origin| (origin.cached.clone(), began_at.0)),
        is_selected,
        passes: recording.as_ref().map(Recording::passes),
    };
    if options.open.is_none() {
        controllers.start(started);
    }
    if origin.is_none() {
        within_limit(readiness.of(coracle_simulation::NODES.name)).await;
    }
    // A test that only reads does not wait for the controllers; whoever settles does.
    let mut waiting = JoinSet::new();
    waiting.spawn(async move {
        within_limit(readiness.complete()).await;
        drop(starting);
    });
    started.push(waiting);
    Ok((served, origin_of_forks, began_at))
}
