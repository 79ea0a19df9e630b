//! Headers that every response has.

use std::convert::Infallible;

use http::{HeaderValue, Response, header};

use super::RequestFilter;
use crate::serve::Body;
use crate::serve::exchange::{AUDIT_ID, ReceivedRequest};

/// Forbids caches to keep a response, unless it has a `Cache-Control` of its own: what is the same
/// for every user has.
pub fn cache_control(mut response: Response<Body>) -> Response<Body> {
    let forbidden = HeaderValue::from_static("no-cache, private");
    response.headers_mut().entry(header::CACHE_CONTROL).or_insert(forbidden);
    response
}

/// Sets `Audit-Id`: that of the request, or a new one.
#[derive(Clone, Copy)]
pub struct AuditId;

impl<B> RequestFilter<ReceivedRequest<B>> for AuditId {
    type Request = ReceivedRequest<B>;
    type State = HeaderValue;
    type Error = Infallible;

    fn request(&self, request: ReceivedRequest<B>) -> Result<(ReceivedRequest<B>, HeaderValue), Infallible> {
        let id = request.context.audit_id.clone();
        Ok((request, id))
    }

    fn response(&self, id: HeaderValue, mut response: Response<Body>) -> Response<Body> {
        response.headers_mut().insert(AUDIT_ID, id);
        response
    }
}

#[cfg(test)]
mod tests {
    use tower::{ServiceBuilder, ServiceExt};

    use super::*;
    use crate::serve::layers::filter;
    use crate::serve::testing;

    #[test]
    fn a_cache_control_of_the_response_stays() {
        for (own, want) in [(None, "no-cache, private"), (Some("public"), "public")] {
            let mut response = Response::new(Body::empty());
            if let Some(own) = own {
                response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static(own));
            }
            assert_eq!(cache_control(response).headers()[header::CACHE_CONTROL], want);
        }
    }

    #[tokio::test]
    async fn every_response_has_the_id_of_its_request_or_one_of_its_own() {
        let id = async |headers: &[(&str, &str)]| {
            let stack = ServiceBuilder::new()
                .layer(filter(AuditId))
                .service_fn(|_: ReceivedRequest<_>| std::future::ready(Ok(Response::new(Body::empty()))));
            let Ok(response) = stack.oneshot(testing::received("GET", "/healthz", headers)).await;
            response.headers()[AUDIT_ID].to_str().expect("text").to_owned()
        };
        assert_ne!(id(&[]).await, id(&[]).await);
        assert_ne!(id(&[("audit-id", "")]).await, "");
        assert_eq!(id(&[("audit-id", "mine")]).await, "mine");
    }
}
