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
    range: Cidr,
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
            range: range.network(),
            addresses: LazyCell::new(Box::new(addresses)),
            node_ports: LazyCell::new(Box::new(node_ports)),
            allocated_addresses: BTreeSet::new(),
            allocated_ports: BTreeSet::new(),
            dry_run,
        }
    }

    /// Returns the newly allocated addresses and node ports.
    pub fn into_allocated(self) -> (BTreeSet<IpAddr>, BTreeSet<i64>) {
        (self.allocated_addresses, self.allocated_ports)
    }

    /// Returns the cluster's IP family.
    pub fn family(&self) -> &'static str {
        family_of(self.range.address)
    }

    /// Returns the number of usable addresses, without the network's own and (in IPv4) the
    /// broadcast address.
    fn size(&self) -> u64 {
        let host_bits = if self.range.address.is_ipv4() { 32 } else { 128 } - u32::from(self.range.prefix);
        let reserved = if self.range.address.is_ipv4() { 2 } else { 1 };
        1u64.checked_shl(host_bits).unwrap_or(u64::MAX).saturating_sub(reserved)
    }

    /// Returns the `n`th usable address.
    fn nth(&self, n: u64) -> IpAddr {
        match self.range.address {
            IpAddr::V4(v4) => Ipv4Addr::from(u32::from(v4).wrapping_add(n as u32 + 1)).into(),
            IpAddr::V6(v6) => Ipv6Addr::from(u128::from(v6).wrapping_add(u128::from(n) + 1)).into(),
        }
    }

    fn has(&self, address: IpAddr) -> bool {
        self.range.contains(address)
            && (self.nth(0)..=self.nth(self.size().saturating_sub(1))).contains(&address)
    }

    /// Allocates an address.
    ///
    /// # Errors
    /// Why it cannot be allocated.
    pub fn allocate_address(&mut self, address: IpAddr) -> Result<(), String> {
        if !self.has(address) {
            return Err(match self.dry_run {
                true => format!(
                    "the provided IP ({address}) is not in the valid range. The range of valid IPs is {}",
                    self.range
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
            return Some(self.range.address);
        }
        let free = |n: &u64| {
            let address = self.nth(*n);
            !self.addresses.contains(&address) && !self.allocated_addresses.contains(&address)
        };
        let offset = band(self.size().saturating_add(2), 16, 16, 256);
        let address = self.nth(pick(self.size(), offset, random, free)?);
        self.allocated_addresses.insert(address);
        Some(address)
    }

    /// Allocates a node port.
    ///
    /// # Errors
    /// Why it cannot be allocated.
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
