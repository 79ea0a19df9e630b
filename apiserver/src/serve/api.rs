//! Api: the service. Decides who asks and whether they may, then hands over to the verbs or to what the server tells of
//! itself.

use std::convert::Infallible;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures::FutureExt;
use http::{HeaderValue, Method, Request, Response, header, request::Parts};
use tokio::sync::{Semaphore, watch};
use tracing::{Instrument, field, info_span};

use super::verbs::{Call, Incoming};
use super::{Body, respond};
use crate::access::UserInfo;
use crate::access::authenticate::Authenticator;
use crate::access::authorize::{Authorizer, RequestAttributes};
use crate::access::impersonate::Impersonator;
use crate::access::jwt::SigningKey;
use crate::access::tls::Peer;
use crate::discovery::{Discovery, version};
use crate::registry::Registry;
use crate::request::info::{RequestInfo, ResourceRequest};
use crate::request::negotiate::Accept;
use crate::request::options::Query;
use crate::request::{Verb, Warnings};
use crate::telemetry::health::Health;
use crate::telemetry::metrics::{Metrics, RequestLabels};
use crate::{Error, Result};

/// Requests under way at once; more get 429. kube-apiserver's defaults, reading and changing together.
const MAX_IN_FLIGHT: usize = 600;

/// Bodies of this many bytes and more take turns, [`LARGE_AT_ONCE`] at a time: decoded, a hostile one can be hundreds of
/// times its size.
pub(super) const LARGE_BODY: usize = 256 * 1024;
const LARGE_AT_ONCE: usize = 1;

/// What an [`Api`] is made of.
pub struct Config {
    pub registry: Arc<Registry>,
    pub authenticator: Authenticator,
    pub authorizer: Arc<Authorizer>,
    /// Signs the tokens of service accounts.
    pub signing_key: Arc<SigningKey>,
    pub discovery: Discovery,
    pub health: Health,
    pub metrics: Metrics,
}

/// The whole API as a service over HTTP requests. Clones share everything.
#[derive(Clone)]
pub struct Api {
    shared: Arc<Shared>,
    /// Who is at the other end of this connection.
    peer: Peer,
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
    in_flight: Semaphore,
    pub large_bodies: Arc<Semaphore>,
    /// Turns true when the server is about to go: watches end.
    pub closing: watch::Receiver<bool>,
    close: watch::Sender<bool>,
}

impl Api {
    pub fn new(config: Config) -> Api {
        let Config { registry, authenticator, authorizer, signing_key, discovery, health, metrics } = config;
        let (close, closing) = watch::channel(false);
        metrics.build_info(&version::build_info());
        let shared = Shared {
            registry,
            authenticator,
            authorizer,
            signing_key,
            impersonator: Impersonator::default(),
            discovery,
            health,
            metrics,
            in_flight: Semaphore::new(MAX_IN_FLIGHT),
            large_bodies: Arc::new(Semaphore::new(LARGE_AT_ONCE)),
            closing,
            close,
        };
        Api { shared: Arc::new(shared), peer: Peer::default() }
    }

    /// The same API for another connection.
    pub fn for_peer(&self, peer: Peer) -> Api {
        Api { shared: self.shared.clone(), peer }
    }

    pub fn registry(&self) -> &Arc<Registry> {
        &self.shared.registry
    }

    pub fn metrics(&self) -> &Metrics {
        &self.shared.metrics
    }

    /// Ends every watch, now and from now on: the server is about to go.
    pub fn close(&self) {
        self.shared.close.send_replace(true);
    }

    async fn respond<B: Incoming>(self, request: Request<B>) -> Response<Body> {
        let started = Instant::now();
        let (parts, body) = request.into_parts();
        let query = Query::parse(parts.uri.query().unwrap_or(""));
        let info = RequestInfo::parse(&parts.method, parts.uri.path(), &query);
        let span = span_of(&info);
        let answered = async {
            AssertUnwindSafe(self.answer(&parts, &query, &info, body)).catch_unwind().await.unwrap_or_else(
                |_| {
                    tracing::error!(path = parts.uri.path(), "a request panicked");
                    respond::panicked()
                },
            )
        };
        let mut response = answered.instrument(span.clone()).await;
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
        if parts.method == Method::HEAD { respond::head_only(response) } else { response }
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
        let mut response = match self.admit(parts, query, info) {
            Err(error) => respond::unsniffed(refuse(error)),
            Ok(user) => {
                self.try_answer(parts, query, info, body, &user, &warnings).await.unwrap_or_else(refuse)
            }
        };
        respond::warn(&mut response, warnings);
        response
    }

    /// Who asks, if they may.
    fn admit(&self, parts: &Parts, query: &Query, info: &RequestInfo) -> Result<Arc<UserInfo>> {
        let shared = &self.shared;
        if !matches!(info, RequestInfo::Resource(ResourceRequest { verb: Verb::Watch, .. })) {
            query.check_timeout()?;
        }
        let user = shared.authenticator.authenticate(&parts.headers, &self.peer)?;
        shared.registry.feed_authorizer();
        let request = RequestAttributes::from(info);
        let impersonated =
            shared.impersonator.impersonate(&parts.headers, &user, &request, &shared.authorizer)?;
        let user = impersonated.map_or(user, Arc::new);
        shared.authorizer.check(&user, &request)?;
        Ok(user)
    }

    async fn try_answer<B: Incoming>(
        &self,
        parts: &Parts,
        query: &Query,
        info: &RequestInfo,
        body: B,
        user: &UserInfo,
        warnings: &Warnings,
    ) -> Result<Response<Body>> {
        let shared = &self.shared;
        match info {
            RequestInfo::Path { path, .. } => self.tell(parts, query, path),
            RequestInfo::Resource(request) => {
                let watch = request.verb == Verb::Watch;
                // Watches do not count as in flight: they cost little, and would shut the others out.
                let _permit = match watch {
                    true => None,
                    false => Some(shared.in_flight.try_acquire().map_err(|_| too_many())?),
                };
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
                    lasting: labels.map(|labels| shared.metrics.longrunning(&labels)),
                };
                call.answer(body).await
            }
        }
    }

    /// What the server tells of itself.
    fn tell(&self, parts: &Parts, query: &Query, path: &str) -> Result<Response<Body>> {
        let shared = &self.shared;
        if let Some(response) = shared.health.respond(path, query) {
            return Ok(response.map(Body::Full));
        }
        if path == "/metrics" {
            let text = shared.metrics.render(shared.registry.stored_objects());
            return Ok(respond::plain(200, crate::telemetry::metrics::CONTENT_TYPE, text.into()));
        }
        if path == "/openid/v1/jwks" {
            let keys = shared.signing_key.jwks().to_string();
            return Ok(respond::plain(200, "application/jwk-set+json", keys.into()));
        }
        match shared.discovery.respond(parts, shared.registry.now()) {
            Some(response) => Ok(response?.map(Body::Full)),
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
        let bytes = match response.body() {
            Body::Full(bytes) => bytes.len(),
            Body::Chunks { size, .. } => *size,
            Body::Stream(_) => 0,
        };
        if let Some(labels) = self.labels(info, parts, query) {
            self.shared.metrics.request(&labels, response.status().as_u16(), took, Duration::ZERO, bytes);
        }
    }

    /// What a request is counted under, if it is.
    fn labels<'a>(&self, info: &'a RequestInfo, parts: &Parts, query: &Query) -> Option<RequestLabels<'a>> {
        if let RequestInfo::Resource(request) = info
            && !self.shared.registry.table.serves(request)
        {
            return None;
        }
        let content_type = parts.headers.get(header::CONTENT_TYPE).and_then(|v| v.to_str().ok());
        let apply = content_type.is_some_and(|t| t.starts_with("application/apply-patch"));
        let dry_run = if query.first("dryRun") == Some("All") { "All" } else { "" };
        RequestLabels::of(info, &parts.method, apply, dry_run)
    }
}

fn too_many() -> Error {
    Error::TooManyRequests {
        message: "Too many requests, please try again later.".to_owned(),
        retry_after: 1,
        causes: Vec::new(),
    }
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
