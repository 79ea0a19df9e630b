//! Work: a request is under way until there is a response.

use std::convert::Infallible;
use std::sync::Arc;

use coracle_clock::{Activity, Work};
use http::Response;

use super::RequestFilter;
use crate::serve::Body;
use crate::serve::exchange::ReceivedRequest;
use crate::serve::traffic::{RequestUnderWay, Traffic};

/// Counts requests among the work under way. Those for paths that are none of Kubernetes' are not: they wait for the end of all
/// work. What a watch has yet to deliver is work by itself.
#[derive(Clone, Copy)]
pub struct CountWork<'a> {
    pub activity: &'a Activity,
    pub traffic: &'a Arc<Traffic>,
    /// Whether requests come from a part of the control plane.
    pub is_own: bool,
}

impl<B> RequestFilter<ReceivedRequest<B>> for CountWork<'_> {
    type Request = ReceivedRequest<B>;
    type State = Option<(RequestUnderWay, Work)>;
    type Error = Infallible;

    fn request(&self, request: ReceivedRequest<B>) -> Result<(ReceivedRequest<B>, Self::State), Infallible> {
        let is_work = !request.context.is_extension();
        let begin = || if self.is_own { self.activity.begin() } else { self.activity.begin_request() };
        let state = is_work.then(|| (self.traffic.begin(&request.context), begin()));
        Ok((request, state))
    }

    fn response(&self, state: Self::State, response: Response<Body>) -> Response<Body> {
        if let Some((mut request, _work)) = state.filter(|_| response.status().is_success()) {
            request.succeeded();
        }
        response
    }
}
