//! The listener: TCP connections, TLS, HTTP/1.1 or HTTP/2 by ALPN, and a shutdown that lets
//! requests finish.

use std::convert::Infallible;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use futures::StreamExt;
use futures::future::BoxFuture;
use http::{Request, Response, Version};
use hyper::body::{Body as _, Incoming};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};
use tokio_io_timeout::TimeoutStream;
use tokio_rustls::TlsAcceptor;

use super::body::Body;
use super::connections::{Connection, ConnectionLimits, Connections};
use super::control_frames::ControlFrames;
use super::deadline::REQUEST_TIMEOUT;
use super::delay::Delayed;
use super::flushes::Flushes;
use super::goaway::{self, GoawayChance};
use super::lingering::{LINGER, Lingering};
use super::observed::Observed;
use super::poll_when_woken::poll_when_woken;
use super::stack::respond;
use super::streams::{MAX_CONCURRENT_STREAMS, Streams};
use super::transfers::{STALL_TIMEOUT, Transfers, cuttable};
use super::turns::Turns;
use super::{Api, unread, upgrade, websocket};
use crate::access::tls::Tls;
use crate::webhook::keep_alive;

/// Timeout of a TLS handshake.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// Timeout for the first request of a connection, including the preface and the headers. Upstream's
/// ReadHeaderTimeout.
const HEADERS: Duration = Duration::from_secs(32);
/// The longest time a connection may be without a request, including one whose headers arrive
/// slowly. Upstream's IdleTimeout.
const IDLE: Duration = Duration::from_secs(90);
/// The time without frames after which a client of HTTP/2 is pinged.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(30);
/// Timeout for the response to a ping.
const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(20);
/// The number of bytes that a client of HTTP/2 may send on one stream before they are read.
const STREAM_WINDOW: u32 = 128 << 10;
/// The same on all streams of a connection.
const CONNECTION_WINDOW: u32 = 512 << 10;
/// The largest amount that is buffered for an HTTP/2 client that does not read, on one stream, in
/// bytes.
const MAX_SEND_BUFFER: usize = 64 << 10;
/// The same over HTTP/1.1, where it is also how long the head of a request may be.
const MAX_HTTP1_BUFFER: usize = 128 << 10;
/// The interval at which connections and transfers are checked.
const SWEEP: Duration = Duration::from_secs(1);
/// The pause after a failed accept, during which files can be closed.
const ACCEPT_BACK_OFF: Duration = Duration::from_millis(100);
/// The interval in which failures to accept are logged once.
const ACCEPT_LOG: Duration = Duration::from_secs(60);
/// The longest time that requests in progress may take when the server stops.
const DRAIN: Duration = Duration::from_millis(1500);

/// A bound socket.
pub struct Listener {
    socket: TcpListener,
    address: SocketAddr,
    goaway_chance: GoawayChance,
    response_latency: Duration,
}

impl Listener {
    /// Binds an address.
    ///
    /// # Errors
    /// The system's error for the address: in use, not local, not permitted.
    pub async fn bind(address: SocketAddr) -> io::Result<Listener> {
        let socket = TcpListener::bind(address).await?;
        let address = socket.local_addr()?;
        Ok(Listener {
            socket,
            address,
            goaway_chance: GoawayChance::default(),
            response_latency: Duration::ZERO,
        })
    }

    /// Sends a GOAWAY to clients of HTTP/2 with this chance for each request; never unless set.
    pub fn with_goaway_chance(mut self, chance: GoawayChance) -> Listener {
        self.goaway_chance = chance;
        self
    }

    /// Delays all that is sent to clients by this time; not at all unless set.
    pub fn with_response_latency(mut self, latency: Duration) -> Listener {
        self.response_latency = latency;
        self
    }

    /// Returns the address of the listener.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until `stop` completes. Then no connection is accepted, watches end, each connection
    /// gets a GOAWAY or a response with `Connection: close`, and requests in progress have a second
    /// and a half to finish.
    pub fn serve(self, api: Api, tls: Arc<Tls>, mut stop: BoxFuture<'static, ()>) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            let (drain, draining) = watch::channel(false);
            let server = Arc::new(Server {
                acceptor: TlsAcceptor::from(tls.config.clone()),
                connections: Connections::new(ConnectionLimits::for_open_files(max_open_files())),
                transfers: Arc::default(),
                goaway_chance: self.goaway_chance,
                response_latency: self.response_latency,
                draining,
                api,
                tls,
            });
            // Dropped at the end, which ends the connections that are left.
            let mut connections = JoinSet::new();
            let mut sweep = interval(SWEEP);
            sweep.set_missed_tick_behavior(MissedTickBehavior::Delay);
            let mut failures = AcceptFailures::default();
            loop {
                while connections.try_join_next().is_some() {}
                tokio::select! {
                    biased;
                    () = &mut stop => break,
                    now = sweep.tick() => {
                        server.transfers.sweep(now.into_std());
                    }
                    accepted = self.socket.accept() => match accepted {
                        // If no connection can be closed for it, the new one is closed at once.
                        Ok((stream, remote)) => if let Some(connection) = server.connections.admit() {
                            connections.spawn(server.clone().run(stream, remote.ip(), connection));
                        },
                        Err(error) => {
                            failures.record(&error, Instant::now());
                            sleep(ACCEPT_BACK_OFF).await;
                        }
                    },
                }
            }
            drop(self.socket);
            server.api.close();
            drain.send_replace(true);
            let drained = async { while connections.join_next().await.is_some() {} };
            if timeout(DRAIN, drained).await.is_err() {
                tracing::info!(connections = connections.len(), "some requests did not finish in time");
            }
        })
    }
}

/// Logs that connections cannot be accepted, but not each time.
#[derive(Default)]
struct AcceptFailures {
    last_logged: Option<Instant>,
    unlogged: usize,
}

impl AcceptFailures {
    fn record(&mut self, error: &io::Error, now: Instant) -> bool {
        let due = self.last_logged.is_none_or(|last| now.duration_since(last) >= ACCEPT_LOG);
        if due {
            // Out of file descriptors, most likely: others will be closed.
            tracing::warn!(%error, not_logged = self.unlogged, "cannot accept a connection");
            self.last_logged = Some(now);
            self.unlogged = 0;
        } else {
            self.unlogged += 1;
        }
        due
    }
}

/// Returns the number of files that this process may have open, after raising the limit as far as
/// the system permits.
pub fn max_open_files() -> usize {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let raised = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
    let files = if raised.is_ok() { maximum } else { current };
    files.map_or(usize::MAX, |files| usize::try_from(files).unwrap_or(usize::MAX))
}

/// The response to a request without TLS, as by servers in Go.
const NO_TLS: &[u8] = b"HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n";

/// Returns `true` if a client begins with a request instead of a TLS handshake.
async fn is_http(stream: &TcpStream) -> bool {
    let mut first = [0];
    matches!(stream.peek(&mut first).await, Ok(1)) && first[0].is_ascii_uppercase()
}

/// The state shared by all connections.
struct Server {
    api: Api,
    tls: Arc<Tls>,
    acceptor: TlsAcceptor,
    connections: Arc<Connections>,
    transfers: Arc<Transfers>,
    goaway_chance: GoawayChance,
    response_latency: Duration,
    /// Set to true when connections have to end.
    draining: watch::Receiver<bool>,
}

impl Server {
    async fn run(self: Arc<Self>, stream: TcpStream, remote: IpAddr, connection: Arc<Connection>) {
        let served = cuttable(connection.close(), self.serve(stream, remote, connection.clone()));
        if served.await.is_none() {
            tracing::debug!("connection closed: for a new one, or the client does not read");
        }
    }

    async fn serve(&self, stream: TcpStream, remote: IpAddr, connection: Arc<Connection>) {
        let mut draining = self.draining.clone();
        // Responses are written whole; waiting to fill packets would only delay them.
        let _ = stream.set_nodelay(true);
        // A tunnel, unlike a request, may be silent for ever.
        keep_alive(&stream);
        let handshake = async {
            let is_http = is_http(&stream).await;
            let mut stream = Lingering::new(stream, LINGER, connection.clone());
            if is_http {
                stream.write_all(NO_TLS).await?;
                stream.shutdown().await?;
                return Err(std::io::Error::other("a request without TLS"));
            }
            let mut stream = TimeoutStream::new(Observed::new(stream, Turns::default()));
            stream.set_write_timeout(Some(STALL_TIMEOUT));
            self.acceptor.accept(Box::pin(stream)).await
        };
        let accepted = tokio::select! {
            accepted = timeout(HANDSHAKE, handshake) => accepted,
            _ = draining.wait_for(|draining| *draining) => return,
        };
        let stream = match accepted {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => {
                self.api.metrics().tls_handshake_error();
                tracing::debug!(%error, "TLS handshake failed");
                return;
            }
            Err(_) => return,
        };
        let is_http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
        let certificates = stream.get_ref().1.peer_certificates();
        let peer = self.tls.peer(certificates, SystemTime::now());
        let service = ConnectionService(Arc::new(ConnectionShared {
            api: self.api.for_connection(peer, connection.clone(), remote),
            transfers: self.transfers.clone(),
            goaway_chance: self.goaway_chance,
            goaway: Notify::new(),
            flushes: Arc::default(),
        }));
        let shared = service.0.clone();
        let mut builder = auto::Builder::new(Streams::new(connection.close()));
        // The time without a request includes that of the headers. A timer for each request would
        // cost more than reading them.
        builder.http1().header_read_timeout(None).max_buf_size(MAX_HTTP1_BUFFER);
        builder
            .http2()
            .timer(TokioTimer::new())
            .max_concurrent_streams(MAX_CONCURRENT_STREAMS)
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .max_send_buf_size(MAX_SEND_BUFFER)
            .keep_alive_interval(KEEP_ALIVE_INTERVAL)
            .keep_alive_timeout(KEEP_ALIVE_TIMEOUT);
        let stream = Delayed::new(stream, self.response_latency);
        let stream = Observed::new(stream, Turns::default());
        let stream = Observed::new(stream, ControlFrames::default());
        let stream = Observed::new(stream, shared.flushes.clone());
        let served = builder.serve_connection_with_upgrades(TokioIo::new(stream), service);
        let mut served = pin!(served.into_owned());
        // Each is polled when it is woken alone, and not with each packet.
        let mut must_end = poll_when_woken(must_end(&shared.goaway, &mut draining));
        let mut idle = poll_when_woken(connection.wait_until_idle(HEADERS, IDLE));
        let mut is_ending = false;
        loop {
            tokio::select! {
                biased;
                ended = &mut served => {
                    if let Err(error) = ended {
                        tracing::debug!(%error, "connection ended");
                    }
                    return;
                }
                () = must_end.select_next_some(), if !is_ending => {
                    is_ending = true;
                    if !is_http2 {
                        connection.end_http1();
                    }
                    served.as_mut().graceful_shutdown();
                }
                () = idle.select_next_some() => {
                    tracing::debug!("connection closed: no request");
                    return;
                }
            }
        }
    }
}

/// The API for the requests of one connection.
struct ConnectionService(Arc<ConnectionShared>);

struct ConnectionShared {
    api: Api,
    transfers: Arc<Transfers>,
    goaway_chance: GoawayChance,
    /// Notified when the client is to open another connection.
    goaway: Notify,
    flushes: Arc<Flushes>,
}

impl hyper::service::Service<Request<Incoming>> for ConnectionService {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Response<Body>, Infallible>>;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        let shared = self.0.clone();
        Box::pin(async move {
            let is_http2 = request.version() == Version::HTTP_2;
            if is_http2 && shared.goaway_chance.decide(goaway::random) {
                shared.goaway.notify_one();
            }
            let response = if request.body().is_end_stream() {
                respond(&shared.api, request).await?
            } else {
                let (parts, body) = request.into_parts();
                let (body, lender) = unread::lend(&parts, body);
                let mut response = respond(&shared.api, Request::from_parts(parts, body)).await?;
                lender.finish(&mut response).await;
                response
            };
            let response = upgrade::detach(websocket::detach(response, &shared.transfers));
            Ok(response.map(|body| match (is_http2, body.is_one_piece()) {
                (true, _) => body.on_socket(&shared.transfers, REQUEST_TIMEOUT),
                // The connection's buffer accepts it at once, and the write timeout applies.
                (false, true) => body,
                (false, false) => {
                    body.on_socket(&shared.transfers, REQUEST_TIMEOUT).flushed_by(&shared.flushes)
                }
            }))
        })
    }
}

/// Waits until a connection has to end: by a random GOAWAY, or with the server.
async fn must_end(goaway: &Notify, draining: &mut watch::Receiver<bool>) {
    tokio::select! {
        () = goaway.notified() => {}
        // A sender that is dropped ends the connections too.
        _ = draining.wait_for(|draining| *draining) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_to_accept_are_logged_once_a_minute() {
        let mut failures = AcceptFailures::default();
        let (began, error) = (Instant::now(), io::Error::from_raw_os_error(24));
        let logged =
            [0, 1, 30, 59, 60, 61, 130].map(|s| failures.record(&error, began + Duration::from_secs(s)));
        assert_eq!(logged, [true, false, false, false, true, false, true]);
    }
}
