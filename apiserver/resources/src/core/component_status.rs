//! ComponentStatus: deprecated, but still requested. The server that responds is healthy, and so is
//! what it runs.

use coracle_apimachinery::cluster::Cluster;
use coracle_apimachinery::names::GroupResource;
use coracle_apimachinery::strategy::Computed;
use coracle_apimachinery::{Error, Result};
use serde_json::{Value, json};

const COMPONENTS: [&str; 3] = ["scheduler", "controller-manager", "etcd-0"];

/// The components of this control plane.
pub struct ComponentStatuses;

impl Computed for ComponentStatuses {
    fn list(&self, _: &dyn Cluster, _: &str, _: &str) -> Result<Vec<Value>> {
        Ok(COMPONENTS.iter().map(|component| status(component)).collect())
    }

    fn not_found(&self, _: &str, name: &str) -> Error {
        // It has no plural here.
        Error::not_found(&GroupResource::new("", "componentstatus"), name)
    }
}

fn status(component: &str) -> Value {
    json!({
        "kind": "ComponentStatus", "apiVersion": "v1", "metadata": {"name": component},
        "conditions": [{"type": "Healthy", "status": "True", "message": "ok"}],
    })
}
