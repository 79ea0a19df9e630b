//! The node ports that are taken, in the object by which kube-apiserver's instances agree on them:
//! a RangeAllocation with a bit for each port. A write that takes or returns node ports changes it
//! in the same commit, so of two servers that give out the same port at once only one succeeds; the
//! other chooses again. (Cluster IPs have an IPAddress object each.)
//!
//! Source: `pkg/registry/core/service/allocator`.

use std::collections::BTreeSet;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use coracle_apimachinery::Result;
use coracle_apimachinery::allocation::{Allocate, NODE_PORTS};
use coracle_apiserver::registry::{RANGES, Registry, parse};
use coracle_storage::{Expect, Key, Write};
use serde_json::Value;

/// The name of the range of node ports.
const NAME: &str = "servicenodeports";

/// Returns the write that records the node ports in use after an object is stored or deleted. None
/// if they stay the same, or if no other server writes to the store: then the reservations in
/// memory suffice.
pub(super) fn record_node_ports(
    registry: &Registry,
    kind: &dyn Allocate,
    bucket: &Arc<str>,
    stored: Option<&Key>,
    new: Option<&Value>,
    old: Option<&Value>,
) -> Result<Option<Write>> {
    let ports = |object: Option<&Value>| -> BTreeSet<i64> {
        object.into_iter().flat_map(|object| kind.node_ports(object)).collect()
    };
    let mut taken = ports(new);
    if !registry.store.has_other_writers() || taken == ports(old) {
        return Ok(None);
    }
    // The range and the objects are of one moment: if that is over, the commit is in conflict.
    let snapshot = registry.store.snapshot();
    for other in snapshot.bucket(bucket).iter().filter(|other| Some(&other.key) != stored) {
        taken.extend(kind.node_ports(&parse(other)?));
    }
    let key = Key::new(RANGES, NAME);
    let expect = snapshot.get(&key).map_or(Expect::Absent, |range| Expect::Revision(range.revision));
    Ok(Some(Write::put(key, expect, stored_range(&taken))))
}

/// Encodes the range as it is stored, with these ports taken.
fn stored_range(taken: &BTreeSet<i64>) -> String {
    let (first, last) = (NODE_PORTS.start(), NODE_PORTS.end());
    let data = STANDARD.encode(bitmap(taken));
    format!(
        r#"{{"kind":"RangeAllocation","apiVersion":"v1","metadata":{{"resourceVersion":""}},"range":"{first}-{last}","data":"{data}"}}"#
    )
}

/// Builds the bitmap of the ports, one bit for each from the first on, as the bytes of a big-endian
/// number.
fn bitmap(taken: &BTreeSet<i64>) -> Vec<u8> {
    let mut bytes = Vec::new();
    for port in taken.iter().filter(|port| NODE_PORTS.contains(port)) {
        let Ok(bit) = usize::try_from(port - NODE_PORTS.start()) else { continue };
        if bytes.len() <= bit / 8 {
            bytes.resize(bit / 8 + 1, 0);
        }
        if let Some(byte) = bytes.get_mut(bit / 8) {
            *byte |= 1 << (bit % 8);
        }
    }
    bytes.reverse();
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_the_bits_of_a_number() {
        for (ports, want) in [
            (vec![], vec![]),
            (vec![30000], vec![1]),
            (vec![30000, 30007], vec![0x81]),
            (vec![30008], vec![1, 0]),
            (vec![30001, 30009, 30016], vec![1, 2, 2]),
            (vec![29999, 32768], vec![]),
        ] {
            assert_eq!(bitmap(&ports.iter().copied().collect()), want, "{ports:?}");
        }
        assert_eq!(bitmap(&[32767].into()).len(), 346);
    }
}
