//! Classification: the flow of a request, by which flow control gives it its seat.

use super::RequestFilter;
use crate::flow_control::FlowController;
use crate::serve::exchange::{AuthenticatedRequest, ClassifiedRequest, RequestRefusal};

/// Finds the FlowSchema and the priority level of a request. Its response shows them, even where it
/// is refused.
#[derive(Clone, Copy)]
pub struct Classify<'a> {
    pub flow_controller: &'a FlowController,
}

impl<B> RequestFilter<AuthenticatedRequest<B>> for Classify<'_> {
    type Request = ClassifiedRequest<B>;
    type State = ();
    type Error = RequestRefusal;

    fn request(
        &self,
        request: AuthenticatedRequest<B>,
    ) -> Result<(ClassifiedRequest<B>, ()), RequestRefusal> {
        let AuthenticatedRequest { context, user, body } = request;
        let flow = self.flow_controller.classify(&user, &context.attributes());
        if let Some(flow) = flow.as_ref().filter(|_| context.shows_flow()) {
            // A request is classified once.
            let _ = context.flow_headers.set(flow.headers());
        }
        Ok((ClassifiedRequest { context, user, flow, body }, ()))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use http::Response;
    use tower::{ServiceBuilder, ServiceExt};

    use super::*;
    use crate::access::UserInfo;
    use crate::access::authenticate::MASTERS;
    use crate::serve::Body;
    use crate::serve::exchange::ReceivedRequest;
    use crate::serve::layers::filter;
    use crate::serve::testing;

    #[tokio::test]
    async fn the_response_is_to_show_the_flow() {
        let registry = testing::registry().await;
        let flow_controller = testing::flow_controller(&registry);
        for (group, is_exempt) in [(MASTERS, true), ("devs", false)] {
            let classify = Classify { flow_controller: &flow_controller };
            let stack =
                ServiceBuilder::new().layer(filter(classify)).service_fn(|request: ClassifiedRequest<_>| {
                    assert_eq!(request.flow.map(|flow| flow.is_exempt()), Some(is_exempt), "{group}");
                    std::future::ready(Ok(Response::new(Body::empty())))
                });
            let ReceivedRequest { context, body } = testing::received("GET", "/api/v1/pods", &[]);
            let user = Arc::new(UserInfo::new("alice", &[group]).authenticated());
            let request = AuthenticatedRequest { context: context.clone(), user, body };
            assert!(stack.oneshot(request).await.is_ok());
            let uids = context.flow_headers.get().expect("two headers");
            assert!(uids.iter().all(|(_, uid)| !uid.is_empty()), "{uids:?}");
        }
    }
}
