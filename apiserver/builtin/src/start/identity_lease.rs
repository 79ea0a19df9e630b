//! The identity of the server: a Lease in `kube-system`, which it renews.
//!
//! Source: `pkg/controlplane/apiserver/server.go`.

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

/// The Lease that is the identity of a server.
pub struct IdentityLease {
    registry: Arc<Registry>,
    address: SocketAddr,
    hostname: String,
    /// The name of the Lease, and what no other process has.
    holder: String,
}

impl IdentityLease {
    /// Prepares the Lease of the server at an address, on the host with this name.
    pub fn new(registry: Arc<Registry>, address: SocketAddr, hostname: String) -> IdentityLease {
        let holder = format!("{}_{}", lease_name(&hostname), registry.identities().of_process(COMPONENT));
        IdentityLease { registry, address, hostname, holder }
    }

    /// Creates or renews the Lease.
    ///
    /// # Errors
    /// The errors of the store.
    pub async fn publish(&self) -> Result<()> {
        let wanted = self.lease();
        let spec = wanted["spec"].clone();
        self.registry.publish(wanted, |stored| stored["spec"] = spec.clone()).await
    }

    /// Renews the Lease for ever. A renewal that fails is made up for by the next one.
    pub fn keep(self) -> BoxFuture<'static, ()> {
        let mut renewals = self.registry.clock().interval(IDENTITY_LEASE.after(RENEWAL), "");
        Box::pin(async move {
            loop {
                renewals.tick().await;
                if let Err(error) = self.publish().await {
                    tracing::warn!(%error, "the identity Lease is not renewed");
                }
            }
        })
    }

    fn lease(&self) -> Value {
        json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {
                "name": lease_name(&self.hostname), "namespace": "kube-system",
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
fn lease_name(hostname: &str) -> String {
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
        assert_eq!(lease_name("vm"), "apiserver-wlv32tlttr4jl3gtroqexyxapa");
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
