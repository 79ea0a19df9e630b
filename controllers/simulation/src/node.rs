//! A simulated node: its name, its address and the addresses of its pods.

use std::net::Ipv4Addr;

/// A simulated node: everything about it follows from its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SimulatedNode(pub(super) u32);

impl SimulatedNode {
    /// The largest number of pods on a node. The node's address range has room for as many.
    pub const PODS: u32 = 1500;
    const RANGE_BITS: u32 = 11;

    /// Iterates over all of `count` nodes.
    pub fn all(count: usize) -> impl Iterator<Item = SimulatedNode> {
        (0..u32::try_from(count).unwrap_or(u32::MAX)).map(SimulatedNode)
    }

    /// Returns the node with this name, or `None` if it is not among the first `count` nodes.
    pub fn named(name: &str, count: usize) -> Option<SimulatedNode> {
        let node = SimulatedNode(name.strip_prefix("node-")?.parse().ok()?);
        (usize::try_from(node.0).is_ok_and(|number| number < count) && node.name() == name).then_some(node)
    }

    pub fn name(self) -> String {
        format!("node-{}", self.0)
    }

    /// Returns the node's own address.
    pub fn address(self) -> Ipv4Addr {
        const FIRST: u32 = u32::from_be_bytes([172, 18, 0, 2]);
        Ipv4Addr::from_bits(FIRST.wrapping_add(self.0))
    }

    /// Returns the address range of the node's pods, in CIDR notation.
    pub fn pod_range(self) -> String {
        format!("{}/{}", Ipv4Addr::from_bits(self.range()), 32 - Self::RANGE_BITS)
    }

    /// Iterates over the addresses that pods may have: the first of a range is the network's, the
    /// second the node's.
    pub fn pod_addresses(self) -> impl Iterator<Item = Ipv4Addr> {
        (2..(1 << Self::RANGE_BITS) - 1).map(move |offset| Ipv4Addr::from_bits(self.range() + offset))
    }

    /// Returns the number of the node's address range. Ranges are assigned from 10.244.0.0 to the
    /// end of 10.0.0.0/8, and then from 10.128.0.0.
    fn range(self) -> u32 {
        const BASE: u32 = u32::from_be_bytes([10, 128, 0, 0]);
        const FIRST: u32 = u32::from_be_bytes([0, 116, 0, 0]);
        const ALL: u32 = 1 << 23;
        BASE + FIRST.wrapping_add(self.0 << Self::RANGE_BITS) % ALL
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_nodes() {
        for (name, want) in [
            ("node-0", Some(SimulatedNode(0))),
            ("node-2", Some(SimulatedNode(2))),
            ("node-3", None),
            ("node-02", None),
            ("node-", None),
            ("n1", None),
        ] {
            assert_eq!(SimulatedNode::named(name, 3), want, "{name}");
        }
        assert_eq!(SimulatedNode::named("node-0", 0), None);
    }

    #[test]
    fn ranges_of_nodes() {
        for (number, address, range) in [
            (0, "172.18.0.2", "10.244.0.0/21"),
            (1, "172.18.0.3", "10.244.8.0/21"),
            (32, "172.18.0.34", "10.245.0.0/21"),
            (383, "172.18.1.129", "10.255.248.0/21"),
            (384, "172.18.1.130", "10.128.0.0/21"),
        ] {
            let node = SimulatedNode(number);
            assert_eq!(
                (node.address().to_string(), node.pod_range()),
                (address.to_owned(), range.to_owned())
            );
        }
        let addresses: Vec<_> = SimulatedNode(1).pod_addresses().collect();
        assert!(addresses.len() >= SimulatedNode::PODS as usize);
        assert_eq!(addresses[0], Ipv4Addr::new(10, 244, 8, 2));
    }
}
