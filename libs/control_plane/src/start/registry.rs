//! The registry with its admission plugins, and the objects that are stored before it is served.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;

use coracle_apimachinery::allocation::SERVICE_CIDR;
use coracle_apimachinery::bootstrap::InitialObject;
use coracle_apimachinery::resource_info::SharedResourceTable;
use coracle_apimachinery::validation::ip::endpoint_address;
use coracle_apiserver::admission::AdmissionMetrics;
use coracle_apiserver::admission::webhook::WebhookContext;
use coracle_apiserver::registry::{self, ObjectIndex, Registry};
use coracle_apiserver::webhook::ConversionMetrics;
use coracle_builtin::admission::{self, PluginContext};
use coracle_builtin::allocation::ServiceAllocator;
use coracle_builtin::start::{
    self, IdentityLease, ServerObjects, ServerObjectsConfig, publish_authentication,
};
use coracle_seed::Identities;
use coracle_storage::Store;
use futures::future::{BoxFuture, FutureExt};

use super::access::Access;
use super::blocking::blocking;
use super::preparation::Preparation;
use crate::controllers;
use crate::error::Error;
use crate::options::Options;

/// Makes the registry over a store. Nothing of it runs, and nothing is stored yet.
pub fn assemble(
    options: &Options,
    preparation: &Preparation,
    access: &Access,
    store: &Store<ObjectIndex>,
    resources: Arc<SharedResourceTable>,
    identities: Arc<Identities>,
) -> Arc<Registry> {
    let Preparation { features, clock, metrics, .. } = preparation;
    let Access { authorizer, rbac, clients, .. } = access;
    let registry_config =
        registry::Config::new(store.clone(), resources.clone(), clock.clone(), authorizer.clone());
    let service_cidr = options.service_cidr.unwrap_or(SERVICE_CIDR);
    let plugin_context = PluginContext {
        authorizer: authorizer.clone(),
        rbac: rbac.clone(),
        webhooks: WebhookContext {
            resources,
            clients: clients.clone(),
            metrics: Arc::new(AdmissionMetrics::new(metrics.registry())),
        },
        identities: identities.clone(),
    };
    let max_pods = usize::try_from(options.max_pods).unwrap_or(usize::MAX);
    let max_pods = if max_pods == 0 { usize::MAX } else { max_pods };
    Arc::new(Registry::new(registry::Config {
        chain: admission::chain(&options.admission_plugins, features, max_pods, &plugin_context),
        features: features.clone(),
        webhook_clients: clients.clone(),
        conversion_metrics: Arc::new(ConversionMetrics::new(metrics.registry())),
        allocator: Some(Box::new(ServiceAllocator::new(service_cidr))),
        identities,
        ..registry_config
    }))
}

/// The initial objects, which are parsed on another thread.
pub type InitialObjects = BoxFuture<'static, Result<Vec<InitialObject>, Error>>;

/// Begins to parse the initial objects.
pub fn initial_objects(options: &Options, preparation: &Preparation) -> InitialObjects {
    let (now, port) = (preparation.clock.now(), preparation.listener.address().port());
    let service_cidr = options.service_cidr.unwrap_or(SERVICE_CIDR);
    let (class, is_selected) = (options.default_storage_class.clone(), preparation.is_selected.clone());
    let parse = move || Ok(start::initial_objects(now, port, service_cidr, class.as_deref(), &*is_selected));
    blocking(parse).boxed()
}

/// Stores the objects without which a server does not serve. Returns its identity Lease, if
/// it has one.
///
/// - `initial_objects`: those of every server; None for a fork, which has them already
///
/// # Errors
/// The store rejects them; for the Endpoints this is only logged.
pub async fn store_initial_objects(
    registry: &Arc<Registry>,
    options: &Options,
    preparation: &Preparation,
    access: &Access,
    initial_objects: Option<InitialObjects>,
) -> Result<Option<IdentityLease>, Error> {
    let listener = preparation.listener.address();
    match initial_objects {
        Some(objects) => {
            let objects = objects.await?;
            start::bootstrap(registry, &objects).await.map_err(rejected)?;
        }
        None => start::move_service(registry, listener.port()).await.map_err(rejected)?,
    }
    let advertised = advertised(options, listener);
    if let Err(error) = start::publish_endpoints(registry, advertised, listener.port()).await {
        // A full store is served all the same, so that objects can be deleted.
        tracing::warn!(%error, "the Endpoints of the kubernetes Service are not updated");
    }
    // Aggregated API servers look here for the authorities by which clients are authenticated.
    let client_ca = access.certificates.client_ca_pem()?;
    publish_authentication(registry, &client_ca, &access.front_proxy_ca).await.map_err(rejected)?;
    if !options.identity_lease {
        return Ok(None);
    }
    let ip = options.advertise_address.or(advertised).unwrap_or(listener.ip());
    let address = SocketAddr::new(ip, listener.port());
    let lease = IdentityLease::new(registry.clone(), address, controllers::hostname());
    lease.publish().await.map_err(rejected)?;
    Ok(Some(lease))
}

/// Returns what restores the server's own objects while it runs.
///
/// # Errors
/// The certificate of the authority cannot be read.
pub fn server_objects(
    registry: &Arc<Registry>,
    options: &Options,
    preparation: &Preparation,
    access: &Access,
) -> Result<ServerObjects, Error> {
    let listener = preparation.listener.address();
    Ok(ServerObjects::new(ServerObjectsConfig {
        registry: registry.clone(),
        advertised: advertised(options, listener),
        port: listener.port(),
        service_cidr: options.service_cidr.unwrap_or(SERVICE_CIDR),
        client_ca: access.certificates.client_ca_pem()?,
        front_proxy_ca: access.front_proxy_ca.clone(),
        is_selected: preparation.is_selected.clone(),
    }))
}

fn rejected(error: coracle_apimachinery::Error) -> Error {
    Error::Bootstrap(error.to_string())
}

/// Returns the address in the Endpoints of the `kubernetes` Service; None without a network.
fn advertised(options: &Options, listener: SocketAddr) -> Option<IpAddr> {
    let is_possible = |address: &IpAddr| endpoint_address(&address.to_string()).is_empty();
    match options.advertise_address {
        Some(address) => Some(address).filter(is_possible),
        None => Some(listener.ip().to_canonical()).filter(is_possible).or_else(host_address),
    }
}

/// Returns the address from which this host would reach others; None without a network. Nothing is
/// sent.
fn host_address() -> Option<IpAddr> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).ok()?;
    // An address for documentation (RFC 5737): only its route matters.
    socket.connect((Ipv4Addr::new(203, 0, 113, 1), 9)).ok()?;
    Some(socket.local_addr().ok()?.ip()).filter(|address| endpoint_address(&address.to_string()).is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_have_an_address_that_they_may_have() {
        let host = host_address();
        for (advertise_address, listener, want) in [
            (None, "192.0.2.7:1", "192.0.2.7".parse().ok()),
            (None, "[2001:db8::7]:1", "2001:db8::7".parse().ok()),
            (None, "[::ffff:192.0.2.7]:1", "192.0.2.7".parse().ok()),
            (None, "127.0.0.1:1", host),
            (None, "[::1]:1", host),
            (None, "[::ffff:127.0.0.1]:1", host),
            (None, "0.0.0.0:1", host),
            (None, "169.254.1.1:1", host),
            (Some("192.0.2.8"), "192.0.2.7:1", "192.0.2.8".parse().ok()),
            (Some("127.0.0.1"), "192.0.2.7:1", None),
        ] {
            let advertise_address = advertise_address.map(|text| text.parse().unwrap());
            let options = Options { advertise_address, ..Options::default() };
            let listener = listener.parse().unwrap();
            assert_eq!(advertised(&options, listener), want, "{advertise_address:?} {listener}");
        }
    }
}
