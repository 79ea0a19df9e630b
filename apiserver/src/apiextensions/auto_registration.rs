//! The APIServices of custom groups and versions: they are listed as local ones while a definition
//! serves them.
//!
//! Source: kube-aggregator's `autoregister_controller.go`, with the priorities of
//! `crdregistration_controller.go`.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use coracle_clock::Delay;
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::CustomResources;
use crate::cluster::Cluster;
use crate::names::GroupResource;
use crate::registry::deletion::rfc3339;
use crate::registry::{Reconcile, Registry};
use crate::timers::API_SERVICE_CREATION_RETRY;
use crate::{Error, Result};

/// The wait before the next try after a failure.
const RETRY: Duration = Duration::from_secs(1);

const GROUP: &str = "apiregistration.k8s.io";
const PLURAL: &str = "apiservices";
/// The label of those that this server keeps.
const AUTOMANAGED: &str = "kube-aggregator.kubernetes.io/automanaged";

/// The custom groups and versions that have an APIService, shared with the controller that creates
/// deleted ones anew.
pub(super) type WantedApiServices = Arc<Mutex<BTreeSet<(String, String)>>>;

/// Restores the APIServices of custom groups and versions that a client has deleted or changed.
pub(super) struct ApiServiceKeeper {
    pub registry: Arc<Registry>,
    pub wanted: WantedApiServices,
}

impl ApiServiceKeeper {
    /// Returns the bucket of APIServices.
    pub fn bucket() -> Arc<str> {
        GroupResource::new(GROUP, PLURAL).to_string().into()
    }
}

impl Reconcile for ApiServiceKeeper {
    async fn reconcile(&mut self) -> Option<Delay> {
        let wanted = self.wanted.lock().clone();
        let info = self.registry.find(GROUP, "v1", PLURAL)?;
        for (group, version) in &wanted {
            let name = format!("{version}.{group}");
            let stored = Cluster::get(&*self.registry, &info.group_resource, "", &name);
            if stored.is_ok_and(|stored| stored.is_some_and(|stored| !has_changed(&stored, group, version))) {
                continue;
            }
            // The definition may have been deleted meanwhile, and its APIService with it.
            let is_wanted = || self.wanted.lock().contains(&(group.clone(), version.clone()));
            if is_wanted()
                && let Err(error) = self.restore(group, version).await
            {
                tracing::warn!(%group, %version, %error, "an APIService is not restored");
                return Some(API_SERVICE_CREATION_RETRY.after(RETRY));
            }
            // Or it was deleted during the creation, before there was an APIService to delete.
            if !is_wanted()
                && let Err(error) = self.registry.delete_as_server(&info, "", &name).await
            {
                tracing::warn!(%group, %version, %error, "an APIService is not deleted");
            }
        }
        None
    }
}

impl ApiServiceKeeper {
    /// Creates an APIService anew, or restores its spec. A client makes one its own by removing the
    /// label.
    async fn restore(&self, group: &str, version: &str) -> Result<()> {
        let wanted = api_service(&self.registry, group, version);
        let restore = |stored: &mut Value| {
            if has_changed(stored, group, version) {
                stored["spec"] = spec(group, version);
            }
        };
        self.registry.publish(wanted, restore).await
    }
}

impl CustomResources {
    /// Creates and deletes APIServices, so that they are those of the served groups and versions.
    pub(super) async fn register_api_services(&mut self) -> Result<()> {
        let served = self.definitions.values().filter(|definition| definition.established);
        let wanted: BTreeSet<(String, String)> = served
            .flat_map(|definition| &definition.resources)
            .map(|info| (info.group.to_string(), info.version.to_string()))
            .collect();
        if self.registered.as_ref() == Some(&wanted) {
            return Ok(());
        }
        // Before one is deleted here, so that the keeper does not create it anew.
        self.wanted.lock().clone_from(&wanted);
        let resource = GroupResource::new(GROUP, PLURAL);
        let stored = Cluster::list(&*self.registry, &resource, "")?;
        let name = |object: &Value| object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let names: BTreeSet<String> = stored.iter().map(name).collect();
        let wanted_names: BTreeSet<String> =
            wanted.iter().map(|(group, version)| format!("{version}.{group}")).collect();
        for (group, version) in &wanted {
            if !names.contains(&format!("{version}.{group}")) {
                self.registry.create_as_server(api_service(&self.registry, group, version)).await?;
            }
        }
        let info = self.registry.find(GROUP, "v1", PLURAL).ok_or(Error::UnknownResource)?;
        for object in &stored {
            let is_managed = object["metadata"]["labels"][AUTOMANAGED] == "true";
            if is_managed && !wanted_names.contains(&name(object)) {
                self.registry.delete_as_server(&info, "", &name(object)).await?;
            }
        }
        self.registered = Some(wanted);
        Ok(())
    }
}

fn spec(group: &str, version: &str) -> Value {
    json!({"group": group, "version": version, "groupPriorityMinimum": 1000, "versionPriority": 100})
}

/// Returns `true` if a client has changed the spec of an APIService that this server keeps.
fn has_changed(stored: &Value, group: &str, version: &str) -> bool {
    stored["metadata"]["labels"][AUTOMANAGED] == "true" && stored["spec"] != spec(group, version)
}

fn api_service(registry: &Registry, group: &str, version: &str) -> Value {
    json!({
        "kind": "APIService", "apiVersion": "apiregistration.k8s.io/v1",
        "metadata": {"name": format!("{version}.{group}"), "labels": {AUTOMANAGED: "true"}},
        "spec": spec(group, version),
        "status": local_api_service_status(&rfc3339(registry.now())),
    })
}

/// Returns the status of an APIService whose group and version this server serves itself.
pub(crate) fn local_api_service_status(now: &str) -> Value {
    json!({"conditions": [{
        "type": "Available", "status": "True", "lastTransitionTime": now,
        "reason": "Local", "message": "Local APIServices are always available",
    }]})
}
