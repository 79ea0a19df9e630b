//! The checks of the server's health, and the steps of its start.

use coracle_apiserver::registry::ObjectIndex;
use coracle_apiserver::telemetry::health::{Endpoint, Health, Hook};
use coracle_controller_runtime::supervise::Readiness;
use coracle_simulation::NODES;
use coracle_storage::Store;

use super::CONTROLLERS_START;

/// The checks of the server's health, and what decides them besides the store and the controllers.
pub struct ServerHealth {
    pub health: Health,
    /// The steps of the start.
    pub start_hooks: Vec<Hook>,
    /// Finished when the shutdown begins: the server is not ready then.
    pub shutdown: Hook,
}

/// The steps of kube-apiserver's start, by the names of their checks, which probes and scripts
/// refer to. Here the start has made all of them when the server serves.
const HOOKS: [&str; 30] = [
    "poststarthook/start-apiserver-admission-initializer",
    "poststarthook/generic-apiserver-start-informers",
    "poststarthook/priority-and-fairness-config-consumer",
    "poststarthook/priority-and-fairness-filter",
    "poststarthook/storage-object-count-tracker-hook",
    "poststarthook/start-apiextensions-informers",
    "poststarthook/start-apiextensions-controllers",
    "poststarthook/crd-informer-synced",
    "poststarthook/start-system-namespaces-controller",
    "poststarthook/peer-endpoint-reconciler-controller",
    "poststarthook/start-cluster-authentication-info-controller",
    "poststarthook/start-kube-apiserver-identity-lease-controller",
    "poststarthook/start-kube-apiserver-identity-lease-garbage-collector",
    "poststarthook/storage-readiness",
    "poststarthook/start-legacy-token-tracking-controller",
    "poststarthook/start-service-ip-repair-controllers",
    "poststarthook/rbac/bootstrap-roles",
    "poststarthook/scheduling/bootstrap-system-priority-classes",
    "poststarthook/priority-and-fairness-config-producer",
    "poststarthook/bootstrap-controller",
    "poststarthook/start-kubernetes-service-cidr-controller",
    "poststarthook/start-kube-aggregator-informers",
    "poststarthook/apiservice-status-local-available-controller",
    "poststarthook/apiservice-status-remote-available-controller",
    "poststarthook/apiservice-registration-controller",
    "poststarthook/apiservice-discovery-controller",
    "poststarthook/kube-apiserver-autoregistration",
    "autoregister-completion",
    "poststarthook/apiservice-openapi-controller",
    "poststarthook/apiservice-openapiv3-controller",
];

/// Returns the checks of a server with this store and these controllers.
pub fn health(store: &Store<ObjectIndex>, controllers: &Readiness) -> ServerHealth {
    const ALIVE: &[Endpoint] = &[Endpoint::Healthz, Endpoint::Livez];
    let mut health = Health::new();
    // Connections within the process use no TLS, so they have no certificate that could expire.
    health.check("loopback-serving-certificate", ALIVE, || Ok(()));
    let store = store.clone();
    let ready = store.clone();
    health.check("etcd", Endpoint::ALL, move || store.health().map_err(|e| e.to_string()));
    // A server with a full disk still serves reads and deletions: it is alive but not ready, since
    // a restart would not help.
    health.check("etcd-readiness", &[Endpoint::Readyz], move || ready.readiness().map_err(|e| e.to_string()));
    let controllers = controllers.clone();
    health.check("informer-sync", &[Endpoint::Readyz], move || {
        // The API is served before its controllers have read all of it. One that cannot is
        // reported.
        let missing = controllers.missing_for(CONTROLLERS_START);
        if !missing.is_empty() {
            return Err(format!("not synced yet: {}", missing.join(", ")));
        }
        match controllers.is_ready(NODES.name) {
            true => Ok(()),
            false => Err(format!("not ready yet: {}", NODES.name)),
        }
    });
    let start_hooks = HOOKS.iter().map(|name| health.hook(*name)).collect();
    let shutdown = health.shutdown();
    ServerHealth { health, start_hooks, shutdown }
}
