//! The URLs that are configured for services.

use std::fmt;
use std::str::FromStr;

use coracle_apiserver::webhook::host_and_port;

/// A service and the URL at which it can be reached: `NAMESPACE/NAME=https://HOST:PORT`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceUrl {
    /// The namespace of the service.
    pub namespace: String,
    /// The name of the service.
    pub name: String,
    /// The URL; only its host and port count.
    pub url: String,
}

/// The error for an invalid `NAMESPACE/NAME=URL`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not of the form NAMESPACE/NAME=https://HOST:PORT")]
pub struct ServiceUrlError(String);

impl FromStr for ServiceUrl {
    type Err = ServiceUrlError;

    fn from_str(text: &str) -> std::result::Result<ServiceUrl, ServiceUrlError> {
        let wrong = || ServiceUrlError(text.to_owned());
        let (service, url) = text.split_once('=').ok_or_else(wrong)?;
        let (namespace, name) = service.split_once('/').ok_or_else(wrong)?;
        let is_https = url.starts_with("https://") && host_and_port(url).is_some();
        if namespace.is_empty() || name.is_empty() || !is_https {
            return Err(wrong());
        }
        Ok(ServiceUrl { namespace: namespace.to_owned(), name: name.to_owned(), url: url.to_owned() })
    }
}

impl fmt::Display for ServiceUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}={}", self.namespace, self.name, self.url)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn service_urls_are_parsed() {
        assert!("ns/s=https://127.0.0.1:9443".parse::<ServiceUrl>().is_ok());
        for wrong in ["", "s=https://h", "ns/s", "ns/=https://h", "ns/s=http://h", "ns/s=https://"] {
            assert!(wrong.parse::<ServiceUrl>().is_err(), "{wrong}");
        }
    }
}
