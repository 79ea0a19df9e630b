//! Exchanges: a request and its derived properties, passed from layer to layer.
//!
//! Each layer that determines a property takes a request of one type and passes on one of the next
//! type, so that no layer can precede one whose result it needs:
//!
//! | request | added by its layer |
//! | --- | --- |
//! | [`ReceivedRequest`] | its context |
//! | [`AuthenticatedRequest`] | the user, or the one whom that user impersonates |
//! | [`ClassifiedRequest`] | the flow |
//! | [`AuthorizedRequest`] | nothing: it is authorized |
//! | [`TimedRequest`] | the deadline |
//! | [`BufferedRequest`] | the body in memory |
//! | [`MeasuredRequest`] | whether it is large |
//!
//! [`RequestContext`] is shared by all of them, and by the layers that wait for the response.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderName, HeaderValue, Request, Response};
use tracing::{Span, field, info_span};

use super::deadline::Deadline;
use super::extensions::{EXTENSION_PATHS, is_below};
use super::{Body, respond};
use crate::access::UserInfo;
use crate::access::authorize::RequestAttributes;
use crate::audit::AuditContext;
use crate::error::Status;
use crate::flow_control::{Flow, Rejection};
use crate::request::info::{RequestInfo, ResourceRequest};
use crate::request::negotiate::Accept;
use crate::request::options::Query;
use crate::request::{Verb, Warnings};
use crate::telemetry::latency::LatencyTrackers;
use crate::telemetry::tracer::ServerSpan;
use crate::{Error, Result};

/// The header of a request and its response that identifies their audit events.
pub const AUDIT_ID: HeaderName = HeaderName::from_static("audit-id");

/// The head of a request, parsed once, and data that layers collect for the response.
pub struct RequestContext {
    /// The time at which the request arrived.
    pub received_at: Instant,
    pub parts: Parts,
    pub query: Query,
    pub info: RequestInfo,
    /// The span of the request, with which the response code is recorded.
    pub span: Span,
    /// The texts of the response's `Warning` headers.
    pub warnings: Warnings,
    /// The `Audit-ID` of the client, or a generated one.
    pub audit_id: HeaderValue,
    /// The audit event of the request.
    pub audit: AuditContext,
    /// The user who sent the request, once it is authenticated.
    pub user: OnceLock<Arc<UserInfo>>,
    /// The user for whom the request is made, if that is another one.
    pub impersonated: OnceLock<Arc<UserInfo>>,
    /// Its span, once its user is known; unset if it has no trace.
    pub server_span: OnceLock<ServerSpan>,
    /// The durations of the request's phases.
    pub latency: Arc<LatencyTrackers>,
    /// The headers that show the FlowSchema and the PriorityLevelConfiguration of the request, once
    /// it is classified.
    pub flow_headers: OnceLock<[(HeaderName, HeaderValue); 2]>,
    /// The refusal of a request that would have changed a resource.
    pub refusal: OnceLock<Status>,
    /// The body, if an observer of the server is to have it.
    pub body: OnceLock<Bytes>,
    /// Whether a handler responds, so that the request is counted.
    is_handled: AtomicBool,
}

/// A request with a parsed head.
pub struct ReceivedRequest<B> {
    pub context: Arc<RequestContext>,
    pub body: B,
}

/// A request with an authenticated user, or with the one whom that user impersonates.
pub struct AuthenticatedRequest<B> {
    pub context: Arc<RequestContext>,
    pub user: Arc<UserInfo>,
    pub body: B,
}

/// A request with its flow, if a FlowSchema matches it.
pub struct ClassifiedRequest<B> {
    pub context: Arc<RequestContext>,
    pub user: Arc<UserInfo>,
    pub flow: Option<Flow>,
    pub body: B,
}

/// A request that is authorized.
pub struct AuthorizedRequest<B> {
    pub context: Arc<RequestContext>,
    /// The user for whom it is authorized.
    pub user: Arc<UserInfo>,
    pub flow: Option<Flow>,
    pub body: B,
}

/// A request that has a deadline.
pub struct TimedRequest<B> {
    pub context: Arc<RequestContext>,
    pub user: Arc<UserInfo>,
    pub flow: Option<Flow>,
    pub deadline: Deadline,
    pub body: B,
}

/// A request with its whole body.
pub struct BufferedRequest {
    pub context: Arc<RequestContext>,
    pub user: Arc<UserInfo>,
    pub flow: Option<Flow>,
    pub deadline: Deadline,
    /// The body, or why it could not be read: that matters where the body does. None if the verb
    /// has none.
    pub body: Option<Result<Bytes>>,
}

/// A request classified as large or not.
pub struct MeasuredRequest {
    pub context: Arc<RequestContext>,
    pub user: Arc<UserInfo>,
    pub flow: Option<Flow>,
    pub deadline: Deadline,
    pub body: Option<Result<Bytes>>,
    pub is_large: bool,
}

/// The reasons for which a request is rejected by a layer.
#[derive(Debug)]
pub enum RequestRefusal {
    /// The request failed.
    Error(Error),
    /// Authorization denies it.
    Denied(Error),
    /// Flow control has no place for it.
    Rejected,
}

impl From<Error> for RequestRefusal {
    fn from(error: Error) -> RequestRefusal {
        RequestRefusal::Error(error)
    }
}

impl From<Rejection> for RequestRefusal {
    fn from(_: Rejection) -> RequestRefusal {
        RequestRefusal::Rejected
    }
}

impl<B> ReceivedRequest<B> {
    /// Parses the head of a request.
    pub fn new(request: Request<B>) -> ReceivedRequest<B> {
        let received_at = Instant::now();
        let (parts, body) = request.into_parts();
        let query = Query::parse(parts.uri.query().unwrap_or(""));
        let info = RequestInfo::parse(&parts.method, parts.uri.path(), &query);
        let audit_id = parts.headers.get(AUDIT_ID).filter(|id| !id.is_empty());
        let audit_id = audit_id.cloned().unwrap_or_else(new_audit_id);
        let context = RequestContext {
            received_at,
            span: span_of(&info),
            parts,
            query,
            info,
            warnings: Warnings::default(),
            audit_id,
            audit: AuditContext::default(),
            user: OnceLock::new(),
            impersonated: OnceLock::new(),
            server_span: OnceLock::new(),
            latency: Arc::default(),
            flow_headers: OnceLock::new(),
            refusal: OnceLock::new(),
            body: OnceLock::new(),
            is_handled: AtomicBool::new(false),
        };
        ReceivedRequest { context: Arc::new(context), body }
    }
}

impl RequestContext {
    /// Returns the name of the user, after impersonation; empty until the user is known.
    pub fn user_name(&self) -> &str {
        self.impersonated.get().or(self.user.get()).map_or("", |user| &user.name)
    }

    /// Records that the request has reached the handler of its path and verb.
    pub fn set_handled(&self) {
        self.is_handled.store(true, Ordering::Relaxed);
    }

    /// Returns whether the request has reached the handler of its path and verb. One that is
    /// refused earlier, or for which there is no handler, is not counted in the metrics.
    ///
    /// Source: `InstrumentRouteFunc` of k8s.io/apiserver, which wraps the handlers.
    pub fn is_handled(&self) -> bool {
        self.is_handled.load(Ordering::Relaxed)
    }

    /// Returns the request's resource and names; None for a request to a path without a resource.
    pub fn resource(&self) -> Option<&ResourceRequest> {
        match &self.info {
            RequestInfo::Resource(request) => Some(request),
            RequestInfo::Path { .. } => None,
        }
    }

    /// Returns whether the request is a watch, which lasts until client or server ends it.
    pub fn is_watch(&self) -> bool {
        self.resource().is_some_and(|request| request.verb == Verb::Watch)
    }

    /// Returns whether the request lasts until client or server ends it: a watch, a log that is
    /// followed, or a connection to a pod.
    pub fn is_long_running(&self) -> bool {
        let subresource = self.resource().map_or("", |request| &request.subresource);
        let connects = match subresource {
            "log" => self.query.flag("follow") == Some(true),
            "attach" | "exec" | "portforward" | "proxy" => true,
            _ => false,
        };
        self.is_watch() || connects
    }

    /// Returns whether its response shows the flow. kube-apiserver has no flow for a log or a
    /// connection to a pod, a node or a Service.
    pub fn shows_flow(&self) -> bool {
        let subresource = self.resource().map_or("", |request| &request.subresource);
        !["log", "attach", "exec", "portforward", "proxy"].contains(&subresource)
    }

    /// Returns whether the request is for a path outside of the Kubernetes API.
    pub fn is_extension(&self) -> bool {
        matches!(&self.info, RequestInfo::Path { path, .. } if EXTENSION_PATHS.iter().any(|prefix| is_below(path, prefix)))
    }

    /// Returns the attributes for flow control and authorization.
    pub fn attributes(&self) -> RequestAttributes<'_> {
        RequestAttributes::from(&self.info)
    }

    /// Returns the response for a rejected request, in the format that the client accepts.
    pub fn respond_to(&self, refusal: &RequestRefusal) -> Response<Body> {
        let status = |error| respond::error(error, Accept::of_errors(&self.parts.headers, &self.query));
        if let RequestRefusal::Error(error) | RequestRefusal::Denied(error) = refusal
            && self.resource().is_some_and(|request| request.verb.has_body())
        {
            // A request is refused once.
            drop(self.refusal.set(error.status()));
        }
        match refusal {
            RequestRefusal::Error(error) => status(error),
            RequestRefusal::Denied(error) => respond::unsniffed(status(error)),
            RequestRefusal::Rejected => respond::too_many_requests(),
        }
    }
}

/// Returns a header with a new audit ID. Digits and hyphens are always valid in a header.
fn new_audit_id() -> HeaderValue {
    let mut buffer = uuid::Uuid::encode_buffer();
    let id = uuid::Uuid::new_v4().hyphenated().encode_lower(&mut buffer);
    HeaderValue::from_str(id).unwrap_or_else(|_| HeaderValue::from_static(""))
}

fn span_of(info: &RequestInfo) -> Span {
    match info {
        RequestInfo::Resource(ResourceRequest { verb, group, resource, namespace, name, .. }) => info_span!(
            "request", verb = verb.as_str(), %group, %resource, %namespace, %name, code = field::Empty
        ),
        RequestInfo::Path { path, verb } => info_span!("request", %verb, %path, code = field::Empty),
    }
}
