//! A client configuration: the location of a server, and the certificates that are trusted for it.

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::Uri;
use http::uri::Authority;
use serde_json::Value;

use super::error::ConfigError;

/// `clientConfig` of a webhook: a URL or a service, and a CA bundle.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ClientConfig {
    /// `url`; None if it refers to a service.
    pub url: Option<String>,
    /// `service`.
    pub service: Option<ServiceReference>,
    /// The TLS configuration.
    pub tls: TlsConfig,
}

/// A reference to a port of a service.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct ServiceReference {
    /// `namespace`.
    pub namespace: String,
    /// `name`.
    pub name: String,
    /// `port`, 443 by default.
    pub port: u16,
    /// `path`, or nothing.
    pub path: String,
}

/// The TLS configuration for a server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct TlsConfig {
    /// The PEM text of `caBundle`; without it the certificates of the system are trusted.
    pub ca_bundle: Option<Arc<[u8]>>,
    /// `insecureSkipTLSVerify`.
    pub insecure: bool,
    /// Whether the client presents the front proxy's certificate.
    pub as_front_proxy: bool,
}

impl TlsConfig {
    /// Adds another authority, if `caBundle` is set.
    pub(super) fn trusting(mut self, ca_pem: &str) -> TlsConfig {
        self.ca_bundle = self.ca_bundle.map(|bundle| [&*bundle, b"\n", ca_pem.as_bytes()].concat().into());
        self
    }
}

/// The destination of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Target {
    /// The host in the URL: the server's name.
    pub host: String,
    pub port: u16,
    /// Host and port as the URL has them.
    pub authority: String,
    pub path: String,
}

impl ClientConfig {
    /// Reads a `clientConfig`.
    pub fn read(config: &Value) -> ClientConfig {
        let service = config.get("service").filter(|service| service.is_object());
        ClientConfig {
            url: config.get("url").and_then(Value::as_str).map(str::to_owned),
            service: service.map(ServiceReference::read),
            tls: TlsConfig { ca_bundle: ca_bundle(config), ..TlsConfig::default() },
        }
    }

    pub(super) fn target(&self) -> Result<Target, ConfigError> {
        match (&self.service, &self.url) {
            (Some(service), _) => {
                let host = format!("{}.{}.svc", service.name, service.namespace);
                let authority = format!("{host}:{}", service.port);
                Ok(Target { host, port: service.port, authority, path: clean(&service.path) })
            }
            (None, Some(url)) => target_of(url).ok_or_else(|| ConfigError::Url(url.clone())),
            (None, None) => Err(ConfigError::Url(String::new())),
        }
    }
}

impl ServiceReference {
    /// Reads a reference.
    pub fn read(service: &Value) -> ServiceReference {
        let text = |member: &str| service[member].as_str().unwrap_or_default().to_owned();
        let port = service["port"].as_u64().and_then(|port| u16::try_from(port).ok());
        ServiceReference {
            namespace: text("namespace"),
            name: text("name"),
            port: port.unwrap_or(443),
            path: text("path"),
        }
    }
}

/// Returns the decoded `caBundle`. Invalid base64 results in an empty bundle, which trusts no
/// certificate.
pub(crate) fn ca_bundle(config: &Value) -> Option<Arc<[u8]>> {
    let encoded = config.get("caBundle").and_then(Value::as_str).filter(|text| !text.is_empty())?;
    Some(STANDARD.decode(encoded).unwrap_or_default().into())
}

/// Returns the host and port of a URL; None if it is invalid.
pub fn host_and_port(url: &str) -> Option<(String, u16)> {
    target_of(url).map(|target| (target.host, target.port))
}

fn target_of(url: &str) -> Option<Target> {
    let uri: Uri = url.parse().ok()?;
    let authority = uri.authority()?;
    let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_owned();
    let port = port_or(authority, 443)?;
    Some(Target { host, port, authority: authority.as_str().to_owned(), path: clean(uri.path()) })
}

/// Returns the port of an authority, or `default` if it has no port; None if the port is not a
/// number from 1 to 65535.
pub fn port_or(authority: &Authority, default: u16) -> Option<u16> {
    let (_, host) = authority.as_str().rsplit_once('@').unwrap_or(("", authority.as_str()));
    match host.strip_prefix(authority.host())?.strip_prefix(':') {
        None | Some("") => Some(default),
        // Rust reads a sign, too.
        Some(port) if port.starts_with('+') => None,
        Some(port) => port.parse().ok().filter(|port| *port > 0),
    }
}

/// Returns a path as client-go joins it. It begins with a slash, and does not end with one.
fn clean(path: &str) -> String {
    let segments = path.split('/').filter(|segment| !segment.is_empty() && *segment != ".");
    segments.fold(String::new(), |path, segment| path + "/" + segment)
}

impl Target {
    /// Returns the URL of a request.
    pub fn url(&self, timeout_seconds: Option<u64>) -> String {
        let path = if self.path.is_empty() { "/" } else { &self.path };
        let query = timeout_seconds.map(|seconds| format!("?timeout={seconds}s")).unwrap_or_default();
        format!("https://{}{path}{query}", self.authority)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn urls_are_those_of_client_go() {
        for (config, want) in [
            (json!({"url": "https://127.0.0.1:1"}), "https://127.0.0.1:1/?timeout=10s"),
            (json!({"url": "https://host/a/b/"}), "https://host/a/b?timeout=10s"),
            (json!({"url": "https://[::1]:8443/x"}), "https://[::1]:8443/x?timeout=10s"),
            (json!({"service": {"namespace": "ns", "name": "s"}}), "https://s.ns.svc:443/?timeout=10s"),
            (
                json!({"service": {"namespace": "ns", "name": "s", "port": 9443, "path": "/validate"}}),
                "https://s.ns.svc:9443/validate?timeout=10s",
            ),
        ] {
            let target = ClientConfig::read(&config).target().expect("valid");
            assert_eq!(target.url(Some(10)), want, "{config}");
        }
        for port in ["0", "65536", "99999999999", "a"] {
            let config = json!({"url": format!("https://host:{port}")});
            assert!(ClientConfig::read(&config).target().is_err(), "{config}: not another port in its place");
        }
    }
}
