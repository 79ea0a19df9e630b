//! The innermost service: a request for a resource goes to its verb, any other path to health,
//! metrics or discovery.

use std::net::IpAddr;
use std::sync::Arc;

use bytes::Bytes;
use http::{Method, Response, header};

use super::api::Shared;
use super::backup::{BACKUP_PATH, backup};
use super::call::Call;
use super::exchange::{MeasuredRequest, RequestContext};
use super::extensions::{PathRequest, is_below};
use super::layers::labels;
use super::{Body, openid, proxy, respond};
use crate::aggregator::RemoteApi;
use crate::background::in_background;
use crate::request::Verb;
use crate::request::info::RequestInfo;
use crate::telemetry::metrics;
use crate::{Error, Result};

/// The path of the results of health checks, as metrics.
pub const INDICATORS_PATH: &str = "/metrics/slis";

/// Responds to a request that has passed all layers.
///
/// - `remote`: the address of the client, where there is a socket.
/// - `is_own`: whether the client is a part of the control plane.
pub async fn respond(
    shared: &Arc<Shared>,
    remote: Option<IpAddr>,
    is_own: bool,
    request: MeasuredRequest,
) -> Result<Response<Body>> {
    let MeasuredRequest { context, user, body, .. } = request;
    let RequestContext { parts, query, .. } = &*context;
    if let (Some(reason), Some(request)) = (shared.extensions.read_only, context.resource())
        && request.verb.has_body()
        && !shared.extensions.review_groups.contains(&&*request.group)
    {
        return Err(Error::plain(405, "MethodNotAllowed", reason));
    }
    // The servers that a record names are not those of now.
    if shared.extensions.read_only.is_none()
        && let Some((apis, index)) = find_remote(shared, parts.uri.path())?
        && let Some(api) = apis.get(index)
    {
        let body = body.unwrap_or_else(|| Ok(Bytes::new()))?;
        let Shared { registry, closing, .. } = &**shared;
        return Ok(Box::pin(proxy::respond(registry, api, &context, &user, remote, body, closing)).await);
    }
    let request = match &context.info {
        RequestInfo::Resource(request) => request,
        RequestInfo::Path { path, .. } => {
            let extension = shared.extensions.paths.iter().find(|paths| is_below(path, paths.prefix));
            if let Some(paths) = extension {
                let body = &body.unwrap_or_else(|| Ok(Bytes::new()))?;
                let response = (paths.respond)(PathRequest { parts, path, query, user: &user, body }).await?;
                return Ok(response.map(|body| body.until_closed(shared.closing.clone())));
            }
            let respond = async { respond_to_path(shared, &context, path) };
            // Generating an OpenAPI document takes long, and is done once.
            return match shared.discovery.is_generated(parts) {
                true => respond.await,
                false => Box::pin(in_background(&shared.large_request_permits, respond)).await,
            };
        }
    };
    let is_long_running = context.is_long_running();
    if is_long_running && *shared.closing.borrow() {
        return Ok(respond::shutting_down());
    }
    let is_mutating = !matches!(request.verb, Verb::Get | Verb::List);
    let _in_flight = (!is_long_running).then(|| shared.metrics.inflight(is_mutating));
    let labels = if is_long_running { labels(&context, &shared.registry.resources) } else { None };
    let call = Call {
        shared,
        user: &user,
        request,
        parts,
        method: &parts.method,
        headers: &parts.headers,
        query,
        warnings: &context.warnings,
        audit: &context.audit,
        context: &context,
        remote,
        is_own,
        lasting: labels.map(|labels| shared.metrics.longrunning(&labels)),
        body: body.unwrap_or_else(|| Ok(Bytes::new())),
    };
    call.answer().await
}

/// Finds the aggregated API that serves a path.
fn find_remote(shared: &Shared, path: &str) -> Result<Option<(Arc<[RemoteApi]>, usize)>> {
    let resources = shared.registry.resources.load();
    shared.remote_apis.find(path, &resources, &*shared.registry)
}

/// Responds to a path outside of resources.
fn respond_to_path(shared: &Shared, context: &RequestContext, path: &str) -> Result<Response<Body>> {
    if let Some(response) = shared.health.respond(path, &context.query) {
        context.set_handled();
        return Ok(response.map(Body::from));
    }
    if let Some(pages) = &shared.z_pages
        && let Some(response) =
            pages.respond(path, &context.parts.headers, &context.query, shared.registry.now())
    {
        context.set_handled();
        return Ok(response?.map(Body::from));
    }
    if path == INDICATORS_PATH {
        let text = shared.health.indicators();
        return Ok(respond::plain(200, metrics::CONTENT_TYPE, text.into()));
    }
    if path == "/metrics" {
        shared.metrics.storage_size(shared.registry.store.snapshot().bytes());
        let text = shared.metrics.render(shared.registry.stored_objects());
        return Ok(respond::plain(200, metrics::CONTENT_TYPE, text.into()));
    }
    if let Some(response) = openid::respond(shared, &context.parts, path) {
        return response;
    }
    if path == BACKUP_PATH && context.parts.method == Method::GET {
        return Ok(backup(&shared.registry));
    }
    match shared.discovery.respond(&context.parts, shared.registry.now()) {
        Some(response) => {
            let response = response?.map(Body::from);
            if !is_plain_discovery(path, &response) {
                context.set_handled();
            }
            Ok(response)
        }
        None => Err(not_found(shared, path)),
    }
}

/// Returns whether a response lists groups or versions only. kube-apiserver counts the requests for
/// aggregated discovery of the same paths.
fn is_plain_discovery(path: &str, response: &Response<Body>) -> bool {
    let content_type = response.headers().get(header::CONTENT_TYPE);
    let is_aggregated = content_type
        .and_then(|value| value.to_str().ok())
        .is_some_and(|text| text.contains("as=APIGroupDiscoveryList"));
    path.starts_with("/api") && !is_aggregated && response.status().is_success()
}

/// Creates the error for a path that does not exist: below a built-in group it is a Status,
/// elsewhere plain text.
fn not_found(shared: &Shared, path: &str) -> Error {
    let mut segments = path.split('/').skip(1);
    let group = match (segments.next(), segments.next()) {
        (Some("api"), Some(_)) => "",
        (Some("apis"), Some(group)) if !group.is_empty() && segments.next().is_some() => group,
        _ => return Error::PageNotFound,
    };
    if shared.discovery.has_built_in_group(group) { Error::UnknownResource } else { Error::PageNotFound }
}
