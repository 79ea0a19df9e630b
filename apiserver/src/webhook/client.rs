//! The clients, one for each server, which keep their connections; and the call of a webhook.
#![expect(clippy::disallowed_methods, reason = "a deadline of a call to another server protects this one")]

use std::collections::HashMap;
use std::error::Error as _;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Full};
use hyper::body::{Body as _, Incoming};
use hyper_util::client::legacy::{self, Client};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use parking_lot::Mutex;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};

use super::config::{ClientConfig, ServiceReference, Target, TlsConfig};
use super::dial::Dialer;
use super::error::{CallError, ConfigError, TransportError};
use super::resolver::{Destination, ServiceResolver};
use super::verify::GoVerifier;
use crate::cluster::Cluster;
use crate::telemetry::trace_context;

/// A client of one server.
pub type HttpClient = Client<Dialer, Full<Bytes>>;

/// The maximum number of clients that are kept; above it all are dropped, with their idle
/// connections.
const MAX_CLIENTS: usize = 256;
/// The maximum number of idle connections to a server, and the time for which each is kept: as in
/// Go's default transport.
const MAX_IDLE: usize = 25;
const IDLE_TIMEOUT: Duration = Duration::from_secs(90);
/// The memory that is taken for a response before any of it has come, at most.
const FIRST_BUFFER: usize = 64 << 10;
/// The bytes of a response that are read at once; its head has to fit in them.
const READ_BUFFER: usize = 128 << 10;
/// The bytes of the text of an unsuccessful response that are repeated, as client-go's
/// `maxUnstructuredResponseTextBytes`.
const MAX_ERROR_TEXT: usize = 2048;
/// The retries of a call whose responses ask for them, as those of client-go.
const MAX_RETRIES: u32 = 10;
/// The bytes of a response that are read before a retry, as client-go reads them.
const MAX_SKIPPED: usize = 64 << 10;
/// The User-Agent of calls to webhooks.
const USER_AGENT: &str = "kube-apiserver-admission";

/// The clients of all servers that were called.
#[derive(Default)]
pub struct ClientManager {
    /// Resolves services; None if there are none.
    resolver: Option<Box<dyn ServiceResolver>>,
    /// The certificate that the front proxy presents to aggregated API servers.
    front_proxy: Option<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>)>,
    taken_over: TakenOverServers,
    clients: Mutex<HashMap<ClientKey, HttpClient>>,
}

/// The server that these are clients of.
pub struct OwnServer {
    /// The address of its listener.
    pub address: SocketAddr,
    /// The authority of its certificate, in PEM.
    pub ca_pem: Arc<str>,
}

/// The servers whose objects this server has taken over, such as the original of a fork. URLs in
/// those objects refer to this server if they name one of them.
#[derive(Default)]
struct TakenOverServers {
    from: Vec<SocketAddr>,
    to: Option<OwnServer>,
}

impl TakenOverServers {
    /// Returns this server if a URL names a server that it has taken over.
    fn to(&self, target: &Target) -> Option<&OwnServer> {
        let is_of_this_machine = |address: IpAddr| address.is_loopback() || address.is_unspecified();
        let names = |server: &SocketAddr| {
            server.port() == target.port
                && match target.host.parse::<IpAddr>() {
                    Ok(host) => {
                        host == server.ip() || (is_of_this_machine(host) && is_of_this_machine(server.ip()))
                    }
                    Err(_) => {
                        target.host.eq_ignore_ascii_case("localhost") && is_of_this_machine(server.ip())
                    }
                }
        };
        self.to.as_ref().filter(|_| self.from.iter().any(names))
    }
}

/// The properties that distinguish clients.
#[derive(Clone, PartialEq, Eq, Hash)]
struct ClientKey {
    destination: Destination,
    host: String,
    /// The TLS configuration; None for plain HTTP.
    tls: Option<TlsConfig>,
}

/// A call.
pub struct Post<'a> {
    /// The destination.
    pub config: &'a ClientConfig,
    /// The JSON document.
    pub body: Bytes,
    /// The time limit for the whole response.
    pub timeout: Duration,
    /// Whether the timeout is sent to the server.
    pub sends_timeout: bool,
    /// The largest size of a response, in bytes.
    pub limit: usize,
}

impl ClientManager {
    /// Creates clients that also reach services.
    pub fn new(resolver: impl ServiceResolver + 'static) -> ClientManager {
        ClientManager { resolver: Some(Box::new(resolver)), ..ClientManager::default() }
    }

    /// Sets the certificate chain and key that the front proxy presents.
    #[must_use]
    pub fn with_front_proxy(
        mut self,
        chain: Vec<CertificateDer<'static>>,
        key: PrivateKeyDer<'static>,
    ) -> ClientManager {
        self.front_proxy = Some((chain, key));
        self
    }

    /// Sets the addresses of the servers whose objects this server has taken over: a webhook's URL
    /// that names one of them refers to this server.
    #[must_use]
    pub fn with_taken_over_servers(mut self, from: Vec<SocketAddr>, to: OwnServer) -> ClientManager {
        self.taken_over = TakenOverServers { from, to: Some(to) };
        self
    }

    /// Posts a document and returns the body of a successful response. A server that responds with
    /// `Retry-After` is called again, within the time limit.
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn post(&self, call: Post<'_>, cluster: &dyn Cluster) -> Result<Bytes, CallError> {
        let target = call.config.target()?;
        let seconds = call.sends_timeout.then(|| call.timeout.as_secs_f64().ceil() as u64);
        let url = target.url(seconds);
        let transport = |cause| CallError::Transport { url: url.clone(), cause };
        let client = self.client(call.config, &target, cluster)?.map_err(transport)?;
        let mut request = Request::post(url.as_str())
            .header(header::USER_AGENT, USER_AGENT)
            .header(header::CONTENT_TYPE, "application/json")
            .header(header::ACCEPT, "application/json, */*")
            .body(Full::new(call.body))
            .map_err(|_| ConfigError::Url(url.clone()))?;
        trace_context::inject(request.headers_mut());
        let deadline = tokio::time::Instant::now() + call.timeout;
        let mut retries = 0;
        let response = loop {
            let response = match tokio::time::timeout_at(deadline, client.request(request.clone())).await {
                Ok(Ok(response)) => response,
                Ok(Err(error)) => return Err(transport(client_error(&error))),
                Err(_) => return Err(transport(TransportError::Deadline)),
            };
            match retry_after(response.status(), response.headers()) {
                Some(wait) if retries < MAX_RETRIES => {
                    retries += 1;
                    let pause = async {
                        skip(response.into_body()).await;
                        tokio::time::sleep(wait).await;
                    };
                    if tokio::time::timeout_at(deadline, pause).await.is_err() {
                        return Err(transport(TransportError::Deadline));
                    }
                }
                _ => break response,
            }
        };
        match tokio::time::timeout_at(deadline, read(response, call.limit)).await {
            Ok(body) => body,
            Err(_) => Err(CallError::Body(TransportError::Deadline)),
        }
    }

    /// Returns the client of a server. The inner error is that of the service's resolution.
    ///
    /// # Errors
    /// [`ConfigError`] if the TLS configuration is invalid.
    pub(super) fn client(
        &self,
        config: &ClientConfig,
        target: &Target,
        cluster: &dyn Cluster,
    ) -> Result<Result<HttpClient, TransportError>, ConfigError> {
        let mut tls = config.tls.clone();
        let destination = match (&config.service, self.taken_over.to(target)) {
            (Some(service), _) => self.resolve(service, cluster),
            (None, Some(own)) => {
                tls = tls.trusting(&own.ca_pem);
                Ok(Destination { addresses: vec![own.address], ..Destination::default() })
            }
            (None, None) => self.check_target(target, cluster).map(|()| Destination {
                fallback: Some((target.host.clone(), target.port)),
                ..Destination::default()
            }),
        };
        let key = match destination {
            Ok(destination) => ClientKey { destination, host: target.host.clone(), tls: Some(tls) },
            Err(error) => return Ok(Err(error)),
        };
        Ok(Ok(self.client_of(key)?))
    }

    /// Returns the client of a server whose certificate is not verified.
    ///
    /// - `is_tls`: whether the server uses TLS
    ///
    /// # Errors
    /// The TLS configuration is invalid.
    pub fn address_client(&self, destination: &Destination, is_tls: bool) -> Result<HttpClient, ConfigError> {
        let host = match (&destination.fallback, destination.addresses.first()) {
            (Some((host, _)), _) => host.clone(),
            (None, Some(address)) => address.ip().to_string(),
            (None, None) => String::new(),
        };
        let tls = is_tls.then(|| TlsConfig { insecure: true, ..TlsConfig::default() });
        self.client_of(ClientKey { destination: destination.clone(), host, tls })
    }

    /// Returns the cached client for a key, or creates it.
    fn client_of(&self, key: ClientKey) -> Result<HttpClient, ConfigError> {
        if let Some(client) = self.clients.lock().get(&key) {
            return Ok(client.clone());
        }
        let tls = key.tls.as_ref().map(|tls| self.tls_to(&key, tls)).transpose()?;
        let dialer = Dialer { destination: Arc::new(key.destination.clone()), tls };
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE_TIMEOUT)
            .pool_max_idle_per_host(MAX_IDLE)
            .http1_max_buf_size(READ_BUFFER)
            .build(dialer);
        let mut clients = self.clients.lock();
        if clients.len() >= MAX_CLIENTS {
            clients.clear();
        }
        Ok(clients.entry(key).or_insert(client).clone())
    }

    /// Returns the client for a service, for requests of any kind.
    ///
    /// # Errors
    /// The service cannot be resolved, or the TLS configuration is invalid.
    pub fn service_client(
        &self,
        service: &ServiceReference,
        tls: &TlsConfig,
        cluster: &dyn Cluster,
    ) -> Result<HttpClient, TransportError> {
        let config = ClientConfig { url: None, service: Some(service.clone()), tls: tls.clone() };
        let tls_error = |error: ConfigError| TransportError::Tls(error.to_string());
        let target = config.target().map_err(tls_error)?;
        self.client(&config, &target, cluster).map_err(tls_error)?
    }

    /// Returns the addresses of a service.
    ///
    /// # Errors
    /// The service, port or endpoint does not exist, or a server cannot listen at any of the
    /// addresses.
    pub fn resolve(
        &self,
        service: &ServiceReference,
        cluster: &dyn Cluster,
    ) -> Result<Destination, TransportError> {
        match &self.resolver {
            Some(resolver) => resolver.resolve(service, cluster),
            None => Err(TransportError::ServiceNotFound(service.name.clone())),
        }
    }

    /// Refuses a URL with an address at which no server can listen.
    fn check_target(&self, target: &Target, cluster: &dyn Cluster) -> Result<(), TransportError> {
        match (&self.resolver, target.host.parse::<IpAddr>()) {
            (Some(resolver), Ok(address)) => {
                resolver.check_address(SocketAddr::new(address, target.port), cluster)
            }
            _ => Ok(()),
        }
    }

    /// Returns the TLS configuration for a server, and the server's name.
    fn tls_to(
        &self,
        key: &ClientKey,
        tls: &TlsConfig,
    ) -> Result<(Arc<rustls::ClientConfig>, ServerName<'static>), ConfigError> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let failed = |error: rustls::Error| ConfigError::Tls(error.to_string());
        let name = |host: &str| ServerName::try_from(host.to_owned()).ok();
        let fallback = key.destination.fallback.as_ref().filter(|_| key.destination.accepts_fallback_name);
        let fallback = fallback.and_then(|(host, _)| name(host));
        let names: Vec<ServerName<'static>> = name(&key.host).into_iter().chain(fallback).collect();
        let server_name = names.first().cloned().ok_or_else(|| ConfigError::Url(key.host.clone()))?;
        let verifier = GoVerifier::new(tls.ca_bundle.as_deref(), tls.insecure, names, provider.clone())?;
        let builder = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(failed)?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier));
        let mut config = match self.front_proxy.as_ref().filter(|_| tls.as_front_proxy) {
            Some((chain, own)) => {
                builder.with_client_auth_cert(chain.clone(), own.clone_key()).map_err(failed)?
            }
            None => builder.with_no_client_auth(),
        };
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok((Arc::new(config), server_name))
    }
}

/// Returns the time after which a response asks to be called again, as client-go reads it.
fn retry_after(status: StatusCode, headers: &HeaderMap) -> Option<Duration> {
    if status != StatusCode::TOO_MANY_REQUESTS && !status.is_server_error() {
        return None;
    }
    let seconds: i64 = headers.get(header::RETRY_AFTER)?.to_str().ok()?.parse().ok()?;
    Some(Duration::from_secs(u64::try_from(seconds).unwrap_or(0)))
}

/// Reads a short body and drops it, so that the connection can be used again.
async fn skip(mut body: Incoming) {
    let mut size = 0;
    while size < MAX_SKIPPED
        && let Some(Ok(frame)) = body.frame().await
    {
        size += frame.data_ref().map_or(0, Bytes::len);
    }
}

/// Returns the body of a successful response.
async fn read(response: Response<Incoming>, limit: usize) -> Result<Bytes, CallError> {
    let (head, mut body) = response.into_parts();
    let announced = usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX);
    if announced > limit {
        return Err(CallError::TooLarge { limit });
    }
    let mut bytes = BytesMut::with_capacity(announced.min(FIRST_BUFFER));
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| CallError::Body(body_error(&error)))?;
        if let Ok(data) = frame.into_data() {
            if bytes.len() + data.len() > limit {
                return Err(CallError::TooLarge { limit });
            }
            bytes.extend_from_slice(&data);
        }
    }
    let code = head.status.as_u16();
    let content_type = head.headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let content_type = content_type.unwrap_or_default().to_owned();
    if !(200..=206).contains(&code) {
        let is_text = content_type.starts_with("text/");
        let text = String::from_utf8_lossy(&bytes[..bytes.len().min(MAX_ERROR_TEXT)]).trim().to_owned();
        return Err(CallError::Status { code, text: if is_text { text } else { "unknown".to_owned() } });
    }
    if bytes.is_empty() {
        return Err(CallError::Empty { code, content_type });
    }
    Ok(bytes.freeze())
}

/// Converts an error of the client.
pub(crate) fn client_error(error: &legacy::Error) -> TransportError {
    let mut cause = error.source();
    while let Some(error) = cause {
        if let Some(transport) = error.downcast_ref::<TransportError>() {
            return transport.clone();
        }
        if let Some(error) = error.downcast_ref::<hyper::Error>() {
            return http_error(error, TransportError::Eof);
        }
        cause = error.source();
    }
    TransportError::Connection(error.to_string())
}

fn body_error(error: &hyper::Error) -> TransportError {
    http_error(error, TransportError::UnexpectedEof)
}

/// Converts an error of hyper.
///
/// - `broken_off`: the error for a connection that was closed early.
fn http_error(error: &hyper::Error, broken_off: TransportError) -> TransportError {
    if error.is_parse() {
        return TransportError::Malformed;
    }
    match error.source().and_then(|cause| cause.downcast_ref::<std::io::Error>()) {
        Some(cause) => TransportError::io(cause),
        None => broken_off,
    }
}
