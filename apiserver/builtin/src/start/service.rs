//! `default/kubernetes`: the Service that leads clients in the cluster to the server.

use coracle_apimachinery::Result;
use coracle_apimachinery::cluster::Cluster;
use coracle_apimachinery::names::GroupResource;
use coracle_apiserver::registry::Registry;
use serde_json::Value;

/// The name of its port.
const PORT: &str = "https";

/// Updates the Service to another port of this machine, if the Service exists. It is the port of a
/// server that continues with the objects of another one.
///
/// # Errors
/// The errors of the store.
pub async fn move_service(registry: &Registry, secure_port: u16) -> Result<()> {
    let services = GroupResource::new("", "services");
    let Some(service) = Cluster::get(registry, &services, "default", "kubernetes")? else { return Ok(()) };
    let moved = |service: &mut Value| {
        let ports = service.pointer_mut("/spec/ports").and_then(Value::as_array_mut);
        for port in ports.into_iter().flatten().filter(|port| port["name"] == PORT) {
            port["targetPort"] = secure_port.into();
        }
    };
    registry.publish(service, moved).await
}
