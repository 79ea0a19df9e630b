//! Span: a request becomes part of a trace.

use super::RequestFilter;
use crate::access::UserInfo;
use crate::access::authenticate::MASTERS;
use crate::serve::exchange::{AuthenticatedRequest, RequestRefusal};
use crate::telemetry::trace_context::SpanContext;
use crate::telemetry::tracer::Tracer;

/// The group of those who watch over a cluster.
const MONITORING: &str = "system:monitoring";

/// Begins the span of a request, once it is known who makes it.
#[derive(Clone, Copy)]
pub struct BeginSpan<'a> {
    pub tracer: &'a Tracer,
}

/// Returns `true` if a client may decide which of its traces are recorded.
fn is_trusted(user: &UserInfo) -> bool {
    user.is_in(MASTERS) || user.is_in(MONITORING)
}

impl<B> RequestFilter<AuthenticatedRequest<B>> for BeginSpan<'_> {
    type Request = AuthenticatedRequest<B>;
    type State = ();
    type Error = RequestRefusal;

    fn request(
        &self,
        request: AuthenticatedRequest<B>,
    ) -> Result<(AuthenticatedRequest<B>, ()), RequestRefusal> {
        let parent = SpanContext::of(&request.context.parts.headers);
        if let Some(span) = self.tracer.begin(parent, is_trusted(&request.user)) {
            // A request has one span.
            let _ = request.context.server_span.set(span);
        }
        Ok((request, ()))
    }
}
