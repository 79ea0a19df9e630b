//! The allocators of cluster IPs and node ports, and the interface through which a kind uses them.
//!
//! Pure: the caller passes the addresses and ports in use and a source of randomness, and prevents
//! concurrent allocations until the result is stored.
//!
//! The cluster has one IP family. Dynamic allocations start in the upper part of a range, so that
//! they collide less with static ones (KEP-3070, KEP-3668).

use std::cell::LazyCell;
use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::RangeInclusive;

use serde_json::Value;

use crate::error::Result;
use crate::validation::ip::Cidr;

/// The allocation of addresses and node ports for objects of a kind (Services).
pub trait Allocate: Send + Sync {
    /// Allocates the addresses and ports that a new or changed object needs, and writes them into
    /// the object. Called before the strategy's `prepare_*` hooks and the rules, which require the
    /// allocated fields; its errors replace those of the rules.
    ///
    /// # Errors
    /// 422 for requested values that cannot be allocated, 500 where kube-apiserver returns it.
    fn allocate(
        &self,
        object: &mut Value,
        old: Option<&Value>,
        allocators: &mut Allocators<'_>,
        random: Random<'_>,
    ) -> Result<()>;

    /// Returns the cluster IPs of an object.
    fn addresses(&self, object: &Value) -> Vec<IpAddr>;

    /// Returns the node ports of an object.
    fn node_ports(&self, object: &Value) -> Vec<i64>;
}

/// The default block of cluster IPs.
pub const SERVICE_CIDR: Cidr = Cidr { address: IpAddr::V4(Ipv4Addr::new(10, 0, 0, 0)), prefix: 24 };

/// The node ports (`--service-node-port-range`).
pub const NODE_PORTS: RangeInclusive<i64> = 30000..=32767;
/// The first port of dry runs, as in kube-apiserver.
const DRY_PORTS: i64 = 32769;

/// A source of randomness: returns a number below the given one.
pub type Random<'a> = &'a mut dyn FnMut(u64) -> u64;

type Lazy<'a, T> = LazyCell<BTreeSet<T>, Box<dyn FnOnce() -> BTreeSet<T> + 'a>>;

/// The IP allocator and the node port allocator.
pub struct Allocators<'a> {
    /// The range of cluster IPs that is tried before the others are read.
    first: Range,
    /// Further ranges of cluster IPs; dynamic addresses are of the first one that has any left.
    others: LazyCell<Vec<Cidr>, Box<dyn FnOnce() -> Vec<Cidr> + 'a>>,
    /// The addresses of other Services; computed when needed.
    addresses: Lazy<'a, IpAddr>,
    node_ports: Lazy<'a, i64>,
    allocated_addresses: BTreeSet<IpAddr>,
    allocated_ports: BTreeSet<i64>,
    /// Whether nothing is allocated: addresses stay empty, and ports are beyond the range.
    dry_run: bool,
}

impl<'a> Allocators<'a> {
    /// Creates allocators for a range of cluster IPs and the node ports; the lists are those in use
    /// already.
    pub fn new(
        range: Cidr,
        addresses: impl FnOnce() -> BTreeSet<IpAddr> + 'a,
        node_ports: impl FnOnce() -> BTreeSet<i64> + 'a,
        dry_run: bool,
    ) -> Allocators<'a> {
        Allocators {
            first: Range(range.network()),
            others: LazyCell::new(Box::new(Vec::new)),
            addresses: LazyCell::new(Box::new(addresses)),
            node_ports: LazyCell::new(Box::new(node_ports)),
            allocated_addresses: BTreeSet::new(),
            allocated_ports: BTreeSet::new(),
            dry_run,
        }
    }

    /// Sets the further ranges of cluster IPs, which are computed when needed. Those of the other
    /// family are not used.
    #[must_use]
    pub fn with_ranges(self, ranges: impl FnOnce() -> Vec<Cidr> + 'a) -> Allocators<'a> {
        Allocators { others: LazyCell::new(Box::new(ranges)), ..self }
    }

    /// Returns the newly allocated addresses and node ports.
    pub fn into_allocated(self) -> (BTreeSet<IpAddr>, BTreeSet<i64>) {
        (self.allocated_addresses, self.allocated_ports)
    }

    /// Returns the cluster's IP family.
    pub fn family(&self) -> &'static str {
        family_of(self.first.0.address)
    }

    fn ranges(&self) -> impl Iterator<Item = Range> {
        let others = LazyCell::force(&self.others).iter();
        let fits = others.filter(|range| family_of(range.address) == self.family());
        std::iter::once(self.first).chain(fits.map(|range| Range(range.network())))
    }

    /// Allocates an address.
    ///
    /// # Errors
    /// The reason for which it cannot be allocated.
    pub fn allocate_address(&mut self, address: IpAddr) -> Result<(), String> {
        if !self.first.has(address) && !self.ranges().any(|range| range.has(address)) {
            return Err(match self.dry_run {
                true => format!(
                    "the provided IP ({address}) is not in the valid range. The range of valid IPs is {}",
                    self.first.0
                ),
                false => "the provided network does not match the current range".to_owned(),
            });
        }
        if !self.dry_run && (self.addresses.contains(&address) || !self.allocated_addresses.insert(address)) {
            return Err("provided IP is already allocated".to_owned());
        }
        Ok(())
    }

    /// Allocates any free address; None if there is none.
    pub fn allocate_next_address(&mut self, random: Random<'_>) -> Option<IpAddr> {
        if self.dry_run {
            return Some(self.first.0.address);
        }
        let is_free = |address: &IpAddr| {
            !self.addresses.contains(address) && !self.allocated_addresses.contains(address)
        };
        let address = match self.first.pick(random, is_free) {
            Some(address) => address,
            None => self.ranges().find_map(|range| range.pick(random, is_free))?,
        };
        self.allocated_addresses.insert(address);
        Some(address)
    }

    /// Allocates a node port.
    ///
    /// # Errors
    /// The reason for which it cannot be allocated.
    pub fn allocate_node_port(&mut self, port: i64) -> Result<(), String> {
        if !self.dry_run && !NODE_PORTS.contains(&port) {
            let (first, last) = (NODE_PORTS.start(), NODE_PORTS.end());
            return Err(format!(
                "provided port is not in the valid range. The range of valid ports is {first}-{last}"
            ));
        }
        if self.node_ports.contains(&port) || !self.allocated_ports.insert(port) {
            return Err("provided port is already allocated".to_owned());
        }
        Ok(())
    }

    /// Allocates any free node port; None if there is none.
    pub fn allocate_next_node_port(&mut self, random: Random<'_>) -> Option<i64> {
        let first = *NODE_PORTS.start();
        let port = if self.dry_run {
            let last = self.node_ports.last().max(self.allocated_ports.last());
            last.map_or(DRY_PORTS, |last| (last + 1).max(DRY_PORTS))
        } else {
            let size = (NODE_PORTS.end() - first + 1) as u64;
            let free = |n: &u64| {
                let port = first + *n as i64;
                !self.node_ports.contains(&port) && !self.allocated_ports.contains(&port)
            };
            first + pick(size, band(size, 16, 32, 128), random, free)? as i64
        };
        self.allocated_ports.insert(port);
        Some(port)
    }
}

/// A range of cluster IPs.
#[derive(Clone, Copy)]
struct Range(Cidr);

impl Range {
    /// Returns the number of usable addresses, without the network's own and (in IPv4) the
    /// broadcast address.
    fn size(self) -> u64 {
        let (bits, reserved) = if self.0.address.is_ipv4() { (32, 2) } else { (128, 1) };
        let host_bits = bits - u32::from(self.0.prefix);
        1u64.checked_shl(host_bits).unwrap_or(u64::MAX).saturating_sub(reserved)
    }

    /// Returns the `n`th usable address.
    fn nth(self, n: u64) -> IpAddr {
        match self.0.address {
            IpAddr::V4(v4) => Ipv4Addr::from(u32::from(v4).wrapping_add(n as u32 + 1)).into(),
            IpAddr::V6(v6) => Ipv6Addr::from(u128::from(v6).wrapping_add(u128::from(n) + 1)).into(),
        }
    }

    fn has(self, address: IpAddr) -> bool {
        self.size() > 0
            && self.0.contains(address)
            && (self.nth(0)..=self.nth(self.size().saturating_sub(1))).contains(&address)
    }

    /// Returns a free address; None if there is none.
    fn pick(self, random: &mut dyn FnMut(u64) -> u64, is_free: impl Fn(&IpAddr) -> bool) -> Option<IpAddr> {
        let offset = band(self.size().saturating_add(2), 16, 16, 256);
        pick(self.size(), offset, random, |n| is_free(&self.nth(*n))).map(|n| self.nth(n))
    }
}

/// Returns the size of the part of a range that is preferred for static allocations.
fn band(size: u64, min: u64, step: u64, max: u64) -> u64 {
    if size <= min { 0 } else { (size / step).clamp(min, max) }
}

/// Returns a free number, preferably at or above `offset`, with a random start.
fn pick(size: u64, offset: u64, random: Random<'_>, free: impl Fn(&u64) -> bool) -> Option<u64> {
    let mut any_of = |from: u64, to: u64| {
        let start = if to > from { from + random(to - from) } else { from };
        (start..to).chain(from..start).find(&free)
    };
    any_of(offset, size).or_else(|| any_of(0, offset))
}

/// Returns the IP family of an address, as Services name it.
pub fn family_of(address: IpAddr) -> &'static str {
    if address.to_canonical().is_ipv4() { "IPv4" } else { "IPv6" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_further_ranges_follow_those_of_the_first() {
        let range = |text: &str| Cidr::parse(text).unwrap();
        let mut allocators = Allocators::new(range("10.0.0.0/30"), BTreeSet::new, BTreeSet::new, false)
            .with_ranges(|| vec![range("fd00::/120"), range("10.2.0.0/31"), range("10.1.0.0/30")]);
        let mut allocate = || allocators.allocate_next_address(&mut |_| 0).map(|ip| ip.to_string());
        let found: Vec<Option<String>> = (0..5).map(|_| allocate()).collect();
        let found: Vec<&str> = found.iter().map(|ip| ip.as_deref().unwrap_or("none")).collect();
        assert_eq!(found, ["10.0.0.1", "10.0.0.2", "10.1.0.1", "10.1.0.2", "none"]);
        for (address, want) in [
            ("10.1.0.2", "provided IP is already allocated"),
            ("10.1.0.3", "the provided network does not match the current range"),
            ("10.2.0.1", "the provided network does not match the current range"),
        ] {
            let refused = allocators.allocate_address(address.parse().unwrap());
            assert_eq!(refused, Err(want.to_owned()), "{address}");
        }
    }
}
