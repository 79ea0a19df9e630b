//! The body of an answer: all at once, in chunks as the connection takes them, or as it comes.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures::{Stream, stream::BoxStream};
use http_body::{Frame, SizeHint};

pub enum Body {
    Full(Bytes),
    /// Made chunk by chunk; `size` in all, before any compression.
    Chunks {
        size: usize,
        chunks: Box<dyn Iterator<Item = Bytes> + Send>,
    },
    Stream(BoxStream<'static, Bytes>),
}

impl Body {
    pub fn empty() -> Body {
        Body::Full(Bytes::new())
    }

    pub fn stream(chunks: impl Stream<Item = Bytes> + Send + 'static) -> Body {
        Body::Stream(Box::pin(chunks))
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match self.get_mut() {
            Body::Full(bytes) if bytes.is_empty() => Poll::Ready(None),
            Body::Full(bytes) => Poll::Ready(Some(Ok(Frame::data(std::mem::take(bytes))))),
            Body::Chunks { chunks, .. } => Poll::Ready(chunks.next().map(|chunk| Ok(Frame::data(chunk)))),
            Body::Stream(chunks) => chunks.as_mut().poll_next(context).map(|c| c.map(|c| Ok(Frame::data(c)))),
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Body::Full(bytes) if bytes.is_empty())
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Body::Full(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Body::Chunks { .. } | Body::Stream(_) => SizeHint::default(),
        }
    }
}
