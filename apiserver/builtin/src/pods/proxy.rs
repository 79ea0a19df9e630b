//! The HTTP servers that pods and Services stand for: processes that annotations name.
//!
//! Source: `pkg/registry/core/pod` (`ResourceLocation`), `pkg/registry/core/service/storage`
//! (`ResourceLocation`).

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use coracle_apimachinery::field::quote;
use coracle_apimachinery::object_meta::ObjectMeta;
use coracle_apimachinery::{Error, Result};
use coracle_apiserver::registry::Registry;
use coracle_apiserver::serve::Upstream;
use coracle_apiserver::webhook::{Destination, ServiceReference, TransportError};
use coracle_behavior::Profile;
use serde_json::Value;

use super::behavior::behavior_of;
use super::command::not_implemented;
use crate::forwarding::{ForwardAccess, no_process};

/// The name in the path of a proxy: `NAME`, `NAME:PORT` or `SCHEME:NAME:PORT`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProxiedName<'a> {
    /// `http`, `https`, or "" for the former.
    scheme: &'a str,
    /// The name of the object.
    pub name: &'a str,
    /// A number, or the name of a port of a Service; "" for the default.
    port: &'a str,
}

impl ProxiedName<'_> {
    /// Creates the name of an object, without a scheme and a port.
    pub fn of(name: &str) -> ProxiedName<'_> {
        ProxiedName { scheme: "", name, port: "" }
    }

    /// Parses a name into its parts; None if it has too many, or a scheme other than `http` and
    /// `https`.
    pub fn parse(text: &str) -> Option<ProxiedName<'_>> {
        let parts: Vec<&str> = text.split(':').collect();
        match parts[..] {
            [name] => Some(ProxiedName::of(name)),
            [name, port] => Some(ProxiedName { scheme: "", name, port }),
            [scheme @ ("http" | "https" | ""), name, port] => Some(ProxiedName { scheme, name, port }),
            _ => None,
        }
    }

    fn is_tls(&self) -> bool {
        self.scheme == "https"
    }
}

/// Returns the server of a port of a pod; by default that of the first port that a container
/// declares.
///
/// # Errors
/// 501 if no process stands for the port.
pub fn pod_upstream(
    registry: &Registry,
    pod: &Value,
    named: &ProxiedName<'_>,
    access: &ForwardAccess,
) -> Result<Upstream> {
    let (_, behavior) = behavior_of(registry, pod, Profile::Inert)?;
    let port = match named.port {
        "" => first_port(pod).or(behavior.first_port()).unwrap_or(80),
        port => port
            .parse()
            .map_err(|_| Error::bad_request(format!("invalid pod request {}", quote(named.name))))?,
    };
    let address = behavior.address_of(port).ok_or_else(|| not_implemented(no_process(port)))?;
    access.check(address).map_err(Error::ServiceUnavailable)?;
    let ip = pod.pointer("/status/podIP").and_then(Value::as_str).unwrap_or_default();
    let destination = Destination { addresses: vec![address], ..Destination::default() };
    Ok(Upstream { destination, is_tls: named.is_tls(), host: format!("{ip}:{port}") })
}

/// Returns the first port that a container of a pod declares.
fn first_port(pod: &Value) -> Option<u16> {
    let containers = pod.pointer("/spec/containers").and_then(Value::as_array).into_iter().flatten();
    let mut ports = containers.filter_map(|container| container.pointer("/ports/0/containerPort"));
    u16::try_from(ports.next()?.as_u64()?).ok()
}

/// Returns the server of a port of a Service, which webhooks can reach, too.
///
/// # Errors
/// 503 if there is none.
pub fn service_upstream(
    registry: &Registry,
    service: &Value,
    named: &ProxiedName<'_>,
    access: &ForwardAccess,
) -> Result<Upstream> {
    let name = service.name();
    let ports = service.pointer("/spec/ports").and_then(Value::as_array).into_iter().flatten();
    let number = |port: &Value| port["port"].as_u64().and_then(|port| u16::try_from(port).ok());
    let mut found = ports.filter(|port| match named.port.parse::<u16>() {
        Ok(wanted) => number(port) == Some(wanted),
        Err(_) => port["name"].as_str().unwrap_or_default() == named.port,
    });
    let unavailable = Error::ServiceUnavailable;
    let no_endpoints = || unavailable(format!("no endpoints available for service {}", quote(name)));
    let port = found.next().and_then(number).ok_or_else(|| match named.port.parse::<u16>() {
        Ok(port) => unavailable(format!("no service port {port} found for service {}", quote(name))),
        Err(_) => no_endpoints(),
    })?;
    let reference = ServiceReference {
        namespace: service.namespace().to_owned(),
        name: name.to_owned(),
        port,
        ..ServiceReference::default()
    };
    let destination =
        registry.webhook_clients().resolve(&reference, registry).map_err(|error| match error {
            TransportError::NoEndpoints { .. } => no_endpoints(),
            error => unavailable(error.to_string()),
        })?;
    // Users who may create Services choose these addresses, and users who may use proxies can send
    // anything there.
    for address in &destination.addresses {
        access.check(*address).map_err(unavailable)?;
    }
    if let Some((host, port)) = &destination.fallback {
        let ip = if host == "localhost" { Ok(IpAddr::from(Ipv4Addr::LOCALHOST)) } else { host.parse() };
        let ip = ip.map_err(|_| {
            unavailable(format!("{host} is not reached: proxies know addresses, and no names"))
        })?;
        access.check(SocketAddr::new(ip, *port)).map_err(unavailable)?;
    }
    // The URL of a service is always one of HTTPS.
    let is_tls = named.is_tls() || destination.fallback.is_some();
    Ok(Upstream { destination, is_tls, host: format!("{name}.{}.svc:{port}", service.namespace()) })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn names_in_paths_of_proxies() {
        for (text, scheme, name, port) in [
            ("web", "", "web", ""),
            ("web:80", "", "web", "80"),
            ("https:web:443", "https", "web", "443"),
            ("https:web:", "https", "web", ""),
        ] {
            assert_eq!(ProxiedName::parse(text), Some(ProxiedName { scheme, name, port }), "{text}");
        }
        for wrong in ["a:b:c:d", "ftp:web:80"] {
            assert_eq!(ProxiedName::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn the_first_port_is_that_of_the_first_container_with_ports() {
        let pod = json!({"spec": {"containers": [{"name": "a"}, {"name": "b", "ports": [{"containerPort": 8080}, {"containerPort": 1}]}]}});
        assert_eq!(first_port(&pod), Some(8080));
        assert_eq!(first_port(&json!({"spec": {"containers": [{"name": "a"}]}})), None);
    }
}
