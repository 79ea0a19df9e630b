//! Addresses of services. Services are a built-in kind: whoever knows it attaches a resolver.

use std::net::SocketAddr;

use super::config::ServiceReference;
use super::error::TransportError;
use crate::cluster::Cluster;

/// The addresses at which a connection is tried.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Destination {
    /// Addresses, which are tried at once.
    pub addresses: Vec<SocketAddr>,
    /// A host and port, if none of those can be reached.
    pub fallback: Option<(String, u16)>,
    /// Whether a certificate for the host of the fallback is accepted, besides one for the Service.
    /// One for the external name of a Service is not.
    pub accepts_fallback_name: bool,
}

/// Finds the addresses of services. It is asked before each call of a webhook, so that it must be
/// quick.
///
/// Upstream: `webhook.ServiceResolver` of k8s.io/apiserver.
pub trait ServiceResolver: Send + Sync {
    /// Resolves a reference.
    ///
    /// # Errors
    /// There is no such service, port or endpoint, or none at which a server can listen.
    fn resolve(
        &self,
        service: &ServiceReference,
        cluster: &dyn Cluster,
    ) -> Result<Destination, TransportError>;

    /// Refuses an address in a URL at which no server can listen.
    ///
    /// # Errors
    /// [`TransportError::Unreachable`]
    fn check_address(&self, address: SocketAddr, cluster: &dyn Cluster) -> Result<(), TransportError>;
}
