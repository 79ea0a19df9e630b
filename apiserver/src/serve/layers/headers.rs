//! Headers that every response has.

use http::{HeaderValue, Response, header};

use crate::serve::Body;

/// Forbids caches to keep a response, unless it has a `Cache-Control` of its own: what is the same for every user has.
pub fn cache_control(mut response: Response<Body>) -> Response<Body> {
    let forbidden = HeaderValue::from_static("no-cache, private");
    response.headers_mut().entry(header::CACHE_CONTROL).or_insert(forbidden);
    response
}

/// Sets `Audit-Id`, a new one for each request.
pub fn audit_id(mut response: Response<Body>) -> Response<Body> {
    if let Ok(id) = HeaderValue::from_str(&uuid::Uuid::new_v4().to_string()) {
        response.headers_mut().insert("audit-id", id);
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

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

    #[test]
    fn every_response_has_an_id_of_its_own() {
        let id = || audit_id(Response::new(Body::empty())).headers()["audit-id"].clone();
        assert_ne!(id(), id());
    }
}
