//! The addresses that a Service, its EndpointSlices and its annotations lead to.

use std::net::{IpAddr, SocketAddr};

use coracle_apimachinery::cluster::Cluster;
use coracle_apimachinery::field::quote;
use coracle_apimachinery::names::GroupResource;
use coracle_apimachinery::{Error, Result};
use coracle_apiserver::webhook::{Destination, ServiceReference, TransportError, host_and_port};
use coracle_behavior::FORWARD;
use serde_json::Value;

use super::simulated::{SimulatedNetwork, is_simulated_pod};
use crate::forwarding::{ForwardAccess, PAGE};

/// The annotation of a Service with the URL at which it can be reached.
const SERVICE_URL: &str = "coracle.dev/service-url";
/// The label of an EndpointSlice with the name of its Service.
const SERVICE_NAME: &str = "kubernetes.io/service-name";
/// The maximum number of addresses of a service that are tried.
const MAX_ADDRESSES: usize = 8;

/// The addresses of a service.
pub(super) struct Resolution {
    pub destination: Destination,
    /// Whether some of the addresses belong to processes that stand in for ports of simulated pods.
    pub has_forwarded: bool,
}

impl From<Destination> for Resolution {
    fn from(destination: Destination) -> Resolution {
        Resolution { destination, has_forwarded: false }
    }
}

/// Resolves a reference.
///
/// - `network`: that of the simulated nodes.
/// - `access`: the addresses that ports of simulated pods may lead to
///
/// # Errors
/// The service, port or endpoint does not exist, or all endpoints are simulated.
pub(super) fn resolve(
    reference: &ServiceReference,
    configured: Option<&str>,
    network: &SimulatedNetwork,
    access: &ForwardAccess,
    cluster: &dyn Cluster,
) -> Result<Resolution, TransportError> {
    let ServiceReference { namespace, name, port, .. } = reference;
    let failed = |error: Error| TransportError::Connection(error.to_string());
    let service = cluster.get(&GroupResource::new("", "services"), namespace, name).map_err(failed)?;
    let annotated = service.as_ref().and_then(|service| {
        service.pointer("/metadata/annotations").and_then(|a| a.get(SERVICE_URL)).and_then(Value::as_str)
    });
    let fallback = configured.or(annotated).and_then(host_and_port);
    let Some(service) = service else {
        return match fallback {
            Some(_) => {
                Ok(Destination { fallback, accepts_fallback_name: true, ..Destination::default() }.into())
            }
            None => Err(TransportError::ServiceNotFound(name.clone())),
        };
    };
    if service["spec"]["type"] == "ExternalName" && fallback.is_none() {
        let host = service["spec"]["externalName"].as_str().unwrap_or_default().to_owned();
        if let Ok(address) = host.parse::<IpAddr>() {
            network.check(SocketAddr::new(address, *port))?;
        }
        return Ok(Destination { fallback: Some((host, *port)), ..Destination::default() }.into());
    }
    let ports = service["spec"]["ports"].as_array().into_iter().flatten();
    let service_port = ports.into_iter().find(|known| known["port"].as_u64() == Some(u64::from(*port)));
    let (mut left_out, mut has_forwarded, mut refused, mut missing) = (false, false, None, None);
    let addresses = match service_port {
        Some(service_port) => {
            let slices = GroupResource::new("discovery.k8s.io", "endpointslices");
            let slices = cluster.list(&slices, namespace).map_err(failed)?;
            let slices: Vec<&Value> = slices.iter().filter(|slice| is_slice_of(slice, name)).collect();
            let port_name = service_port["name"].as_str().unwrap_or_default();
            missing = (!slices.is_empty()).then(|| port_name.to_owned());
            let mut endpoints = endpoints(&slices, port_name);
            endpoints.retain(|endpoint| fallback.is_none() || endpoint.pod.is_none());
            let mut addresses = Vec::new();
            for endpoint in endpoints {
                if addresses.len() >= MAX_ADDRESSES {
                    break;
                }
                if !endpoint.is_simulated(namespace, network, cluster).map_err(failed)? {
                    addresses.push(endpoint.address);
                    continue;
                }
                match endpoint.forwarded(namespace, access, cluster).map_err(failed)? {
                    Some(Ok(address)) => {
                        has_forwarded = true;
                        addresses.push(address);
                    }
                    Some(Err(reason)) => refused = Some(reason),
                    None => left_out = true,
                }
            }
            addresses
        }
        None if fallback.is_none() => {
            return Err(TransportError::NoServicePort { service: name.clone(), port: *port });
        }
        None => Vec::new(),
    };
    if addresses.is_empty()
        && fallback.is_none()
        && let Some(reason) = refused
    {
        return Err(TransportError::Unreachable(reason));
    }
    if addresses.is_empty() && fallback.is_none() {
        return Err(match left_out {
            true => simulated_pods(namespace, name),
            false => TransportError::NoEndpoints { service: name.clone(), port_name: missing },
        });
    }
    let destination = Destination { addresses, fallback, accepts_fallback_name: true };
    Ok(Resolution { destination, has_forwarded })
}

/// Returns the error for a service with simulated endpoints only.
fn simulated_pods(namespace: &str, name: &str) -> TransportError {
    TransportError::Unreachable(format!(
        "no endpoints available for service {}: its pods are simulated, and no process listens at their addresses; \
         start the server with --webhook-service-url {namespace}/{name}=https://HOST:PORT, or annotate the Service with \
         {SERVICE_URL}: https://HOST:PORT, or its pods with {FORWARD}: PORT=127.0.0.1:PORT ({PAGE})",
        quote(name)
    ))
}

/// A ready endpoint of a service.
struct Endpoint {
    address: SocketAddr,
    /// The namespace, if that is given, and name of its pod, if it is one.
    pod: Option<(Option<String>, String)>,
}

impl Endpoint {
    /// Returns whether the endpoint is simulated, so that nothing listens at its address.
    ///
    /// - `namespace`: the namespace of the EndpointSlice.
    fn is_simulated(
        &self,
        namespace: &str,
        network: &SimulatedNetwork,
        cluster: &dyn Cluster,
    ) -> Result<bool> {
        let address = self.address.ip();
        match &self.pod {
            Some((own, name)) => {
                is_simulated_pod(own.as_deref().unwrap_or(namespace), name, address, cluster)
            }
            None => Ok(network.contains(address)),
        }
    }

    /// Returns the address that the endpoint's port leads to, if the endpoint is a pod whose
    /// annotations name one. The inner error is the reason why that address is not reached.
    ///
    /// - `namespace`: the namespace of the EndpointSlice.
    fn forwarded(
        &self,
        namespace: &str,
        access: &ForwardAccess,
        cluster: &dyn Cluster,
    ) -> Result<Option<std::result::Result<SocketAddr, String>>> {
        let Some((own, name)) = &self.pod else { return Ok(None) };
        let namespace = own.as_deref().unwrap_or(namespace);
        match cluster.get(&GroupResource::new("", "pods"), namespace, name)? {
            Some(pod) => access.address_of(cluster, &pod, self.address.port()),
            None => Ok(None),
        }
    }
}

/// Returns `true` if an EndpointSlice belongs to a service.
fn is_slice_of(slice: &Value, service: &str) -> bool {
    slice["metadata"]["labels"][SERVICE_NAME] == service
}

/// Returns the ready endpoints at the port with this name, in the order of the slices.
fn endpoints(slices: &[&Value], port_name: &str) -> Vec<Endpoint> {
    let items = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let mut found = Vec::new();
    for slice in slices {
        let ports = items(&slice["ports"]);
        let port = ports.iter().find(|port| port["name"].as_str().unwrap_or_default() == port_name);
        let number = port.and_then(|port| port["port"].as_u64()).and_then(|port| u16::try_from(port).ok());
        let Some(number) = number else { continue };
        for endpoint in items(&slice["endpoints"]) {
            if endpoint["conditions"]["ready"] == false {
                continue;
            }
            let target = &endpoint["targetRef"];
            let text = |name: &str| target[name].as_str().map(str::to_owned);
            let pod =
                (target["kind"] == "Pod").then(|| (text("namespace"), text("name").unwrap_or_default()));
            let address = endpoint["addresses"][0].as_str().and_then(|text| text.parse::<IpAddr>().ok());
            found.extend(address.map(|address| Endpoint { address: SocketAddr::new(address, number), pod }));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use coracle_apiserver::admission::testing::World;
    use serde_json::json;

    const SIMULATED: &str = "no endpoints available for service \"s\": its pods are simulated, and no process listens at their \
        addresses; start the server with --webhook-service-url ns/s=https://HOST:PORT, or annotate the Service with \
        coracle.dev/service-url: https://HOST:PORT, or its pods with sim.coracle.dev/forward: PORT=127.0.0.1:PORT \
        (docs/reference/simulated-pods.md)";

    #[test]
    fn references_resolve_to_endpoints_and_configured_urls() {
        let service = |annotations: Value| {
            json!({"metadata": {"namespace": "ns", "name": "s", "annotations": annotations},
                   "spec": {"ports": [{"name": "https", "port": 443}]}})
        };
        let slice = json!({"metadata": {"namespace": "ns", "name": "s-1", "labels": {SERVICE_NAME: "s"}},
            "ports": [{"name": "metrics", "port": 1}, {"name": "https", "port": 9443}],
            "endpoints": [{"addresses": ["10.0.0.1"]}, {"addresses": ["10.0.0.2"], "conditions": {"ready": false}}]});
        let mut pods = slice.clone();
        pods["endpoints"][0]["targetRef"] = json!({"kind": "Pod", "name": "p"});
        let reference = |port: u16| ServiceReference {
            namespace: "ns".into(),
            name: "s".into(),
            port,
            path: String::new(),
        };
        let plain = World::default().with("", "services", service(json!({})));
        let endpoints = World::default().with("", "services", service(json!({}))).with(
            "discovery.k8s.io",
            "endpointslices",
            slice.clone(),
        );
        let annotated =
            World::default().with("", "services", service(json!({SERVICE_URL: "https://127.0.0.1:2"})));
        let bound = |runtime: &str| {
            json!({"metadata": {"name": "n"}, "spec": {"podCIDR": "10.0.0.0/24"},
                   "status": {"nodeInfo": {"containerRuntimeVersion": runtime}}})
        };
        let with_pods = |runtime: &str| {
            let pod = json!({"metadata": {"namespace": "ns", "name": "p"}, "spec": {"nodeName": "n"}});
            let world = World::default().with("", "services", service(json!({}))).with("", "pods", pod);
            let world = world.with("discovery.k8s.io", "endpointslices", pods.clone());
            world.with("", "nodes", bound(runtime))
        };
        let (real, simulated) = (with_pods("containerd://2.0.0"), with_pods("coracle://0.1.0"));
        let forwarded = |ports: &str| {
            let meta = json!({"namespace": "ns", "name": "p", "annotations": {FORWARD: ports}});
            with_pods("coracle://0.1.0").with(
                "",
                "pods",
                json!({"metadata": meta, "spec": {"nodeName": "n"}}),
            )
        };
        let (near, far) = (forwarded("9443=127.0.0.1:3"), forwarded("9443=10.9.9.9:3"));
        let by_hand = World::default()
            .with("", "services", service(json!({})))
            .with("discovery.k8s.io", "endpointslices", slice.clone())
            .with("", "nodes", bound("coracle://0.1.0"));
        let external = |host: &str| {
            let mut service = service(json!({}));
            service["spec"] = json!({"type": "ExternalName", "externalName": host});
            World::default().with("", "services", service).with("", "nodes", bound("coracle://0.1.0"))
        };
        let (external_host, external_pod) = (external("h"), external("10.0.0.7"));
        for (case, world, port, configured, want) in [
            ("nothing", &World::default(), 443, None, Err(r#"service "s" not found"#)),
            ("configured", &World::default(), 443, Some("https://h:1"), Ok("[] h:1")),
            ("no endpoints", &plain, 443, None, Err(r#"no endpoints available for service "s""#)),
            ("no port", &plain, 1, None, Err(r#"no service port 1 found for service "s""#)),
            ("annotated", &annotated, 443, None, Ok("[] 127.0.0.1:2")),
            ("the flag before the annotation", &annotated, 443, Some("https://h:1"), Ok("[] h:1")),
            ("endpoints", &endpoints, 443, None, Ok("[10.0.0.1:9443] -")),
            ("endpoints before the URL", &endpoints, 443, Some("https://h:1"), Ok("[10.0.0.1:9443] h:1")),
            ("pods", &real, 443, None, Ok("[10.0.0.1:9443] -")),
            ("the URL instead of pods", &real, 443, Some("https://h:1"), Ok("[] h:1")),
            ("simulated pods", &simulated, 443, None, Err(SIMULATED)),
            ("a process in place of a simulated pod", &near, 443, None, Ok("[127.0.0.1:3] -")),
            (
                "a process that is not reached",
                &far,
                443,
                None,
                Err("10.9.9.9:3 is not reached: --allow-forward does not name its address"),
            ),
            ("the URL instead of simulated pods", &simulated, 443, Some("https://h:1"), Ok("[] h:1")),
            ("an address of a simulated pod without it", &by_hand, 443, None, Err(SIMULATED)),
            ("the URL instead of that address", &by_hand, 443, Some("https://h:1"), Ok("[] h:1")),
            ("another host", &external_host, 443, None, Ok("[] h:443 as the Service")),
            (
                "a simulated pod as another host",
                &external_pod,
                443,
                None,
                Err(
                    "dial tcp 10.0.0.7:443: the address is that of a simulated pod or node, where no process listens",
                ),
            ),
        ] {
            let network = SimulatedNetwork::load(world).expect("readable");
            let access = ForwardAccess::new(None, ([127, 0, 0, 1], 6443).into(), []);
            let got = resolve(&reference(port), configured, &network, &access, world).map(|found| {
                let found = found.destination;
                let fallback = found.fallback.map_or("-".to_owned(), |(host, port)| {
                    let by = if found.accepts_fallback_name { "" } else { " as the Service" };
                    format!("{host}:{port}{by}")
                });
                format!("{:?} {fallback}", found.addresses)
            });
            assert_eq!(
                got.map_err(|error| error.to_string()),
                want.map(str::to_owned).map_err(str::to_owned),
                "{case}"
            );
        }
    }
}
