//! Advertisement: the objects in which clients in the cluster find this server.
//!
//! The `kubernetes` Service in the namespace `default` has no selector: its Endpoints and
//! EndpointSlice are the server's own. The server's identity is a Lease in `kube-system`, which it
//! renews.
//!
//! Source: `pkg/controlplane/reconcilers`, and `pkg/controlplane/apiserver/server.go` for the
//! Lease.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use coracle_apimachinery::Result;
use coracle_apiserver::registry::Registry;
use futures::future::BoxFuture;
use ring::digest;
use serde_json::{Value, json};

use crate::timers::IDENTITY_LEASE;

/// The interval of renewals.
const RENEWAL: Duration = Duration::from_secs(10);
/// The duration of the Lease, in seconds.
const LEASE_SECONDS: u32 = 3600;
/// Tells the Leases of API servers from those of leader elections.
const COMPONENT: &str = "kube-apiserver";

/// A server as clients in the cluster see it.
pub struct Advertisement {
    registry: Arc<Registry>,
    address: SocketAddr,
    hostname: String,
    /// The name of the Lease, and what no other process has.
    holder: String,
}

impl Advertisement {
    /// Creates the advertisement of the server at an address, on the host with this name.
    pub fn new(registry: Arc<Registry>, address: SocketAddr, hostname: String) -> Advertisement {
        let holder = format!("{}_{}", identity(&hostname), registry.identities().of_process(COMPONENT));
        Advertisement { registry, address, hostname, holder }
    }

    /// Creates or updates the endpoints of the `kubernetes` Service, and the Lease.
    ///
    /// # Errors
    /// The errors of the store.
    pub async fn publish(&self) -> Result<()> {
        // Endpoints may not have such an address.
        if !self.address.ip().is_loopback() {
            let [endpoints, slice] = self.endpoints();
            self.publish_members(endpoints, &["subsets"]).await?;
            self.publish_members(slice, &["endpoints", "ports"]).await?;
        }
        self.renew().await
    }

    /// Builds the Endpoints and the EndpointSlice of the `kubernetes` Service.
    fn endpoints(&self) -> [Value; 2] {
        let (address, port) = (self.address.ip().to_string(), self.address.port());
        let kind = if self.address.is_ipv4() { "IPv4" } else { "IPv6" };
        let ports = json!([{"name": "https", "port": port, "protocol": "TCP"}]);
        let endpoints = json!({
            "apiVersion": "v1", "kind": "Endpoints",
            "metadata": {
                "name": "kubernetes", "namespace": "default",
                "labels": {"endpointslice.kubernetes.io/skip-mirror": "true"},
            },
            "subsets": [{"addresses": [{"ip": address}], "ports": ports}],
        });
        let slice = json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
            "metadata": {
                "name": "kubernetes", "namespace": "default", "generation": 1,
                "labels": {"kubernetes.io/service-name": "kubernetes"},
            },
            "addressType": kind,
            "endpoints": [{"addresses": [address], "conditions": {"ready": true}}],
            "ports": ports,
        });
        [endpoints, slice]
    }

    async fn renew(&self) -> Result<()> {
        self.publish_members(self.lease(), &["spec"]).await
    }

    /// Creates an object, or replaces these members of the stored one.
    async fn publish_members(&self, object: Value, members: &[&str]) -> Result<()> {
        let wanted = object.clone();
        let replace =
            |stored: &mut Value| members.iter().for_each(|name| stored[name] = wanted[name].clone());
        self.registry.publish(object, replace).await
    }

    /// Renews the Lease for ever. A renewal that fails is made up for by the next one.
    pub fn keep_identity(self) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            loop {
                let _due = self.registry.clock().sleep(IDENTITY_LEASE.after(RENEWAL)).await;
                if let Err(error) = self.renew().await {
                    tracing::warn!(%error, "the identity Lease is not renewed");
                }
            }
        })
    }

    fn lease(&self) -> Value {
        json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {
                "name": identity(&self.hostname), "namespace": "kube-system",
                "labels": {
                    "apiserver.kubernetes.io/identity": COMPONENT,
                    "kubernetes.io/hostname": self.hostname,
                },
                "annotations": {"kubernetes.io/peer-advertise-address": self.address.to_string()},
            },
            "spec": {
                "holderIdentity": self.holder,
                "leaseDurationSeconds": LEASE_SECONDS,
                "renewTime": self.registry.now().strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string(),
            },
        })
    }
}

/// Returns the name of the Lease of the server on a host.
fn identity(hostname: &str) -> String {
    let mut hashed = Vec::new();
    for part in [hostname, COMPONENT] {
        let length = u16::try_from(part.len()).unwrap_or(u16::MAX);
        hashed.extend_from_slice(&length.to_be_bytes());
        hashed.extend_from_slice(part.as_bytes());
    }
    let digest = digest::digest(&digest::SHA256, &hashed);
    format!("apiserver-{}", base32(&digest.as_ref()[..16]))
}

/// Encodes bytes in base32 (RFC 4648), in lower case and without padding.
fn base32(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";
    let groups = bytes.chunks(5).flat_map(|chunk| {
        let bits = chunk.iter().fold(0_u64, |bits, byte| (bits << 8) | u64::from(*byte));
        let bits = bits << (8 * (5 - chunk.len()));
        (0..(chunk.len() * 8).div_ceil(5)).map(move |at| (bits >> (35 - 5 * at)) & 31)
    });
    groups.map(|digit| char::from(ALPHABET[usize::try_from(digit).unwrap_or_default()])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lease_is_named_by_the_host_as_kube_apiserver_names_it() {
        assert_eq!(identity("vm"), "apiserver-wlv32tlttr4jl3gtroqexyxapa");
    }

    #[test]
    fn bytes_are_written_in_base_32() {
        for (bytes, want) in [
            ("", ""),
            ("f", "my"),
            ("fo", "mzxq"),
            ("foo", "mzxw6"),
            ("foob", "mzxw6yq"),
            ("fooba", "mzxw6ytb"),
        ] {
            assert_eq!(base32(bytes.as_bytes()), want);
        }
    }
}
