//! `default/kubernetes`: the Service that leads clients in the cluster to the server.
//!
//! It has no selector: its Endpoints and EndpointSlice are the server's own.
//!
//! Source: `pkg/controlplane/reconcilers`.

use std::net::{IpAddr, SocketAddr};

use coracle_apimachinery::Result;
use coracle_apimachinery::cluster::Cluster;
use coracle_apimachinery::names::GroupResource;
use coracle_apiserver::registry::Registry;
use serde_json::{Value, json};

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

/// Creates or updates the Endpoints and the EndpointSlice of the Service, if that exists, with the
/// address of this server alone.
///
/// - `address`: the stored one if this is None
///
/// # Errors
/// The errors of the store.
pub async fn publish_endpoints(registry: &Registry, address: Option<IpAddr>, port: u16) -> Result<()> {
    let stored =
        |resource: &str| Cluster::get(registry, &GroupResource::new("", resource), "default", "kubernetes");
    if stored("services")?.is_none() {
        return Ok(());
    }
    let address = match address {
        Some(address) => Some(address),
        None => stored("endpoints")?.as_ref().and_then(address_of),
    };
    let Some(address) = address else { return Ok(()) };
    let [endpoints, slice] = endpoints(SocketAddr::new(address, port));
    publish_members(registry, endpoints, &["subsets"]).await?;
    publish_members(registry, slice, &["addressType", "endpoints", "ports"]).await
}

/// Returns the address of Endpoints with one.
fn address_of(endpoints: &Value) -> Option<IpAddr> {
    endpoints.pointer("/subsets/0/addresses/0/ip")?.as_str()?.parse().ok()
}

/// Builds the Endpoints and the EndpointSlice.
fn endpoints(address: SocketAddr) -> [Value; 2] {
    let (ip, port) = (address.ip().to_string(), address.port());
    let kind = if address.is_ipv4() { "IPv4" } else { "IPv6" };
    let ports = json!([{"name": PORT, "port": port, "protocol": "TCP"}]);
    let endpoints = json!({
        "apiVersion": "v1", "kind": "Endpoints",
        "metadata": {
            "name": "kubernetes", "namespace": "default",
            "labels": {"endpointslice.kubernetes.io/skip-mirror": "true"},
        },
        "subsets": [{"addresses": [{"ip": ip}], "ports": ports}],
    });
    let slice = json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
        "metadata": {
            "name": "kubernetes", "namespace": "default", "generation": 1,
            "labels": {"kubernetes.io/service-name": "kubernetes"},
        },
        "addressType": kind,
        "endpoints": [{"addresses": [ip], "conditions": {"ready": true}}],
        "ports": ports,
    });
    [endpoints, slice]
}

/// Creates an object, or replaces these members of the stored one.
async fn publish_members(registry: &Registry, object: Value, members: &[&str]) -> Result<()> {
    let wanted = object.clone();
    let replace = |stored: &mut Value| members.iter().for_each(|name| stored[name] = wanted[name].clone());
    registry.publish(object, replace).await
}
