//! The body of an answer: all at once, in chunks as the connection takes them, or as it comes.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures::stream::{self, BoxStream};
use futures::{Stream, StreamExt};
use http_body::{Frame, SizeHint};
use tokio::time::{Instant, sleep_until};

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

    /// For a socket: small chunks that come close on one another go together. Each costs a system call and a record of TLS, here
    /// and at the client, which is most of what a watch of small changes costs.
    pub fn gathered(self) -> Body {
        match self {
            Body::Stream(chunks) => Body::stream(gathered(chunks)),
            whole => whole,
        }
    }
}

/// How long the next chunk waits for others after a small one. The first after a rest does not wait.
const TOGETHER: Duration = Duration::from_millis(1);
/// What is larger gains nothing by being larger still.
const SMALL: usize = 16 << 10;

/// Leaves what happens to whoever makes the chunks for a moment: a watch tells all of it in one.
fn gathered(chunks: BoxStream<'static, Bytes>) -> impl Stream<Item = Bytes> + Send {
    stream::unfold((chunks, None::<Instant>), async |(mut chunks, not_before)| {
        if let Some(not_before) = not_before.filter(|time| *time > Instant::now()) {
            sleep_until(not_before).await;
        }
        let chunk = chunks.next().await?;
        let not_before = (chunk.len() < SMALL).then(|| Instant::now() + TOGETHER);
        Some((chunk, (chunks, not_before)))
    })
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

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;
    use std::sync::{Arc, Mutex};

    /// Chunks of all that was told so far.
    fn telling(told: Arc<Mutex<Vec<u8>>>) -> BoxStream<'static, Bytes> {
        stream::repeat_with(move || std::mem::take(&mut *told.lock().unwrap()).into()).boxed()
    }

    #[tokio::test(start_paused = true)]
    async fn small_chunks_wait_for_the_next() {
        let told = Arc::new(Mutex::new(b"first".to_vec()));
        let tell = |text: &[u8]| told.lock().unwrap().extend_from_slice(text);
        let mut chunks = Box::pin(gathered(telling(told.clone())));
        let began = Instant::now();
        assert_eq!(chunks.next().now_or_never(), Some(Some("first".into())), "at once");
        tell(b"a");
        let mut next = chunks.next();
        assert_eq!((&mut next).now_or_never(), None);
        tell(b"b");
        assert_eq!(next.await, Some("ab".into()));
        assert!(began.elapsed() >= TOGETHER);

        tokio::time::advance(TOGETHER * 2).await;
        tell(&[b'x'; SMALL]);
        assert_eq!(
            chunks.next().now_or_never().flatten().map(|chunk| chunk.len()),
            Some(SMALL),
            "after a rest"
        );
        tell(b"y");
        assert_eq!(chunks.next().now_or_never(), Some(Some("y".into())), "after a large one");
    }
}
