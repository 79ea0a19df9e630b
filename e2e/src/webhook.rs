//! A webhook server for tests: HTTPS with a certificate of its own, whose behavior depends on the
//! path of the request.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, LOCATION, RETRY_AFTER};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use rustls::ServerConfig;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

/// The handler of a review; it returns the response's members other than `uid`.
pub type Handler = Arc<dyn Fn(&str, &Value) -> Value + Send + Sync>;

/// A webhook server. It ends with the test.
pub struct WebhookServer {
    address: SocketAddr,
    /// The PEM text of its certificate, in base64.
    pub ca_bundle: String,
    connections: Arc<AtomicUsize>,
    reviews: Arc<Mutex<Vec<Value>>>,
}

impl WebhookServer {
    /// Serves on any free port, with a self-signed certificate for these names.
    pub async fn start(names: &[&str], handler: Handler) -> Result<WebhookServer> {
        let (connections, reviews) = (Arc::<AtomicUsize>::default(), Arc::<Mutex<Vec<Value>>>::default());
        let seen = reviews.clone();
        let (address, ca_bundle) = serve(names, connections.clone(), move |request| {
            let (handler, reviews) = (handler.clone(), seen.clone());
            async move { respond(request, &handler, &reviews).await }
        })
        .await?;
        Ok(WebhookServer { address, ca_bundle, connections, reviews })
    }

    /// Returns the webhook's URL for a path.
    pub fn url(&self, path: &str) -> String {
        format!("https://{}{path}", self.address)
    }

    /// Returns the number of connections that the webhook has accepted.
    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }

    /// Removes and returns the reviews that were sent since the last call.
    pub fn take_reviews(&self) -> Vec<Value> {
        std::mem::take(&mut self.reviews.lock())
    }
}

/// Serves HTTPS on any free port, with a self-signed certificate for these names, and counts the
/// connections. Returns the address, and the certificate's PEM text in base64.
///
/// # Errors
/// The certificate cannot be created, or no port is available.
pub async fn serve<F, R>(
    names: &[&str],
    connections: Arc<AtomicUsize>,
    respond: F,
) -> Result<(SocketAddr, String)>
where
    F: Fn(Request<Incoming>) -> R + Clone + Send + Sync + 'static,
    R: Future<Output = Result<Response<Full<Bytes>>>> + Send + 'static,
{
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let rcgen::CertifiedKey { cert, signing_key } = rcgen::generate_simple_self_signed(names)?;
    let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(signing_key.serialize_der()));
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(vec![cert.der().clone()], key)?;
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let acceptor = TlsAcceptor::from(Arc::new(config));
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            connections.fetch_add(1, Ordering::Relaxed);
            let (acceptor, respond) = (acceptor.clone(), respond.clone());
            tokio::spawn(async move {
                let Ok(stream) = acceptor.accept(socket).await else { return };
                // A response that fails closes the connection.
                let _ = hyper::server::conn::http1::Builder::new()
                    .serve_connection(TokioIo::new(stream), service_fn(respond))
                    .with_upgrades()
                    .await;
            });
        }
    });
    Ok((address, STANDARD.encode(cert.pem())))
}

async fn respond(
    request: Request<Incoming>,
    handler: &Handler,
    reviews: &Mutex<Vec<Value>>,
) -> Result<Response<Full<Bytes>>> {
    let path = request.uri().path().to_owned();
    let body = request.into_body().collect().await?.to_bytes();
    let review: Value = serde_json::from_slice(&body)?;
    let number = {
        let mut reviews = reviews.lock();
        reviews.push(review.clone());
        reviews.len()
    };
    let mut response = Response::new(Full::default());
    let document = match path.as_str() {
        "/slow" => {
            tokio::time::sleep(Duration::from_secs(60)).await;
            String::new()
        }
        "/crash" => anyhow::bail!("closes the connection"),
        "/redirect" => {
            *response.status_mut() = hyper::StatusCode::FOUND;
            response.headers_mut().insert(LOCATION, "/allow".parse()?);
            String::new()
        }
        "/large" => " ".repeat(10 << 20),
        "/text" => "I am no AdmissionReview".to_owned(),
        "/overloaded" => {
            busy(&mut response)?;
            "too much to do".to_owned()
        }
        // Every third request is handled.
        "/busy" if !number.is_multiple_of(3) => {
            busy(&mut response)?;
            String::new()
        }
        "/error" => {
            *response.status_mut() = hyper::StatusCode::INTERNAL_SERVER_ERROR;
            response.headers_mut().insert(CONTENT_TYPE, "text/plain".parse()?);
            "boom".to_owned()
        }
        _ => {
            let mut answer = handler(&path, &review["request"]);
            if answer.get("uid").is_none() {
                answer["uid"] = review["request"]["uid"].clone();
            }
            json!({"apiVersion": review["apiVersion"], "kind": review["kind"], "response": answer})
                .to_string()
        }
    };
    *response.body_mut() = Full::new(document.into());
    Ok(response)
}

/// Makes a response that asks the client to try again.
fn busy(response: &mut Response<Full<Bytes>>) -> Result<()> {
    *response.status_mut() = hyper::StatusCode::TOO_MANY_REQUESTS;
    response.headers_mut().insert(RETRY_AFTER, "0".parse()?);
    Ok(())
}

/// Returns the members of a response that contain a JSON patch.
pub fn patch(operations: &Value) -> Value {
    json!({"allowed": true, "patchType": "JSONPatch", "patch": STANDARD.encode(operations.to_string())})
}

/// Returns the first of these reviews.
///
/// # Errors
/// The webhook was not called.
pub fn first(reviews: Vec<Value>) -> Result<Value> {
    reviews.into_iter().next().context("the webhook was not called")
}
