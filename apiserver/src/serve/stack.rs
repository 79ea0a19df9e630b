//! The stack: everything that a request passes on its way to the router, and its response on its
//! way back.
//!
//! A request passes the layers from top to bottom, its response from bottom to top. Each stands
//! where it stands for a reason, which the line above it gives; the types of [`super::exchange`]
//! forbid most other orders.
//!
//! The stack is made for each request, of references: to clone a service, as layers do that wait,
//! is to copy pointers. Allocated are the context that all layers share, and the futures of
//! [`ReadBody`] and [`Execute`], for large requests also that of [`LargeRequestPermit`].

use std::convert::Infallible;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Request, Response};
use tower::layer::layer_fn;
use tower::{Service, ServiceBuilder, ServiceExt};

use super::api::{Api, Shared};
use super::exchange::ReceivedRequest;
use super::incoming::Incoming;
use super::layers::{
    Annotate, AuditId, Authenticate, Authorize, BeginSpan, CatchPanic, Classify, Compress, CountWork,
    Execute, Impersonate, KeepConnection, LargeRequestPermit, LogReceipt, LogResponse, OmitBody, ReadBody,
    RecordRequest, Rescue, SetDeadline, SwitchProtocols, Trace, cache_control, filter, take_seats,
};
use super::{Body, router};

/// Responds to one request of a client, by the API or by one below its address.
pub async fn respond<B: Incoming>(api: &Api, mut request: Request<B>) -> Result<Response<Body>, Infallible> {
    let below = api.below(request.uri_mut());
    stack(below.as_ref().unwrap_or(api)).oneshot(request).await
}

/// Builds the service that responds to one request of a client.
fn stack<'a, B: Incoming + 'a>(
    api: &'a Api,
) -> impl Service<Request<B>, Response = Response<Body>, Error = Infallible, Future: Send> + Send {
    let Api { shared, peer, connection, remote, is_own } = api;
    let connection = connection.as_ref();
    let on_socket = connection.is_some();
    let Shared { registry, authorizer, impersonator, metrics, slow_requests, tracer, .. } = &**shared;
    let (auditor, remote) = (shared.auditor.as_ref(), *remote);
    ServiceBuilder::new()
        // First and last, so that the connection is active as long as anything of the request or
        // its response is left.
        .layer(filter(KeepConnection { connection, renderers: &shared.renderers }))
        // The head is parsed once, for all that follows.
        .map_request(ReceivedRequest::<B>::new)
        // Around everything that it causes.
        .layer(filter(CountWork {
            clock: registry.clock(),
            is_own: *is_own,
            traffic: &shared.extensions.traffic,
            store: &registry.store,
            is_read_only: shared.extensions.read_only.is_some(),
        }))
        // Responses to HEAD are recorded with the body that a GET would have.
        .layer(filter(OmitBody))
        // Records what the client gets, whoever responds: refusals, panics and handshakes too.
        .layer(filter(RecordRequest {
            metrics,
            resources: &registry.resources,
            slow_requests,
            tracer,
            observer: shared.extensions.observer.as_deref(),
            is_own: *is_own,
            remote,
        }))
        // After all that makes the body; a body keeps the size that is recorded.
        .layer(filter(Compress))
        // Sees the outcome, whoever decides it, with the body as it was before any compression.
        .layer(layer_fn(move |inner| LogResponse::new(auditor, remote, inner)))
        // Every response has these, a handshake and that to a panic too.
        .layer(filter(AuditId))
        .map_response(cache_control)
        // Takes the place of a response, so it knows what that is: only a watch or a
        // log that succeeds becomes a WebSocket.
        .layer(filter(SwitchProtocols))
        // All that may log something is inside.
        .layer(layer_fn(Trace::new))
        // All that has rules of its own, and so may panic, is inside.
        .layer(layer_fn(CatchPanic::new))
        // Outside of what refuses: refusals have the headers of flow control, and warnings.
        .layer(filter(Annotate))
        // Outside of this nothing fails; inside, everything may.
        .layer(layer_fn(Rescue::new))
        // Before anything that depends on the user.
        .layer(filter(Authenticate {
            authenticator: &shared.authenticator,
            peer,
            connection: connection.map(Arc::as_ref),
            metrics,
        }))
        // The trace of a request is trusted depending on its user.
        .layer(filter(BeginSpan { tracer }))
        // Audits the authenticated user; impersonation and authorization, which follow, are added
        // to the event.
        .layer(layer_fn(move |inner| LogReceipt::new(auditor, remote, inner)))
        // Before all that depends on the user for whom a request is made.
        .layer(filter(Impersonate { authorizer, impersonator }))
        // Before authorization: a response that denies a request shows its flow.
        .layer(filter(Classify { flow_controller: &shared.flow_controller }))
        // Before anything that costs more than looking at the head; 403 comes before 404, 400 and 429.
        .layer(filter(Authorize { authorizer, metrics }))
        // Bounds all waiting that follows.
        .layer(filter(SetDeadline))
        // A slow client holds nothing yet but its share.
        .layer(layer_fn(|inner| {
            ReadBody::new(&shared.shares, inner)
                .keeping_bodies(shared.extensions.observer.is_some() && !*is_own)
        }))
        // Their size is known with the body. While large requests wait for each other they hold no
        // seat.
        .layer(layer_fn(|inner| {
            LargeRequestPermit::new(
                registry,
                shared.extensions.large_groups,
                &shared.large_request_queue,
                inner,
            )
        }))
        // Held while the request executes, and not longer.
        .layer(layer_fn(take_seats))
        // Starts with the seat; the deadline ends it, in the background too.
        .layer(layer_fn(|inner| {
            Execute::new(&shared.large_request_permits, &shared.evaluations, on_socket, inner)
        }))
        .service_fn(move |request| router::respond(shared, remote, *is_own, request))
}

impl<B> Service<Request<B>> for Api
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let api = self.clone();
        Box::pin(async move { respond(&api, request).await })
    }
}
