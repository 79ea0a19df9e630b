//! The listener: TCP connections, TLS, HTTP/1.1 or HTTP/2 by ALPN, and a shutdown that lets requests finish.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use http::{Request, Response};
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tower::ServiceExt;

use super::Api;
use super::body::Body;
use crate::access::tls::Tls;

/// A client that has not shaken hands by then is not coming.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// How long connections may take to finish once the server is going.
const DRAIN: Duration = Duration::from_millis(1500);

/// A bound socket.
pub struct Listener {
    socket: TcpListener,
    address: SocketAddr,
}

impl Listener {
    /// # Errors
    /// What the system says of the address: in use, not ours, not permitted.
    pub async fn bind(address: SocketAddr) -> io::Result<Listener> {
        let socket = TcpListener::bind(address).await?;
        let address = socket.local_addr()?;
        Ok(Listener { socket, address })
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until `stop` is done; then lets what is under way finish, for a while.
    pub async fn serve(self, api: Api, tls: Arc<Tls>, stop: impl Future<Output = ()>) {
        let acceptor = TlsAcceptor::from(tls.config.clone());
        let graceful = Arc::new(GracefulShutdown::new());
        let mut stop = std::pin::pin!(stop);
        loop {
            let stream = tokio::select! {
                accepted = self.socket.accept() => match accepted {
                    Ok((stream, _)) => stream,
                    Err(error) => {
                        // Out of file descriptors, most likely: others will be closed.
                        tracing::warn!(%error, "cannot accept a connection");
                        tokio::task::yield_now().await;
                        continue;
                    }
                },
                () = &mut stop => break,
            };
            let connection = Connection { api: api.clone(), tls: tls.clone(), acceptor: acceptor.clone() };
            tokio::spawn(connection.run(stream, graceful.watcher()));
        }
        drop(self.socket);
        api.close();
        let Some(graceful) = Arc::into_inner(graceful) else { return };
        if tokio::time::timeout(DRAIN, graceful.shutdown()).await.is_err() {
            tracing::info!("some connections were still open");
        }
    }
}

struct Connection {
    api: Api,
    tls: Arc<Tls>,
    acceptor: TlsAcceptor,
}

impl Connection {
    async fn run(self, stream: TcpStream, watcher: hyper_util::server::graceful::Watcher) {
        // Answers are written whole; waiting to fill packets only delays them.
        let _ = stream.set_nodelay(true);
        let stream = match tokio::time::timeout(HANDSHAKE, self.acceptor.accept(stream)).await {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => {
                self.api.metrics().tls_handshake_error();
                tracing::debug!(%error, "TLS handshake failed");
                return;
            }
            Err(_) => return,
        };
        let certificates = stream.get_ref().1.peer_certificates();
        let peer = self.tls.peer(certificates, SystemTime::now());
        let api = self.api.for_peer(peer);
        let gathered = |response: Response<Body>| response.map(Body::gathered);
        let service = ServiceExt::<Request<Incoming>>::map_response(api, gathered);
        let service = TowerToHyperService::new(service);
        let mut builder = auto::Builder::new(TokioExecutor::new());
        builder.http1().timer(TokioTimer::new()).header_read_timeout(Duration::from_secs(60));
        builder.http2().max_concurrent_streams(250).timer(TokioTimer::new());
        let connection = builder.serve_connection(TokioIo::new(stream), service);
        if let Err(error) = watcher.watch(connection.into_owned()).await {
            tracing::debug!(%error, "connection ended");
        }
    }
}
