//! Why a cluster cannot be used.

use std::path::PathBuf;

use coracle_storage::log::{Location, LogError};

/// Why a cluster cannot be used as a log.
#[derive(Debug, thiserror::Error)]
pub enum EtcdError {
    /// There are no URLs.
    #[error("no etcd servers are given")]
    NoServers,
    /// A URL is none, or has TLS options that cannot be used.
    #[error("the etcd server {server:?} cannot be used")]
    Endpoint {
        /// The URL.
        server: String,
        /// What is wrong with it.
        #[source]
        cause: tonic::transport::Error,
    },
    /// A certificate without its key, or a key without its certificate.
    #[error("a client certificate for etcd needs both a certificate and a key")]
    IncompleteIdentity,
    /// A file of the TLS options cannot be read.
    #[error("{path}: {cause}", path = .path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        cause: std::io::Error,
    },
    /// The runtime of the client does not start.
    #[error("cannot start a runtime: {0}")]
    Runtime(std::io::Error),
}

/// What a store reports of a failed operation on a cluster.
pub(crate) fn failed(
    action: &'static str,
    servers: &str,
    cause: impl Into<Box<dyn std::error::Error + Send + Sync>>,
) -> LogError {
    LogError::Failed { action, location: location(servers), cause: cause.into() }
}

/// The place of a log in a cluster, for messages.
pub(crate) fn location(servers: &str) -> Location {
    Location::Service(format!("etcd at {servers}"))
}
