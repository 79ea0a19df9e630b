//! The decision whether addresses need a ServiceCIDR. Pure.

use std::net::IpAddr;
use std::sync::Arc;

use k8s_openapi::api::networking::v1::ServiceCIDR;

/// A block of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Block {
    /// As a number, with its width in bits.
    network: (u128, u32),
    prefix: u32,
}

impl Block {
    fn parse(text: &str) -> Option<Block> {
        let (address, prefix) = text.split_once('/')?;
        let network = number(address)?;
        let prefix = prefix.parse().ok().filter(|prefix| *prefix <= network.1)?;
        Some(Block { network, prefix })
    }

    fn contains(&self, (address, width): (u128, u32)) -> bool {
        let host_bits = self.network.1 - self.prefix;
        let network = |number: u128| number.checked_shr(host_bits).unwrap_or(0);
        width == self.network.1 && network(address) == network(self.network.0)
    }

    fn covers(&self, other: &Block) -> bool {
        self.prefix <= other.prefix && self.contains(other.network)
    }
}

fn number(address: &str) -> Option<(u128, u32)> {
    Some(match address.parse().ok()? {
        IpAddr::V4(address) => (address.to_bits().into(), 32),
        IpAddr::V6(address) => (address.to_bits(), 128),
    })
}

fn blocks_of(block: &ServiceCIDR) -> Vec<Block> {
    let blocks = block.spec.iter().flat_map(|spec| spec.cidrs.iter().flatten());
    blocks.filter_map(|text| Block::parse(text)).collect()
}

/// Returns `true` if a terminating ServiceCIDR must be kept, since no other one contains one of the
/// addresses.
///
/// - `addresses`: the names of the IPAddresses of Services
pub fn is_needed<'a>(
    block: &ServiceCIDR,
    all: &[Arc<ServiceCIDR>],
    addresses: impl Iterator<Item = &'a str>,
) -> bool {
    let own = blocks_of(block);
    let others: Vec<Block> = all
        .iter()
        .filter(|other| {
            other.metadata.name != block.metadata.name && other.metadata.deletion_timestamp.is_none()
        })
        .flat_map(|other| blocks_of(other))
        .collect();
    if own.iter().all(|block| others.iter().any(|other| other.covers(block))) {
        return false;
    }
    let mut addresses = addresses.filter_map(number);
    addresses.any(|address| {
        let is_in = |blocks: &[Block]| blocks.iter().any(|block| block.contains(address));
        is_in(&own) && !is_in(&others)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn block(name: &str, cidrs: &[&str]) -> ServiceCIDR {
        serde_json::from_value(json!({"metadata": {"name": name}, "spec": {"cidrs": cidrs}})).unwrap()
    }

    #[test]
    fn addresses_keep_their_block() {
        for (case, own, other, addresses, want) in [
            ("no addresses", vec!["10.1.0.0/24"], vec![], vec![], false),
            ("an address", vec!["10.1.0.0/24"], vec![], vec!["10.1.0.255"], true),
            ("an address elsewhere", vec!["10.1.0.0/24"], vec![], vec!["10.1.1.0", "fd00::1"], false),
            ("another block covers it", vec!["10.1.0.0/24"], vec!["10.0.0.0/8"], vec!["10.1.0.1"], false),
            (
                "another one has the address",
                vec!["10.1.0.0/16"],
                vec!["10.1.0.0/24"],
                vec!["10.1.0.1"],
                false,
            ),
            ("another one has not", vec!["10.1.0.0/16"], vec!["10.1.0.0/24"], vec!["10.1.1.1"], true),
            (
                "of two one is needed",
                vec!["10.1.0.0/24", "fd00::/64"],
                vec!["10.0.0.0/8"],
                vec!["fd00::5"],
                true,
            ),
            ("everything", vec!["0.0.0.0/0"], vec![], vec!["200.1.1.1"], true),
        ] {
            let (own, other) = (block("own", &own), block("other", &other));
            let all = [Arc::new(own.clone()), Arc::new(other)];
            assert_eq!(is_needed(&own, &all, addresses.into_iter()), want, "{case}");
        }
    }
}
