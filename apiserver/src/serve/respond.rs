//! Responses: the one place where errors become Status documents, and bytes get their headers.

use std::io::Write;

use bytes::Bytes;
use flate2::{Compression, write::GzEncoder};
use http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use serde_json::json;

use super::Body;
use crate::Error;
use crate::answer::Form;
use crate::request::Warnings;
use crate::request::negotiate::Accept;

/// Smaller answers are not worth compressing.
const GZIP_FROM: usize = 128 * 1024;

/// An answer with a body in the form that was negotiated.
pub fn object(code: u16, form: &Form, bytes: Bytes) -> Response<Body> {
    plain(code, form.accept.format.media_type(), bytes)
}

/// Adds what the request brought up besides its answer.
pub fn warn(response: &mut Response<Body>, warnings: Warnings) {
    for text in warnings.into_texts() {
        let value = HeaderValue::from_bytes(format!("299 - {}", crate::field::quote(&text)).as_bytes());
        if let Ok(value) = value {
            response.headers_mut().append(header::WARNING, value);
        }
    }
}

pub fn plain(code: u16, content_type: &'static str, bytes: Bytes) -> Response<Body> {
    let mut response = Response::new(Body::Full(bytes));
    *response.status_mut() = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

/// The answer that says why there is none.
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

/// Tells browsers not to guess at what those who may not are told.
pub fn unsniffed(mut response: Response<Body>) -> Response<Body> {
    if response.status() == StatusCode::FORBIDDEN {
        response.headers_mut().insert("x-content-type-options", HeaderValue::from_static("nosniff"));
    }
    response
}

/// What a panic leaves: its message stays in the log.
pub fn panicked() -> Response<Body> {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": "This request caused apiserver to panic. Look in the logs for details.",
        "reason": "InternalError", "code": 500,
    });
    plain(500, "application/json", status.to_string().into())
}

/// The answer to a HEAD: HTTP/2 resets a stream that sends a body anyway.
pub fn head_only(response: Response<Body>) -> Response<Body> {
    let (mut parts, body) = response.into_parts();
    if let Body::Full(bytes) = body {
        parts.headers.insert(header::CONTENT_LENGTH, HeaderValue::from(bytes.len()));
    }
    Response::from_parts(parts, Body::Full(Bytes::new()))
}

/// Compresses a large answer for a client that takes gzip.
pub fn compress(request: &HeaderMap, response: Response<Body>) -> Response<Body> {
    let accepts = request.get_all(header::ACCEPT_ENCODING).iter().any(|value| {
        value.to_str().is_ok_and(|v| v.split(',').any(|e| e.split(';').next().unwrap_or("").trim() == "gzip"))
    });
    let (mut parts, body) = response.into_parts();
    let body = match body {
        Body::Full(bytes) if accepts && bytes.len() >= GZIP_FROM => bytes,
        other => return Response::from_parts(parts, other),
    };
    let mut encoder = GzEncoder::new(Vec::with_capacity(body.len() / 4), Compression::fast());
    let compressed = encoder.write_all(&body).and_then(|()| encoder.finish());
    let Ok(compressed) = compressed else { return Response::from_parts(parts, Body::Full(body)) };
    parts.headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    parts.headers.append(header::VARY, HeaderValue::from_static("Accept-Encoding"));
    Response::from_parts(parts, Body::Full(compressed.into()))
}
