//! The layer that gives each request its [`Deadline`].

use super::RequestFilter;
use crate::serve::deadline::Deadline;
use crate::serve::exchange::{AuthorizedRequest, RequestRefusal, TimedRequest};

/// Gives a request its deadline, by which the services inside read its body, wait for a seat, and
/// execute it. For a watch, where `timeout` means something else, it is that by which the watch
/// must begin.
#[derive(Clone, Copy)]
pub struct SetDeadline;

impl<B> RequestFilter<AuthorizedRequest<B>> for SetDeadline {
    type Request = TimedRequest<B>;
    type State = ();
    type Error = RequestRefusal;

    fn request(&self, request: AuthorizedRequest<B>) -> Result<(TimedRequest<B>, ()), RequestRefusal> {
        let AuthorizedRequest { context, user, flow, body } = request;
        let deadline = match () {
            () if context.is_extension() => Deadline::never(),
            () if context.is_watch() => Deadline::default(),
            () => Deadline::of(&context.query)?,
        };
        Ok((TimedRequest { context, user, flow, deadline, body }, ()))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use http::Response;
    use tokio::time::Instant;
    use tower::{ServiceBuilder, ServiceExt};

    use super::*;
    use crate::serve::Body;
    use crate::serve::layers::filter;
    use crate::serve::testing;

    #[tokio::test(start_paused = true)]
    async fn the_query_sets_the_deadline_of_what_is_no_watch() {
        for (uri, want) in [
            ("/api/v1/pods", Ok(60)),
            ("/api/v1/pods?timeout=8s", Ok(8)),
            ("/api/v1/pods?timeout=soon", Err(400)),
            ("/healthz?timeout=8s", Ok(8)),
            ("/api/v1/pods?watch=1&timeout=8s", Ok(60)),
            ("/api/v1/pods?watch=1&timeout=soon", Ok(60)),
        ] {
            let stack =
                ServiceBuilder::new().layer(filter(SetDeadline)).service_fn(|request: TimedRequest<_>| {
                    let seconds = (request.deadline.of_queue() - Instant::now()) * 4;
                    assert_eq!(want.map(Duration::from_secs), Ok(seconds), "{uri}");
                    std::future::ready(Ok(Response::new(Body::empty())))
                });
            let response = stack.oneshot(testing::authorized("GET", uri, "alice")).await;
            let got = response.map(|_| ()).map_err(|refusal| match refusal {
                RequestRefusal::Error(error) => error.code(),
                other => panic!("{uri}: {other:?}"),
            });
            assert_eq!(got, want.map(|_| ()), "{uri}");
        }
    }
}
