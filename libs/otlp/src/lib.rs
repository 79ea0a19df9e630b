//! Export of spans to an OpenTelemetry collector: OTLP over gRPC, with a queue.
//!
//! The [`Exporter`] never waits and never fails: spans that do not fit into the queue, and spans
//! that the collector does not accept in time, are dropped and counted. One task sends them, in
//! batches.
//!
//! The crate depends neither on Kubernetes nor on `tracing`. The messages are declared in [`proto`]
//! for the only call that is needed, like those of etcd; OpenTelemetry's own crates are ten more,
//! most of which would be unused.
//!
//! Source: OTLP 1.x, "OTLP/gRPC"; the limits are those of OpenTelemetry's batch span processor.
#![expect(clippy::disallowed_methods, reason = "deadlines and batches of the export")]
#![warn(missing_docs)]

pub mod proto;
#[cfg(feature = "testing")]
pub mod testing;

use std::time::Duration;

use http::uri::PathAndQuery;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, timeout, timeout_at};
use tonic::client::Grpc;
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Status};
use tonic_prost::ProstCodec;

use proto::{
    ExportTraceServiceRequest, ExportTraceServiceResponse, InstrumentationScope, KeyValue, Resource,
    ResourceSpans, ScopeSpans, Span,
};

/// Capacity of the queue, in spans.
pub const QUEUE: usize = 2048;
/// The largest number of spans in a batch.
pub const BATCH: usize = 512;
/// The longest time the first span of a batch waits for others.
const GATHER: Duration = Duration::from_secs(5);
/// Timeout for sending a batch, including a new connection.
const EXPORT_TIMEOUT: Duration = Duration::from_secs(10);
/// Timeout for sending the last batches when the exporter is flushed.
const CLOSE_TIMEOUT: Duration = Duration::from_millis(300);

const EXPORT: &str = "/opentelemetry.proto.collector.trace.v1.TraceService/Export";

/// The error for an invalid endpoint of a collector.
#[derive(Debug, thiserror::Error)]
#[error("{endpoint:?} is no address of a collector: {cause}")]
pub struct EndpointError {
    /// The configured endpoint.
    pub endpoint: String,
    /// The error in it.
    pub cause: tonic::transport::Error,
}

/// The service that sends spans.
#[derive(Clone, Debug)]
pub struct Service {
    /// `service.name`.
    pub name: String,
    /// `service.instance.id`.
    pub instance: String,
    /// The version of the library that makes the spans.
    pub version: String,
}

/// Counts spans that are dropped: it is called with how many these are.
pub type OnDropped = Box<dyn Fn(u64) + Send + Sync>;

/// Sends spans to a collector. When it is dropped, queued spans are sent in the background.
pub struct Exporter {
    queue: mpsc::Sender<Message>,
    on_dropped: std::sync::Arc<OnDropped>,
}

enum Message {
    Span(Box<Span>),
    /// All spans so far are to be sent, and then this.
    Flush(oneshot::Sender<()>),
}

impl Exporter {
    /// Starts an exporter to a collector, which may not be reachable yet. It runs on the current
    /// tokio runtime.
    ///
    /// - `endpoint`: `HOST:PORT`. The connection has no TLS.
    ///
    /// # Errors
    /// The endpoint is not a valid address.
    pub fn new(endpoint: &str, service: &Service, on_dropped: OnDropped) -> Result<Exporter, EndpointError> {
        let address = Endpoint::from_shared(format!("http://{endpoint}"));
        let address = address.map_err(|cause| EndpointError { endpoint: endpoint.to_owned(), cause })?;
        let channel = address.connect_timeout(EXPORT_TIMEOUT).connect_lazy();
        let (queue, receiver) = mpsc::channel(QUEUE);
        let on_dropped = std::sync::Arc::new(on_dropped);
        let sender = Sender {
            grpc: Grpc::new(channel),
            service: service.clone(),
            on_dropped: on_dropped.clone(),
            has_failed: false,
        };
        tokio::spawn(sender.run(receiver));
        Ok(Exporter { queue, on_dropped })
    }

    /// Queues a span for sending; drops it if the queue is full.
    pub fn export(&self, span: Span) {
        if self.queue.try_send(Message::Span(Box::new(span))).is_err() {
            (self.on_dropped)(1);
        }
    }

    /// Waits until all spans so far are sent or dropped, for 300 ms at most.
    pub async fn flush(&self) {
        let (done, flushed) = oneshot::channel();
        let flush = async {
            if self.queue.send(Message::Flush(done)).await.is_ok() {
                // An error is the end of the task, with which all is done.
                let _ = flushed.await;
            }
        };
        // Spans that are not sent in time are dropped with the process.
        let _ = timeout(CLOSE_TIMEOUT, flush).await;
    }
}

/// The task that sends batches.
struct Sender {
    grpc: Grpc<Channel>,
    service: Service,
    on_dropped: std::sync::Arc<OnDropped>,
    /// Whether the last batch could not be sent. Only the first failure is logged.
    has_failed: bool,
}

impl Sender {
    async fn run(mut self, mut queue: mpsc::Receiver<Message>) {
        loop {
            let mut batch = Vec::new();
            let mut flushes = Vec::new();
            let is_open = gather(&mut queue, &mut batch, &mut flushes).await;
            if !batch.is_empty() {
                self.send(batch).await;
            }
            for flush in flushes {
                // The caller may have stopped waiting.
                let _ = flush.send(());
            }
            if !is_open {
                return;
            }
        }
    }

    async fn send(&mut self, batch: Vec<Span>) {
        let spans = batch.len() as u64;
        let outcome = timeout(EXPORT_TIMEOUT, self.export(batch)).await;
        let outcome =
            outcome.unwrap_or_else(|_| Err(Status::deadline_exceeded("the collector does not respond")));
        let dropped = match &outcome {
            Ok(response) => response.partial_success.as_ref().map_or(0, |partial| partial.rejected_spans),
            Err(_) => i64::MAX,
        };
        let dropped = u64::try_from(dropped).unwrap_or(0).min(spans);
        if dropped > 0 {
            (self.on_dropped)(dropped);
        }
        match outcome {
            Ok(_) => self.has_failed = false,
            Err(status) => {
                if !self.has_failed {
                    tracing::warn!(%status, "the collector of traces takes no spans");
                }
                self.has_failed = true;
            }
        }
    }

    async fn export(&mut self, spans: Vec<Span>) -> Result<ExportTraceServiceResponse, Status> {
        self.grpc.ready().await.map_err(|error| Status::unavailable(error.to_string()))?;
        let request = Request::new(self.request(spans));
        let codec = ProstCodec::<ExportTraceServiceRequest, ExportTraceServiceResponse>::default();
        let response = self.grpc.unary(request, PathAndQuery::from_static(EXPORT), codec).await?;
        Ok(response.into_inner())
    }

    fn request(&self, spans: Vec<Span>) -> ExportTraceServiceRequest {
        let Service { name, instance, version } = &self.service;
        let resource = Resource {
            attributes: vec![
                KeyValue::string("service.name", name),
                KeyValue::string("service.instance.id", instance),
            ],
        };
        let scope = InstrumentationScope { name: "coracle".to_owned(), version: version.clone() };
        let scope_spans = vec![ScopeSpans { scope: Some(scope), spans }];
        ExportTraceServiceRequest {
            resource_spans: vec![ResourceSpans { resource: Some(resource), scope_spans }],
        }
    }
}

/// Waits for a batch: a full one, or the spans that arrive within some time after the first one, or
/// before a flush. Returns false once the exporter is dropped.
async fn gather(
    queue: &mut mpsc::Receiver<Message>,
    batch: &mut Vec<Span>,
    flushes: &mut Vec<oneshot::Sender<()>>,
) -> bool {
    let mut deadline = None;
    while batch.len() < BATCH {
        let next = match deadline {
            None => queue.recv().await,
            Some(deadline) => match timeout_at(deadline, queue.recv()).await {
                Ok(next) => next,
                Err(_) => return true,
            },
        };
        match next {
            Some(Message::Span(span)) => batch.push(*span),
            Some(Message::Flush(done)) => {
                flushes.push(done);
                return true;
            }
            None => return false,
        }
        deadline = deadline.or_else(|| Some(Instant::now() + GATHER));
    }
    true
}
