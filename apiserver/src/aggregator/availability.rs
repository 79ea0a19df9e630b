//! The condition `Available` of APIServices that have a service.
//!
//! Source: kube-aggregator's `remote_available_controller.go`, which has the reasons and texts.
#![expect(clippy::disallowed_methods, reason = "a deadline of a call to another server protects this one")]

use std::sync::Arc;
use std::time::Duration;

use coracle_clock::Delay;
use futures::future::BoxFuture;
use futures::{StreamExt, stream};
use serde_json::Value;

use super::download::download;
use super::groups::{RemoteGroups, RemoteResource};
use super::{GROUP, PLURAL, RemoteApi, RemoteApis};
use crate::cluster::Cluster;
use crate::field::quote;
use crate::names::GroupResource;
use crate::registry::deletion::rfc3339;
use crate::registry::{Reconcile, Registry, Target};
use crate::timers::{API_SERVICE_CHECK, API_SERVICE_RETRY};
use crate::webhook::{HttpClient, ServiceReference, TransportError};
use crate::{Error, Result, conditions};

/// The intervals of the checks: while all are available, and while one is not.
const INTERVAL: Duration = Duration::from_secs(10);
const RETRY: Duration = Duration::from_secs(1);
/// Timeout of a check.
const TIMEOUT: Duration = Duration::from_secs(5);
/// The number of concurrent checks.
const MAX_CONCURRENT: usize = 8;
/// The largest size of an APIResourceList, in bytes.
const MAX_DOCUMENT: usize = 3 << 20;

/// Maintains the conditions, and the discovery of the aggregated servers.
pub struct AvailabilityController {
    registry: Arc<Registry>,
    apis: RemoteApis,
    groups: Arc<RemoteGroups>,
}

/// The outcome of a check.
struct Availability {
    is_available: bool,
    reason: &'static str,
    message: String,
    resources: Option<Arc<[RemoteResource]>>,
}

impl Availability {
    fn failed(reason: &'static str, message: String) -> Availability {
        Availability { is_available: false, reason, message, resources: None }
    }
}

impl Reconcile for AvailabilityController {
    async fn reconcile(&mut self) -> Option<Delay> {
        Some(self.check_all().await)
    }
}

impl AvailabilityController {
    /// Creates the controller.
    ///
    /// - `groups`: receives the groups that the aggregated servers serve.
    pub fn new(registry: Arc<Registry>, groups: Arc<RemoteGroups>) -> AvailabilityController {
        AvailabilityController { registry, apis: RemoteApis::default(), groups }
    }

    /// Publishes the stored groups, if there are none yet. Until they are checked, discovery has
    /// them as stale: a controller must not take it that their objects do not exist.
    pub fn publish_stored(&self) {
        if self.groups.load().is_empty()
            && let Ok(apis) = self.apis.load(&*self.registry)
        {
            self.groups.replace(apis.iter().map(|api| api.serving(None)).collect());
        }
    }

    /// Reconciles until the future is dropped.
    pub fn run(self) -> BoxFuture<'static, ()> {
        self.registry.clone().run_reconciler(GroupResource::new(GROUP, PLURAL).to_string().into(), self)
    }

    /// Checks all. Returns when to do so again.
    async fn check_all(&self) -> Delay {
        let apis = match self.apis.load(&*self.registry) {
            Ok(apis) => apis,
            Err(error) => {
                tracing::warn!(%error, "the APIServices cannot be read");
                return API_SERVICE_CHECK.after(INTERVAL);
            }
        };
        let checks = apis.iter().map(|api| async move { (api, self.check(api).await) });
        let outcomes: Vec<(&RemoteApi, Availability)> =
            stream::iter(checks.collect::<Vec<_>>()).buffer_unordered(MAX_CONCURRENT).collect().await;
        let mut versions = Vec::new();
        let mut delay = API_SERVICE_CHECK.after(INTERVAL);
        for (api, outcome) in &outcomes {
            versions.push(api.serving(outcome.resources.clone()));
        }
        // Discovery has them before watches report that they are available.
        self.groups.replace(versions);
        for (api, outcome) in outcomes {
            if !outcome.is_available {
                delay = API_SERVICE_RETRY.after(RETRY);
            }
            if let Err(error) = self.store(api, &outcome).await
                && error.code() != 404
            {
                tracing::warn!(name = %api.name, %error, "the condition of an APIService cannot be stored");
            }
        }
        delay
    }

    async fn check(&self, api: &RemoteApi) -> Availability {
        let service = &api.service;
        let clients = self.registry.webhook_clients();
        let client = match clients.service_client(service, &api.tls, &*self.registry) {
            Ok(client) => client,
            Err(error) => return unresolved(service, &error),
        };
        let url =
            format!("https://{}.{}.svc:{}{}", service.name, service.namespace, service.port, api.path());
        match tokio::time::timeout(TIMEOUT, discover(&client, &url)).await {
            Ok(Ok(resources)) => Availability {
                is_available: true,
                reason: "Passed",
                message: "all checks passed".to_owned(),
                resources: Some(resources),
            },
            Ok(Err(text)) => {
                let message = format!("failing or missing response from {url}: {text}");
                Availability::failed("FailedDiscoveryCheck", message)
            }
            Err(_) => {
                let text = "context deadline exceeded (Client.Timeout exceeded while awaiting headers)";
                let message = format!("failing or missing response from {url}: Get {}: {text}", quote(&url));
                Availability::failed("FailedDiscoveryCheck", message)
            }
        }
    }

    /// Stores the condition, if it is another one.
    async fn store(&self, api: &RemoteApi, outcome: &Availability) -> Result<()> {
        let resource = GroupResource::new(GROUP, PLURAL);
        let Some(stored) = Cluster::get(&*self.registry, &resource, "", &api.name)? else { return Ok(()) };
        let now = rfc3339(self.registry.now());
        let changed = |stored: &Value| {
            let mut changed = stored.clone();
            let Availability { is_available, reason, message, .. } = outcome;
            conditions::set(&mut changed["status"], "Available", *is_available, reason, message, &now);
            changed
        };
        if changed(&stored) == stored {
            return Ok(());
        }
        if !outcome.is_available && api.is_available {
            self.groups.unavailabilities.record(&api.name, outcome.reason);
        }
        let info = self.registry.find(GROUP, "v1", PLURAL).ok_or(Error::UnknownResource)?;
        let target = Target { info, namespace: String::new(), name: api.name.clone() };
        self.registry.rewrite_status(&target, false, |stored| Ok(changed(stored))).await
    }
}

/// Returns the outcome for a service that cannot be resolved to the address of a server.
fn unresolved(service: &ServiceReference, error: &TransportError) -> Availability {
    let what = format!("service/{} in {}", service.name, quote(&service.namespace));
    match error {
        TransportError::ServiceNotFound(_) => {
            Availability::failed("ServiceNotFound", format!("{what} is not present"))
        }
        TransportError::NoServicePort { port, .. } => {
            Availability::failed("ServicePortError", format!("{what} is not listening on port {port}"))
        }
        // A service without selectors may have no EndpointSlices.
        TransportError::NoEndpoints { port_name: None, .. } => {
            Availability::failed("EndpointsNotFound", format!("cannot find endpointslices for {what}"))
        }
        TransportError::NoEndpoints { port_name: Some(name), .. } => {
            let name = quote(name);
            let message = format!("endpointslices for {what} have no addresses with port name {name}");
            Availability::failed("MissingEndpoints", message)
        }
        error => Availability::failed("FailedDiscoveryCheck", error.to_string()),
    }
}

/// Returns the resources of a server, or the reason why the server is not available.
async fn discover(client: &HttpClient, url: &str) -> Result<Arc<[RemoteResource]>, String> {
    let found = download(client, url, None, MAX_DOCUMENT).await?;
    if !found.status.is_success() {
        return Err(format!("bad status from {url}: {}", found.status.as_u16()));
    }
    // A server without a document there is available nevertheless.
    Ok(RemoteResource::read_list(&found.body?).unwrap_or_else(|error| {
        tracing::debug!(url, %error, "the APIResourceList of an APIService cannot be read");
        Arc::default()
    }))
}
