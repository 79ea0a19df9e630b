//! The service, and the state shared by its requests. `stack.rs` has the processing of a request.

use std::net::IpAddr;
use std::sync::Arc;

use http::Uri;
use tokio::sync::{Semaphore, watch};

use super::connections::Connection;
use super::extensions::Extensions;
use super::layers::LARGE_LIMITS;
use super::order::Clients;
use super::shares::Shares;
use crate::access::authenticate::Authenticator;
use crate::access::authorize::Authorizer;
use crate::access::impersonate::Impersonator;
use crate::access::jwt::SigningKey;
use crate::access::tls::Peer;
use crate::aggregator::{AvailabilityCollector, RemoteApis};
use crate::audit::Auditor;
use crate::background::EVALUATION_LIMITS;
use crate::discovery::{Discovery, version};
use crate::flow_control::{FlowControlMetrics, FlowController, QueueSet};
use crate::registry::Registry;
use crate::telemetry::health::Health;
use crate::telemetry::metrics::Metrics;
use crate::telemetry::slow_requests::SlowRequests;
use crate::telemetry::tracer::Tracer;
use crate::telemetry::z_pages::ZPages;

/// The number of responses that are rendered concurrently, chunk by chunk, if rendering costs more
/// than copying.
const MAX_CONCURRENT_RENDERS: usize = 2;

/// The parts of an [`Api`].
pub struct Config {
    /// The generic verbs.
    pub registry: Arc<Registry>,
    /// Authenticates requests.
    pub authenticator: Authenticator,
    /// Authorizes requests.
    pub authorizer: Arc<Authorizer>,
    /// Signs the tokens of service accounts.
    pub signing_key: Arc<SigningKey>,
    /// The parts that know the kinds.
    pub extensions: Extensions,
    /// Serves discovery and OpenAPI.
    pub discovery: Discovery,
    /// Serves `/healthz`, `/livez` and `/readyz`.
    pub health: Health,
    /// Serves `/statusz` and `/flagz`; None for a server without them.
    pub z_pages: Option<ZPages>,
    /// The metrics.
    pub metrics: Metrics,
    /// Exports the spans of requests.
    pub tracer: Arc<Tracer>,
    /// Records audit events; None if nothing is audited.
    pub auditor: Option<Arc<Auditor>>,
}

impl Config {
    /// Creates a configuration without health checks, traces and audit, and with metrics of its
    /// own.
    pub fn new(
        registry: Arc<Registry>,
        authenticator: Authenticator,
        authorizer: Arc<Authorizer>,
        signing_key: Arc<SigningKey>,
        discovery: Discovery,
    ) -> Config {
        Config {
            registry,
            authenticator,
            authorizer,
            signing_key,
            extensions: Extensions::default(),
            discovery,
            health: Health::new(),
            z_pages: None,
            metrics: Metrics::new(),
            tracer: Arc::default(),
            auditor: None,
        }
    }
}

/// The whole API as a service over HTTP requests. Clones share everything.
#[derive(Clone)]
pub struct Api {
    pub(super) shared: Arc<Shared>,
    /// The client at the other end of this connection.
    pub(super) peer: Peer,
    /// The connection; None without a socket.
    pub(super) connection: Option<Arc<Connection>>,
    /// The remote address; None without a socket.
    pub(super) remote: Option<IpAddr>,
    /// Whether the client is a component of the control plane, whose requests are serialized under
    /// a manual clock.
    pub(super) is_own: bool,
}

pub(super) struct Shared {
    pub registry: Arc<Registry>,
    pub authenticator: Authenticator,
    pub authorizer: Arc<Authorizer>,
    pub signing_key: Arc<SigningKey>,
    pub extensions: Extensions,
    pub impersonator: Impersonator,
    pub discovery: Discovery,
    pub health: Health,
    pub z_pages: Option<ZPages>,
    pub remote_apis: RemoteApis,
    pub metrics: Metrics,
    pub slow_requests: SlowRequests,
    pub tracer: Arc<Tracer>,
    pub auditor: Option<Arc<Auditor>>,
    pub flow_controller: FlowController,
    pub shares: Arc<Shares>,
    pub clients: Clients,
    /// The queue of large requests.
    pub large_request_queue: Arc<QueueSet>,
    /// The permits for processing large requests.
    pub large_request_permits: Arc<Semaphore>,
    /// Seats of requests that evaluate expressions that take long.
    pub evaluations: Arc<QueueSet>,
    pub renderers: Arc<Semaphore>,
    /// Set to true when the server shuts down, so that watches end.
    pub closing: watch::Receiver<bool>,
    close: watch::Sender<bool>,
}

impl Api {
    /// Creates the API from its configuration.
    pub fn new(config: Config) -> Api {
        let Config {
            registry,
            authenticator,
            authorizer,
            signing_key,
            extensions,
            discovery,
            health,
            z_pages,
            metrics,
            tracer,
            auditor,
        } = config;
        let (close, closing) = watch::channel(false);
        metrics.build_info(&version::build_info());
        metrics.collect(AvailabilityCollector::new(&registry, discovery.remote_groups().clone()));
        let flow_metrics = FlowControlMetrics::new(metrics.registry());
        let store = registry.store.clone();
        let clients = Clients::new(move |bucket, after| store.first_event_after(bucket, after));
        let shared = Shared {
            flow_controller: FlowController::new(registry.clone(), flow_metrics),
            registry,
            authenticator,
            authorizer,
            signing_key,
            extensions,
            impersonator: Impersonator::default(),
            discovery,
            health,
            z_pages,
            remote_apis: RemoteApis::default(),
            metrics,
            slow_requests: SlowRequests::default(),
            tracer,
            auditor,
            shares: Arc::default(),
            clients,
            large_request_queue: QueueSet::with(LARGE_LIMITS),
            large_request_permits: Arc::new(Semaphore::new(1)),
            evaluations: QueueSet::with(EVALUATION_LIMITS),
            renderers: Arc::new(Semaphore::new(MAX_CONCURRENT_RENDERS)),
            closing,
            close,
        };
        let peer = Peer::default();
        Api { shared: Arc::new(shared), peer, connection: None, remote: None, is_own: false }
    }

    /// Returns the same API for a client in this process.
    pub fn for_peer(&self, peer: Peer) -> Api {
        Api { shared: self.shared.clone(), peer, connection: None, remote: None, is_own: self.is_own }
    }

    /// Returns the same API for a component of the control plane.
    pub fn for_control_plane(&self) -> Api {
        Api { is_own: true, ..self.clone() }
    }

    /// Returns the same API for a connection.
    pub(super) fn for_connection(&self, peer: Peer, connection: Arc<Connection>, remote: IpAddr) -> Api {
        let shared = self.shared.clone();
        Api { shared, peer, connection: Some(connection), remote: Some(remote), is_own: false }
    }

    /// Returns the API of another server that is served below the path, for the same connection,
    /// and changes the URI to that server's. Returns None if there is no such server.
    pub(super) fn below(&self, uri: &mut Uri) -> Option<Api> {
        let (api, length) = self.shared.extensions.below.as_ref()?(uri.path())?;
        let rest = uri.path_and_query()?.as_str().get(length..)?;
        let rest = if rest.starts_with('/') { rest.to_owned() } else { format!("/{rest}") };
        let path_and_query = rest.parse().ok()?;
        // The other parts stay: over HTTP/2 they contain the host name that the client used.
        let mut parts = uri.clone().into_parts();
        parts.path_and_query = Some(path_and_query);
        *uri = Uri::from_parts(parts).ok()?;
        Some(Api { shared: api.shared, ..self.clone() })
    }

    /// Returns the registry, which implements the generic verbs.
    pub fn registry(&self) -> &Arc<Registry> {
        &self.shared.registry
    }

    /// Returns the metrics.
    pub fn metrics(&self) -> &Metrics {
        &self.shared.metrics
    }

    /// Ends every watch, and refuses new ones: the server shuts down.
    pub fn close(&self) {
        self.shared.close.send_replace(true);
    }
}
