//! The addresses that the ports of simulated pods may lead to.
//!
//! A pod is simulated, but the annotation `sim.coracle.dev/forward` names processes that stand for
//! its ports. By that, whoever may create pods reaches what this machine reaches; so which
//! addresses are allowed is the decision of the one who starts the server.

use std::collections::BTreeSet;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

use coracle_apimachinery::Result;
use coracle_apimachinery::cluster::Cluster;
use coracle_apimachinery::validation::ip::Cidr;
use coracle_behavior::{FORWARD, Profile};
use serde_json::Value;

use crate::pods::behavior_of;

/// The blocks of addresses that ports may lead to, as they are configured: `127.0.0.1,10.0.0.0/8`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ForwardAddresses(Vec<Cidr>);

/// The decision about addresses that ports may lead to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ForwardAccess {
    allowed: Vec<Cidr>,
    refused_ports: BTreeSet<u16>,
}

impl ForwardAccess {
    /// Allows the configured addresses; without them those of the loopback interface, if the server
    /// itself is served there alone.
    ///
    /// - `listener`: the address of this server
    /// - `own_ports`: ports of other servers that must not be reached, such as those of etcd
    pub fn new(
        configured: Option<&ForwardAddresses>,
        listener: SocketAddr,
        own_ports: impl IntoIterator<Item = u16>,
    ) -> ForwardAccess {
        let allowed = match configured {
            Some(addresses) => addresses.0.clone(),
            None if listener.ip().is_loopback() => {
                ["127.0.0.0/8", "::1/128"].iter().filter_map(|block| Cidr::parse(block)).collect()
            }
            None => Vec::new(),
        };
        ForwardAccess { allowed, refused_ports: own_ports.into_iter().chain([listener.port()]).collect() }
    }

    /// Refuses an address that ports may not lead to. The ports of this server and of etcd are
    /// refused on every address, since a machine has several.
    ///
    /// # Errors
    /// The reason.
    pub fn check(&self, address: SocketAddr) -> std::result::Result<(), String> {
        let ip = address.ip().to_canonical();
        if self.refused_ports.contains(&address.port()) {
            return Err(format!("{address} is not reached: the port is that of this server or of its etcd"));
        }
        // The system takes an unspecified address for the loopback one.
        if ip.is_unspecified() || !self.allowed.iter().any(|block| block.contains(ip)) {
            return Err(format!("{address} is not reached: --allow-forward does not name its address"));
        }
        Ok(())
    }

    /// Returns the address for a port of a pod; None if its annotations name none. The inner error
    /// is the reason for which the address must not be reached.
    ///
    /// # Errors
    /// The pod's namespace cannot be read.
    pub fn address_of(
        &self,
        cluster: &dyn Cluster,
        pod: &Value,
        port: u16,
    ) -> Result<Option<std::result::Result<SocketAddr, String>>> {
        let (_, behavior) = behavior_of(cluster, pod, Profile::Inert)?;
        Ok(behavior.address_of(port).map(|address| self.check(address).map(|()| address)))
    }
}

/// Formats the reason for which a port is not forwarded.
pub fn no_process(port: u16) -> String {
    format!(
        "no process stands for port {port} of the simulated pod: name one with the annotation {FORWARD}: {port}=127.0.0.1:PORT ({PAGE})"
    )
}

/// The page about simulated pods.
pub const PAGE: &str = "docs/reference/simulated-pods.md";

impl FromStr for ForwardAddresses {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<ForwardAddresses, String> {
        if text == "none" {
            return Ok(ForwardAddresses::default());
        }
        let block = |text: &str| match text.parse::<IpAddr>() {
            Ok(address) => Cidr::parse(&format!("{address}/{}", if address.is_ipv4() { 32 } else { 128 })),
            Err(_) => Cidr::parse(text),
        };
        let blocks: Option<Vec<Cidr>> = text.split(',').map(|text| block(text.trim())).collect();
        let expected = "addresses such as 127.0.0.1 or blocks such as 10.0.0.0/8 are expected, or none";
        blocks.map(ForwardAddresses).ok_or_else(|| expected.to_owned())
    }
}

impl fmt::Display for ForwardAddresses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("none");
        }
        let blocks: Vec<String> = self.0.iter().map(Cidr::to_string).collect();
        f.write_str(&blocks.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_allowed_by_the_one_who_starts_the_server() {
        let loopback: SocketAddr = "127.0.0.1:6443".parse().unwrap();
        let everywhere: SocketAddr = "0.0.0.0:6443".parse().unwrap();
        for (configured, listener, address, want) in [
            (None, loopback, "127.0.0.1:3000", true),
            (None, loopback, "127.8.0.1:3000", true),
            (None, loopback, "[::1]:3000", true),
            (None, loopback, "[::ffff:127.0.0.1]:3000", true),
            (None, loopback, "10.0.0.1:3000", false),
            (None, loopback, "0.0.0.0:3000", false),
            (None, loopback, "[::]:3000", false),
            (None, loopback, "127.0.0.1:6443", false),
            (None, loopback, "127.0.0.1:2379", false),
            (None, everywhere, "127.0.0.1:3000", false),
            (Some("127.0.0.1"), everywhere, "127.0.0.1:3000", true),
            (Some("127.0.0.1"), everywhere, "127.0.0.2:3000", false),
            (Some("10.0.0.0/8, ::1"), loopback, "10.1.2.3:80", true),
            (Some("10.0.0.0/8, ::1"), loopback, "127.0.0.1:80", false),
            (Some("0.0.0.0/0"), loopback, "10.1.2.3:6443", false),
            (Some("0.0.0.0/0"), loopback, "0.0.0.0:3000", false),
            (Some("none"), loopback, "127.0.0.1:3000", false),
        ] {
            let configured: Option<ForwardAddresses> = configured.map(|text| text.parse().unwrap());
            let access = ForwardAccess::new(configured.as_ref(), listener, [2379]);
            let got = access.check(address.parse().unwrap());
            assert_eq!(got.is_ok(), want, "{configured:?} {listener} {address} {got:?}");
        }
    }

    #[test]
    fn configured_addresses() {
        for (text, want) in [
            ("none", Some("none")),
            ("127.0.0.1", Some("127.0.0.1/32")),
            ("10.0.0.0/8,::1", Some("10.0.0.0/8,::1/128")),
            ("", None),
            ("localhost", None),
            ("127.0.0.1:80", None),
            ("10.0.0.0/33", None),
        ] {
            let got = text.parse::<ForwardAddresses>().ok().map(|addresses| addresses.to_string());
            assert_eq!(got.as_deref(), want, "{text}");
        }
    }
}
