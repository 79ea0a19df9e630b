//! Audit: the events of a request at its stages.
//!
//! [`LogReceipt`] begins the event as soon as it is known who makes the request, [`LogResponse`]
//! ends it, whoever responds. Where nothing is audited, both only pass on the request.
//!
//! Source: `WithAudit` and `WithFailedAuthenticationAudit` of
//! `k8s.io/apiserver/pkg/endpoints/filters`.

use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use futures::future::{BoxFuture, Either};
use http::{HeaderMap, Response, StatusCode, header};
use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use tokio::sync::OwnedSemaphorePermit;
use tower::{Service, ServiceExt};

use crate::Error;
use crate::access::UserInfo;
use crate::audit::{AuditedRequest, Auditor, Event, ObjectReference, Stage, source_ips, user_agent};
use crate::request::{RequestInfo, Verb};
use crate::serve::Body;
use crate::serve::exchange::{AuthenticatedRequest, ReceivedRequest, RequestContext, RequestRefusal};

/// So much of a response that is made chunk by chunk is recorded at most; of a longer one nothing
/// is.
const MAX_COLLECTED: usize = 10 << 20;

/// Logs that requests are received, if the policy audits them.
#[derive(Clone)]
pub struct LogReceipt<'a, S> {
    auditor: Option<&'a Arc<Auditor>>,
    remote: Option<IpAddr>,
    inner: S,
}

impl<'a, S> LogReceipt<'a, S> {
    /// Creates a service that logs the receipt of requests to `inner`.
    ///
    /// - `remote`: the other end of the connection, where there is one.
    pub fn new(auditor: Option<&'a Arc<Auditor>>, remote: Option<IpAddr>, inner: S) -> LogReceipt<'a, S> {
        LogReceipt { auditor, remote, inner }
    }
}

impl<'a, B, S> Service<AuthenticatedRequest<B>> for LogReceipt<'a, S>
where
    B: Send + 'a,
    S: Service<AuthenticatedRequest<B>, Response = Response<Body>, Error = RequestRefusal, Future: Send>
        + Clone
        + Send
        + 'a,
{
    type Response = Response<Body>;
    type Error = RequestRefusal;
    type Future = Either<S::Future, BoxFuture<'a, Result<Response<Body>, RequestRefusal>>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), RequestRefusal>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: AuthenticatedRequest<B>) -> Self::Future {
        let Some(auditor) = self.auditor else { return Either::Left(self.inner.call(request)) };
        begin(auditor, &request.context, Some(&request.user), self.remote);
        let audited = request.context.audit.request();
        let receipt = audited.and_then(|audited| auditor.log_stage(audited, Stage::RequestReceived));
        if !auditor.is_strict() {
            return Either::Left(self.inner.call(request));
        }
        let (auditor, inner) = (auditor.clone(), self.inner.clone());
        Either::Right(Box::pin(async move {
            if !auditor.accepts(receipt).await {
                return Err(Error::Internal("failed to store audit event".to_owned()).into());
            }
            inner.oneshot(request).await
        }))
    }
}

/// Decides whether a request is audited, and begins its event.
fn begin(auditor: &Auditor, context: &RequestContext, user: Option<&UserInfo>, remote: Option<IpAddr>) {
    auditor.begin(&context.audit, user, &context.attributes(), |now| event(context, remote, now));
}

fn event(context: &RequestContext, remote: Option<IpAddr>, now: Timestamp) -> Event {
    let RequestContext { parts, info, received_at, audit_id, .. } = context;
    let elapsed = SignedDuration::try_from(received_at.elapsed()).unwrap_or_default();
    let agent = parts.headers.get(header::USER_AGENT).map(|value| String::from_utf8_lossy(value.as_bytes()));
    Event {
        audit_id: String::from_utf8_lossy(audit_id.as_bytes()).into_owned(),
        request_uri: parts.uri.path_and_query().map_or("/", |path| path.as_str()).to_owned(),
        verb: context.attributes().verb.to_owned(),
        source_ips: source_ips(&parts.headers, remote),
        user_agent: user_agent(&agent.unwrap_or_default()),
        object_ref: match info {
            RequestInfo::Path { .. } => None,
            RequestInfo::Resource(request) => Some(ObjectReference {
                resource: request.resource.clone(),
                namespace: request.namespace.clone(),
                name: request.name.clone(),
                api_group: request.group.clone(),
                api_version: request.version.clone(),
                subresource: request.subresource.clone(),
                ..ObjectReference::default()
            }),
        },
        received_at: now.checked_sub(elapsed).unwrap_or(now),
        ..Event::default()
    }
}

/// Logs the responses to audited requests, and failed authentications.
#[derive(Clone)]
pub struct LogResponse<'a, S> {
    auditor: Option<&'a Arc<Auditor>>,
    remote: Option<IpAddr>,
    inner: S,
}

impl<'a, S> LogResponse<'a, S> {
    /// Creates a service that logs the responses of `inner`.
    ///
    /// - `remote`: the other end of the connection, where there is one.
    pub fn new(auditor: Option<&'a Arc<Auditor>>, remote: Option<IpAddr>, inner: S) -> LogResponse<'a, S> {
        LogResponse { auditor, remote, inner }
    }
}

impl<'a, B, S> Service<ReceivedRequest<B>> for LogResponse<'a, S>
where
    S: Service<ReceivedRequest<B>, Response = Response<Body>, Error = Infallible, Future: Send + 'a>,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Either<S::Future, BoxFuture<'a, Result<Response<Body>, Infallible>>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: ReceivedRequest<B>) -> Self::Future {
        let Some(auditor) = self.auditor else { return Either::Left(self.inner.call(request)) };
        let (auditor, context, remote) = (auditor.clone(), request.context.clone(), self.remote);
        let response = self.inner.call(request);
        Either::Right(Box::pin(async move {
            let Ok(response) = response.await;
            Ok(log_response(auditor, context, remote, response).await)
        }))
    }
}

async fn log_response(
    auditor: Arc<Auditor>,
    context: Arc<RequestContext>,
    remote: Option<IpAddr>,
    response: Response<Body>,
) -> Response<Body> {
    if !context.audit.is_decided() && response.status() == StatusCode::UNAUTHORIZED {
        return log_failed_authentication(&auditor, &context, remote, response).await;
    }
    let Some(audited) = context.audit.request() else { return response };
    if audited.has_panicked() {
        auditor.wait(auditor.log_stage(audited, Stage::Panic)).await;
        return response;
    }
    let (code, headers) = (response.status().as_u16(), response.headers());
    let is_complete =
        response.body().whole().is_some() && response.status() != StatusCode::SWITCHING_PROTOCOLS;
    context.audit.log_response(code, headers, response.body().whole());
    if is_long_running(&context) {
        auditor.wait(auditor.log_stage(audited, Stage::ResponseStarted)).await;
    }
    if is_complete {
        auditor.wait(auditor.log_stage(audited, Stage::ResponseComplete)).await;
        return response;
    }
    let collects = audited.config.level >= crate::audit::Level::RequestResponse && !is_long_running(&context);
    let permit = collects.then(|| auditor.held().clone().try_acquire_many_owned(0).ok()).flatten();
    let collected =
        permit.map(|permit| Arc::new(Mutex::new(Some(Beginning { bytes: BytesMut::new(), permit }))));
    let completion = Completion {
        auditor,
        context: context.clone(),
        code,
        headers: headers.clone(),
        collected: collected.clone(),
    };
    response.map(|body| {
        let body = match collected {
            Some(collected) => body.inspect_chunks(move |chunk| collect(&collected, chunk)),
            None => body,
        };
        body.release_when_sent(completion)
    })
}

async fn log_failed_authentication(
    auditor: &Auditor,
    context: &RequestContext,
    remote: Option<IpAddr>,
    response: Response<Body>,
) -> Response<Body> {
    begin(auditor, context, None, remote);
    if let Some(audited) = context.audit.request() {
        context.audit.log_response(response.status().as_u16(), response.headers(), response.body().whole());
        auditor.wait(auditor.log_stage(audited, Stage::ResponseStarted)).await;
    }
    response
}

/// Returns `true` if a request lasts as long as its client wants, so that the start of its response
/// has an event of its own.
fn is_long_running(context: &RequestContext) -> bool {
    const SUBRESOURCES: [&str; 5] = ["attach", "exec", "proxy", "log", "portforward"];
    context.resource().is_some_and(|request| {
        matches!(request.verb, Verb::Watch | Verb::Proxy)
            || SUBRESOURCES.contains(&request.subresource.as_str())
    })
}

/// The beginning of a body; None once it is too long, or all bodies together are.
type Collected = Arc<Mutex<Option<Beginning>>>;

struct Beginning {
    bytes: BytesMut,
    /// For its bytes, of those that the auditor may hold.
    permit: OwnedSemaphorePermit,
}

impl Beginning {
    /// Adds a chunk. False if there is no place for it.
    fn extend(&mut self, chunk: &Bytes) -> bool {
        if self.bytes.len().saturating_add(chunk.len()) > MAX_COLLECTED {
            return false;
        }
        let Ok(size) = u32::try_from(chunk.len()) else { return false };
        let Ok(permit) = self.permit.semaphore().clone().try_acquire_many_owned(size) else { return false };
        self.permit.merge(permit);
        self.bytes.extend_from_slice(chunk);
        true
    }
}

fn collect(collected: &Collected, chunk: &Bytes) {
    let mut collected = collected.lock();
    if !collected.as_mut().is_some_and(|beginning| beginning.extend(chunk)) {
        *collected = None;
    }
}

/// Logs that a response is complete when the client has all of it, or has gone.
struct Completion {
    auditor: Arc<Auditor>,
    context: Arc<RequestContext>,
    code: u16,
    headers: HeaderMap,
    collected: Option<Collected>,
}

impl Completion {
    fn log_object(&self) {
        let Some(collected) = &self.collected else { return };
        let collected = collected.lock().take();
        match collected.map(|Beginning { bytes, permit }| (bytes.freeze(), permit)) {
            None => self.context.audit.add_annotation("audit.k8s.io/truncated", "true"),
            // A JSON body is incomplete if the client did not wait for its end, and is left out.
            Some((body, _permit))
                if !is_json(&self.headers)
                    || serde_json::from_slice::<serde::de::IgnoredAny>(&body).is_ok() =>
            {
                self.context.audit.log_response(self.code, &self.headers, Some(&body));
            }
            Some(_) => {}
        }
    }

    fn complete(&self, audited: &AuditedRequest) {
        self.log_object();
        // Nobody waits any more.
        _ = self.auditor.log_stage(audited, Stage::ResponseComplete);
    }
}

fn is_json(headers: &HeaderMap) -> bool {
    headers.get(header::CONTENT_TYPE).is_some_and(|kind| kind == "application/json")
}

impl Drop for Completion {
    fn drop(&mut self) {
        if let Some(audited) = self.context.audit.request() {
            self.complete(audited);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::{Ready, ready};
    use std::path::Path;

    use coracle_clock::Clock;
    use serde_json::Value;
    use tower::service_fn;

    use super::*;
    use crate::audit::{AuditOptions, LogOptions};
    use crate::serve::layers::CatchPanic;
    use crate::serve::testing;

    /// Creates an auditor of everything, with its log in a directory.
    fn auditor(directory: &Path) -> Arc<Auditor> {
        let policy = directory.join("policy.yaml");
        let text = "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: RequestResponse}]";
        std::fs::write(&policy, text).expect("written");
        let log = Some(LogOptions { path: directory.join("audit.log"), ..LogOptions::default() });
        let options = AuditOptions { policy_file: Some(policy), log };
        let registry = prometheus::Registry::new();
        let auditor = Auditor::new(&options, &registry, Clock::system());
        auditor.expect("valid").expect("configured")
    }

    fn events(directory: &Path) -> Vec<Value> {
        let text = std::fs::read_to_string(directory.join("audit.log")).expect("a log");
        text.lines().map(|line| serde_json::from_str(line).expect("an event")).collect()
    }

    fn stages(events: &[Value]) -> Vec<&str> {
        events.iter().filter_map(|event| event["stage"].as_str()).collect()
    }

    #[tokio::test]
    async fn a_panic_ends_a_request_in_an_event_of_its_own() {
        let directory = tempfile::tempdir().expect("a directory");
        let auditor = auditor(directory.path());
        let panics = service_fn(|request: ReceivedRequest<_>| -> Ready<Result<Response<Body>, Infallible>> {
            begin(&auditor, &request.context, Some(&UserInfo::new("alice", &[])), None);
            panic!("on purpose")
        });
        let stack = LogResponse::new(Some(&auditor), None, CatchPanic::new(panics));
        let Ok(response) = stack.oneshot(testing::received("GET", "/api/v1/pods", &[])).await;
        assert_eq!(response.status(), 500);
        let events = events(directory.path());
        assert_eq!(stages(&events), ["Panic"]);
        assert_eq!(events[0]["responseStatus"]["message"], "APIServer panic'd: on purpose");
    }

    #[tokio::test]
    async fn a_response_is_complete_when_the_client_has_all_of_it() {
        let list = br#"{"kind":"PodList","apiVersion":"v1","metadata":{},"items":[]}"#;
        let halves = || [&list[..20], &list[20..]].map(Bytes::copy_from_slice).into_iter();
        for (uri, reads_all, is_full, want) in [
            ("/api/v1/pods", true, false, &["ResponseComplete"][..]),
            ("/api/v1/pods", true, true, &["ResponseComplete"]),
            ("/api/v1/pods", false, false, &["ResponseComplete"]),
            ("/api/v1/pods?watch=1", true, false, &["ResponseStarted", "ResponseComplete"]),
        ] {
            let directory = tempfile::tempdir().expect("a directory");
            let auditor = auditor(directory.path());
            // Other responses hold all but a few of the bytes that may be held.
            let others = u32::try_from(auditor.held().available_permits() - 30).expect("a number");
            let _others =
                is_full.then(|| auditor.held().clone().try_acquire_many_owned(others).expect("free"));
            let free = auditor.held().available_permits();
            let service = service_fn(|request: ReceivedRequest<_>| {
                begin(&auditor, &request.context, Some(&UserInfo::new("alice", &[])), None);
                let mut response = Response::new(Body::chunks(list.len(), halves(), false));
                let json = http::HeaderValue::from_static("application/json");
                response.headers_mut().insert(header::CONTENT_TYPE, json);
                ready(Ok(response))
            });
            let stack = LogResponse::new(Some(&auditor), None, service);
            let Ok(response) = stack.oneshot(testing::received("GET", uri, &[])).await;
            let before = stages(&events(directory.path())).len();
            assert_eq!(before, want.len() - 1, "{uri}");
            match reads_all {
                true => drop(http_body_util::BodyExt::collect(response.into_body()).await),
                false => drop(response),
            }
            auditor.flush().await;
            let events = events(directory.path());
            assert_eq!(stages(&events), want, "{uri}");
            let has_object = events.iter().any(|event| event["responseObject"]["kind"] == "PodList");
            assert_eq!(has_object, reads_all && !is_full && want.len() == 1, "{uri} {reads_all} {is_full}");
            let is_truncated =
                events.iter().any(|event| event["annotations"]["audit.k8s.io/truncated"] == "true");
            assert_eq!(is_truncated, is_full, "{uri} {reads_all}");
            assert_eq!(auditor.held().available_permits(), free, "{uri} {reads_all}");
        }
    }
}
