//! A request for a resource, with all that its verb needs.

use std::net::IpAddr;
use std::sync::Arc;

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, Method};

use super::api::Shared;
use super::exchange::RequestContext;
use crate::Result;
use crate::access::UserInfo;
use crate::audit::AuditContext;
use crate::request::Warnings;
use crate::request::info::ResourceRequest;
use crate::request::options::Query;
use crate::telemetry::metrics::GaugeGuard;

/// One request for a resource, on its way.
pub(super) struct Call<'a> {
    pub shared: &'a Arc<Shared>,
    pub user: &'a UserInfo,
    pub request: &'a ResourceRequest,
    pub parts: &'a Parts,
    pub method: &'a Method,
    pub headers: &'a HeaderMap,
    pub query: &'a Query,
    pub warnings: &'a Warnings,
    pub audit: &'a AuditContext,
    /// The request with what its layers know.
    pub context: &'a RequestContext,
    /// The address of the client, where there is a socket.
    pub remote: Option<IpAddr>,
    /// Whether the client is a component of the control plane.
    pub is_own: bool,
    /// Counts a watch for as long as it lasts.
    pub lasting: Option<GaugeGuard>,
    /// The request's body, or why it could not be read: that matters where the body does.
    pub body: Result<Bytes>,
}
