//! The public keys of service accounts' tokens, and where relying parties find them.
//!
//! Source: KEP-1393; `pkg/routes/openidmetadata.go` of Kubernetes.

use http::{HeaderMap, HeaderValue, Method, Response, header};
use serde_json::json;

use super::api::Shared;
use super::{Body, respond};

/// The paths of both documents.
pub const OPENID_PATHS: [&str; 2] = [CONFIGURATION_PATH, KEYS_PATH];

const CONFIGURATION_PATH: &str = "/.well-known/openid-configuration";
const KEYS_PATH: &str = "/openid/v1/jwks";

/// The documents may be cached for an hour.
const CACHED: HeaderValue = HeaderValue::from_static("public, max-age=3600");

/// Responds to a request for the configuration or the keys; None for any other path.
pub fn respond(shared: &Shared, method: &Method, headers: &HeaderMap, path: &str) -> Option<Response<Body>> {
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
    let refused = |code, text: String| Some(respond::plain(code, "text/plain; charset=utf-8", text.into()));
    if *method != Method::GET {
        return refused(405, "405: Method Not Allowed".to_owned());
    }
    if !accepts(headers, media_type) {
        let text = format!("406: Not Acceptable\n\nAvailable representations: {media_type}");
        return refused(406, text);
    }
    let mut response = respond::plain(200, media_type, document.to_string().into());
    response.headers_mut().insert(header::CACHE_CONTROL, CACHED);
    Some(response)
}

/// Returns `true` if a client accepts a media type by its name, or any.
fn accepts(headers: &HeaderMap, media_type: &str) -> bool {
    let accepted = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    accepted.is_empty()
        || accepted.split(',').any(|clause| {
            let name = clause.split(';').next().unwrap_or_default().trim();
            name == "*/*" || name == media_type
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn media_types_are_accepted_by_name() {
        for (accept, want) in [
            (None, true),
            (Some("*/*"), true),
            (Some("application/json, */*;q=0.5"), true),
            (Some("application/jwk-set+json;q=0.1"), true),
            (Some("application/json"), false),
            (Some("application/*"), false),
            (Some(""), true),
        ] {
            let mut headers = HeaderMap::new();
            headers.extend(accept.map(|accept| (header::ACCEPT, HeaderValue::from_static(accept))));
            assert_eq!(accepts(&headers, "application/jwk-set+json"), want, "{accept:?}");
        }
    }
}
