//! A collector for tests.

use std::io;
use std::net::SocketAddr;

use bytes::{BufMut, BytesMut};
use http::{HeaderMap, HeaderValue, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message;
use tokio::net::TcpListener;
use tokio::sync::mpsc;

use crate::proto::{ExportTraceServiceRequest, ExportTraceServiceResponse};

/// The bytes before each message of gRPC: whether it is compressed, and its length.
const PREFIX: usize = 5;

/// A collector on a free port of the loopback address. It ends with the test's runtime.
pub struct Collector {
    /// The address it listens on.
    pub address: SocketAddr,
    /// The requests it has received.
    pub requests: mpsc::UnboundedReceiver<ExportTraceServiceRequest>,
}

impl Collector {
    /// Starts a collector.
    ///
    /// # Errors
    /// No port is available.
    pub async fn start() -> io::Result<Collector> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let (exported, requests) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                let exported = exported.clone();
                let service = service_fn(move |request| respond(request, exported.clone()));
                let served =
                    http2::Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(socket), service);
                tokio::spawn(served);
            }
        });
        Ok(Collector { address, requests })
    }
}

type Trailered = http_body_util::combinators::WithTrailers<
    Full<bytes::Bytes>,
    std::future::Ready<Option<Result<HeaderMap, std::convert::Infallible>>>,
>;

async fn respond(
    request: http::Request<Incoming>,
    exported: mpsc::UnboundedSender<ExportTraceServiceRequest>,
) -> Result<Response<Trailered>, Box<dyn std::error::Error + Send + Sync>> {
    let body = request.into_body().collect().await?.to_bytes();
    exported.send(ExportTraceServiceRequest::decode(body.get(PREFIX..).unwrap_or_default())?)?;
    let message = ExportTraceServiceResponse::default().encode_to_vec();
    let mut body = BytesMut::new();
    body.put_u8(0);
    body.put_u32(u32::try_from(message.len())?);
    body.put_slice(&message);
    let trailers =
        HeaderMap::from_iter([(http::HeaderName::from_static("grpc-status"), HeaderValue::from_static("0"))]);
    let body = Full::new(body.freeze()).with_trailers(std::future::ready(Some(Ok(trailers))));
    Ok(Response::builder().header("content-type", "application/grpc").body(body)?)
}
