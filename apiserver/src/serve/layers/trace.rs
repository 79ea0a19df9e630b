//! Trace: what a request does is logged within its span.

use std::task::{Context, Poll};

use tower::Service;
use tracing::Instrument;
use tracing::instrument::Instrumented;

use crate::serve::exchange::ReceivedRequest;

/// Runs the services inside in the span of the request.
#[derive(Clone)]
pub struct Trace<S> {
    inner: S,
}

impl<S> Trace<S> {
    /// Creates a service that traces the requests of `inner`.
    pub fn new(inner: S) -> Trace<S> {
        Trace { inner }
    }
}

impl<B, S: Service<ReceivedRequest<B>>> Service<ReceivedRequest<B>> for Trace<S> {
    type Response = S::Response;
    type Error = S::Error;
    type Future = Instrumented<S::Future>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: ReceivedRequest<B>) -> Self::Future {
        let span = request.context.span.clone();
        let response = span.in_scope(|| self.inner.call(request));
        response.instrument(span)
    }
}
