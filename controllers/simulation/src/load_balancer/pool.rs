//! The addresses that Services have.

use std::collections::{BTreeMap, HashMap};
use std::net::Ipv4Addr;

use coracle_behavior::AddressBlock;

/// The addresses of a block, and the Services that have them, by their UIDs.
#[derive(Debug)]
pub struct Pool {
    block: AddressBlock,
    taken: BTreeMap<Ipv4Addr, String>,
    by_uid: HashMap<String, Ipv4Addr>,
}

impl Pool {
    pub fn new(block: AddressBlock) -> Pool {
        Pool { block, taken: BTreeMap::new(), by_uid: HashMap::new() }
    }

    /// Records the address that a Service has. Whether it is of the block, and of no other Service.
    pub fn restore(&mut self, uid: &str, address: Ipv4Addr) -> bool {
        let is_free = self.is_free(address);
        if is_free {
            self.taken.insert(address, uid.to_owned());
            self.by_uid.insert(uid.to_owned(), address);
        }
        is_free
    }

    /// Allocates the address of a Service: the one that it requests, else the one that it has, else
    /// a free one; None if the requested one is taken, or none is free.
    ///
    /// - `choice`: a number derived from the Service, if its address is to depend on it; None for
    ///   the lowest free one
    pub fn allocate(&mut self, uid: &str, wanted: Option<Ipv4Addr>, choice: Option<u64>) -> Option<Ipv4Addr> {
        let known = self.by_uid.get(uid).copied();
        if known.is_some() && wanted.is_none_or(|wanted| known == Some(wanted)) {
            return known;
        }
        let address = match wanted {
            Some(wanted) => Some(wanted).filter(|address| self.is_free(*address)),
            None => choice.and_then(|choice| self.free_from(choice)).or_else(|| self.lowest_free()),
        }?;
        self.release(uid);
        self.restore(uid, address);
        Some(address)
    }

    /// Releases the address of a Service.
    pub fn release(&mut self, uid: &str) {
        if let Some(address) = self.by_uid.remove(uid) {
            self.taken.remove(&address);
        }
    }

    fn is_free(&self, address: Ipv4Addr) -> bool {
        self.block.has_service(address) && !self.taken.contains_key(&address)
    }

    /// Returns the first free address, starting at one derived from a number.
    fn free_from(&self, choice: u64) -> Option<Ipv4Addr> {
        // More than there are Services, and few enough to walk.
        let most = self.block.services().take(1 << 16).count().max(1) as u64;
        let skipped = usize::try_from(choice % most).unwrap_or_default();
        self.block.services().skip(skipped).find(|address| self.is_free(*address))
    }

    /// Returns the first gap in the taken addresses.
    fn lowest_free(&self) -> Option<Ipv4Addr> {
        let first = self.block.services().next()?;
        let mut taken = self.taken.range(first..).map(|(address, _)| address).peekable();
        self.block.services().find(|address| taken.next_if_eq(&address).is_none())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_given_and_given_back() {
        let mut pool = Pool::new("10.0.0.0/29".parse().unwrap());
        let address = |last: u8| Some(Ipv4Addr::new(10, 0, 0, last));
        assert!(pool.restore("old", Ipv4Addr::new(10, 0, 0, 2)));
        assert!(!pool.restore("foreign", Ipv4Addr::new(192, 168, 0, 1)));
        assert!(!pool.restore("twice", Ipv4Addr::new(10, 0, 0, 2)));
        assert_eq!(pool.allocate("old", None, None), address(2));
        assert_eq!(pool.allocate("a", None, None), address(1));
        assert_eq!(pool.allocate("b", address(2), None), None, "it is taken");
        assert_eq!(pool.allocate("b", Some([10, 0, 0, 9].into()), None), None, "it is of another block");
        assert_eq!(pool.allocate("b", address(7), None), None, "it is that of Ingresses");
        assert_eq!(pool.allocate("old", address(7), None), None);
        assert_eq!(pool.allocate("old", None, None), address(2), "it keeps the one that it has");
        assert_eq!(pool.allocate("b", address(6), None), address(6));
        assert_eq!(pool.allocate("c", None, None), address(3));
        assert_eq!(pool.allocate("d", None, None), address(4));
        assert_eq!(pool.allocate("e", None, None), address(5));
        assert_eq!(pool.allocate("f", None, None), None, "the last one is that of Ingresses");
        pool.release("a");
        assert_eq!(pool.allocate("f", None, None), address(1));
        pool.release("old");
        assert_eq!(pool.allocate("f", address(2), None), address(2));
        assert_eq!(pool.allocate("g", None, None), address(1), "the former one is free");
    }

    #[test]
    fn an_address_follows_from_a_number() {
        let mut pool = Pool::new("10.0.0.0/29".parse().unwrap());
        let address = |last: u8| Some(Ipv4Addr::new(10, 0, 0, last));
        assert_eq!(pool.allocate("a", None, Some(4)), address(5));
        assert_eq!(pool.allocate("b", None, Some(4)), address(6), "the other one is taken");
        assert_eq!(pool.allocate("c", None, Some(5)), address(1), "it begins again");
    }
}
