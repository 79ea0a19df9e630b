//! The API server: the API over the registry, the work of its own, and the listener that serves it.

use std::net::SocketAddr;
use std::sync::Arc;

use coracle_apiserver::access::authenticate::Authenticator;
use coracle_apiserver::access::certificates::Certificates;
use coracle_apiserver::apiextensions::{CustomResources, KnownDefinitions};
use coracle_apiserver::audit::Auditor;
use coracle_apiserver::discovery::Discovery;
use coracle_apiserver::discovery::version::GIT_VERSION;
use coracle_apiserver::registry::Registry;
use coracle_apiserver::serve::{Api, Config, Extensions, INDICATORS_PATH, OPENID_PATHS, Refusal};
use coracle_apiserver::telemetry::health::Hook;
use coracle_apiserver::telemetry::tracer::Tracer;
use coracle_apiserver::telemetry::z_pages::ZPages;
use coracle_builtin::start::{IdentityLease, ServerObjects};
use coracle_builtin::tokens::ServiceAccountTokens;
use coracle_clock::Clock;
use coracle_controller_runtime::supervise::Readiness;
use coracle_storage::StoreError;
use coracle_testing_api::{PageAuthenticator, Sessions, Testing, give_turns};
use futures::future::{BoxFuture, FutureExt};
use tokio::sync::oneshot;
use tokio::task::{JoinHandle, JoinSet};

use super::access::Access;
use super::background::{self, RemoteApis};
use super::clock_file::ClockFile;
use super::health::{ServerHealth, health};
use super::phase::{Phase, Started};
use super::preparation::Preparation;
use crate::forks::ForksOf;
use crate::kinds::Kinds;
use crate::opened::READ_ONLY;
use crate::options::{Declared, Options};
use crate::recording::Recording;

/// The parts that an API server is made of.
pub struct Parts<'a> {
    pub options: &'a Options,
    pub kinds: Kinds,
    pub preparation: Preparation,
    pub access: Access,
    pub registry: Arc<Registry>,
    pub identity_lease: Option<IdentityLease>,
    /// Restores the server's own objects; None for a server of a record.
    pub server_objects: Option<ServerObjects>,
    /// The requests that were refused before.
    pub refusals: Vec<Refusal>,
    pub readiness: &'a Readiness,
    pub clock_file: Option<ClockFile>,
    pub recording: Option<Recording>,
    pub known_definitions: KnownDefinitions,
    pub remote: RemoteApis,
    pub forks: ForksOf,
}

/// An API that is served.
pub struct Served {
    pub api: Api,
    pub certificates: Arc<Certificates>,
    pub address: SocketAddr,
    /// The clock, and the state of rest.
    pub testing: Testing,
    /// The sessions of the page; None without the endpoints for tests.
    pub sessions: Option<Arc<Sessions>>,
    /// Finished when the shutdown begins.
    pub shutdown: Hook,
}

/// A server that stops serving when it is stopped.
struct Server {
    stop: oneshot::Sender<()>,
    serving: JoinHandle<()>,
    background: JoinSet<()>,
    auditor: Option<Arc<Auditor>>,
    tracer: Arc<Tracer>,
}

impl Phase for Server {
    fn abort(&mut self) {
        self.background.abort_all();
    }

    fn stop(self: Box<Self>) -> BoxFuture<'static, Result<(), StoreError>> {
        let Server { stop, serving, mut background, auditor, tracer } = *self;
        async move {
            background.shutdown().await;
            // The server may have ended already.
            let _ = stop.send(());
            let _ = serving.await;
            if let Some(auditor) = auditor {
                auditor.flush().await;
            }
            tracer.flush().await;
            Ok(())
        }
        .boxed()
    }
}

/// Starts the work of the server and accepts connections.
pub fn start(parts: Parts<'_>, started: &mut Started) -> Served {
    let Parts { options, kinds, preparation, access, registry, identity_lease, .. } = parts;
    let Parts {
        server_objects,
        refusals,
        readiness,
        clock_file,
        recording,
        known_definitions,
        remote,
        forks,
        ..
    } = parts;
    let Preparation { clock, manual_clock, metrics, auditor, listener, tracer, is_selected, .. } =
        preparation;
    let Access { certificates, tls, authorizer, signing_key, mut tokens, forward_access, .. } = access;
    let extensions = coracle_builtin::extensions(options.simulation_profile, forward_access);
    refusals.into_iter().for_each(|refusal| extensions.traffic.refusals().add(refusal));
    let store = registry.store.clone();
    // Every fork trusts the client authorities of the original control plane, and not those of
    // other forks.
    let is_original = !forks.origin.lineage.is_of_fork();
    let below = (has_testing_api(options, listener.address()) && is_original).then(|| forks.family.below());
    let mut testing = Testing::new(clock.clone(), manual_clock.clone(), store, extensions.traffic.clone())
        .with_forks(Arc::new(forks));
    if options.open.is_some() {
        testing = testing.frozen(READ_ONLY);
    }
    if let Some(clock_file) = clock_file {
        clock_file.record(clock.now());
        testing = testing.recording(move |now| clock_file.record(now));
    }
    if let Some(recording) = recording.as_ref().filter(|_| manual_clock.is_some()) {
        testing = testing.recording(recording.clock_steps());
    }
    let sessions = has_testing_api(options, listener.address()).then(|| {
        // Links and cookies protect the server: they expire by the machine's time.
        Arc::new(Sessions::new(Clock::system(), listener.address().port()))
    });
    let paths = sessions.as_ref().map_or_else(Vec::new, |sessions| {
        let page = testing.clone().page(options.tls_san.clone(), sessions.clone());
        vec![testing.clone().paths(options.tls_san.clone()), page]
    });
    tokens.push(Box::new(ServiceAccountTokens::new(signing_key.clone(), registry.clone(), clock)));
    let ServerHealth { health, start_hooks, shutdown } = health(&registry.store, readiness);
    let pages = ["/metrics", INDICATORS_PATH].into_iter().chain(OPENID_PATHS).chain(ZPages::PATHS);
    let other_paths: Vec<String> = health.paths().chain(pages.map(str::to_owned)).collect();
    let z_pages = {
        let paths = other_paths.iter().cloned().chain(["/version".to_owned()]);
        ZPages::new(registry.now(), GIT_VERSION, paths, options.values())
    };
    let address = listener.address();
    let discovery = Discovery::new(address.to_string(), other_paths, registry.resources.clone())
        .with_remote(remote.groups.clone(), remote.documents.clone());
    let mut background = match options.open {
        None => background::spawn(
            options,
            kinds,
            &registry,
            (identity_lease, server_objects),
            remote,
            &*is_selected,
        ),
        Some(_) => JoinSet::new(),
    };
    background.spawn(CustomResources::new(registry.clone(), known_definitions).run());
    if let Some(manual_clock) = manual_clock {
        background.spawn(give_turns(manual_clock.clock().clone(), registry.store.clone()));
        background.spawn(manual_clock.run());
        background.spawn(testing.clone().record_running());
    }
    // A client certificate is valid for a request by the time that it is valid by in TLS: the
    // machine's.
    let mut authenticator = Authenticator::new(tokens, Clock::system())
        .with_audiences(signing_key.issuers().to_vec())
        .with_anonymous(options.anonymous_auth);
    if let Some(sessions) = &sessions {
        authenticator = authenticator.with_requests(Box::new(PageAuthenticator::new(sessions.clone())));
    }
    let api = Api::new(Config {
        registry,
        authenticator,
        authorizer,
        signing_key,
        extensions: Extensions {
            paths,
            below,
            observer: recording.as_ref().map(Recording::requests),
            read_only: options.open.as_ref().map(|_| READ_ONLY),
            ..extensions
        },
        discovery,
        health,
        z_pages: Some(z_pages),
        metrics,
        tracer: tracer.clone(),
        auditor: auditor.clone(),
    });
    let (stop, stopped) = oneshot::channel();
    let serving = tokio::spawn(listener.serve(
        api.clone(),
        tls,
        Box::pin(async {
            // A dropped sender stops the server as well.
            let _ = stopped.await;
        }),
    ));
    start_hooks.iter().for_each(Hook::finish);
    started.push(Server { stop, serving, background, auditor, tracer });
    Served { api, certificates, address, testing, sessions, shutdown }
}

/// Returns `true` if the endpoints for tests are served. By default they are if the server listens
/// on a loopback address.
fn has_testing_api(options: &Options, listener: SocketAddr) -> bool {
    options.testing_api.unwrap_or(listener.ip().is_loopback())
}
