//! Bodies of HTTP/1.1 that a response does not depend on, and that nobody has read.
//!
//! A connection can be used again only after the whole body. Clients send the head and the body in
//! two packets, so a refusal is often ready in between: as Go's `net/http` does, a short rest is
//! read and dropped before the response is sent, and otherwise the response announces that the
//! connection ends.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONNECTION, EXPECT};
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;
use tokio::sync::oneshot;
use tokio::time::timeout;

/// The number of bytes that are read and dropped, at most: Go's `maxPostHandlerReadBytes`.
const MAX_DROPPED: u64 = 256 << 10;

/// The time in which they have to arrive.
const ARRIVAL: Duration = Duration::from_secs(1);

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
}

/// Lends a body to those who may read it.
pub fn lend<B: Body>(headers: &HeaderMap, body: B) -> (LentBody<B>, Lender<B>) {
    let (sender, returned) = oneshot::channel();
    let is_awaited =
        headers.get(EXPECT).is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"100-continue"));
    (LentBody { body: Some(body), lender: Some(sender) }, Lender { returned, is_awaited })
}

impl<B: Body<Data = Bytes> + Unpin> Lender<B> {
    /// Reads the rest of a body that was returned, or announces the end of the connection. In the
    /// meantime the response holds what it holds while it is sent, such as the user's share.
    pub async fn finish<R>(mut self, response: &mut Response<R>) {
        let Ok(body) = self.returned.try_recv() else { return };
        // What follows a handshake is no request.
        if body.is_end_stream() || response.status() == StatusCode::SWITCHING_PROTOCOLS {
            return;
        }
        if self.is_awaited || !drain(body).await {
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
    }
}

/// Reads a body to its end. Returns `false` if it is too long, late or broken off.
async fn drain<B: Body<Data = Bytes> + Unpin>(mut body: B) -> bool {
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
    timeout(ARRIVAL, read).await.unwrap_or(false)
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

    use futures::stream;
    use http_body_util::StreamBody;

    use super::*;

    type Piece = Result<Frame<Bytes>, Infallible>;

    fn body(pieces: usize, size: usize) -> impl Body<Data = Bytes, Error = Infallible> + Unpin {
        let pieces = vec![Bytes::from(vec![0; size]); pieces].into_iter();
        StreamBody::new(stream::iter(pieces.map(|piece| -> Piece { Ok(Frame::data(piece)) })))
    }

    async fn closes(headers: &HeaderMap, pieces: usize, size: usize, reads: bool) -> bool {
        let (lent, lender) = lend(headers, body(pieces, size));
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
        let none = HeaderMap::new();
        assert!(!closes(&none, 0, 0, false).await);
        assert!(!closes(&none, 2, 10, false).await);
        assert!(!closes(&none, 2, 128 << 10, false).await);
        assert!(closes(&none, 3, 128 << 10, false).await);
        assert!(!closes(&none, 3, 128 << 10, true).await, "it was read");
    }

    #[tokio::test]
    async fn a_client_that_waits_for_permission_is_sent_away() {
        let mut headers = HeaderMap::new();
        headers.insert(EXPECT, HeaderValue::from_static("100-Continue"));
        assert!(closes(&headers, 1, 10, false).await);
        assert!(!closes(&headers, 1, 10, true).await);
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_does_not_arrive_ends_the_connection() {
        let (lent, lender) = lend(&HeaderMap::new(), StreamBody::new(stream::pending::<Piece>()));
        drop(lent);
        let mut response = Response::new(());
        lender.finish(&mut response).await;
        assert_eq!(response.headers()[CONNECTION], "close");
    }
}
