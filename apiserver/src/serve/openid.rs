//! The public keys of service accounts' tokens, and where relying parties find them.
//!
//! Source: KEP-1393; `pkg/routes/openidmetadata.go` of Kubernetes.

use http::request::Parts;
use http::{HeaderValue, Method, Response, header};
use serde_json::json;

use super::api::Shared;
use super::{Body, respond};
use crate::request::negotiate;
use crate::{Error, Result};

/// The paths of both documents.
pub const OPENID_PATHS: [&str; 2] = [CONFIGURATION_PATH, KEYS_PATH];

const CONFIGURATION_PATH: &str = "/.well-known/openid-configuration";
const KEYS_PATH: &str = "/openid/v1/jwks";

/// The documents may be cached for an hour.
const CACHED: HeaderValue = HeaderValue::from_static("public, max-age=3600");

/// Responds to a request for the configuration or the keys; None for any other path.
pub fn respond(shared: &Shared, request: &Parts, path: &str) -> Option<Result<Response<Body>>> {
    let key = &shared.signing_key;
    let (media_type, document) = match path.trim_end_matches('/') {
        CONFIGURATION_PATH => {
            let keys = format!("https://{}{KEYS_PATH}", shared.discovery.address());
            let document = json!({
                "issuer": key.issuer(), "jwks_uri": keys, "response_types_supported": ["id_token"],
                "subject_types_supported": ["public"],
                "id_token_signing_alg_values_supported": [key.algorithm()],
            });
            ("application/json", document)
        }
        KEYS_PATH => ("application/jwk-set+json", key.jwks()),
        _ => return None,
    };
    if request.method != Method::GET {
        return Some(Err(Error::MethodNotAllowed));
    }
    let accepted = negotiate::route(&negotiate::clauses(&request.headers), &[media_type], &[]);
    Some(accepted.map(|()| {
        let mut response = respond::plain(200, media_type, document.to_string().into());
        response.headers_mut().insert(header::CACHE_CONTROL, CACHED);
        response
    }))
}
