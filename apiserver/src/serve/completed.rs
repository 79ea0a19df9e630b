//! Requests with their outcomes, as an observer of the server receives them.

use std::time::Duration;

use bytes::Bytes;

use super::exchange::RequestContext;
use super::refusals::name_of;
use crate::error::Status;
use crate::request::info::RequestInfo;

/// Observes the requests of a server.
pub trait ObserveRequests: Send + Sync {
    /// Observes a request when its response begins. It must not block for long.
    fn completed(&self, request: &CompletedRequest<'_>);
}

/// A request that has a response.
pub struct CompletedRequest<'a> {
    /// The request, by its path and method.
    pub info: &'a RequestInfo,
    /// The path with the query.
    pub path: &'a str,
    /// The name of the object, that of a refused creation too; empty if it is not known.
    pub name: &'a str,
    /// The name of the user, after impersonation; empty for a request without a known user.
    pub user: &'a str,
    /// The `User-Agent`; empty if there is none.
    pub user_agent: &'a str,
    /// The `Content-Type`; empty if there is none.
    pub content_type: &'a str,
    /// The body, of a request that changes something.
    pub body: Option<&'a Bytes>,
    /// The status code of the response.
    pub code: u16,
    /// The status of a request that was refused, if it would have changed a resource.
    pub refusal: Option<&'a Status>,
    /// The time until the response began.
    pub took: Duration,
    /// Whether the client is a component of the control plane.
    pub is_own: bool,
}

impl<'a> CompletedRequest<'a> {
    /// Creates the request from its context.
    pub(super) fn new(
        context: &'a RequestContext,
        code: u16,
        took: Duration,
        is_own: bool,
    ) -> CompletedRequest<'a> {
        let header = |name| context.parts.headers.get(name).and_then(|value| value.to_str().ok());
        CompletedRequest {
            info: &context.info,
            name: context.resource().map_or("", |request| name_of(request, context.refusal.get())),
            path: context.parts.uri.path_and_query().map_or("/", |path| path.as_str()),
            user: context.user_name(),
            user_agent: header(http::header::USER_AGENT).unwrap_or_default(),
            content_type: header(http::header::CONTENT_TYPE).unwrap_or_default(),
            body: context.body.get(),
            code,
            refusal: context.refusal.get(),
            took,
            is_own,
        }
    }
}
