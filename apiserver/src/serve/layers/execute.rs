//! Execution: by the deadline, and where it keeps no other request waiting.

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures::future::BoxFuture;
use http::Response;
use tokio::sync::Semaphore;
use tower::{Service, ServiceExt};

use crate::Error;
use crate::background::{Evaluator, in_background};
use crate::flow_control::QueueSet;
use crate::serve::Body;
use crate::serve::exchange::{MeasuredRequest, RequestRefusal};
use crate::telemetry::trace_context;

/// Executes requests by their deadline; large ones that came over a socket in the background.
#[derive(Clone)]
pub struct Execute<'a, S> {
    /// The permits for executing large requests.
    permits: &'a Arc<Semaphore>,
    /// Seats of those who evaluate expressions that take long.
    evaluations: &'a Arc<QueueSet>,
    on_socket: bool,
    inner: S,
}

impl<'a, S> Execute<'a, S> {
    /// Executes the requests to a service.
    ///
    /// - `permits`: one for each large request that is executed concurrently.
    /// - `evaluations`: seats, by user, for requests that evaluate expressions that take long.
    /// - `on_socket`: whether the requests come over a socket.
    pub fn new(
        permits: &'a Arc<Semaphore>,
        evaluations: &'a Arc<QueueSet>,
        on_socket: bool,
        inner: S,
    ) -> Execute<'a, S> {
        Execute { permits, evaluations, on_socket, inner }
    }
}

impl<'a, S> Service<MeasuredRequest> for Execute<'a, S>
where
    S: Service<MeasuredRequest, Response = Response<Body>, Error = Error, Future: Send> + Clone + Send + 'a,
{
    type Response = Response<Body>;
    type Error = RequestRefusal;
    type Future = BoxFuture<'a, Result<Response<Body>, RequestRefusal>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), RequestRefusal>> {
        self.inner.poll_ready(context).map_err(RequestRefusal::from)
    }

    fn call(&mut self, request: MeasuredRequest) -> Self::Future {
        let Execute { permits, evaluations, on_socket, inner } = self.clone();
        Box::pin(async move {
            let (deadline, is_background) = (request.deadline, request.is_large && on_socket);
            let evaluator = Evaluator {
                seats: evaluations.clone(),
                permits: permits.clone(),
                user: request.user.clone(),
                is_background,
            };
            let context = request.context.clone();
            let latency = context.latency.clone();
            let span = context.server_span.get().map(|span| span.context.clone());
            // It is pinned before it is passed on: each move would copy all the room that it may
            // need.
            let response =
                pin!(trace_context::scope(span, latency.scope(evaluator.scope(inner.oneshot(request)))));
            let response = deadline.run(response);
            match is_background {
                false => Ok(response.await?),
                // Why a large request fails may take as long to describe as the request took.
                true => {
                    let described =
                        async { response.await.unwrap_or_else(|error| context.respond_to(&error.into())) };
                    Ok(in_background(permits, described).await)
                }
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use std::future::{Ready, pending, ready};

    use tower::service_fn;

    use super::*;
    use crate::access::UserInfo;
    use crate::background::EVALUATION_LIMITS;
    use crate::serve::deadline::Deadline;
    use crate::serve::testing;

    fn request(is_large: bool) -> MeasuredRequest {
        let context = testing::received("GET", "/api/v1/pods", &[]).context;
        let user = Arc::new(UserInfo::new("alice", &[]));
        MeasuredRequest { context, user, flow: None, deadline: Deadline::default(), body: None, is_large }
    }

    fn one_permit() -> Arc<Semaphore> {
        Arc::new(Semaphore::new(1))
    }

    #[tokio::test(start_paused = true)]
    async fn requests_end_by_their_deadline() {
        let (permits, evaluations) = (one_permit(), QueueSet::with(EVALUATION_LIMITS));
        let hang = service_fn(|_| pending::<Result<Response<Body>, Error>>());
        let refused = Execute::new(&permits, &evaluations, true, hang).oneshot(request(false)).await;
        assert!(matches!(refused, Err(RequestRefusal::Error(error)) if error.code() == 504));
        let fail =
            service_fn(|_| -> Ready<Result<Response<Body>, Error>> { ready(Err(Error::PageNotFound)) });
        let refused = Execute::new(&permits, &evaluations, true, fail).oneshot(request(false)).await;
        assert!(matches!(refused, Err(RequestRefusal::Error(Error::PageNotFound))));
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn large_requests_over_a_socket_are_executed_in_the_background() {
        let (permits, evaluations) = (one_permit(), QueueSet::with(EVALUATION_LIMITS));
        for (is_large, on_socket, want) in [(true, true, true), (false, true, false), (true, false, false)] {
            let inner = service_fn(|_| async {
                let is_background = std::thread::current().name() == Some("background");
                assert_eq!(is_background, want, "{is_large} {on_socket}");
                Ok(Response::new(Body::empty()))
            });
            assert!(
                Execute::new(&permits, &evaluations, on_socket, inner)
                    .oneshot(request(is_large))
                    .await
                    .is_ok()
            );
        }
    }
}
