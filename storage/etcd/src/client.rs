//! The etcd client: one connection to each member. Requests go to one member, and to the next when
//! that member does not respond.

use std::{
    path::PathBuf,
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use futures::Stream;
use http::uri::PathAndQuery;
use prost::Message;
use tonic::{
    Code, Request, Status, Streaming,
    client::Grpc,
    transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity},
};
use tonic_prost::ProstCodec;

use crate::{
    EtcdError,
    proto::{
        CompactionRequest, CompactionResponse, LeaseGrantRequest, LeaseGrantResponse, RangeRequest,
        RangeResponse, StatusRequest, StatusResponse, TxnRequest, TxnResponse, WatchRequest, WatchResponse,
    },
};

/// The addresses and TLS files of an etcd cluster: kube-apiserver's `--etcd-*` flags.
#[derive(Clone, Debug, Default)]
pub struct Endpoints {
    /// The URLs of the members (`--etcd-servers`), `http` or `https`.
    pub servers: Vec<String>,
    /// The authorities of the members' certificates (`--etcd-cafile`), PEM.
    pub ca_file: Option<PathBuf>,
    /// The client's certificate (`--etcd-certfile`), PEM.
    pub cert_file: Option<PathBuf>,
    /// The private key of the client certificate (`--etcd-keyfile`), PEM.
    pub key_file: Option<PathBuf>,
}

/// Timeout for establishing a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// Timeout for one request, after which it is sent to another member.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);

/// Interval of the probes on an idle connection, and the timeout for their response. etcd closes
/// connections that are probed more often than every five seconds.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(5);

/// The largest response that is read: a page of large values.
const MAX_RESPONSE_BYTES: usize = 256 << 20;

/// The largest request that is sent, in bytes: kube-apiserver's own limit. etcd's limit is lower,
/// and etcd reports requests above it.
const MAX_REQUEST_BYTES: usize = 64 << 20;

/// The windows of HTTP/2: a page of a load, or the responses to many writes, without waiting for
/// the other side.
const WINDOW: u32 = 4 << 20;

/// The members of a cluster.
pub(crate) struct Client {
    members: Vec<Channel>,
    /// The member that requests go to.
    current: AtomicUsize,
    /// The URLs, for messages.
    pub servers: String,
}

impl Client {
    /// Creates a client. Must be called within a tokio runtime. Connections are established on
    /// demand.
    pub fn new(endpoints: &Endpoints) -> Result<Client, EtcdError> {
        let tls = tls(endpoints)?;
        let member = |server: &String| -> Result<Channel, EtcdError> {
            let invalid = |cause| EtcdError::Endpoint { server: server.clone(), cause };
            let endpoint = Endpoint::from_shared(server.clone())
                .map_err(invalid)?
                .connect_timeout(CONNECT_TIMEOUT)
                .http2_keep_alive_interval(KEEPALIVE_INTERVAL)
                .keep_alive_timeout(KEEPALIVE_TIMEOUT)
                .keep_alive_while_idle(true)
                .initial_stream_window_size(WINDOW)
                .initial_connection_window_size(WINDOW)
                .tcp_nodelay(true);
            let is_tls = endpoint.uri().scheme_str() == Some("https");
            let endpoint = match is_tls {
                true => endpoint.tls_config(tls.clone()).map_err(invalid)?,
                false => endpoint,
            };
            Ok(endpoint.connect_lazy())
        };
        if endpoints.servers.is_empty() {
            return Err(EtcdError::NoServers);
        }
        Ok(Client {
            members: endpoints.servers.iter().map(member).collect::<Result<_, _>>()?,
            current: AtomicUsize::new(0),
            servers: endpoints.servers.join(","),
        })
    }

    pub async fn range(&self, request: &RangeRequest) -> Result<RangeResponse, Status> {
        self.idempotent(request, "/etcdserverpb.KV/Range").await
    }

    /// Sends a transaction once. The caller decides whether it can be sent again.
    pub async fn txn(&self, request: &TxnRequest) -> Result<TxnResponse, Status> {
        self.once(request, "/etcdserverpb.KV/Txn").await
    }

    pub async fn compact(&self, request: &CompactionRequest) -> Result<CompactionResponse, Status> {
        self.idempotent(request, "/etcdserverpb.KV/Compact").await
    }

    pub async fn lease_grant(&self, request: &LeaseGrantRequest) -> Result<LeaseGrantResponse, Status> {
        self.idempotent(request, "/etcdserverpb.Lease/LeaseGrant").await
    }

    pub async fn status(&self) -> Result<StatusResponse, Status> {
        self.idempotent(&StatusRequest {}, "/etcdserverpb.Maintenance/Status").await
    }

    /// Opens a stream of watches. The member reports when it has no leader.
    pub async fn watch(
        &self,
        requests: impl Stream<Item = WatchRequest> + Send + 'static,
    ) -> Result<Streaming<WatchResponse>, Status> {
        let (member, mut grpc) = self.grpc();
        let mut request = Request::new(requests);
        request.metadata_mut().insert("hasleader", "true".parse().map_err(|_| Status::internal("metadata"))?);
        let path = PathAndQuery::from_static("/etcdserverpb.Watch/Watch");
        let call = async {
            grpc.ready().await.map_err(unavailable)?;
            grpc.streaming(request, path, ProstCodec::default()).await
        };
        match timeout(call).await {
            Ok(response) => Ok(response.into_inner()),
            Err(status) => {
                self.leave(member);
                Err(status)
            }
        }
    }

    /// Directs the following requests to the next member, unless they are directed there already.
    fn leave(&self, member: usize) {
        let next = (member + 1) % self.members.len();
        // Another request may have switched the member in the meantime.
        let _ = self.current.compare_exchange(member, next, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Directs the following requests to the next member.
    pub fn leave_current(&self) {
        self.leave(self.current.load(Ordering::Relaxed));
    }

    /// Sends a request to each member at most once, until one responds.
    async fn idempotent<Q, R>(&self, request: &Q, path: &'static str) -> Result<R, Status>
    where
        Q: Message + Clone + 'static,
        R: Message + Default + 'static,
    {
        let mut attempts = self.members.len();
        loop {
            attempts = attempts.saturating_sub(1);
            match self.once(request, path).await {
                Err(status) if attempts > 0 && is_transient(&status) => {}
                outcome => return outcome,
            }
        }
    }

    async fn once<Q, R>(&self, request: &Q, path: &'static str) -> Result<R, Status>
    where
        Q: Message + Clone + 'static,
        R: Message + Default + 'static,
    {
        let (member, mut grpc) = self.grpc();
        let call = async {
            grpc.ready().await.map_err(unavailable)?;
            let codec = ProstCodec::<Q, R>::default();
            grpc.unary(Request::new(request.clone()), PathAndQuery::from_static(path), codec).await
        };
        let outcome = timeout(call).await;
        if outcome.as_ref().is_err_and(is_transient) {
            self.leave(member);
        }
        outcome.map(tonic::Response::into_inner)
    }

    fn grpc(&self) -> (usize, Grpc<Channel>) {
        let current = self.current.load(Ordering::Relaxed) % self.members.len();
        // `new` refuses a cluster without members.
        let channel = self.members[current].clone();
        let grpc = Grpc::new(channel)
            .max_decoding_message_size(MAX_RESPONSE_BYTES)
            .max_encoding_message_size(MAX_REQUEST_BYTES);
        (current, grpc)
    }
}

async fn timeout<T>(call: impl Future<Output = Result<T, Status>>) -> Result<T, Status> {
    match tokio::time::timeout(REQUEST_TIMEOUT, call).await {
        Ok(outcome) => outcome,
        Err(_) => Err(Status::deadline_exceeded("etcd did not respond in time")),
    }
}

fn unavailable(error: impl std::error::Error) -> Status {
    Status::unavailable(format!("cannot reach etcd: {error}"))
}

/// Returns whether another attempt, perhaps with another member, may succeed. The failed request
/// may have been executed nevertheless.
pub(crate) fn is_transient(status: &Status) -> bool {
    match status.code() {
        Code::Unavailable | Code::DeadlineExceeded | Code::Cancelled | Code::Internal | Code::Aborted => true,
        // Errors of the connection, and those of the server that have no code.
        Code::Unknown => true,
        Code::ResourceExhausted => status.message().contains("too many requests"),
        _ => false,
    }
}

/// Returns whether a request failed because its revision is compacted.
pub(crate) fn is_compacted(status: &Status) -> bool {
    status.code() == Code::OutOfRange && status.message().contains("has been compacted")
}

fn tls(endpoints: &Endpoints) -> Result<ClientTlsConfig, EtcdError> {
    let read =
        |path: &PathBuf| std::fs::read(path).map_err(|cause| EtcdError::File { path: path.clone(), cause });
    let mut tls = ClientTlsConfig::new();
    if let Some(file) = &endpoints.ca_file {
        tls = tls.ca_certificate(Certificate::from_pem(read(file)?));
    }
    match (&endpoints.cert_file, &endpoints.key_file) {
        (Some(certificate), Some(key)) => {
            tls = tls.identity(Identity::from_pem(read(certificate)?, read(key)?));
        }
        (None, None) => {}
        _ => return Err(EtcdError::IncompleteIdentity),
    }
    Ok(tls)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_errors_of_the_way_are_transient() {
        for (status, want) in [
            (Status::unavailable("etcdserver: no leader"), true),
            (Status::deadline_exceeded(""), true),
            (Status::unknown("transport error"), true),
            (Status::resource_exhausted("etcdserver: too many requests"), true),
            (Status::resource_exhausted("etcdserver: mvcc: database space exceeded"), false),
            (Status::invalid_argument("etcdserver: request is too large"), false),
            (Status::permission_denied("etcdserver: permission denied"), false),
            (Status::out_of_range("etcdserver: mvcc: required revision has been compacted"), false),
        ] {
            assert_eq!(is_transient(&status), want, "{status}");
        }
        assert!(is_compacted(&Status::out_of_range(
            "etcdserver: mvcc: required revision has been compacted"
        )));
        assert!(!is_compacted(&Status::out_of_range(
            "etcdserver: mvcc: required revision is a future revision"
        )));
    }
}
