//! Bodies that a response does not depend on, and that nobody has read.
//!
//! Clients send the head and the body in two packets, so a refusal is often ready in between. A
//! connection of HTTP/1.1 can be used again only after the whole body: as Go's `net/http` does, a
//! short rest is read and dropped before the response is sent, and otherwise the response announces
//! that the connection ends. Over HTTP/2 the stream of such a request is reset after its response,
//! which some clients, such as curl, discard then: a short rest is read as well.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONNECTION, EXPECT};
use http::request::Parts;
use http::{HeaderValue, Response, StatusCode, Version};
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;
use tokio::sync::oneshot;
use tokio::time::timeout;

/// The number of bytes that are read and dropped, at most: Go's `maxPostHandlerReadBytes`.
const MAX_DROPPED: u64 = 256 << 10;

/// The time in which they have to arrive over HTTP/1.1, where the connection depends on it.
const ARRIVAL: Duration = Duration::from_secs(1);

/// The same over HTTP/2, where only some clients do.
const ARRIVAL_HTTP2: Duration = Duration::from_millis(100);

/// A body that returns to its lender if it is dropped before its end.
pub struct LentBody<B> {
    /// None once it is returned.
    body: Option<B>,
    lender: Option<oneshot::Sender<B>>,
}

/// The lender of a body.
pub struct Lender<B> {
    returned: oneshot::Receiver<B>,
    /// Whether the client sends the body only after it is told to continue.
    is_awaited: bool,
    is_http2: bool,
}

/// Lends a body to those who may read it.
pub fn lend<B: Body>(head: &Parts, body: B) -> (LentBody<B>, Lender<B>) {
    let (sender, returned) = oneshot::channel();
    let expect = head.headers.get(EXPECT);
    let is_awaited = expect.is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"100-continue"));
    let is_http2 = head.version == Version::HTTP_2;
    (LentBody { body: Some(body), lender: Some(sender) }, Lender { returned, is_awaited, is_http2 })
}

impl<B: Body<Data = Bytes> + Unpin> Lender<B> {
    /// Reads the rest of a body that was returned, or announces the end of a connection of HTTP/1.1.
    /// In the meantime the response holds what it holds while it is sent, such as the user's share.
    pub async fn finish<R>(mut self, response: &mut Response<R>) {
        let Ok(body) = self.returned.try_recv() else { return };
        // What follows a handshake is no request.
        if body.is_end_stream() || response.status() == StatusCode::SWITCHING_PROTOCOLS {
            return;
        }
        let arrival = if self.is_http2 { ARRIVAL_HTTP2 } else { ARRIVAL };
        let is_read = !self.is_awaited && drain(body, arrival).await;
        if !is_read && !self.is_http2 {
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
    }
}

/// Reads a body to its end. Returns `false` if it is too long, late or broken off.
async fn drain<B: Body<Data = Bytes> + Unpin>(mut body: B, arrival: Duration) -> bool {
    if body.size_hint().lower() > MAX_DROPPED {
        return false;
    }
    let read = async {
        let mut size = 0;
        while let Some(frame) = body.frame().await {
            let Ok(frame) = frame else { return false };
            size += frame.data_ref().map_or(0, |data| data.len() as u64);
            if size > MAX_DROPPED {
                return false;
            }
        }
        true
    };
    timeout(arrival, read).await.unwrap_or(false)
}

impl<B: Body<Data = Bytes> + Unpin> Body for LentBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let Some(body) = &mut self.body else { return Poll::Ready(None) };
        let frame = ready!(Pin::new(body).poll_frame(context));
        if !matches!(frame, Some(Ok(_))) {
            // It has ended, one way or the other.
            self.lender = None;
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body.as_ref().map_or_else(|| SizeHint::with_exact(0), Body::size_hint)
    }
}

impl<B> Drop for LentBody<B> {
    fn drop(&mut self) {
        if let (Some(body), Some(lender)) = (self.body.take(), self.lender.take()) {
            // Nobody waits for the body of a request that was given up.
            drop(lender.send(body));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use futures::{StreamExt, stream};
    use http::{HeaderName, Request};
    use http_body_util::StreamBody;

    use super::*;

    type Piece = Result<Frame<Bytes>, Infallible>;

    fn body(pieces: usize, size: usize) -> impl Body<Data = Bytes, Error = Infallible> + Unpin {
        let pieces = vec![Bytes::from(vec![0; size]); pieces].into_iter();
        StreamBody::new(stream::iter(pieces.map(|piece| -> Piece { Ok(Frame::data(piece)) })))
    }

    fn head(version: Version, headers: &[(HeaderName, &str)]) -> Parts {
        let mut request = Request::builder().version(version);
        for (name, value) in headers {
            request = request.header(name, *value);
        }
        request.body(()).expect("a request").into_parts().0
    }

    async fn closes(head: &Parts, pieces: usize, size: usize, reads: bool) -> bool {
        let (lent, lender) = lend(head, body(pieces, size));
        if reads {
            lent.collect().await.expect("a body");
        } else {
            drop(lent);
        }
        let mut response = Response::new(());
        lender.finish(&mut response).await;
        response.headers().contains_key(CONNECTION)
    }

    #[tokio::test]
    async fn a_short_rest_is_read_and_a_long_one_ends_the_connection() {
        let none = head(Version::HTTP_11, &[]);
        assert!(!closes(&none, 0, 0, false).await);
        assert!(!closes(&none, 2, 10, false).await);
        assert!(!closes(&none, 2, 128 << 10, false).await);
        assert!(closes(&none, 3, 128 << 10, false).await);
        assert!(!closes(&none, 3, 128 << 10, true).await, "it was read");
    }

    #[tokio::test]
    async fn a_short_rest_of_http2_is_read_and_a_long_one_ends_no_connection() {
        // A piece is read before it is known to be too much.
        for (pieces, want) in [(2, 2), (1000, 257)] {
            let (sender, left) = std::sync::mpsc::channel();
            let pieces = stream::iter(0..pieces).map(move |piece| -> Piece {
                let _ = sender.send(piece);
                Ok(Frame::data(Bytes::from_static(&[0; 1024])))
            });
            let (lent, lender) = lend(&head(Version::HTTP_2, &[]), StreamBody::new(pieces));
            drop(lent);
            let mut response = Response::new(());
            lender.finish(&mut response).await;
            assert!(response.headers().is_empty());
            assert_eq!(left.iter().count(), want);
        }
    }

    #[tokio::test]
    async fn a_client_that_waits_for_permission_is_sent_away() {
        let expecting = head(Version::HTTP_11, &[(EXPECT, "100-Continue")]);
        assert!(closes(&expecting, 1, 10, false).await);
        assert!(!closes(&expecting, 1, 10, true).await);
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_does_not_arrive_ends_the_connection() {
        for (version, headers, arrival, closes) in [
            (Version::HTTP_11, &[][..], ARRIVAL, true),
            (Version::HTTP_2, &[], ARRIVAL_HTTP2, false),
            (Version::HTTP_2, &[(EXPECT, "100-continue")], Duration::ZERO, false),
        ] {
            let (lent, lender) = lend(&head(version, headers), StreamBody::new(stream::pending::<Piece>()));
            drop(lent);
            let (begun, mut response) = (tokio::time::Instant::now(), Response::new(()));
            lender.finish(&mut response).await;
            assert_eq!(response.headers().contains_key(CONNECTION), closes, "{version:?}");
            assert_eq!(begun.elapsed().as_millis(), arrival.as_millis(), "{version:?}");
        }
    }
}
