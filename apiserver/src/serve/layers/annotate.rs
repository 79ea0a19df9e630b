//! Annotate: what the layers inside noted for the response.

use std::convert::Infallible;
use std::sync::Arc;

use http::Response;

use super::RequestFilter;
use crate::serve::exchange::{ReceivedRequest, RequestContext};
use crate::serve::{Body, respond};

/// Adds the headers of flow control and the warnings to a response, whether the request succeeded
/// or was refused.
#[derive(Clone, Copy)]
pub struct Annotate;

impl<B> RequestFilter<ReceivedRequest<B>> for Annotate {
    type Request = ReceivedRequest<B>;
    type State = Arc<RequestContext>;
    type Error = Infallible;

    fn request(
        &self,
        request: ReceivedRequest<B>,
    ) -> Result<(ReceivedRequest<B>, Arc<RequestContext>), Infallible> {
        let context = request.context.clone();
        Ok((request, context))
    }

    fn response(&self, context: Arc<RequestContext>, mut response: Response<Body>) -> Response<Body> {
        for (name, value) in context.flow_headers.get().into_iter().flatten().cloned() {
            response.headers_mut().insert(name, value);
        }
        respond::warn(&mut response, context.warnings.take_texts());
        response
    }
}

#[cfg(test)]
mod tests {
    use http::{HeaderName, HeaderValue};
    use tower::{ServiceBuilder, ServiceExt};

    use super::*;
    use crate::serve::layers::filter;
    use crate::serve::testing;

    #[tokio::test]
    async fn what_was_noted_is_in_the_headers() {
        let stack =
            ServiceBuilder::new().layer(filter(Annotate)).service_fn(|request: ReceivedRequest<_>| {
                let context = &request.context;
                context.warnings.extend(["one".to_owned(), "two".to_owned()]);
                let header = |name| (HeaderName::from_static(name), HeaderValue::from_static("uid"));
                assert!(context.flow_headers.set([header("schema"), header("level")]).is_ok());
                std::future::ready(Ok(Response::new(Body::empty())))
            });
        let Ok(response) = stack.oneshot(testing::received("GET", "/healthz", &[])).await;
        let headers: Vec<_> = response
            .headers()
            .iter()
            .map(|(name, value)| format!("{name}: {}", value.to_str().expect("text")))
            .collect();
        assert_eq!(
            headers,
            ["schema: uid", "level: uid", r#"warning: 299 - "one""#, r#"warning: 299 - "two""#]
        );
    }
}
