//! Api: the service. Authenticates and authorizes a request, then passes it to the verbs, or responds with what is no
//! resource: health, metrics, discovery.

use std::convert::Infallible;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures::FutureExt;
use http::{HeaderValue, Method, Request, Response, header, request::Parts};
use tokio::sync::{Semaphore, watch};
use tracing::{Instrument, field, info_span};

use super::background::in_background;
use super::connections::Connection;
use super::deadline::Deadline;
use super::incoming::{self, Incoming};
use super::shares::Shares;
use super::verbs::Call;
use super::websocket;
use super::{Body, respond};
use crate::access::UserInfo;
use crate::access::authenticate::{Authenticator, UNAUTHENTICATED};
use crate::access::authorize::{Authorizer, RequestAttributes};
use crate::access::impersonate::Impersonator;
use crate::access::jwt::SigningKey;
use crate::access::rbac;
use crate::access::tls::Peer;
use crate::admission::AuditAnnotations;
use crate::discovery::{Discovery, version};
use crate::flow_control::{Flow, FlowControlMetrics, FlowController, Limits, QueueSet, Rejection};
use crate::registry::Registry;
use crate::request::info::{RequestInfo, ResourceRequest};
use crate::request::negotiate::Accept;
use crate::request::options::Query;
use crate::request::{Verb, Warnings};
use crate::telemetry::health::Health;
use crate::telemetry::metrics::{Metrics, RequestLabels};
use crate::{Error, Result};

/// Work on bodies and objects of this many bytes and more is done in the background, and takes turns: decoded, a
/// hostile body can be hundreds of times its size.
const LARGE: usize = 64 << 10;
/// Copies in a JSON patch and aliases in YAML make more of a body than it is: such bodies count so many times.
const GROWTH: usize = 16;
/// How many large requests are under way at once, and how many may wait: of one flow, and of all. Only one is worked on; the
/// others wait for the store, or for admission webhooks.
const LARGE_LIMITS: Limits = Limits { seats: 4, waiting_per_flow: 300, waiting: 4000 };
/// How many responses are rendered at once, chunk by chunk, whose rendering takes more than copying.
const RENDERED_AT_ONCE: usize = 2;

/// What an [`Api`] is made of.
pub struct Config {
    /// The generic verbs.
    pub registry: Arc<Registry>,
    /// Finds out who makes a request.
    pub authenticator: Authenticator,
    /// Decides what they may do.
    pub authorizer: Arc<Authorizer>,
    /// Signs the tokens of service accounts.
    pub signing_key: Arc<SigningKey>,
    /// Serves discovery and OpenAPI.
    pub discovery: Discovery,
    /// Serves `/healthz`, `/livez` and `/readyz`.
    pub health: Health,
    /// What is counted and measured.
    pub metrics: Metrics,
}

/// The whole API as a service over HTTP requests. Clones share everything.
#[derive(Clone)]
pub struct Api {
    shared: Arc<Shared>,
    /// Who is at the other end of this connection.
    peer: Peer,
    /// The connection, where there is a socket.
    connection: Option<Arc<Connection>>,
}

pub(super) struct Shared {
    pub registry: Arc<Registry>,
    pub authenticator: Authenticator,
    pub authorizer: Arc<Authorizer>,
    pub signing_key: Arc<SigningKey>,
    impersonator: Impersonator,
    discovery: Discovery,
    health: Health,
    pub metrics: Metrics,
    flow_controller: FlowController,
    shares: Arc<Shares>,
    /// Where large requests take turns.
    large: Arc<QueueSet>,
    /// Turns at working on a large request.
    large_turns: Arc<Semaphore>,
    renderers: Arc<Semaphore>,
    /// Turns true when the server is about to go: watches end.
    pub closing: watch::Receiver<bool>,
    close: watch::Sender<bool>,
}

impl Api {
    /// The API as it is configured.
    pub fn new(config: Config) -> Api {
        let Config { registry, authenticator, authorizer, signing_key, discovery, health, metrics } = config;
        let (close, closing) = watch::channel(false);
        metrics.build_info(&version::build_info());
        let flow_metrics = FlowControlMetrics::new(metrics.registry());
        let shared = Shared {
            flow_controller: FlowController::new(registry.clone(), flow_metrics),
            registry,
            authenticator,
            authorizer,
            signing_key,
            impersonator: Impersonator::default(),
            discovery,
            health,
            metrics,
            shares: Arc::default(),
            large: QueueSet::with(LARGE_LIMITS),
            large_turns: Arc::new(Semaphore::new(1)),
            renderers: Arc::new(Semaphore::new(RENDERED_AT_ONCE)),
            closing,
            close,
        };
        Api { shared: Arc::new(shared), peer: Peer::default(), connection: None }
    }

    /// The same API for someone in this process.
    pub fn for_peer(&self, peer: Peer) -> Api {
        Api { shared: self.shared.clone(), peer, connection: None }
    }

    /// The same API for another connection.
    pub(super) fn for_connection(&self, peer: Peer, connection: Arc<Connection>) -> Api {
        Api { shared: self.shared.clone(), peer, connection: Some(connection) }
    }

    /// The generic verbs.
    pub fn registry(&self) -> &Arc<Registry> {
        &self.shared.registry
    }

    /// What is counted and measured.
    pub fn metrics(&self) -> &Metrics {
        &self.shared.metrics
    }

    /// Ends every watch, now and from now on: the server is about to go.
    pub fn close(&self) {
        self.shared.close.send_replace(true);
    }

    async fn respond<B: Incoming>(self, request: Request<B>) -> Response<Body> {
        let active = self.connection.as_ref().map(Connection::begin);
        let started = Instant::now();
        let (parts, body) = request.into_parts();
        let query = Query::parse(parts.uri.query().unwrap_or(""));
        let info = RequestInfo::parse(&parts.method, parts.uri.path(), &query);
        let span = span_of(&info);
        // Futures are pinned before they are passed on: each move copies all the room that they may need.
        let answered = pin!(self.answer(&parts, &query, &info, body));
        let answered = AssertUnwindSafe(answered).catch_unwind().instrument(span.clone()).await;
        let mut response = answered.unwrap_or_else(|_| {
            tracing::error!(parent: &span, path = parts.uri.path(), "a request panicked");
            respond::panicked()
        });
        if is_watch(&info) {
            response = websocket::switch_protocols(&parts, response);
        }
        span.record("code", response.status().as_u16());
        let headers = response.headers_mut();
        // Only what is the same for everyone says otherwise.
        headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-cache, private"));
        let id = uuid::Uuid::new_v4().to_string();
        if let Ok(id) = HeaderValue::from_str(&id) {
            headers.insert("audit-id", id);
        }
        let response = respond::compress(&parts.headers, response);
        self.record(&info, &parts, &query, &response, started.elapsed());
        tracing::debug!(parent: &span, took = ?started.elapsed(), "answered");
        let response = if parts.method == Method::HEAD { respond::head_only(response) } else { response };
        match active {
            Some(active) => {
                response.map(|body| body.rendered_in_background(&self.shared.renderers).keep(active))
            }
            None => response,
        }
    }

    async fn answer<B: Incoming>(
        &self,
        parts: &Parts,
        query: &Query,
        info: &RequestInfo,
        body: B,
    ) -> Response<Body> {
        let warnings = Warnings::default();
        let refuse = |error: Error| respond::error(&error, Accept::of_errors(&parts.headers, query));
        let user = match self.authenticate(parts) {
            Ok(user) => user,
            Err(error) => return refuse(error),
        };
        let flow = self.shared.flow_controller.classify(&user, &RequestAttributes::from(info));
        let mut response = match self.authorize(parts, info, &user) {
            Err(error) => respond::unsniffed(refuse(error)),
            Ok(user) => {
                let exchange =
                    Exchange { parts, query, info, user: &user, flow: flow.as_ref(), warnings: &warnings };
                match self.try_answer(exchange, body).await {
                    Ok(response) => response,
                    Err(Refusal::Error(error)) => refuse(error),
                    Err(Refusal::Rejected) => respond::too_many_requests(),
                }
            }
        };
        if let Some(flow) = &flow {
            response.headers_mut().extend(flow.headers().map(|(name, value)| (Some(name), value)));
        }
        respond::warn(&mut response, warnings);
        response
    }

    /// Who asks.
    fn authenticate(&self, parts: &Parts) -> Result<Arc<UserInfo>> {
        let user = self.shared.authenticator.authenticate(&parts.headers, &self.peer)?;
        let fits = self
            .connection
            .as_ref()
            .is_none_or(|connection| connection.authenticated(&user, user.is_in(UNAUTHENTICATED)));
        if fits { Ok(user) } else { Err(Error::too_many_requests()) }
    }

    /// Whom the request is made for, if he may.
    fn authorize(&self, parts: &Parts, info: &RequestInfo, user: &Arc<UserInfo>) -> Result<Arc<UserInfo>> {
        let shared = &self.shared;
        shared.registry.feed_authorizer();
        let request = RequestAttributes::from(info);
        let impersonated =
            shared.impersonator.impersonate(&parts.headers, user, &request, &shared.authorizer)?;
        let user = impersonated.map_or_else(|| user.clone(), Arc::new);
        shared.authorizer.check(&user, &request)?;
        Ok(user)
    }

    async fn try_answer(
        &self,
        exchange: Exchange<'_>,
        body: impl Incoming,
    ) -> std::result::Result<Response<Body>, Refusal> {
        let Exchange { parts, query, info, user, flow, warnings } = exchange;
        let audit_annotations = AuditAnnotations::default();
        let shared = &self.shared;
        let watch = is_watch(info);
        let deadline = if watch { Deadline::default() } else { Deadline::of(query)? };
        let limited = flow.filter(|flow| !flow.is_exempt());
        let mut share = match limited {
            Some(_) => Some(shared.shares.begin(&user.name, watch).map_err(|_| Refusal::Rejected)?),
            None => None,
        };
        // It is read before anything is held that others wait for.
        let body = match info {
            RequestInfo::Resource(request) if request.verb.has_body() => {
                Some(deadline.run(incoming::read(body, share.as_mut())).await)
            }
            _ => None,
        };
        let request = match info {
            RequestInfo::Path { .. } => None,
            RequestInfo::Resource(request) => Some(request),
        };
        let large = request.is_some_and(|request| self.is_large(request, parts, &body));
        // Large requests wait for their turn before they take a seat: they would keep small ones from it.
        let _turn = match large {
            true => Some(shared.large.acquire(&user.name, deadline.of_queue()).await?),
            false => None,
        };
        let seat = match flow {
            Some(flow) => Some(flow.admit(deadline.of_queue()).await?),
            None => None,
        };
        let answered = pin!(async {
            match (info, request) {
                (RequestInfo::Resource(request), _) => {
                    let _in_flight = (!watch)
                        .then(|| shared.metrics.inflight(!matches!(request.verb, Verb::Get | Verb::List)));
                    let labels = if watch { self.labels(info, parts, query) } else { None };
                    let call = Call {
                        shared,
                        user,
                        request,
                        method: &parts.method,
                        headers: &parts.headers,
                        query,
                        warnings,
                        audit_annotations: &audit_annotations,
                        lasting: labels.map(|labels| shared.metrics.longrunning(&labels)),
                        body: body.unwrap_or_else(|| Ok(Bytes::new())),
                    };
                    call.answer().await
                }
                (RequestInfo::Path { path, .. }, _) => self.respond_to_path(parts, query, path),
            }
        });
        let answered = deadline.run(answered);
        let on_socket = self.connection.is_some();
        let response = match large && on_socket {
            true => in_background(&shared.large_turns, answered).await,
            false => answered.await,
        };
        drop(seat);
        if let Some(share) = &mut share {
            share.release_body_bytes();
        }
        Ok(response?.map(|body| match share {
            Some(share) => body.keep(share),
            None => body,
        }))
    }

    /// Whether a request is work for long: by its body, and by the object it changes.
    fn is_large(&self, request: &ResourceRequest, parts: &Parts, body: &Option<Result<Bytes>>) -> bool {
        let Some(body) = body else { return false };
        let body_size = body.as_ref().map_or(0, Bytes::len);
        let yaml =
            parts.headers.get(header::CONTENT_TYPE).is_some_and(|value| value.as_bytes().ends_with(b"yaml"));
        // Rules are compared with all that their author may do.
        if request.group == rbac::GROUP {
            return true;
        }
        let factor = if yaml || request.verb == Verb::Patch { GROWTH } else { 1 };
        let changed = if request.named { self.shared.registry.size_of(request) } else { 0 };
        body_size * factor + changed >= LARGE
    }

    /// Responds to a path that is no resource.
    fn respond_to_path(&self, parts: &Parts, query: &Query, path: &str) -> Result<Response<Body>> {
        let shared = &self.shared;
        if let Some(response) = shared.health.respond(path, query) {
            return Ok(response.map(Body::from));
        }
        if path == "/metrics" {
            shared.metrics.storage_size(shared.registry.store.snapshot().bytes());
            let text = shared.metrics.render(shared.registry.stored_objects());
            return Ok(respond::plain(200, crate::telemetry::metrics::CONTENT_TYPE, text.into()));
        }
        if path == "/openid/v1/jwks" {
            let keys = shared.signing_key.jwks().to_string();
            return Ok(respond::plain(200, "application/jwk-set+json", keys.into()));
        }
        match shared.discovery.respond(parts, shared.registry.now()) {
            Some(response) => Ok(response?.map(Body::from)),
            None => Err(self.leads_nowhere(path)),
        }
    }

    /// Under a group that is known, there is a Status to say what is not; elsewhere there is no page.
    fn leads_nowhere(&self, path: &str) -> Error {
        let mut segments = path.split('/').skip(1);
        let group = match (segments.next(), segments.next()) {
            (Some("api"), Some(_)) => "",
            (Some("apis"), Some(group)) if !group.is_empty() && segments.next().is_some() => group,
            _ => return Error::PageNotFound,
        };
        if self.shared.discovery.knows_group(group) { Error::UnknownResource } else { Error::PageNotFound }
    }

    fn record(
        &self,
        info: &RequestInfo,
        parts: &Parts,
        query: &Query,
        response: &Response<Body>,
        took: Duration,
    ) {
        let bytes = response.body().size();
        if let Some(labels) = self.labels(info, parts, query) {
            self.shared.metrics.request(&labels, response.status().as_u16(), took, Duration::ZERO, bytes);
        }
    }

    /// What a request is counted under, if it is.
    fn labels<'a>(&self, info: &'a RequestInfo, parts: &Parts, query: &Query) -> Option<RequestLabels<'a>> {
        if let RequestInfo::Resource(request) = info
            && !self.shared.registry.resources.load().serves(request)
        {
            return None;
        }
        let content_type = parts.headers.get(header::CONTENT_TYPE).and_then(|v| v.to_str().ok());
        let apply = content_type.is_some_and(|t| t.starts_with("application/apply-patch"));
        let dry_run = if query.first("dryRun") == Some("All") { "All" } else { "" };
        RequestLabels::of(info, &parts.method, apply, dry_run)
    }
}

/// A request whose user is known and may make it.
struct Exchange<'a> {
    parts: &'a Parts,
    query: &'a Query,
    info: &'a RequestInfo,
    user: &'a UserInfo,
    flow: Option<&'a Flow>,
    warnings: &'a Warnings,
}

/// Why there is no answer.
enum Refusal {
    Error(Error),
    /// Flow control has no place for it.
    Rejected,
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Refusal {
        Refusal::Error(error)
    }
}

impl From<Rejection> for Refusal {
    fn from(_: Rejection) -> Refusal {
        Refusal::Rejected
    }
}

fn is_watch(info: &RequestInfo) -> bool {
    matches!(info, RequestInfo::Resource(ResourceRequest { verb: Verb::Watch, .. }))
}

fn span_of(info: &RequestInfo) -> tracing::Span {
    match info {
        RequestInfo::Resource(ResourceRequest { verb, group, resource, namespace, name, .. }) => info_span!(
            "request", verb = verb.as_str(), %group, %resource, %namespace, %name, code = field::Empty
        ),
        RequestInfo::Path { path, verb } => info_span!("request", %verb, %path, code = field::Empty),
    }
}

impl<B> tower::Service<Request<B>> for Api
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = std::result::Result<Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<std::result::Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let api = self.clone();
        Box::pin(async move { Ok(api.respond(request).await) })
    }
}
