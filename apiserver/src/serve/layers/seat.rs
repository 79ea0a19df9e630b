//! Seats: a request executes when flow control gives it a seat.

use http::{Method, Response};
use tower::{Service, ServiceExt, service_fn};

use crate::flow_control::RequestKind;
use crate::request::Verb;
use crate::serve::Body;
use crate::serve::exchange::{MeasuredRequest, RequestContext, RequestRefusal};
use crate::telemetry::latency::Phase;

/// Creates a service whose requests wait for a seat of their priority level. They keep it until
/// there is a response, but not while the client reads that.
pub fn take_seats<S>(
    inner: S,
) -> impl Service<MeasuredRequest, Response = Response<Body>, Error = RequestRefusal, Future: Send> + Clone + Send
where
    S: Service<MeasuredRequest, Response = Response<Body>, Error = RequestRefusal, Future: Send>
        + Clone
        + Send,
{
    service_fn(move |request| take_seat(request, inner.clone()))
}

async fn take_seat<S>(request: MeasuredRequest, inner: S) -> Result<Response<Body>, RequestRefusal>
where
    S: Service<MeasuredRequest, Response = Response<Body>, Error = RequestRefusal>,
{
    // One that waits for the end of all others must not keep any of them waiting.
    let flow = request.flow.as_ref().filter(|_| !request.context.is_extension());
    let _seat = match flow {
        Some(flow) => {
            let _timer = request.context.latency.measure(Phase::Queue);
            Some(flow.admit(request.deadline.of_queue(), kind_of(&request.context)).await?)
        }
        None => None,
    };
    inner.oneshot(request).await
}

/// Returns the kind under which a request is counted.
fn kind_of(context: &RequestContext) -> RequestKind {
    match context.resource().map(|request| request.verb) {
        Some(verb) => RequestKind {
            is_mutating: !matches!(verb, Verb::Get | Verb::List | Verb::Watch),
            is_watch: verb == Verb::Watch,
        },
        None => RequestKind {
            is_mutating: context.parts.method != Method::GET && context.parts.method != Method::HEAD,
            is_watch: false,
        },
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use futures::FutureExt;

    use super::*;
    use crate::access::UserInfo;
    use crate::access::authenticate::MASTERS;
    use crate::serve::deadline::Deadline;
    use crate::serve::testing;

    #[tokio::test(start_paused = true)]
    async fn requests_wait_for_a_seat_and_give_it_back_with_the_response() {
        let registry = testing::registry().await;
        let controller = testing::flow_controller(&registry);
        let request = |group: &str| {
            let context = testing::received("GET", "/api/v1/pods", &[]).context;
            let user = Arc::new(UserInfo::new("alice", &[group]).authenticated());
            let flow = controller.classify(&user, &context.attributes());
            let deadline = Deadline::default();
            MeasuredRequest { context, user, flow, deadline, body: None, is_large: false }
        };
        let hang = take_seats(service_fn(|_| std::future::pending()));
        let answer = take_seats(service_fn(|_| std::future::ready(Ok(Response::new(Body::empty())))));
        // More than any flow has seats.
        let executing: Vec<_> = (0..1000)
            .map(|_| {
                let mut executing = hang.clone().oneshot(request("devs")).boxed();
                // Executes, waits, or is rejected.
                let _ = (&mut executing).now_or_never();
                executing
            })
            .collect();
        let exempt = answer.clone().oneshot(request(MASTERS)).await;
        assert!(exempt.is_ok(), "who is exempt does not wait");
        let refused = answer.clone().oneshot(request("devs")).await;
        assert!(matches!(refused, Err(RequestRefusal::Rejected)), "all seats are taken");
        drop(executing);
        let responses: Vec<_> =
            futures::future::join_all((0..1000).map(|_| answer.clone().oneshot(request("devs")))).await;
        assert!(responses.iter().all(Result::is_ok), "none is kept by a response");
    }
}
