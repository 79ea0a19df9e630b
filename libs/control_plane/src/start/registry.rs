//! The registry with its admission plugins, and the objects that are stored before it is served.

use std::net::SocketAddr;
use std::sync::Arc;

use coracle_apimachinery::allocation::SERVICE_CIDR;
use coracle_apimachinery::resource_info::SharedResourceTable;
use coracle_apiserver::admission::AdmissionMetrics;
use coracle_apiserver::admission::webhook::WebhookContext;
use coracle_apiserver::registry::{self, ObjectIndex, Registry};
use coracle_apiserver::webhook::ConversionMetrics;
use coracle_builtin::admission::{self, PluginContext};
use coracle_builtin::allocation::ServiceAllocator;
use coracle_builtin::start::{self, Advertisement, publish_authentication};
use coracle_seed::Identities;
use coracle_storage::Store;
use futures::future::{BoxFuture, FutureExt};
use serde_json::Value;

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
pub type InitialObjects = BoxFuture<'static, Result<Vec<Value>, Error>>;

/// Begins to parse the initial objects.
pub fn initial_objects(options: &Options, preparation: &Preparation) -> InitialObjects {
    let (now, port) = (preparation.clock.now(), preparation.listener.address().port());
    let service_cidr = options.service_cidr.unwrap_or(SERVICE_CIDR);
    let (class, is_selected) = (options.default_storage_class.clone(), preparation.is_selected.clone());
    let parse = move || Ok(start::initial_objects(now, port, service_cidr, class.as_deref(), &*is_selected));
    blocking(parse).boxed()
}

/// Stores the objects without which a server does not serve.
///
/// - `initial_objects`: those of every server; None for a fork, which has them already
///
/// # Errors
/// The store rejects them.
pub async fn store_initial_objects(
    registry: &Arc<Registry>,
    options: &Options,
    preparation: &Preparation,
    access: &Access,
    initial_objects: Option<InitialObjects>,
) -> Result<Option<Advertisement>, Error> {
    match initial_objects {
        Some(objects) => {
            let objects = objects.await?;
            start::bootstrap(registry, &objects).await.map_err(|e| Error::Bootstrap(e.to_string()))?;
        }
        None => point_service_at_fork(registry, preparation.listener.address().port()).await?,
    }
    publish_authorities(registry, access).await?;
    advertise(registry, options, preparation).await
}

/// Changes the objects about the server of the origin so that they refer to the server of a fork.
///
/// # Errors
/// The store rejects them.
async fn point_service_at_fork(registry: &Registry, port: u16) -> Result<(), Error> {
    start::move_service(registry, port).await.map_err(|e| Error::Bootstrap(e.to_string()))
}

/// Stores the authorities by which clients are authenticated, where aggregated API servers look for
/// them.
///
/// # Errors
/// The store rejects them.
async fn publish_authorities(registry: &Registry, access: &Access) -> Result<(), Error> {
    publish_authentication(registry, &access.certificates.client_ca_pem()?, &access.front_proxy_ca)
        .await
        .map_err(|e| Error::Bootstrap(e.to_string()))
}

/// Stores the objects in which clients in the cluster find the server, if it has an address for
/// them.
///
/// # Errors
/// The store rejects them.
async fn advertise(
    registry: &Arc<Registry>,
    options: &Options,
    preparation: &Preparation,
) -> Result<Option<Advertisement>, Error> {
    let advertisement = options.advertise_address.map(|address| {
        let address = SocketAddr::new(address, preparation.listener.address().port());
        Advertisement::new(registry.clone(), address, controllers::hostname())
    });
    if let Some(advertisement) = &advertisement {
        advertisement.publish().await.map_err(|e| Error::Bootstrap(e.to_string()))?;
    }
    Ok(advertisement)
}
