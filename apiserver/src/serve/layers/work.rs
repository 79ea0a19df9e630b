//! Work: a request is in progress until it has a response.

use std::convert::Infallible;
use std::sync::Arc;

use coracle_clock::{Clock, Work};
use coracle_storage::Store;
use http::Response;

use super::RequestFilter;
use crate::registry::ObjectIndex;
use crate::serve::Body;
use crate::serve::exchange::ReceivedRequest;
use crate::serve::traffic::{RequestUnderWay, Traffic};

/// Counts requests as work under way, except for those to Coracle's own paths, which wait for the
/// end of all work. Events that a watch has yet to deliver count as work separately.
#[derive(Clone, Copy)]
pub struct CountWork<'a> {
    pub clock: &'a Clock,
    pub traffic: &'a Arc<Traffic>,
    pub store: &'a Store<ObjectIndex>,
    /// Whether the server refuses all writes, independent of the objects.
    pub is_read_only: bool,
    /// Whether requests come from a component of the control plane.
    pub is_own: bool,
}

impl<B> RequestFilter<ReceivedRequest<B>> for CountWork<'_> {
    type Request = ReceivedRequest<B>;
    type State = Option<(RequestUnderWay, Work)>;
    type Error = Infallible;

    fn request(&self, request: ReceivedRequest<B>) -> Result<(ReceivedRequest<B>, Self::State), Infallible> {
        let is_work = !request.context.is_extension();
        let activity = self.clock.activity();
        let begin = || if self.is_own { activity.begin() } else { activity.begin_request() };
        let state = is_work.then(|| (self.traffic.begin(&request.context), begin()));
        Ok((request, state))
    }

    fn response(&self, state: Self::State, response: Response<Body>) -> Response<Body> {
        if let Some((mut request, _work)) = state {
            match response.status().is_success() {
                true => request.succeeded(),
                false if self.is_read_only => {}
                false => {
                    request.refused((self.clock.now(), self.store.revision().0), self.is_own);
                }
            }
        }
        response
    }
}
