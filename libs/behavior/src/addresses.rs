//! The addresses of load balancers.

use std::fmt::{self, Display};
use std::net::Ipv4Addr;
use std::str::FromStr;

/// An IPv4 block from which Services and Ingresses get the addresses of their load balancers.
/// Nothing listens there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddressBlock {
    network: u32,
    /// The number of leading bits that all addresses share, from 8 to 30.
    prefix: u32,
}

impl AddressBlock {
    /// A block that no network uses, since it is for documentation (RFC 5737: TEST-NET-3).
    pub const DOCUMENTATION: AddressBlock = AddressBlock { network: 0xCB00_7100, prefix: 24 };

    /// Returns `true` if an address is in the block.
    pub fn contains(&self, address: Ipv4Addr) -> bool {
        address.to_bits() & self.mask() == self.network
    }

    /// Returns `true` if a Service may have an address.
    pub fn has_service(&self, address: Ipv4Addr) -> bool {
        (self.network + 1..self.ingress().to_bits()).contains(&address.to_bits())
    }

    /// Returns the address of all Ingresses: the last one of the block.
    pub fn ingress(&self) -> Ipv4Addr {
        Ipv4Addr::from_bits(self.network | !self.mask())
    }

    /// Iterates over the addresses of Services, the lowest first: all except the first one.
    pub fn services(&self) -> impl Iterator<Item = Ipv4Addr> + use<> {
        (self.network + 1..self.ingress().to_bits()).map(Ipv4Addr::from_bits)
    }

    fn mask(&self) -> u32 {
        u32::MAX << (32 - self.prefix)
    }
}

impl Display for AddressBlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", Ipv4Addr::from_bits(self.network), self.prefix)
    }
}

impl FromStr for AddressBlock {
    type Err = String;

    fn from_str(text: &str) -> Result<AddressBlock, String> {
        let read = || {
            let (address, prefix) = text.split_once('/')?;
            let address: Ipv4Addr = address.parse().ok()?;
            let prefix = prefix.parse().ok().filter(|prefix| (8..=30).contains(prefix))?;
            let block = AddressBlock { network: address.to_bits(), prefix };
            block.contains(address).then_some(block)
        };
        read().ok_or_else(|| "an IPv4 block such as 203.0.113.0/24 is expected, of 8 to 30 bits".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks() {
        assert_eq!("203.0.113.0/24".parse(), Ok(AddressBlock::DOCUMENTATION));
        assert_eq!(AddressBlock::DOCUMENTATION.to_string(), "203.0.113.0/24");
        let block: AddressBlock = "10.0.0.4/30".parse().unwrap();
        let services: Vec<String> = block.services().map(|address| address.to_string()).collect();
        assert_eq!(services, ["10.0.0.5", "10.0.0.6"]);
        assert!(block.has_service([10, 0, 0, 5].into()) && !block.has_service([10, 0, 0, 4].into()));
        assert_eq!(block.ingress().to_string(), "10.0.0.7");
        assert!(block.contains([10, 0, 0, 7].into()) && !block.contains([10, 0, 0, 8].into()));
        for wrong in ["", "10.0.0.1/24", "10.0.0.0", "10.0.0.0/31", "10.0.0.0/0", "10.0.0.0/x", "fd00::/64"] {
            assert!(wrong.parse::<AddressBlock>().is_err(), "{wrong}");
        }
    }
}
