//! Compression: large responses in gzip, for clients that accept it.
//!
//! `tower-http`'s layer compresses on the thread that writes the response, in pieces of 4 KiB, and
//! negotiates differently: ARCHITECTURE.md explains the choice.

use std::convert::Infallible;
use std::io::Write;

use bytes::Bytes;
use flate2::{Compression, write::GzEncoder};
use http::{HeaderMap, HeaderValue, Response, StatusCode, header};

use super::RequestFilter;
use crate::serve::Body;
use crate::serve::exchange::ReceivedRequest;

/// Smaller responses are not worth compressing.
const GZIP_FROM: usize = 128 * 1024 + 1;

/// Compresses large responses, chunk by chunk as they are sent.
#[derive(Clone, Copy)]
pub struct Compress;

impl<B> RequestFilter<ReceivedRequest<B>> for Compress {
    type Request = ReceivedRequest<B>;
    /// Whether the client accepts gzip.
    type State = bool;
    type Error = Infallible;

    fn request(&self, request: ReceivedRequest<B>) -> Result<(ReceivedRequest<B>, bool), Infallible> {
        let accepts_gzip = accepts_gzip(&request.context.parts.headers);
        Ok((request, accepts_gzip))
    }

    fn response(&self, accepts_gzip: bool, response: Response<Body>) -> Response<Body> {
        // What follows a handshake is no body.
        if !accepts_gzip || response.status() == StatusCode::SWITCHING_PROTOCOLS {
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
}

/// Returns whether the first header lists gzip, without a quality: as kube-apiserver reads it.
fn accepts_gzip(headers: &HeaderMap) -> bool {
    let accepted = headers.get(header::ACCEPT_ENCODING).and_then(|value| value.to_str().ok());
    accepted.is_some_and(|accepted| accepted.split(',').any(|encoding| encoding.trim() == "gzip"))
}

/// Chunks, compressed one after the other.
struct Compressed<C> {
    chunks: C,
    /// The encoder; None at the end.
    encoder: Option<GzEncoder<Vec<u8>>>,
}

impl<C> Compressed<C> {
    fn new(chunks: C) -> Compressed<C> {
        Compressed { chunks, encoder: Some(GzEncoder::new(Vec::new(), Compression::fast())) }
    }
}

impl<C: Iterator<Item = Bytes>> Iterator for Compressed<C> {
    type Item = Bytes;

    /// Returns the next non-empty chunk. Bytes that the encoder retains are part of a later chunk.
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
    use std::cell::Cell;
    use std::future::ready;
    use std::io::Read;

    use flate2::read::GzDecoder;
    use http_body_util::BodyExt;
    use tower::{ServiceBuilder, ServiceExt};

    use super::*;
    use crate::serve::layers::filter;
    use crate::serve::testing;

    #[tokio::test]
    async fn large_answers_are_compressed_for_those_who_take_it() {
        let gzip = [("accept-encoding", "br, gzip")];
        let chunk = |i: u8| Bytes::from(vec![i; GZIP_FROM]);
        let full = |size: usize| Body::from(chunk(1).slice(..size));
        let chunks = || Body::chunks(3 * GZIP_FROM, (0..3).map(chunk), false);
        let three = [chunk(0), chunk(1), chunk(2)].concat();
        for (case, headers, body, compressed, want) in [
            ("large", &gzip[..], full(GZIP_FROM), true, vec![1; GZIP_FROM]),
            ("small", &gzip, full(GZIP_FROM - 1), false, vec![1; GZIP_FROM - 1]),
            ("in chunks", &gzip, chunks(), true, three.clone()),
            ("not asked for", &[], chunks(), false, three),
        ] {
            let body = Cell::new(Some(body));
            let stack = ServiceBuilder::new().layer(filter(Compress)).service_fn(|_: ReceivedRequest<_>| {
                ready(Ok(Response::new(body.take().expect("one request"))))
            });
            let Ok(response) = stack.oneshot(testing::received("GET", "/api/v1/pods", headers)).await;
            let headers = response.headers();
            assert_eq!(headers.contains_key(header::CONTENT_ENCODING), compressed, "{case}");
            assert_eq!(headers.contains_key(header::VARY), compressed, "{case}");
            let sent = response.into_body().collect().await.expect("no panic").to_bytes();
            let mut got = Vec::new();
            match compressed {
                true => drop(GzDecoder::new(&sent[..]).read_to_end(&mut got).expect(case)),
                false => got = sent.to_vec(),
            }
            assert!(got == want, "{case}");
        }
    }

    #[test]
    fn gzip_is_accepted_by_its_name() {
        for (values, want) in [
            (&[][..], false),
            (&["gzip"], true),
            (&["deflate, gzip"], true),
            (&["br", "gzip"], false),
            (&["br, gzip;q=0.5"], false),
            (&["gzip;q=0"], false),
            (&["*"], false),
            (&["identity;q=0"], false),
            (&["x-gzip, GZIP"], false),
        ] {
            let headers =
                values.iter().map(|value| (header::ACCEPT_ENCODING, HeaderValue::from_static(value)));
            let mut map = HeaderMap::new();
            headers.for_each(|(name, value)| _ = map.append(name, value));
            assert_eq!(accepts_gzip(&map), want, "{values:?}");
        }
    }
}
