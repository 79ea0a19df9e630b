//! Bodies: read whole, within the user's share, before the request takes anything that others wait
//! for.

use std::sync::Arc;
use std::task::{Context, Poll};

use futures::future::BoxFuture;
use http::Response;
use tower::{Service, ServiceExt};

use crate::serve::Body;
use crate::serve::deadline::Deadline;
use crate::serve::exchange::{BufferedRequest, RequestRefusal, TimedRequest};
use crate::serve::incoming::{self, Incoming};
use crate::serve::shares::Shares;
use crate::telemetry::latency::Phase;

/// Reads the body of a request with a verb that has one. The request is part of its user's share
/// until the client has all of the response; its body only until there is a response. Flows that
/// are exempt from flow control have no share to use up.
#[derive(Clone)]
pub struct ReadBody<'a, S> {
    shares: &'a Arc<Shares>,
    keeps_bodies: bool,
    inner: S,
}

impl<'a, S> ReadBody<'a, S> {
    /// Reads bodies for a service.
    pub fn new(shares: &'a Arc<Shares>, inner: S) -> ReadBody<'a, S> {
        ReadBody { shares, keeps_bodies: false, inner }
    }

    /// Returns the service with this setting: bodies may stay in the context until the request has
    /// ended.
    pub fn keeping_bodies(self, keeps_bodies: bool) -> ReadBody<'a, S> {
        ReadBody { keeps_bodies, ..self }
    }
}

impl<'a, B, S> Service<TimedRequest<B>> for ReadBody<'a, S>
where
    B: Incoming + 'a,
    S: Service<BufferedRequest, Response = Response<Body>, Error = RequestRefusal, Future: Send>
        + Clone
        + Send
        + 'a,
{
    type Response = Response<Body>;
    type Error = RequestRefusal;
    type Future = BoxFuture<'a, Result<Response<Body>, RequestRefusal>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), RequestRefusal>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: TimedRequest<B>) -> Self::Future {
        let ReadBody { shares, keeps_bodies, inner } = self.clone();
        Box::pin(async move {
            let TimedRequest { context, user, flow, deadline, body } = request;
            let is_limited = flow.as_ref().is_some_and(|flow| !flow.is_exempt());
            let mut share = match is_limited {
                true => {
                    let share = shares.begin(&user.name, context.is_long_running());
                    Some(share.map_err(|_| RequestRefusal::Rejected)?)
                }
                false => None,
            };
            let has_body = match context.resource() {
                Some(request) => request.verb.has_body(),
                None => context.is_extension(),
            };
            // A body that is not read stays until there is a response.
            let (body, _unread) = match has_body {
                true => {
                    let _timer = context.latency.measure(Phase::Body);
                    // A request that lasts as long as it needs still has to arrive.
                    let arrival = if context.is_extension() { Deadline::default() } else { deadline };
                    (Some(arrival.run(incoming::read(body, share.as_mut())).await), None)
                }
                false => (None, Some(body)),
            };
            if let (true, Some(Ok(bytes))) = (keeps_bodies, &body) {
                // A body is read once.
                drop(context.body.set(bytes.clone()));
            }
            let response = inner.oneshot(BufferedRequest { context, user, flow, deadline, body }).await;
            if let Some(share) = &mut share {
                share.release_body_bytes();
            }
            Ok(response?.map(|body| match share {
                Some(share) => body.release_when_sent(share),
                None => body,
            }))
        })
    }
}

#[cfg(test)]
mod tests {

    use parking_lot::Mutex;
    use tower::service_fn;

    use super::*;
    use crate::access::UserInfo;
    use crate::access::authenticate::MASTERS;
    use crate::flow_control::FlowController;
    use crate::serve::MAX_BODY;
    use crate::serve::shares::ShareLimits;
    use crate::serve::testing::{self, TestBody};

    fn request(controller: &FlowController, method: &str, uri: &str, group: &str) -> TimedRequest<TestBody> {
        let context = testing::received(method, uri, &[]).context;
        let user = Arc::new(UserInfo::new("alice", &[group]).authenticated());
        let flow = controller.classify(&user, &context.attributes());
        TimedRequest { context, user, flow, deadline: Deadline::default(), body: testing::body("{}") }
    }

    #[tokio::test]
    async fn bodies_are_read_where_the_verb_has_one() {
        let registry = testing::registry().await;
        let controller = testing::flow_controller(&registry);
        let shares = Arc::new(Shares::default());
        let pods = "/api/v1/namespaces/n/pods";
        for (method, uri, size, want) in [
            ("GET", pods, 2, None),
            ("POST", pods, 2, Some(Ok(2))),
            ("DELETE", pods, 2, Some(Ok(2))),
            ("POST", "/healthz", 2, None),
            ("POST", pods, MAX_BODY + 1, Some(Err(413))),
        ] {
            let inner = service_fn(|request: BufferedRequest| {
                let got = request.body.map(|body| body.map(|b| b.len()).map_err(|e| e.code()));
                assert_eq!(got, want, "{method} {uri}");
                std::future::ready(Ok(Response::new(Body::empty())))
            });
            let mut request = request(&controller, method, uri, "devs");
            request.body = testing::body("x".repeat(size));
            assert!(ReadBody::new(&shares, inner).oneshot(request).await.is_ok(), "{method} {uri}");
        }
    }

    #[tokio::test]
    async fn a_share_is_held_until_the_response_is_over() {
        let registry = testing::registry().await;
        let controller = testing::flow_controller(&registry);
        let one = ShareLimits { requests: 1, watches: 1, body_bytes: 2 };
        let shares = Arc::new(Shares::new(one, one));
        let fails = Mutex::new(false);
        let inner = service_fn(|_: BufferedRequest| {
            let fails = *fails.lock();
            std::future::ready(if fails {
                Err(RequestRefusal::Rejected)
            } else {
                Ok(Response::new(Body::empty()))
            })
        });
        let service = ReadBody::new(&shares, inner);
        let send = async |uri, group| service.clone().oneshot(request(&controller, "POST", uri, group)).await;
        let (pods, watch) = ("/api/v1/namespaces/n/pods", "/api/v1/watch/namespaces/n/pods");
        let held = send(pods, "devs").await.expect("the first");
        assert!(send(pods, "devs").await.is_err(), "one too many");
        assert!(send(pods, MASTERS).await.is_ok(), "who is exempt has no share");
        assert!(send(watch, "devs").await.is_ok(), "watches are counted apart");
        drop(held);
        assert!(send(pods, "devs").await.is_ok(), "the response is over");
        *fails.lock() = true;
        let refused = send(pods, "devs").await;
        *fails.lock() = false;
        assert!(refused.is_err() && send(pods, "devs").await.is_ok(), "a refusal holds nothing");
    }
}
