//! Tunnels: a client's connection and another server's, after both switched protocols. Bytes are
//! copied both ways until one side ends its direction; then both connections are closed.
//!
//! Source: apimachinery's `proxy.UpgradeAwareHandler`, which waits for one of the two directions.

use std::io;
use std::time::Duration;

use futures::FutureExt;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::time::timeout;

use super::upgrade::ServeUpgraded;

/// The time within which the ends of both connections are sent.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

/// Connects a client to another server.
///
/// - `far`: the other server's connection
pub fn tunnel(far: OnUpgrade) -> ServeUpgraded {
    Box::new(|near| {
        async move {
            match far.await {
                // An end that is not clean is an end all the same.
                Ok(far) => drop(copy_until_one_ends(near, TokioIo::new(far)).await),
                Err(error) => tracing::debug!(%error, "the upgrade of a proxied connection failed"),
            }
        }
        .boxed()
    })
}

/// Copies both ways until one direction ends, and closes both connections. A side that stays silent
/// after the other one has ended would keep both open for ever.
async fn copy_until_one_ends<N, F>(near: N, far: F) -> io::Result<()>
where
    N: AsyncRead + AsyncWrite,
    F: AsyncRead + AsyncWrite,
{
    let (mut near_reader, mut near_writer) = tokio::io::split(near);
    let (mut far_reader, mut far_writer) = tokio::io::split(far);
    // All bytes read before the end have been written and flushed by then.
    let copied = tokio::select! {
        copied = tokio::io::copy(&mut near_reader, &mut far_writer) => copied,
        copied = tokio::io::copy(&mut far_reader, &mut near_writer) => copied,
    };
    let closed = async { tokio::join!(near_writer.shutdown(), far_writer.shutdown()) };
    // A side that does not take the end is left alone.
    let _ = timeout(CLOSE_TIMEOUT, closed).await;
    copied.map(drop)
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, DuplexStream, duplex};
    use tokio::task::JoinHandle;

    use super::*;

    const DEADLINE: Duration = Duration::from_secs(30);

    /// Opens a tunnel; returns the far ends of its two connections.
    fn open() -> (DuplexStream, DuplexStream, JoinHandle<io::Result<()>>) {
        let (client, near) = duplex(64);
        let (server, far) = duplex(64);
        (client, server, tokio::spawn(copy_until_one_ends(near, far)))
    }

    #[tokio::test]
    async fn a_tunnel_ends_when_either_side_ends() {
        for client_ends in [true, false] {
            let (mut client, mut server, tunnel) = open();
            client.write_all(b"ping").await.expect("taken");
            let mut received = [0; 4];
            server.read_exact(&mut received).await.expect("it arrives");
            server.write_all(b"pong").await.expect("taken");
            let (ending, silent) =
                if client_ends { (&mut client, &mut server) } else { (&mut server, &mut client) };
            ending.write_all(b"the last words").await.expect("taken");
            // Only this direction ends; the other side neither sends nor closes anything.
            ending.shutdown().await.expect("an end");
            timeout(DEADLINE, tunnel).await.expect("it ends").expect("no panic").expect("a clean end");
            let mut rest = Vec::new();
            silent.read_to_end(&mut rest).await.expect("closed");
            let rest = String::from_utf8(rest).expect("text");
            assert!(rest.ends_with("the last words"), "{client_ends}: {rest}");
        }
    }
}
