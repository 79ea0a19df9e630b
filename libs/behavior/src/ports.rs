//! The ports of a simulated pod that lead to a process of this machine or another one.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::str::FromStr;

/// The maximum number of ports of an annotation.
const MAX_PORTS: usize = 64;

/// Addresses by the ports of a pod, such as `8080=127.0.0.1:3000, 9090=localhost:9090`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ForwardedPorts(BTreeMap<u16, SocketAddr>);

impl ForwardedPorts {
    /// Returns the address that a port leads to.
    pub fn get(&self, port: u16) -> Option<SocketAddr> {
        self.0.get(&port).copied()
    }

    /// Returns the first of the ports.
    pub fn first(&self) -> Option<u16> {
        self.0.keys().next().copied()
    }
}

impl FromStr for ForwardedPorts {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<ForwardedPorts, &'static str> {
        const EXPECTED: &str = "not ports and addresses such as 8080=127.0.0.1:3000";
        let mut ports = BTreeMap::new();
        for entry in text.split(',').take(MAX_PORTS + 1) {
            let (port, address) = entry.trim().split_once('=').ok_or(EXPECTED)?;
            let port: u16 = port.parse().ok().filter(|port| *port > 0).ok_or(EXPECTED)?;
            let address = match address.strip_prefix("localhost:") {
                Some(port) => port.parse().ok().map(|port| SocketAddr::from((Ipv4Addr::LOCALHOST, port))),
                None => address.parse().ok(),
            };
            // An address of version 4 in the form of version 6 is the same address.
            let address: SocketAddr =
                address.filter(|address: &SocketAddr| address.port() > 0).ok_or(EXPECTED)?;
            let address = SocketAddr::new(address.ip().to_canonical(), address.port());
            if ports.insert(port, address).is_some() {
                return Err("a port that is forwarded twice");
            }
        }
        if ports.len() > MAX_PORTS {
            return Err("more than 64 ports");
        }
        Ok(ForwardedPorts(ports))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_lead_to_addresses() {
        let ports: ForwardedPorts =
            "8080=127.0.0.1:3000, 9090=localhost:9091,443=[::ffff:10.0.0.1]:8443".parse().unwrap();
        for (port, want) in [
            (8080, Some("127.0.0.1:3000")),
            (9090, Some("127.0.0.1:9091")),
            (443, Some("10.0.0.1:8443")),
            (80, None),
        ] {
            assert_eq!(ports.get(port).map(|address| address.to_string()).as_deref(), want, "{port}");
        }
        assert_eq!(ports.first(), Some(443));
        let many: Vec<String> = (1..=MAX_PORTS + 1).map(|port| format!("{port}=127.0.0.1:1")).collect();
        for wrong in [
            "",
            "8080",
            "8080=3000",
            "8080=127.0.0.1",
            "8080=127.0.0.1:0",
            "0=127.0.0.1:1",
            "65536=127.0.0.1:1",
            "8080=example.com:80",
            "1=127.0.0.1:1,1=127.0.0.1:2",
            "1=127.0.0.1:1,",
            &many.join(","),
        ] {
            assert!(wrong.parse::<ForwardedPorts>().is_err(), "{wrong}");
        }
    }
}
