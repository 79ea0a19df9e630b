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

/// Returns the checks of a server with this store and these controllers.
pub fn health(store: &Store<ObjectIndex>, controllers: &Readiness) -> ServerHealth {
    const HOOKS: [&str; 3] =
        ["start-apiserver-admission-initializer", "rbac/bootstrap-roles", "bootstrap-controller"];
    let mut health = Health::new();
    let store = store.clone();
    let ready = store.clone();
    // A server with a full disk still serves reads and deletions: it is alive but not ready, since
    // a restart would not help.
    health.check("etcd", &[Endpoint::Healthz, Endpoint::Livez], move || {
        store.health().map_err(|e| e.to_string())
    });
    health.check("etcd", &[Endpoint::Readyz], move || ready.readiness().map_err(|e| e.to_string()));
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
    let start_hooks = HOOKS.iter().map(|name| health.hook(name)).collect();
    let shutdown = health.shutdown();
    ServerHealth { health, start_hooks, shutdown }
}
