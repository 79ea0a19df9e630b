//! Errors of a cluster that cannot be used.

use std::error::Error;
use std::path::PathBuf;

use coracle_storage::log::{Location, LogError};
use tonic::Status;

/// The reasons for which a cluster cannot be used as a log.
#[derive(Debug, thiserror::Error)]
pub enum EtcdError {
    /// The list of URLs is empty.
    #[error("no etcd servers are given")]
    NoServers,
    /// A URL is invalid, or has TLS options that cannot be used.
    #[error("the etcd server {server:?} cannot be used")]
    Endpoint {
        /// The URL.
        server: String,
        /// The cause reported by the TLS or transport library.
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

/// Converts the failure of an operation on a cluster into the error that the store reports.
pub(crate) fn failed(
    action: &'static str,
    servers: &str,
    cause: impl Into<Box<dyn std::error::Error + Send + Sync>>,
) -> LogError {
    let cause = match cause.into().downcast::<Status>() {
        Ok(status) => described(&status).into(),
        Err(cause) => cause,
    };
    LogError::Failed { action, location: location(servers), cause }
}

/// Describes a failed call for messages. The status's own text would also list its fields, and
/// those of its causes.
fn described(status: &Status) -> String {
    let mut cause: &dyn Error = status;
    while let Some(next) = cause.source() {
        cause = next;
    }
    let message = status.message();
    let message = if message.is_empty() { status.code().description() } else { message };
    match cause.downcast_ref::<Status>() {
        Some(_) => message.to_owned(),
        None => format!("{message}: {cause}"),
    }
}

/// Returns the location of a log in a cluster, for messages.
pub(crate) fn location(servers: &str) -> Location {
    Location::Service(format!("etcd at {servers}"))
}

#[cfg(test)]
mod tests {
    use tonic::Code;

    use super::*;

    #[test]
    fn statuses_are_described_in_words() {
        let refused = std::io::Error::other("Connection refused");
        let mut status = Status::unavailable("tcp connect error");
        status.set_source(std::sync::Arc::new(refused));
        for (status, want) in [
            (status, "tcp connect error: Connection refused"),
            (Status::permission_denied("no"), "no"),
            (Status::new(Code::Unavailable, ""), Code::Unavailable.description()),
        ] {
            let error = failed("cannot reach the cluster", "http://a", status);
            assert_eq!(error.to_string(), "cannot reach the cluster in etcd at http://a");
            assert_eq!(error.source().map(ToString::to_string).as_deref(), Some(want));
        }
    }
}
