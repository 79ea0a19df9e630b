//! Incoming bodies: read completely before the request takes a seat.
//!
//! A client may send slowly, so no resource that others wait for is held in the meantime: the bytes
//! count against the user's share, and the request's deadline ends the read.

use std::pin::pin;

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;

use super::MAX_BODY;
use super::shares::Share;
use crate::{Error, Result};

/// The body of a request from any transport.
pub trait Incoming: http_body::Body<Data = Bytes, Error: Into<BoxError>> + Send {}

impl<B: http_body::Body<Data = Bytes, Error: Into<BoxError>> + Send> Incoming for B {}

/// The error of a body that cannot be read.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The number of bytes read from a body that is too large. Over HTTP/2, the response to a body that
/// is not read to its end does not arrive.
const MAX_DRAINED: usize = 16 * MAX_BODY;

/// Reads a body to its end. Its bytes count in `share` until the share is released.
///
/// # Errors
/// 413 for more than [`MAX_BODY`] bytes, 429 if the share is exhausted, 400 if the client aborts.
pub async fn read(body: impl Incoming, mut share: Option<&mut Share>) -> Result<Bytes> {
    let mut body = pin!(body);
    let mut read = Received::Nothing;
    let mut size = 0;
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| {
            let error: BoxError = error.into();
            Error::bad_request(format!("the body could not be read: {error}"))
        })?;
        // Trailers mean nothing here.
        let Ok(data) = frame.into_data() else { continue };
        size += data.len();
        if size > MAX_BODY {
            if size > MAX_DRAINED {
                break;
            }
            read = Received::Nothing;
            continue;
        }
        if let Some(share) = share.as_mut() {
            share.add_body_bytes(data.len())?;
        }
        read.push(data);
    }
    if size > MAX_BODY {
        return Err(Error::TooLarge(format!("limit is {MAX_BODY}")));
    }
    Ok(read.into_bytes())
}

/// The bytes read so far: most bodies arrive in one piece, which is not copied.
enum Received {
    Nothing,
    One(Bytes),
    Many(BytesMut),
}

impl Received {
    fn push(&mut self, data: Bytes) {
        *self = match std::mem::replace(self, Received::Nothing) {
            Received::Nothing => Received::One(data),
            Received::One(first) => {
                let mut all = BytesMut::with_capacity(2 * (first.len() + data.len()));
                all.extend_from_slice(&first);
                all.extend_from_slice(&data);
                Received::Many(all)
            }
            Received::Many(mut all) => {
                all.extend_from_slice(&data);
                Received::Many(all)
            }
        };
    }

    fn into_bytes(self) -> Bytes {
        match self {
            Received::Nothing => Bytes::new(),
            Received::One(bytes) => bytes,
            Received::Many(bytes) => bytes.freeze(),
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::stream;
    use http_body::Frame;
    use http_body_util::StreamBody;

    use super::*;

    fn body(pieces: &[usize]) -> impl Incoming {
        let pieces: Vec<std::result::Result<Frame<Bytes>, std::io::Error>> =
            pieces.iter().map(|size| Ok(Frame::data(Bytes::from(vec![b'x'; *size])))).collect();
        StreamBody::new(stream::iter(pieces))
    }

    #[tokio::test]
    async fn bodies_are_read_up_to_their_limit() {
        for (case, pieces, want) in [
            ("empty", vec![], Ok(0)),
            ("one piece", vec![10], Ok(10)),
            ("pieces", vec![10; 5], Ok(50)),
            ("as large as may be", vec![MAX_BODY - 1, 1], Ok(MAX_BODY)),
            ("a byte more", vec![MAX_BODY, 1], Err(413)),
            ("far more", vec![MAX_BODY; 100], Err(413)),
        ] {
            let got = read(body(&pieces), None).await;
            assert_eq!(got.map(|bytes| bytes.len()).map_err(|e| e.code()), want, "{case}");
        }
    }
}
