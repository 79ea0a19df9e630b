//! Plain HTTP/1.1: requests exactly as given, responses exactly as received.
//!
//! Client libraries negotiate, retry and decode, which would hide what the tests compare and
//! measure.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::{Method, Request, Response};
use hyper_util::rt::TokioIo;
use kube::client::ConfigExt;
use kube::config::{AuthInfo, Kubeconfig};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use secrecy::ExposeSecret;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_tungstenite::tungstenite::ClientRequestBuilder;
use tokio_tungstenite::{WebSocketStream, client_async};

/// Timeout for the beginning of a response, and then for its end.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(30);

/// An API server: its address, and the credentials of the user.
#[derive(Clone)]
pub struct Endpoint {
    host: String,
    port: u16,
    tls: Option<TlsConnector>,
    token: Option<HeaderValue>,
}

/// A complete response.
#[derive(Clone, Debug)]
pub struct HttpResponse {
    /// The status code.
    pub status: u16,
    /// All headers.
    pub headers: HeaderMap,
    /// The body, not decoded.
    pub body: Bytes,
}

/// A connection, kept alive between requests.
pub struct Connection {
    sender: SendRequest<Full<Bytes>>,
    host: HeaderValue,
    token: Option<HeaderValue>,
}

/// Reads the server and the user of a kubeconfig's current context.
pub async fn config(kubeconfig: &Path) -> Result<kube::Config> {
    let kubeconfig = Kubeconfig::read_from(kubeconfig)?;
    Ok(kube::Config::from_custom_kubeconfig(kubeconfig, &Default::default()).await?)
}

/// Copies a configuration with its credentials for another server, such as a fork.
pub fn config_at(config: &kube::Config, url: &str) -> Result<kube::Config> {
    let mut config = config.clone();
    config.cluster_url = url.parse()?;
    Ok(config)
}

impl Endpoint {
    /// Returns the endpoint of a kubeconfig's server, with the user's client certificate or bearer
    /// token.
    pub fn new(config: &kube::Config) -> Result<Endpoint> {
        let url = &config.cluster_url;
        let host = url.host().context("no host")?.trim_matches(['[', ']']).to_owned();
        let secure = url.scheme_str() != Some("http");
        let port = url.port_u16().unwrap_or(if secure { 443 } else { 80 });
        let tls = match secure {
            true => Some(TlsConnector::from(Arc::new(config.rustls_client_config()?))),
            false => None,
        };
        let token = config.auth_info.token.as_ref().map(|t| format!("Bearer {}", t.expose_secret()).parse());
        Ok(Endpoint { host, port, tls, token: token.transpose()? })
    }

    /// Returns the endpoint of the same server, with a bearer token as the only credential.
    pub fn with_token(config: &kube::Config, token: &str) -> Result<Endpoint> {
        let auth_info = AuthInfo { token: Some(token.to_owned().into()), ..AuthInfo::default() };
        let mut config = config.clone();
        config.auth_info = auth_info;
        Endpoint::new(&config)
    }

    /// Opens a connection without TLS.
    pub async fn socket(&self) -> Result<TcpStream> {
        let socket = TcpStream::connect((self.host.as_str(), self.port)).await?;
        socket.set_nodelay(true)?;
        Ok(socket)
    }

    /// Opens a connection and does its TLS handshake.
    ///
    /// - `alpn`: the protocol to agree on, such as `h2`.
    pub async fn tls(&self, alpn: &[u8]) -> Result<TlsStream<TcpStream>> {
        let connector = self.tls.as_ref().context("no TLS")?;
        let mut config = ClientConfig::clone(connector.config());
        config.alpn_protocols = vec![alpn.to_vec()];
        let name = ServerName::try_from(self.host.clone())?;
        Ok(TlsConnector::from(Arc::new(config)).connect(name, self.socket().await?).await?)
    }

    /// Opens a WebSocket with these headers, and with an `Origin` unless they have one. The error
    /// is a `tungstenite::Error::Http` if the server rejects the handshake.
    pub async fn websocket(
        &self,
        path: &str,
        headers: &[(&str, &str)],
    ) -> Result<WebSocketStream<TlsStream<TcpStream>>> {
        let address = format!("{}:{}", self.host, self.port);
        let mut request = ClientRequestBuilder::new(format!("wss://{address}{path}").parse()?);
        if headers.iter().all(|(name, _)| *name != "Origin") {
            request = request.with_header("Origin", format!("https://{address}"));
        }
        if let Some(token) = &self.token {
            request = request.with_header("Authorization", token.to_str()?);
        }
        for (name, value) in headers {
            request = match *name {
                "Sec-WebSocket-Protocol" => request.with_sub_protocol(*value),
                name => request.with_header(name, *value),
            };
        }
        let stream = self.tls(b"http/1.1").await?;
        let (socket, _) =
            timeout(RESPONSE_TIMEOUT, client_async(request, stream)).await.context("no response")??;
        Ok(socket)
    }

    /// Returns the value of the Authorization header, if there is one.
    pub fn authorization(&self) -> Option<&HeaderValue> {
        self.token.as_ref()
    }

    /// Opens a connection, with TLS unless the URL is plain HTTP.
    pub async fn connect(&self) -> Result<Connection> {
        let socket = self.socket().await?;
        let sender = match &self.tls {
            Some(connector) => {
                let name = ServerName::try_from(self.host.clone())?;
                drive(TokioIo::new(connector.connect(name, socket).await?)).await?
            }
            None => drive(TokioIo::new(socket)).await?,
        };
        let host = format!("{}:{}", self.host, self.port).parse()?;
        Ok(Connection { sender, host, token: self.token.clone() })
    }
}

impl Connection {
    /// Returns `true` if another request can be sent over the connection.
    pub fn is_open(&self) -> bool {
        !self.sender.is_closed()
    }

    /// Sends a request, and returns when the response begins. The headers replace the default ones;
    /// one without a value removes the default.
    pub async fn open(
        &mut self,
        method: &str,
        path: &str,
        headers: &[(&str, Option<&str>)],
        body: Option<Bytes>,
    ) -> Result<Response<Incoming>> {
        let method: Method = method.parse()?;
        let mut request = Request::builder().uri(path).body(Full::new(body.clone().unwrap_or_default()))?;
        let all = request.headers_mut();
        all.insert(header::HOST, self.host.clone());
        all.insert(header::ACCEPT, HeaderValue::from_static("application/json"));
        all.insert(header::USER_AGENT, HeaderValue::from_static("replay/1.0"));
        all.insert(header::ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        if let Some(token) = &self.token {
            all.insert(header::AUTHORIZATION, token.clone());
        }
        if body.is_some() {
            all.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        } else if matches!(method, Method::POST | Method::PUT | Method::PATCH) {
            all.insert(header::CONTENT_LENGTH, HeaderValue::from_static("0"));
        }
        for (name, value) in headers {
            let name = HeaderName::from_bytes(name.as_bytes())?;
            match value {
                Some(value) => all.insert(name, HeaderValue::from_str(value)?),
                None => all.remove(name),
            };
        }
        *request.method_mut() = method;
        self.sender.ready().await?;
        Ok(timeout(RESPONSE_TIMEOUT, self.sender.send_request(request)).await.context("no response")??)
    }

    /// Sends a request, and returns the complete response.
    pub async fn call(
        &mut self,
        method: &str,
        path: &str,
        headers: &[(&str, Option<&str>)],
        body: Option<Bytes>,
    ) -> Result<HttpResponse> {
        let (head, body) = self.open(method, path, headers, body).await?.into_parts();
        let body =
            timeout(RESPONSE_TIMEOUT, body.collect()).await.context("the response does not end")??.to_bytes();
        Ok(HttpResponse { status: head.status.as_u16(), headers: head.headers, body })
    }
}

/// Spawns the task that drives the connection.
async fn drive<T>(io: TokioIo<T>) -> Result<SendRequest<Full<Bytes>>>
where
    T: tokio::io::AsyncRead + tokio::io::AsyncWrite + Send + Unpin + 'static,
{
    let (sender, connection) = handshake(io).await?;
    tokio::spawn(connection);
    Ok(sender)
}
