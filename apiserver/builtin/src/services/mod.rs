//! Addresses of Services, for webhooks, conversions and APIServices.
//!
//! There is no network of pods: most pods are simulated and their addresses lead nowhere. So a
//! service reference resolves to
//!
//! 1. the ready addresses of the service's EndpointSlices, if one of them can be reached from this
//!    process, where those of simulated pods are the processes that the annotation
//!    `sim.coracle.dev/forward` names for their ports,
//! 2. else the URL that was configured for the service: by
//!    `--webhook-service-url NAMESPACE/NAME=URL`, or by the annotation `coracle.dev/service-url` of
//!    the Service.
//!
//! Addresses of simulated pods and nodes are left out (`simulated.rs`): a network may well answer
//! there, with a server that is not theirs. Where a URL is configured, all endpoints that are pods
//! are left out.
//!
//! The path stays that of the reference; the server's certificate may be for the service
//! (`NAME.NAMESPACE.svc`) or for the URL's host.

mod endpoints;
mod simulated;
mod url;

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::sync::Arc;

use coracle_apimachinery::cluster::Cluster;
use coracle_apimachinery::names::GroupResource;
use coracle_apiserver::webhook::{Destination, ServiceReference, ServiceResolver, TransportError};
use parking_lot::Mutex;

pub use url::{ServiceUrl, ServiceUrlError};

use crate::forwarding::ForwardAccess;
use simulated::SimulatedNetwork;

/// The maximum number of resolved services that are kept.
const MAX_RESOLVED: usize = 1024;

/// Resolves services by their EndpointSlices and configured URLs, and remembers what it found until
/// an object changes.
#[derive(Default)]
pub struct EndpointServiceResolver {
    /// By namespace and name.
    service_urls: BTreeMap<(String, String), String>,
    /// The addresses that ports of simulated pods may lead to.
    access: Arc<ForwardAccess>,
    resolved: Mutex<Resolved>,
    /// As of a change of the nodes.
    simulated: Mutex<Option<(u64, Arc<SimulatedNetwork>)>>,
}

/// The services that were resolved since the last change of a Service or an EndpointSlice.
#[derive(Default)]
struct Resolved {
    revisions: [Option<u64>; 2],
    destinations: HashMap<ServiceReference, Result<Destination, TransportError>>,
}

impl EndpointServiceResolver {
    /// Creates the resolver with the URLs of services that cannot be reached by their
    /// EndpointSlices, and the addresses to which ports of simulated pods may lead.
    pub fn new(
        service_urls: impl IntoIterator<Item = ServiceUrl>,
        access: Arc<ForwardAccess>,
    ) -> EndpointServiceResolver {
        let service_urls = service_urls.into_iter().map(|url| ((url.namespace, url.name), url.url)).collect();
        EndpointServiceResolver { service_urls, access, ..EndpointServiceResolver::default() }
    }

    fn simulated_network(&self, cluster: &dyn Cluster) -> Result<Arc<SimulatedNetwork>, TransportError> {
        let revision = cluster.last_change(&GroupResource::new("", "nodes"));
        let known = self.simulated.lock().clone().filter(|(known, _)| Some(*known) == revision);
        if let Some((_, network)) = known {
            return Ok(network);
        }
        let network = SimulatedNetwork::load(cluster);
        let network = Arc::new(network.map_err(|error| TransportError::Connection(error.to_string()))?);
        if let Some(revision) = revision {
            *self.simulated.lock() = Some((revision, network.clone()));
        }
        Ok(network)
    }
}

impl ServiceResolver for EndpointServiceResolver {
    fn resolve(
        &self,
        service: &ServiceReference,
        cluster: &dyn Cluster,
    ) -> Result<Destination, TransportError> {
        let revisions = [("", "services"), ("discovery.k8s.io", "endpointslices")]
            .map(|(group, resource)| cluster.last_change(&GroupResource::new(group, resource)));
        {
            let mut resolved = self.resolved.lock();
            let is_known = revisions.iter().all(Option::is_some);
            if resolved.revisions != revisions || !is_known || resolved.destinations.len() >= MAX_RESOLVED {
                *resolved = Resolved { revisions, destinations: HashMap::new() };
            }
            if let Some(known) = resolved.destinations.get(service) {
                return known.clone();
            }
        }
        let configured = self.service_urls.get(&(service.namespace.clone(), service.name.clone()));
        let network = self.simulated_network(cluster)?;
        let configured = configured.map(String::as_str);
        let found = endpoints::resolve(service, configured, &network, &self.access, cluster);
        let mut resolved = self.resolved.lock();
        // Results with forwarded addresses are not cached: they change with the annotations of
        // pods, and with nodes.
        let is_lasting = match &found {
            Ok(found) => !found.has_forwarded,
            Err(error) => !matches!(error, TransportError::Unreachable(_)),
        };
        let found = found.map(|found| found.destination);
        if resolved.revisions == revisions && is_lasting {
            resolved.destinations.insert(service.clone(), found.clone());
        }
        found
    }

    fn check_address(&self, address: SocketAddr, cluster: &dyn Cluster) -> Result<(), TransportError> {
        match address.ip().is_loopback() {
            true => Ok(()),
            false => self.simulated_network(cluster)?.check(address),
        }
    }
}
