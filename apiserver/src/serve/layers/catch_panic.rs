//! Panic: a request that panics gets a response, and ends no other request.

use std::any::Any;
use std::convert::Infallible;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use futures::FutureExt;
use futures::future::CatchUnwind;
use http::Response;
use tower::util::Oneshot;
use tower::{Service, ServiceExt};

use crate::serve::exchange::{ReceivedRequest, RequestContext};
use crate::serve::{Body, respond};

/// Answers a panic of the services inside with 500, and logs it.
#[derive(Clone)]
pub struct CatchPanic<S> {
    inner: S,
}

impl<S> CatchPanic<S> {
    /// Catches the panics of a service.
    pub fn new(inner: S) -> CatchPanic<S> {
        CatchPanic { inner }
    }
}

impl<B, S> Service<ReceivedRequest<B>> for CatchPanic<S>
where
    S: Service<ReceivedRequest<B>, Response = Response<Body>, Error = Infallible, Future: Unpin> + Clone,
{
    type Response = Response<Body>;
    type Error = Infallible;
    // The inner service is called when this is polled, so that a panic of the call is caught too.
    type Future = Recovered<CatchUnwind<AssertUnwindSafe<Oneshot<S, ReceivedRequest<B>>>>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: ReceivedRequest<B>) -> Self::Future {
        let context = request.context.clone();
        let inner = AssertUnwindSafe(self.inner.clone().oneshot(request)).catch_unwind();
        Recovered { inner, context }
    }
}

/// The response of a service, or of its panic.
pub struct Recovered<F> {
    inner: F,
    context: Arc<RequestContext>,
}

impl<F> Future for Recovered<F>
where
    F: Future<Output = std::thread::Result<Result<Response<Body>, Infallible>>> + Unpin,
{
    type Output = Result<Response<Body>, Infallible>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let outcome = ready!(Pin::new(&mut self.inner).poll(context));
        Poll::Ready(outcome.unwrap_or_else(|panic| {
            let RequestContext { span, parts, audit, .. } = &*self.context;
            audit.log_panic(message(&*panic));
            tracing::error!(parent: span, path = parts.uri.path(), "a request panicked");
            Ok(respond::panicked())
        }))
    }
}

/// Returns the message of a panic.
fn message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("unknown")
}

#[cfg(test)]
mod tests {
    use std::future::{Ready, ready};

    use futures::future::BoxFuture;
    use tower::service_fn;

    use super::*;
    use crate::serve::testing;

    #[tokio::test]
    async fn panics_are_answered_with_500() {
        let request = || testing::received("GET", "/healthz", &[]);
        let healthy = service_fn(|_| ready(Ok(Response::new(Body::empty()))));
        let in_call = service_fn(|_| -> Ready<Result<Response<Body>, Infallible>> { panic!("on purpose") });
        let in_future = service_fn(|_| -> BoxFuture<'static, Result<Response<Body>, Infallible>> {
            Box::pin(async { panic!("on purpose") })
        });
        let Ok(response) = CatchPanic::new(healthy).oneshot(request()).await;
        assert_eq!(response.status(), 200);
        for response in [
            CatchPanic::new(in_call).oneshot(request()).await,
            CatchPanic::new(in_future).oneshot(request()).await,
        ] {
            let Ok(response) = response;
            assert_eq!(response.status(), 500);
            let body = response.body().whole().expect("a Status");
            let status: serde_json::Value = serde_json::from_slice(body).expect("JSON");
            assert_eq!((&status["kind"], &status["code"]), (&"Status".into(), &500.into()));
        }
    }
}
