//! Responses: the one place where errors become Status documents, and bytes get their headers.

use std::io::Write;

use bytes::Bytes;
use flate2::{Compression, write::GzEncoder};
use http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use serde_json::json;

use super::Body;
use crate::Error;
use crate::answer::{Content, Form, IN_CHUNKS_FROM};
use crate::request::Warnings;
use crate::request::negotiate::Accept;

/// Smaller answers are not worth compressing.
const GZIP_FROM: usize = 128 * 1024;

/// An answer with a body in the form that was negotiated.
pub fn object(code: u16, form: &Form, content: Content) -> Response<Body> {
    let body = match content {
        Content::Whole(bytes) => Body::from(bytes),
        Content::List(list) if list.size() < IN_CHUNKS_FROM => Body::from(list.flatten().collect::<Bytes>()),
        Content::List(list) => Body::chunks(list.size(), list, false),
        Content::Rendered(list) => Body::chunks(list.size(), list, true),
    };
    plain(code, form.accept.format.media_type(), Bytes::new()).map(|_| body)
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
    let mut response = Response::new(Body::from(bytes));
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

/// The answer to a request for which flow control has no place: plain text, as the real server gives it.
pub fn too_many_requests() -> Response<Body> {
    const TEXT: &[u8] = b"Too many requests, please try again later.\n";
    let mut response = plain(429, "text/plain; charset=utf-8", Bytes::from_static(TEXT));
    response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
    response.headers_mut().insert("x-content-type-options", HeaderValue::from_static("nosniff"));
    response
}

/// Keeps browsers from guessing the type of a refusal.
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
    if let Some(bytes) = body.whole() {
        parts.headers.insert(header::CONTENT_LENGTH, HeaderValue::from(bytes.len()));
    }
    Response::from_parts(parts, Body::empty())
}

/// Compresses a large answer for a client that takes gzip.
pub fn compress(request: &HeaderMap, response: Response<Body>) -> Response<Body> {
    let accepts = request.get_all(header::ACCEPT_ENCODING).iter().any(|value| {
        value.to_str().is_ok_and(|v| v.split(',').any(|e| e.split(';').next().unwrap_or("").trim() == "gzip"))
    });
    if !accepts {
        return response;
    }
    let (mut parts, body) = response.into_parts();
    let (body, compressed) = body.map_chunks(GZIP_FROM, Compressed::new);
    if compressed {
        parts.headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        parts.headers.append(header::VARY, HeaderValue::from_static("Accept-Encoding"));
    }
    Response::from_parts(parts, body)
}

/// Chunks, compressed one after the other.
struct Compressed<C> {
    chunks: C,
    /// None when all is done.
    encoder: Option<GzEncoder<Vec<u8>>>,
}

impl<C> Compressed<C> {
    fn new(chunks: C) -> Compressed<C> {
        Compressed { chunks, encoder: Some(GzEncoder::new(Vec::new(), Compression::fast())) }
    }
}

impl<C: Iterator<Item = Bytes>> Iterator for Compressed<C> {
    type Item = Bytes;

    /// What the encoder keeps for itself comes with a later chunk, so that none is empty.
    fn next(&mut self) -> Option<Bytes> {
        while let (Some(encoder), Some(chunk)) = (&mut self.encoder, self.chunks.next()) {
            // Writing to memory does not fail.
            let _ = encoder.write_all(&chunk);
            let compressed = std::mem::take(encoder.get_mut());
            if !compressed.is_empty() {
                return Some(compressed.into());
            }
        }
        self.encoder.take()?.finish().ok().map(Bytes::from)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use flate2::read::GzDecoder;
    use http_body_util::BodyExt;

    use super::*;

    #[tokio::test]
    async fn large_answers_are_compressed_for_those_who_take_it() {
        let gzip =
            HeaderMap::from_iter([(header::ACCEPT_ENCODING, HeaderValue::from_static("br, gzip;q=1"))]);
        let chunk = |i: u8| Bytes::from(vec![i; GZIP_FROM]);
        let full = |size: usize| Body::from(chunk(1).slice(..size));
        let chunks = || Body::chunks(3 * GZIP_FROM, (0..3).map(chunk), false);
        let three = [chunk(0), chunk(1), chunk(2)].concat();
        for (case, headers, body, compressed, want) in [
            ("large", &gzip, full(GZIP_FROM), true, vec![1; GZIP_FROM]),
            ("small", &gzip, full(GZIP_FROM - 1), false, vec![1; GZIP_FROM - 1]),
            ("in chunks", &gzip, chunks(), true, three.clone()),
            ("not asked for", &HeaderMap::new(), chunks(), false, three),
        ] {
            let response = compress(headers, Response::new(body));
            assert_eq!(response.headers().contains_key(header::CONTENT_ENCODING), compressed, "{case}");
            let sent = response.into_body().collect().await.expect("no panic").to_bytes();
            let mut got = Vec::new();
            match compressed {
                true => drop(GzDecoder::new(&sent[..]).read_to_end(&mut got).expect(case)),
                false => got = sent.to_vec(),
            }
            assert!(got == want, "{case}");
        }
    }
}
