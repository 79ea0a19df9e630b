//! A byte stream in the messages of a WebSocket.
//!
//! Source: KEP-4006, `k8s.io/apimachinery/pkg/util/portforward`: each binary message has some of
//! the bytes, wherever they are cut.

use std::pin::pin;

use bytes::BytesMut;
use futures::{SinkExt, StreamExt};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream, duplex};
use tokio_tungstenite::tungstenite::Message;

use crate::session::unless_stalled;
use crate::{channels, session};

/// The bytes that are under way in one direction, and the longest message that is sent.
const BUFFER: usize = 32 << 10;

/// Runs a service on the byte stream within a WebSocket, until it has returned.
pub(crate) async fn serve<IO, F>(io: IO, service: impl FnOnce(DuplexStream) -> F)
where
    IO: AsyncRead + AsyncWrite + Unpin,
    F: Future<Output = ()>,
{
    let (near, far) = duplex(BUFFER);
    tokio::join!(service(far), copy(io, near));
}

/// Copies both ways until the WebSocket ends, or the other side has ended and all that it wrote is
/// sent.
async fn copy<IO: AsyncRead + AsyncWrite + Unpin>(io: IO, near: DuplexStream) {
    let (mut outgoing, mut incoming) = channels::upgraded(io).await.split();
    let (mut reader, mut writer) = tokio::io::split(near);
    let receive = async {
        while let Some(Ok(message)) = incoming.next().await {
            match message {
                Message::Binary(bytes) => {
                    // A service that reads no more has ended, and is about to write its end.
                    let _ = writer.write_all(&bytes).await;
                }
                Message::Close(_) => break,
                _ => {}
            }
        }
        let _ = writer.shutdown().await;
    };
    let send = async {
        let mut buffer = BytesMut::new();
        loop {
            buffer.reserve(BUFFER);
            match reader.read_buf(&mut buffer).await {
                Ok(0) | Err(_) => break,
                Ok(_) => {}
            }
            let sent = unless_stalled(outgoing.send(Message::Binary(buffer.split().freeze()))).await;
            if !matches!(sent, Ok(Ok(()))) {
                return;
            }
        }
        let _ = outgoing.send(channels::close()).await;
    };
    let (mut receive, mut send) = (pin!(receive), pin!(send));
    tokio::select! {
        // The service reads the client's end, and ends for its part.
        () = &mut receive => send.await,
        () = &mut send => {
            session::within(session::CLOSE_TIMEOUT, receive).await;
        }
    }
}
