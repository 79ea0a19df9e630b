//! The APIServices of custom groups and versions: they are listed as local ones while a definition
//! serves them.
//!
//! Source: kube-aggregator's `autoregister_controller.go`, with the priorities of
//! `crdregistration_controller.go`.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::CustomResources;
use crate::cluster::Cluster;
use crate::names::GroupResource;
use crate::registry::deletion::rfc3339;
use crate::{Error, Result};

const GROUP: &str = "apiregistration.k8s.io";
const PLURAL: &str = "apiservices";
/// The label of those that this server keeps.
const AUTOMANAGED: &str = "kube-aggregator.kubernetes.io/automanaged";

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
        let resource = GroupResource::new(GROUP, PLURAL);
        let stored = Cluster::list(&*self.registry, &resource, "")?;
        let name = |object: &Value| object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let names: BTreeSet<String> = stored.iter().map(name).collect();
        let wanted_names: BTreeSet<String> =
            wanted.iter().map(|(group, version)| format!("{version}.{group}")).collect();
        for (group, version) in &wanted {
            if !names.contains(&format!("{version}.{group}")) {
                self.registry.create_as_server(self.api_service(group, version)).await?;
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

    fn api_service(&self, group: &str, version: &str) -> Value {
        json!({
            "kind": "APIService", "apiVersion": "apiregistration.k8s.io/v1",
            "metadata": {"name": format!("{version}.{group}"), "labels": {AUTOMANAGED: "true"}},
            "spec": {"group": group, "version": version, "groupPriorityMinimum": 1000, "versionPriority": 100},
            "status": local_api_service_status(&rfc3339(self.registry.now())),
        })
    }
}

/// Returns the status of an APIService whose group and version this server serves itself.
pub(crate) fn local_api_service_status(now: &str) -> Value {
    json!({"conditions": [{
        "type": "Available", "status": "True", "lastTransitionTime": now,
        "reason": "Local", "message": "Local APIServices are always available",
    }]})
}
