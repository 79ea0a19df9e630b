//! Filters: layers that do not wait, before and after the inner services.
//!
//! A filter is called with a request, which it rejects or passes on, and again with the response.
//! [`filter`] makes a layer of it. Its future contains that of the inner service, which is
//! therefore small: layers that wait box theirs.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures::future::{Either, Ready, ready};
use http::Response;
use tower::{Layer, Service};

use crate::serve::Body;

/// The processing of requests of type `R`, and of their responses.
pub trait RequestFilter<R>: Clone {
    /// The request as the services inside get it.
    type Request;
    /// The state that the filter keeps of the request until the response.
    type State;
    /// The rejection of a request.
    type Error;

    /// Processes a request before the inner service.
    ///
    /// # Errors
    /// The rejection of the request.
    fn request(&self, request: R) -> Result<(Self::Request, Self::State), Self::Error>;

    /// Completes a response after the inner service.
    fn response(&self, _: Self::State, response: Response<Body>) -> Response<Body> {
        response
    }
}

/// Creates the layer that applies a filter.
pub fn filter<F>(filter: F) -> FilterLayer<F> {
    FilterLayer(filter)
}

/// The layer made by [`filter`].
#[derive(Clone)]
pub struct FilterLayer<F>(F);

impl<F: Clone, S> Layer<S> for FilterLayer<F> {
    type Service = Filtered<F, S>;

    fn layer(&self, inner: S) -> Filtered<F, S> {
        Filtered { filter: self.0.clone(), inner }
    }
}

/// A service behind a filter.
#[derive(Clone)]
pub struct Filtered<F, S> {
    filter: F,
    inner: S,
}

impl<R, F, S> Service<R> for Filtered<F, S>
where
    F: RequestFilter<R>,
    S: Service<F::Request, Response = Response<Body>, Error = F::Error, Future: Unpin>,
{
    type Response = Response<Body>;
    type Error = F::Error;
    type Future = Either<Ready<Result<Response<Body>, F::Error>>, FilteredFuture<R, F, S::Future>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), F::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: R) -> Self::Future {
        match self.filter.request(request) {
            Err(error) => Either::Left(ready(Err(error))),
            Ok((request, state)) => Either::Right(FilteredFuture {
                inner: self.inner.call(request),
                filter: self.filter.clone(),
                state: Some(state),
            }),
        }
    }
}

/// The response of the service inside a filter.
pub struct FilteredFuture<R, F: RequestFilter<R>, I> {
    inner: I,
    filter: F,
    /// The state of the filter; None once the response is complete.
    state: Option<F::State>,
}

// The filter and its state are never pinned.
impl<R, F: RequestFilter<R>, I: Unpin> Unpin for FilteredFuture<R, F, I> {}

impl<R, F, I, E> Future for FilteredFuture<R, F, I>
where
    F: RequestFilter<R>,
    I: Future<Output = Result<Response<Body>, E>> + Unpin,
{
    type Output = Result<Response<Body>, E>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let response = ready!(Pin::new(&mut self.inner).poll(context))?;
        let state = self.state.take();
        Poll::Ready(Ok(match state {
            Some(state) => self.filter.response(state, response),
            None => response,
        }))
    }
}

#[cfg(test)]
mod tests {
    use futures::future::ready;
    use tower::{ServiceBuilder, ServiceExt};

    use super::*;

    /// Refuses odd numbers, passes on the half of even ones, and puts the number into the response.
    #[derive(Clone)]
    struct Halve;

    impl RequestFilter<u16> for Halve {
        type Request = u16;
        type State = u16;
        type Error = &'static str;

        fn request(&self, request: u16) -> Result<(u16, u16), &'static str> {
            if request.is_multiple_of(2) { Ok((request / 2, request)) } else { Err("odd") }
        }

        fn response(&self, state: u16, mut response: Response<Body>) -> Response<Body> {
            response.headers_mut().insert("number", state.into());
            response
        }
    }

    #[tokio::test]
    async fn filters_see_requests_and_responses() {
        for (request, want) in [(400, Ok((200, "400"))), (401, Err("odd"))] {
            let stack = ServiceBuilder::new().layer(filter(Halve)).service_fn(|code: u16| {
                let mut response = Response::new(Body::empty());
                *response.status_mut() = code.try_into().expect("a status");
                ready(Ok(response))
            });
            let response = stack.oneshot(request).await;
            let got = response.as_ref().map(|response| {
                (response.status().as_u16(), response.headers()["number"].to_str().expect("text"))
            });
            assert_eq!(got.map_err(|error| *error), want, "{request}");
        }
    }
}
