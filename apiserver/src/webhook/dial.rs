//! Connections to servers: tries addresses, then performs the TLS handshake, except with servers of
//! plain HTTP.
#![expect(clippy::disallowed_methods, reason = "a deadline of a call to another server protects this one")]

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::future::{BoxFuture, FutureExt};
use futures::stream::{FuturesUnordered, StreamExt};
use http::Uri;
use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use rustls::{AlertDescription, CertificateError, ClientConfig, InvalidMessage};
use tokio::net::TcpStream;
use tokio::time::Sleep;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::error::TransportError;
use super::resolver::Destination;

/// The time for which the addresses of a service are tried before the URL that is configured for
/// it.
const BEFORE_FALLBACK: Duration = Duration::from_millis(250);
/// Timeout for establishing a connection, as in Go's default transport.
const DIAL_TIMEOUT: Duration = Duration::from_secs(30);
/// The time for which a new connection waits for its first request. A client that gets back another
/// connection meanwhile keeps the new one for later; and a server of Go that stops waits up to five
/// seconds for the first request of each connection (golang/go#22682).
const UNUSED_TIMEOUT: Duration = Duration::from_secs(1);

/// The TCP keepalive parameters: the idle time before the first probe, the interval of probes, and
/// the number of unanswered probes before the connection is closed. The first is kube-apiserver's,
/// the others Go's.
const KEEP_ALIVE: (Duration, Duration, u32) = (Duration::from_secs(180), Duration::from_secs(15), 9);

/// Enables TCP keepalive, so that the system closes a connection whose peer has disappeared without
/// closing it.
pub(crate) fn keep_alive(socket: &TcpStream) {
    use rustix::net::sockopt::{set_socket_keepalive, set_tcp_keepcnt, set_tcp_keepidle, set_tcp_keepintvl};
    let (idle, interval, count) = KEEP_ALIVE;
    // Without it the connection works all the same.
    let _ = set_socket_keepalive(socket, true)
        .and_then(|()| set_tcp_keepidle(socket, idle))
        .and_then(|()| set_tcp_keepintvl(socket, interval))
        .and_then(|()| set_tcp_keepcnt(socket, count));
}

/// Establishes connections to one server.
#[derive(Clone)]
pub struct Dialer {
    pub(super) destination: Arc<Destination>,
    /// The TLS configuration and the server's name; None for plain HTTP.
    pub(super) tls: Option<(Arc<ClientConfig>, ServerName<'static>)>,
}

/// A connection to a server. It ends if it is not used soon ([`UNUSED_TIMEOUT`]).
pub struct ServerConnection {
    stream: Stream,
    /// The end of the time for the first request; None once something was sent.
    unused: Option<Pin<Box<Sleep>>>,
}

/// The stream of a connection.
enum Stream {
    Tls(Box<TokioIo<TlsStream<TcpStream>>>),
    Plain(TokioIo<TcpStream>),
}

impl Dialer {
    async fn connect(self) -> Result<ServerConnection, TransportError> {
        let tcp = match tokio::time::timeout(DIAL_TIMEOUT, self.dial()).await {
            Ok(tcp) => tcp?,
            Err(_) => return Err(TransportError::Connection("dial tcp: i/o timeout".to_owned())),
        };
        let _ = tcp.set_nodelay(true);
        keep_alive(&tcp);
        let stream = match self.tls {
            None => Stream::Plain(TokioIo::new(tcp)),
            Some((tls, server_name)) => {
                let connector = TlsConnector::from(tls);
                let stream = connector.connect(server_name, tcp).await.map_err(|e| handshake_error(&e))?;
                Stream::Tls(Box::new(TokioIo::new(stream)))
            }
        };
        Ok(ServerConnection { stream, unused: Some(Box::pin(tokio::time::sleep(UNUSED_TIMEOUT))) })
    }

    async fn dial(&self) -> Result<TcpStream, TransportError> {
        let Destination { addresses, fallback, .. } = &*self.destination;
        match fallback {
            None => first_of(addresses).await,
            Some((host, port)) => {
                if !addresses.is_empty()
                    && let Ok(Ok(tcp)) = tokio::time::timeout(BEFORE_FALLBACK, first_of(addresses)).await
                {
                    return Ok(tcp);
                }
                let found = tokio::net::lookup_host((host.as_str(), *port)).await;
                let found: Vec<SocketAddr> =
                    found.map_err(|_| TransportError::Lookup(host.clone()))?.collect();
                in_order(&found, host).await
            }
        }
    }
}

/// Connects to all addresses concurrently, and returns the first connection that is established.
async fn first_of(addresses: &[SocketAddr]) -> Result<TcpStream, TransportError> {
    let attempts = addresses.iter().map(|address| {
        TcpStream::connect(*address)
            .map(move |done| done.map_err(|e| TransportError::dial(&address.to_string(), &e)))
    });
    let mut attempts: FuturesUnordered<_> = attempts.collect();
    let mut failure = TransportError::Eof;
    while let Some(attempt) = attempts.next().await {
        match attempt {
            Ok(tcp) => return Ok(tcp),
            Err(error) => failure = error,
        }
    }
    Err(failure)
}

/// Connects to the addresses of one host, one after the other; if all fail, the first error is
/// returned.
async fn in_order(addresses: &[SocketAddr], host: &str) -> Result<TcpStream, TransportError> {
    let mut failure = None;
    for address in addresses {
        match TcpStream::connect(*address).await {
            Ok(tcp) => return Ok(tcp),
            Err(error) => {
                failure.get_or_insert_with(|| TransportError::dial(&address.to_string(), &error));
            }
        }
    }
    Err(failure.unwrap_or_else(|| TransportError::Lookup(host.to_owned())))
}

fn handshake_error(error: &io::Error) -> TransportError {
    let Some(tls) = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) else {
        return TransportError::io(error);
    };
    match tls {
        rustls::Error::InvalidCertificate(CertificateError::Other(unverified)) => {
            TransportError::Tls(unverified.0.to_string())
        }
        rustls::Error::InvalidMessage(InvalidMessage::InvalidContentType) => TransportError::PlainHttp,
        rustls::Error::AlertReceived(AlertDescription::HandshakeFailure) => {
            TransportError::Tls("remote error: tls: handshake failure".to_owned())
        }
        other => TransportError::Tls(format!("remote error: tls: {other}")),
    }
}

impl tower::Service<Uri> for Dialer {
    type Response = ServerConnection;
    type Error = TransportError;
    type Future = BoxFuture<'static, Result<ServerConnection, TransportError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), TransportError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        self.clone().connect().boxed()
    }
}

impl Connection for ServerConnection {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}

impl hyper::rt::Read for ServerConnection {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: hyper::rt::ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let ServerConnection { stream, unused } = self.get_mut();
        if let Some(unused) = unused
            && unused.as_mut().poll(context).is_ready()
        {
            // Nothing was read: the end of the stream.
            return Poll::Ready(Ok(()));
        }
        match stream {
            Stream::Tls(stream) => Pin::new(&mut **stream).poll_read(context, buffer),
            Stream::Plain(stream) => Pin::new(stream).poll_read(context, buffer),
        }
    }
}

impl hyper::rt::Write for ServerConnection {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let ServerConnection { stream, unused } = self.get_mut();
        *unused = None;
        match stream {
            Stream::Tls(stream) => Pin::new(&mut **stream).poll_write(context, bytes),
            Stream::Plain(stream) => Pin::new(stream).poll_write(context, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().stream {
            Stream::Tls(stream) => Pin::new(&mut **stream).poll_flush(context),
            Stream::Plain(stream) => Pin::new(stream).poll_flush(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().stream {
            Stream::Tls(stream) => Pin::new(&mut **stream).poll_shutdown(context),
            Stream::Plain(stream) => Pin::new(stream).poll_shutdown(context),
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn a_connection_ends_unless_it_is_used_soon() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let addresses = vec![listener.local_addr().expect("an address")];
        let destination = Arc::new(Destination { addresses, ..Destination::default() });
        let dialer = Dialer { destination, tls: None };
        let mut ends = Vec::new();
        for is_used in [false, true] {
            let connection = dialer.clone().connect().await.expect("a connection");
            let (_theirs, _) = listener.accept().await.expect("a connection");
            let mut connection = TokioIo::new(connection);
            if is_used {
                connection.write_all(b"GET / HTTP/1.1").await.expect("written");
            }
            let mut buffer = [0; 1];
            let end = tokio::time::timeout(2 * UNUSED_TIMEOUT, connection.read(&mut buffer)).await;
            ends.push(end.ok().map(|read| read.expect("no error")));
        }
        assert_eq!(ends, [Some(0), None]);
    }
}
