//! `coracle ui`: the live page of a control plane, at a port of this machine that needs no
//! certificate.
//!
//! The address is the credential: its path begins with a name that cannot be guessed, and
//! everything else is refused. Only GETs of the page are passed on, with the credentials of the
//! kubeconfig.

use std::convert::Infallible;
use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use coracle_testing_api::PAGE;
use http::{HeaderMap, HeaderName, Method, header};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use kube::Client;
use kube::client::Body;
use tempfile::NamedTempFile;
use tokio::net::{TcpListener, TcpStream};
use tokio::process::Command;
use tokio::sync::Semaphore;

use crate::kubeconfig_client::client;
use crate::output::say;
use crate::process::unreachable;
use crate::run::Signals;

/// The time for which the server may send nothing: it sends a sign of life each 10 seconds.
const READ_TIMEOUT: Duration = Duration::from_secs(60);
/// The time that a browser has to send a request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// The connections at a time.
const MAX_CONNECTIONS: usize = 100;
/// The headers of a request that are passed on.
const REQUEST_HEADERS: [HeaderName; 2] = [header::ACCEPT, header::IF_NONE_MATCH];
/// The headers of a response that are not passed on: those of its connection.
const CONNECTION_HEADERS: [HeaderName; 4] =
    [header::CONNECTION, header::TRANSFER_ENCODING, header::SET_COOKIE, header::UPGRADE];

/// The page of a control plane, as browsers of this machine reach it.
struct Page {
    client: Client,
    url: String,
    /// `HOST:PORT`, as a browser may write it.
    hosts: [String; 2],
    /// The beginning of all paths.
    prefix: String,
}

/// Serves the page until SIGTERM or SIGINT, and opens it in a browser if there is one.
///
/// - `kubeconfig`: None for kubectl's
///
/// # Errors
/// The control plane cannot be reached, refuses or has no page, or no port can be had.
pub async fn serve(kubeconfig: Option<&Path>, opens_browser: bool) -> Result<()> {
    let mut signals = Signals::new()?;
    let (client, url) = client(kubeconfig, READ_TIMEOUT).await?;
    check(&client, &url).await?;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.context("cannot listen on 127.0.0.1")?;
    let page = Arc::new(Page::new(client, url, listener.local_addr()?));
    let link = format!("http://{}{}{PAGE}", page.hosts[0], page.prefix);
    say!("{link}");
    eprintln!("the live page of {} is at this address until Ctrl-C", page.url);
    let _file = if opens_browser { open(&link) } else { None };
    tokio::select! {
        () = accept(listener, page) => {}
        _ = signals.next() => {}
    }
    Ok(())
}

/// Checks that there is a page.
async fn check(client: &Client, url: &str) -> Result<()> {
    let request = Request::get(PAGE).body(Body::empty())?;
    let response = client.send(request).await.map_err(|error| unreachable(url, error))?;
    match response.status() {
        StatusCode::OK => Ok(()),
        StatusCode::NOT_FOUND => bail!(
            "{url} has no page: it is no Coracle, another version, or was started with --testing-api=false"
        ),
        StatusCode::FORBIDDEN => bail!("{url}: the user of the kubeconfig may not get {PAGE}"),
        status => bail!("{url}: {status} for {PAGE}"),
    }
}

async fn accept(listener: TcpListener, page: Arc<Page>) {
    let permits = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    loop {
        // The semaphore is never closed.
        let Ok(permit) = permits.clone().acquire_owned().await else { return };
        match listener.accept().await {
            Ok((stream, _)) => {
                let page = page.clone();
                tokio::spawn(async move {
                    serve_connection(stream, page).await;
                    drop(permit);
                });
            }
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection");
                // Out of files, most likely: others have to be closed first.
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

async fn serve_connection(stream: TcpStream, page: Arc<Page>) {
    let service = service_fn(|request| {
        let page = page.clone();
        async move { Ok::<_, Infallible>(page.respond(&request).await) }
    });
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(REQUEST_TIMEOUT)
        .serve_connection(TokioIo::new(stream), service)
        .await;
    if let Err(error) = served {
        tracing::debug!(%error, "connection");
    }
}

impl Page {
    fn new(client: Client, url: String, address: SocketAddr) -> Page {
        let hosts = [address.to_string(), format!("localhost:{}", address.port())];
        // Two of them have 244 random bits.
        let prefix = format!("/{}{}", uuid::Uuid::new_v4().simple(), uuid::Uuid::new_v4().simple());
        Page { client, url, hosts, prefix }
    }

    async fn respond(&self, request: &Request<Incoming>) -> Response<Body> {
        let path = match self.check(request.method(), request.uri().path(), request.headers()) {
            Ok(path) => path,
            Err((status, text)) => return refusal(status, text),
        };
        let query = request.uri().query().map_or_else(String::new, |query| format!("?{query}"));
        let mut passed_on = Request::get(format!("{path}{query}"));
        for name in REQUEST_HEADERS {
            if let Some(value) = request.headers().get(&name) {
                passed_on = passed_on.header(name, value);
            }
        }
        let Ok(passed_on) = passed_on.body(Body::empty()) else {
            return refusal(StatusCode::BAD_REQUEST, "no such path");
        };
        match self.client.send(passed_on).await {
            Ok(mut response) => {
                CONNECTION_HEADERS.iter().for_each(|name| drop(response.headers_mut().remove(name)));
                *response.version_mut() = http::Version::HTTP_11;
                response
            }
            Err(error) => {
                tracing::debug!(%error, "the control plane does not respond");
                refusal(StatusCode::BAD_GATEWAY, "the control plane cannot be reached")
            }
        }
    }

    /// Checks that a request is one of the page, and returns its path in the control plane.
    fn check<'a>(
        &self,
        method: &Method,
        path: &'a str,
        headers: &HeaderMap,
    ) -> Result<&'a str, (StatusCode, &'static str)> {
        let text = |name: HeaderName| headers.get(name).map(|value| value.to_str().unwrap_or("?"));
        let is_own = |host: &str| self.hosts.iter().any(|own| own == host);
        // Another name that leads here is one that was rebound.
        if !text(header::HOST).is_some_and(is_own) {
            return Err((StatusCode::FORBIDDEN, "the Host is not this server"));
        }
        let is_own_origin = |origin: &str| origin.strip_prefix("http://").is_some_and(is_own);
        if !text(header::ORIGIN).is_none_or(is_own_origin) {
            return Err((StatusCode::FORBIDDEN, "the Origin is another site"));
        }
        let is_hidden = path.len() < self.prefix.len() || {
            let (prefix, own) = (path.bytes().take(self.prefix.len()), self.prefix.bytes());
            std::hint::black_box(prefix.zip(own).fold(0, |all, (a, b)| all | (a ^ b))) != 0
        };
        let rest = path.get(self.prefix.len()..).filter(|_| !is_hidden);
        let rest = rest.filter(|rest| rest.starts_with(PAGE) && !rest.contains("..") && !rest.contains('%'));
        let rest = rest.ok_or((StatusCode::NOT_FOUND, "no such path"))?;
        match *method {
            Method::GET => Ok(rest),
            _ => Err((StatusCode::METHOD_NOT_ALLOWED, "the page is read-only")),
        }
    }
}

fn refusal(status: StatusCode, text: &'static str) -> Response<Body> {
    let mut response = Response::new(Body::from(format!("{text}\n").into_bytes()));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, http::HeaderValue::from_static("text/plain; charset=utf-8"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, http::HeaderValue::from_static("nosniff"));
    response
}

/// Opens a link in a browser if there is one. Arguments of programs are seen by other users, so the
/// browser gets the name of a private file that leads to the link; it exists as long as what is
/// returned.
fn open(link: &str) -> Option<NamedTempFile> {
    let is_set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let program = match cfg!(target_os = "macos") {
        true => "open",
        false if is_set("DISPLAY") || is_set("WAYLAND_DISPLAY") => "xdg-open",
        false => return None,
    };
    let mut file = tempfile::Builder::new().prefix("coracle-ui-").suffix(".html").tempfile().ok()?;
    write!(file, "<!doctype html><meta http-equiv=\"refresh\" content=\"0;url={link}\">").ok()?;
    let mut command = Command::new(program);
    command.arg(file.path()).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    match command.spawn() {
        Ok(_) => Some(file),
        // The link is printed.
        Err(error) => {
            tracing::debug!(%error, program, "no browser");
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn only_gets_of_the_page_at_the_secret_path_are_passed_on() {
        let config = kube::Config::new("http://127.0.0.1:1".parse().expect("a URL"));
        let client = Client::try_from(config).expect("a client");
        let page = Page::new(client, String::new(), "127.0.0.1:8080".parse().expect("an address"));
        let own = |rest: &str| format!("{}{rest}", page.prefix);
        let other = format!("/{}{PAGE}", "0".repeat(64));
        for (method, path, host, origin, want) in [
            (Method::GET, own("/ui/"), Some("127.0.0.1:8080"), None, Ok("/ui/")),
            (Method::GET, own("/ui/data/picture"), Some("localhost:8080"), None, Ok("/ui/data/picture")),
            (Method::GET, own("/ui/"), Some("127.0.0.1:8080"), Some("http://127.0.0.1:8080"), Ok("/ui/")),
            (Method::GET, own("/ui/"), Some("127.0.0.1:8080"), Some("http://127.0.0.1:9"), Err(403)),
            (Method::GET, own("/ui/"), Some("127.0.0.1:8080"), Some("null"), Err(403)),
            (Method::GET, own("/ui/"), Some("rebound.example:8080"), None, Err(403)),
            (Method::GET, own("/ui/"), Some("127.0.0.1"), None, Err(403)),
            (Method::GET, own("/ui/"), None, None, Err(403)),
            (Method::GET, other, Some("127.0.0.1:8080"), None, Err(404)),
            (Method::GET, "/ui/".to_owned(), Some("127.0.0.1:8080"), None, Err(404)),
            (Method::GET, own("/api/v1/secrets"), Some("127.0.0.1:8080"), None, Err(404)),
            (Method::GET, own("/ui/../api/v1/secrets"), Some("127.0.0.1:8080"), None, Err(404)),
            (Method::GET, own("/ui/%2e%2e/api"), Some("127.0.0.1:8080"), None, Err(404)),
            (Method::GET, own("/ui"), Some("127.0.0.1:8080"), None, Err(404)),
            (Method::POST, own("/ui/"), Some("127.0.0.1:8080"), None, Err(405)),
            (Method::DELETE, own("/ui/"), Some("127.0.0.1:8080"), None, Err(405)),
        ] {
            let mut headers = HeaderMap::new();
            for (name, value) in [(header::HOST, host), (header::ORIGIN, origin)] {
                if let Some(value) = value {
                    headers.insert(name, value.parse().expect("a header"));
                }
            }
            let got = page.check(&method, &path, &headers).map_err(|(status, _)| status.as_u16());
            assert_eq!(got, want, "{method} {path} {host:?} {origin:?}");
        }
    }
}
