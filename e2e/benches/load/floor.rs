//! Floors: what this machine could do at best, measured in the same run.
//!
//! - A server of hyper and rustls that answers every request with the same bytes, in a process of
//!   its own, as this program with [`SERVE`] in its environment.
//! - sled with as many versions a batch as requests are in flight, flushed as the server flushes
//!   it: at an interval, or each.

use std::convert::Infallible;
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use bytes::Bytes;
use coracle_e2e::http::Endpoint;
use http_body_util::Full;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::net::TcpListener;
use tokio::process::Command;
use tokio_rustls::TlsAcceptor;

use crate::drive::Figure;
use crate::rows;

/// The bytes that the bare server answers with.
pub const SERVE: &str = "CORACLE_BENCH_ANSWER";

/// Measures GETs of an answer from a bare server.
pub async fn bare_get(answer: &str) -> Result<Figure> {
    let mut server = Command::new(std::env::current_exe()?)
        .env(SERVE, answer)
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()?;
    let mut lines = BufReader::new(server.stdout.take().context("its output")?).lines();
    let address = lines.next_line().await?.context("no address")?;
    let mut certificate = String::new();
    while let Some(line) = lines.next_line().await? {
        certificate += &line;
        certificate.push('\n');
        if line.contains("END CERTIFICATE") {
            break;
        }
    }
    rows::get(&endpoint(&address, &certificate)?, "/").await
}

/// Returns the endpoint of a server with the given certificate, in PEM.
pub fn endpoint(url: &str, certificate: &str) -> Result<Endpoint> {
    let mut config = kube::Config::new(url.parse()?);
    let der = rustls::pki_types::pem::PemObject::from_pem_slice(certificate.as_bytes());
    let der: rustls::pki_types::CertificateDer<'_> = der.context("its certificate")?;
    config.root_cert = Some(vec![der.to_vec()]);
    Endpoint::new(&config)
}

/// Serves until it is killed.
pub async fn serve(answer: String) -> Result<()> {
    let authority = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()])?;
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(authority.signing_key.serialize_der()));
    let tls = rustls::ServerConfig::builder().with_no_client_auth();
    let tls = tls.with_single_cert(vec![authority.cert.der().clone()], key)?;
    let tls = TlsAcceptor::from(Arc::new(tls));
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    println!("https://{}", listener.local_addr()?);
    println!("{}", authority.cert.pem());
    let answer = Bytes::from(answer);
    loop {
        let (socket, _) = listener.accept().await?;
        socket.set_nodelay(true)?;
        let (tls, answer) = (tls.clone(), answer.clone());
        tokio::spawn(async move {
            let Ok(stream) = tls.accept(socket).await else { return };
            let respond = |_: Request<hyper::body::Incoming>| {
                let response = Response::builder().header("content-type", "application/json");
                std::future::ready(Ok::<_, Infallible>(
                    response.body(Full::new(answer.clone())).unwrap_or_default(),
                ))
            };
            // The end of a connection is of no interest.
            let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service_fn(respond)).await;
        });
    }
}

/// Measures the versions that sled writes per second.
///
/// - `flush_ms`: how often sled flushes; after each batch if none.
pub fn raw_sled(value: &[u8], flush_ms: Option<u64>) -> Result<Figure> {
    const TIME: Duration = Duration::from_secs(3);
    const BATCH: u64 = 32;
    let directory = tempfile::tempdir()?;
    let store = sled::Config::new().path(directory.path()).flush_every_ms(flush_ms).open()?;
    let (began, mut count, mut slowest) = (Instant::now(), 0_u64, Vec::new());
    while began.elapsed() < TIME {
        let sent = Instant::now();
        let mut batch = sled::Batch::default();
        for _ in 0..BATCH {
            count += 1;
            batch.insert(&count.to_be_bytes(), value);
        }
        store.apply_batch(batch)?;
        if flush_ms.is_none() {
            store.flush()?;
        }
        slowest.push(sent.elapsed());
    }
    let per_second = count as f64 / began.elapsed().as_secs_f64();
    Ok(Figure { per_second, ..crate::drive::figure(slowest, began.elapsed()) })
}
