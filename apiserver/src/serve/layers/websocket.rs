//! WebSocket: a watch or a log over one begins with a handshake in place of its response.

use std::convert::Infallible;
use std::sync::Arc;

use http::Response;

use super::RequestFilter;
use crate::serve::exchange::{ReceivedRequest, RequestContext};
use crate::serve::{Body, websocket};

/// Turns the response to a watch or to a request for a log that asks for a WebSocket into the
/// handshake. Other responses stay as they are, those that refuse such a request too.
#[derive(Clone, Copy)]
pub struct SwitchProtocols;

impl<B> RequestFilter<ReceivedRequest<B>> for SwitchProtocols {
    type Request = ReceivedRequest<B>;
    type State = Arc<RequestContext>;
    type Error = Infallible;

    fn request(&self, request: ReceivedRequest<B>) -> Result<(ReceivedRequest<B>, Self::State), Infallible> {
        let context = request.context.clone();
        Ok((request, context))
    }

    fn response(&self, context: Self::State, response: Response<Body>) -> Response<Body> {
        websocket::switch_protocols(&context.parts, context.is_watch(), response)
    }
}

#[cfg(test)]
mod tests {
    use std::future::ready;

    use http::{Request, StatusCode};
    use hyper::upgrade;
    use tower::{ServiceBuilder, ServiceExt};

    use super::*;
    use crate::serve::layers::filter;

    #[tokio::test]
    async fn watches_that_succeed_become_websockets() {
        for (uri, code, want) in [
            ("/api/v1/pods?watch=1", 200, 101),
            ("/api/v1/pods?watch=1", 403, 403),
            ("/api/v1/pods", 200, 200),
            ("/healthz", 200, 200),
        ] {
            let request = Request::get(uri)
                .header("upgrade", "websocket")
                .header("connection", "Upgrade")
                .header("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ==")
                .header("sec-websocket-version", "13")
                .header("origin", "https://127.0.0.1:6443")
                .extension(upgrade::on(Request::new(())))
                .body(())
                .expect("a request");
            let stack =
                ServiceBuilder::new().layer(filter(SwitchProtocols)).service_fn(|_: ReceivedRequest<()>| {
                    let mut response = Response::new(Body::empty());
                    *response.status_mut() = StatusCode::from_u16(code).expect("a status");
                    ready(Ok(response))
                });
            let Ok(response) = stack.oneshot(ReceivedRequest::new(request)).await;
            assert_eq!(response.status(), want, "{uri}");
        }
    }
}
