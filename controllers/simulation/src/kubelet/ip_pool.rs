//! Which pod has which address of its node's range.

use std::collections::{HashMap, VecDeque};
use std::net::Ipv4Addr;

use crate::node::SimulatedNode;

#[derive(Default)]
pub struct IpPool {
    free: HashMap<SimulatedNode, VecDeque<Ipv4Addr>>,
    /// By the pods' uids.
    taken: HashMap<String, (SimulatedNode, Ipv4Addr)>,
}

impl IpPool {
    /// The address of a pod, now or since before; none if all are taken.
    pub fn allocate(&mut self, node: SimulatedNode, uid: &str) -> Option<Ipv4Addr> {
        if let Some((_, address)) = self.taken.get(uid) {
            return Some(*address);
        }
        let address = self.free(node).pop_front()?;
        self.taken.insert(uid.to_owned(), (node, address));
        Some(address)
    }

    /// Remembers the address that a pod has.
    pub fn restore(&mut self, node: SimulatedNode, uid: &str, address: Ipv4Addr) {
        self.free(node).retain(|free| *free != address);
        self.taken.insert(uid.to_owned(), (node, address));
    }

    /// Gives an address back; it is the last to be given out again.
    pub fn release(&mut self, uid: &str) {
        if let Some((node, address)) = self.taken.remove(uid) {
            self.free(node).push_back(address);
        }
    }

    fn free(&mut self, node: SimulatedNode) -> &mut VecDeque<Ipv4Addr> {
        self.free.entry(node).or_insert_with(|| node.pod_addresses().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pod_has_an_address_of_its_own() {
        let node = SimulatedNode::named("node-0", 1).unwrap();
        let mut ip_pool = IpPool::default();
        ip_pool.restore(node, "old", Ipv4Addr::new(10, 244, 0, 2));
        assert_eq!(ip_pool.allocate(node, "a"), Some(Ipv4Addr::new(10, 244, 0, 3)));
        assert_eq!(ip_pool.allocate(node, "b"), Some(Ipv4Addr::new(10, 244, 0, 4)));
        assert_eq!(ip_pool.allocate(node, "a"), Some(Ipv4Addr::new(10, 244, 0, 3)));
        ip_pool.release("a");
        assert_eq!(ip_pool.allocate(node, "c"), Some(Ipv4Addr::new(10, 244, 0, 5)));
        let others = (0..).map(|n| ip_pool.allocate(node, &n.to_string())).take_while(Option::is_some);
        assert_eq!(others.last(), Some(Some(Ipv4Addr::new(10, 244, 0, 3))), "the one that was given back");
    }
}
