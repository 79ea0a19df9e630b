//! Conditional requests: whether a client has the document already.

use bytes::Bytes;
use http::{HeaderMap, Response, StatusCode, header};

/// Creates a response without a body.
pub(super) fn respond_empty(status: StatusCode) -> Response<Bytes> {
    let mut response = Response::new(Bytes::new());
    *response.status_mut() = status;
    response
}

/// Returns `true` if `If-None-Match` is `*` or contains the tag, by weak comparison.
pub(super) fn revalidates(headers: &HeaderMap, etag: &str) -> bool {
    let Some(held) = headers.get(header::IF_NONE_MATCH).and_then(|held| held.to_str().ok()) else {
        return false;
    };
    held.split(',').map(str::trim).any(|tag| tag == "*" || tag.strip_prefix("W/").unwrap_or(tag) == etag)
}
