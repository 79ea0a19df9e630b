//! Responses: converts errors to Status documents, and adds headers to bytes.

use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header};
use serde_json::json;

use super::Body;
use crate::Error;
use crate::representation::{CHUNKED_FROM_BYTES, Content, Form};
use crate::request::negotiate::Accept;

/// Returns a response with a body in the negotiated form.
pub fn object(code: u16, form: &Form, content: Content) -> Response<Body> {
    let body = match content {
        Content::Whole(bytes) => Body::from(bytes),
        Content::List(list) if list.size() < CHUNKED_FROM_BYTES => {
            Body::from(list.flatten().collect::<Bytes>())
        }
        Content::List(list) => Body::chunks(list.size(), list, false),
        Content::Rendered(list) => Body::chunks(list.size(), list, true),
    };
    with_body(code, form.accept.format.media_type(), body)
}

/// Adds the warnings of the request to its response.
pub fn warn(response: &mut Response<Body>, warnings: Vec<String>) {
    for text in warnings {
        let value = HeaderValue::from_bytes(format!("299 - {}", crate::field::quote(&text)).as_bytes());
        if let Ok(value) = value {
            response.headers_mut().append(header::WARNING, value);
        }
    }
}

pub fn plain(code: u16, content_type: &'static str, bytes: Bytes) -> Response<Body> {
    with_body(code, content_type, Body::from(bytes))
}

fn with_body(code: u16, content_type: &'static str, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

/// Returns the response for an error.
pub fn error(error: &Error, accept: Accept) -> Response<Body> {
    let status = error.status();
    if matches!(error, Error::PageNotFound) {
        let mut response =
            plain(404, "text/plain; charset=utf-8", Bytes::from_static(b"404 page not found\n"));
        response.headers_mut().insert("x-content-type-options", HeaderValue::from_static("nosniff"));
        return response;
    }
    let form = Form::of_errors(accept);
    let mut response = plain(status.code, form.accept.format.media_type(), form.status(&status.to_value()));
    let retry = status.details.as_ref().and_then(|d| d.get("retryAfterSeconds")).and_then(|s| s.as_u64());
    if let Some(seconds) = retry {
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}

/// Returns the response to a request that flow control rejects: plain text, as in kube-apiserver.
pub fn too_many_requests() -> Response<Body> {
    const TEXT: &[u8] = b"Too many requests, please try again later.\n";
    let mut response = plain(429, "text/plain; charset=utf-8", Bytes::from_static(TEXT));
    response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
    response.headers_mut().insert("x-content-type-options", HeaderValue::from_static("nosniff"));
    response
}

/// Returns the response to a long-running request from a server that is shutting down. The client
/// retries, and reaches another server. Source: `filters/waitgroup.go` of upstream.
pub fn shutting_down() -> Response<Body> {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": "apiserver is shutting down", "reason": "ServiceUnavailable", "code": 503,
    });
    let mut response = plain(503, "application/json", format!("{status}\n").into());
    response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
    response.headers_mut().insert("x-content-type-options", HeaderValue::from_static("nosniff"));
    response
}

/// Prevents browsers from guessing the type of a 403 response.
pub fn unsniffed(mut response: Response<Body>) -> Response<Body> {
    if response.status() == StatusCode::FORBIDDEN {
        response.headers_mut().insert("x-content-type-options", HeaderValue::from_static("nosniff"));
    }
    response
}

/// Returns the response after a panic. The panic's message is only logged.
pub fn panicked() -> Response<Body> {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": "This request caused apiserver to panic. Look in the logs for details.",
        "reason": "InternalError", "code": 500,
    });
    plain(500, "application/json", status.to_string().into())
}
