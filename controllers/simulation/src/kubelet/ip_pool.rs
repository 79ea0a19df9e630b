//! The assignment of a node's addresses to its pods.

use std::collections::{HashMap, VecDeque};
use std::net::Ipv4Addr;

use crate::node::SimulatedNode;

#[derive(Default)]
pub struct IpPool {
    free: HashMap<SimulatedNode, VecDeque<Ipv4Addr>>,
    /// The assigned addresses, by the pods' uids.
    taken: HashMap<String, (SimulatedNode, Ipv4Addr)>,
}

impl IpPool {
    /// Returns the address of a pod, and assigns one if it has none; `None` if all are taken.
    ///
    /// - `choice`: a number derived from the pod, if its address is to depend on it; `None` for the
    ///   address that has been free for the longest time
    pub fn allocate(&mut self, node: SimulatedNode, uid: &str, choice: Option<u64>) -> Option<Ipv4Addr> {
        if let Some((_, address)) = self.taken.get(uid) {
            return Some(*address);
        }
        let wanted = choice.and_then(|choice| {
            let count = node.pod_addresses().count().max(1);
            node.pod_addresses().nth(usize::try_from(choice % count as u64).unwrap_or_default())
        });
        let free = self.free(node);
        let address = match wanted {
            None => free.pop_front(),
            Some(wanted) => {
                // The first free address from the requested one on.
                let next =
                    free.iter().filter(|address| **address >= wanted).min().or(free.iter().min()).copied();
                free.retain(|address| Some(*address) != next);
                next
            }
        }?;
        self.taken.insert(uid.to_owned(), (node, address));
        Some(address)
    }

    /// Records the address of an existing pod.
    pub fn restore(&mut self, node: SimulatedNode, uid: &str, address: Ipv4Addr) {
        self.free(node).retain(|free| *free != address);
        self.taken.insert(uid.to_owned(), (node, address));
    }

    /// Releases an address; it becomes the last to be assigned again.
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
        assert_eq!(ip_pool.allocate(node, "a", None), Some(Ipv4Addr::new(10, 244, 0, 3)));
        assert_eq!(ip_pool.allocate(node, "b", None), Some(Ipv4Addr::new(10, 244, 0, 4)));
        assert_eq!(ip_pool.allocate(node, "a", None), Some(Ipv4Addr::new(10, 244, 0, 3)));
        ip_pool.release("a");
        assert_eq!(ip_pool.allocate(node, "c", None), Some(Ipv4Addr::new(10, 244, 0, 5)));
        let others = (0..).map(|n| ip_pool.allocate(node, &n.to_string(), None)).take_while(Option::is_some);
        assert_eq!(others.last(), Some(Some(Ipv4Addr::new(10, 244, 0, 3))), "the one that was given back");
    }

    #[test]
    fn an_address_follows_from_a_number() {
        let node = SimulatedNode::named("node-0", 1).unwrap();
        let address = |last| Some(Ipv4Addr::new(10, 244, 0, last));
        let mut ip_pool = IpPool::default();
        assert_eq!(ip_pool.allocate(node, "a", Some(5)), address(7));
        assert_eq!(ip_pool.allocate(node, "b", Some(5)), address(8), "the other one is taken");
        assert_eq!(ip_pool.allocate(node, "a", Some(9)), address(7), "it has one");
        ip_pool.release("a");
        assert_eq!(ip_pool.allocate(node, "c", Some(5)), address(7));
        let last = node.pod_addresses().count() as u64 - 1;
        let highest = ip_pool.allocate(node, "d", Some(last));
        assert_eq!(highest, node.pod_addresses().last());
        assert_eq!(ip_pool.allocate(node, "e", Some(last)), address(2), "it begins again");
    }
}
