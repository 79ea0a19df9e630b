//! Rescue: refusals become responses. Outside of this layer nothing fails.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use http::Response;
use tower::Service;

use crate::serve::Body;
use crate::serve::exchange::{ReceivedRequest, RequestContext, RequestRefusal};

/// Responds for the services inside when they refuse a request.
#[derive(Clone)]
pub struct Rescue<S> {
    inner: S,
}

impl<S> Rescue<S> {
    /// Responds for a service that may refuse.
    pub fn new(inner: S) -> Rescue<S> {
        Rescue { inner }
    }
}

impl<B, S> Service<ReceivedRequest<B>> for Rescue<S>
where
    S: Service<ReceivedRequest<B>, Response = Response<Body>, Error = RequestRefusal, Future: Unpin>,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Rescued<S::Future>;

    /// Returns ready: the services inside are always ready, and wait in `call` if they must.
    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: ReceivedRequest<B>) -> Self::Future {
        let context = request.context.clone();
        Rescued { inner: self.inner.call(request), context }
    }
}

/// The response of a service, or to its refusal.
pub struct Rescued<F> {
    inner: F,
    context: Arc<RequestContext>,
}

impl<F> Future for Rescued<F>
where
    F: Future<Output = Result<Response<Body>, RequestRefusal>> + Unpin,
{
    type Output = Result<Response<Body>, Infallible>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let outcome = ready!(Pin::new(&mut self.inner).poll(context));
        Poll::Ready(Ok(outcome.unwrap_or_else(|refusal| self.context.respond_to(&refusal))))
    }
}

#[cfg(test)]
mod tests {
    use tower::{ServiceExt, service_fn};

    use super::*;
    use crate::Error;
    use crate::serve::testing;

    #[tokio::test]
    async fn refusals_are_statuses_in_the_format_that_is_accepted() {
        const NOSNIFF: &str = "x-content-type-options";
        let forbidden = || testing::forbidden("alice");
        for (case, accept, refusal, want) in [
            ("an error", "*/*", RequestRefusal::Error(Error::Unauthorized), (401, "application/json", false)),
            (
                "as YAML",
                "application/yaml",
                RequestRefusal::Error(Error::Unauthorized),
                (401, "application/yaml", false),
            ),
            ("denied", "*/*", RequestRefusal::Denied(forbidden()), (403, "application/json", true)),
            (
                "forbidden by admission",
                "*/*",
                RequestRefusal::Error(forbidden()),
                (403, "application/json", false),
            ),
            (
                "denied for bad headers",
                "*/*",
                RequestRefusal::Denied(Error::bad_request("no user")),
                (400, "application/json", false),
            ),
            ("rejected", "*/*", RequestRefusal::Rejected, (429, "text/plain; charset=utf-8", true)),
        ] {
            let refusal = std::cell::Cell::new(Some(refusal));
            let service = service_fn(|_: ReceivedRequest<_>| {
                std::future::ready(Err(refusal.take().expect("one request")))
            });
            let request = testing::received("GET", "/api/v1/pods", &[("accept", accept)]);
            let Ok(response) = Rescue::new(service).oneshot(request).await;
            let headers = response.headers();
            let media_type = headers["content-type"].to_str().expect("text");
            let got = (response.status().as_u16(), media_type, headers.contains_key(NOSNIFF));
            assert_eq!(got, want, "{case}");
        }
    }
}
