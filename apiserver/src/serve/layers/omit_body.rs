//! HEAD: the headers of a response without its body.

use std::convert::Infallible;

use http::{HeaderValue, Method, Response, header};

use super::RequestFilter;
use crate::serve::Body;
use crate::serve::exchange::ReceivedRequest;

/// Leaves out the body of a response to a HEAD: HTTP/2 resets a stream that sends one anyway.
#[derive(Clone, Copy)]
pub struct OmitBody;

impl<B> RequestFilter<ReceivedRequest<B>> for OmitBody {
    type Request = ReceivedRequest<B>;
    /// Whether the request is a HEAD.
    type State = bool;
    type Error = Infallible;

    fn request(&self, request: ReceivedRequest<B>) -> Result<(ReceivedRequest<B>, bool), Infallible> {
        let is_head = request.context.parts.method == Method::HEAD;
        Ok((request, is_head))
    }

    fn response(&self, is_head: bool, response: Response<Body>) -> Response<Body> {
        if !is_head {
            return response;
        }
        let (mut parts, body) = response.into_parts();
        if let Some(bytes) = body.whole() {
            parts.headers.insert(header::CONTENT_LENGTH, HeaderValue::from(bytes.len()));
        }
        Response::from_parts(parts, Body::empty())
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use tower::{ServiceBuilder, ServiceExt};

    use super::*;
    use crate::serve::layers::filter;
    use crate::serve::testing;

    #[tokio::test]
    async fn a_response_to_a_head_has_the_length_and_no_body() {
        let whole = || Body::from(Bytes::from_static(b"whole"));
        let chunks = || Body::chunks(4, [Bytes::from_static(b"some")].into_iter(), false);
        for (method, body, want) in
            [("GET", whole(), (None, 5)), ("HEAD", whole(), (Some("5"), 0)), ("HEAD", chunks(), (None, 0))]
        {
            let body = std::cell::Cell::new(Some(body));
            let stack = ServiceBuilder::new().layer(filter(OmitBody)).service_fn(|_: ReceivedRequest<_>| {
                std::future::ready(Ok(Response::new(body.take().expect("one request"))))
            });
            let Ok(response) = stack.oneshot(testing::received(method, "/healthz", &[])).await;
            let length = response.headers().get(header::CONTENT_LENGTH);
            let length = length.map(|value| value.to_str().expect("digits"));
            assert_eq!((length, response.body().size()), want, "{method}");
        }
    }
}
