//! The subsets of Endpoints: addresses with the same ports are grouped.
//!
//! Source: kube-controller-manager's `RepackSubsets` and `truncateEndpoints`.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{EndpointAddress, EndpointPort, EndpointSubset};

use super::port_hash;

/// The maximum number of addresses of Endpoints.
pub const MAX_ADDRESSES: usize = 1000;

/// An address with one of its ports.
pub struct Member {
    pub address: EndpointAddress,
    pub is_ready: bool,
    /// The port; None if the Service has no ports.
    pub port: Option<EndpointPort>,
}

/// The order of addresses: by the bytes of their text, then by the uid of the pod.
type AddressKey = (String, Option<String>);
type PortKey = (Option<String>, i32, Option<String>, Option<String>);

fn address_key(member: &Member) -> AddressKey {
    let uid = member.address.target_ref.as_ref().and_then(|target| target.uid.clone());
    (member.address.ip.clone(), uid)
}

/// The readiness of each address.
type Readiness = BTreeMap<AddressKey, bool>;

fn port_key(port: &EndpointPort) -> PortKey {
    (port.name.clone(), port.port, port.protocol.clone(), port.app_protocol.clone())
}

/// Packs addresses into subsets. An address with several entries for a port is ready only if all of
/// them are.
pub fn pack(members: Vec<Member>) -> Vec<EndpointSubset> {
    let mut addresses: BTreeMap<AddressKey, EndpointAddress> = BTreeMap::new();
    let mut ports: BTreeMap<Option<PortKey>, (Option<EndpointPort>, Readiness)> = BTreeMap::new();
    for member in members {
        let key = address_key(&member);
        let (_, of_port) = ports
            .entry(member.port.as_ref().map(port_key))
            .or_insert_with(|| (member.port.clone(), BTreeMap::new()));
        *of_port.entry(key.clone()).or_insert(true) &= member.is_ready;
        addresses.entry(key).or_insert(member.address);
    }
    let mut subsets: BTreeMap<Readiness, Vec<EndpointPort>> = BTreeMap::new();
    for (port, of_port) in ports.into_values() {
        subsets.entry(of_port).or_default().extend(port);
    }
    subsets.values_mut().for_each(|ports| ports.sort_by_cached_key(port_hash::of_endpoints));
    let with = |members: &Readiness, is_ready: bool| {
        let keys = members.iter().filter(|(_, ready)| **ready == is_ready).map(|(key, _)| key);
        let addresses: Vec<EndpointAddress> = keys.filter_map(|key| addresses.get(key).cloned()).collect();
        Some(addresses).filter(|addresses| !addresses.is_empty())
    };
    let subset = |(members, ports): (Readiness, Vec<EndpointPort>)| EndpointSubset {
        addresses: with(&members, true),
        not_ready_addresses: with(&members, false),
        ports: Some(ports).filter(|ports| !ports.is_empty()),
    };
    subsets.into_iter().map(subset).collect()
}

/// Keeps at most `most` addresses, ready ones first, in proportion to the subsets. Returns whether
/// there were more.
pub fn truncate(subsets: &mut [EndpointSubset], most: usize) -> bool {
    let count = |addresses: &Option<Vec<EndpointAddress>>| addresses.as_ref().map_or(0, Vec::len);
    let ready: usize = subsets.iter().map(|subset| count(&subset.addresses)).sum();
    let not_ready: usize = subsets.iter().map(|subset| count(&subset.not_ready_addresses)).sum();
    if ready + not_ready <= most {
        return false;
    }
    let truncates_ready = ready > most;
    let (room, total) = if truncates_ready { (most, ready) } else { (most - ready, not_ready) };
    let mut left = room;
    for subset in subsets {
        let addresses = if truncates_ready { &mut subset.addresses } else { &mut subset.not_ready_addresses };
        let share = (count(addresses) * room).div_ceil(total.max(1)).min(left);
        left -= share.min(count(addresses));
        if let Some(addresses) = addresses {
            addresses.truncate(share);
        }
        if truncates_ready {
            subset.not_ready_addresses = None;
        }
        for addresses in [&mut subset.addresses, &mut subset.not_ready_addresses] {
            if addresses.as_ref().is_some_and(Vec::is_empty) {
                *addresses = None;
            }
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Packs addresses given by their last number, a port and whether they are ready.
    fn packed(members: &[(u8, i32, bool)]) -> Vec<EndpointSubset> {
        pack(members.iter().map(|(number, port, is_ready)| member(*number, *port, *is_ready)).collect())
    }

    fn member(number: u8, port: i32, is_ready: bool) -> Member {
        let address = EndpointAddress { ip: format!("10.0.0.{number}"), ..EndpointAddress::default() };
        Member { address, is_ready, port: Some(EndpointPort { port, ..EndpointPort::default() }) }
    }

    /// Formats subsets: `1,2!3:80` is a subset of 1 and 2, and 3 that is not ready, with port 80.
    fn text(subsets: &[EndpointSubset]) -> String {
        let list = |addresses: &Option<Vec<EndpointAddress>>| {
            let last = |a: &EndpointAddress| a.ip.rsplit('.').next().unwrap_or_default().to_owned();
            addresses.iter().flatten().map(last).collect::<Vec<_>>().join(",")
        };
        let subset = |subset: &EndpointSubset| {
            let ports: Vec<String> =
                subset.ports.iter().flatten().map(|port| port.port.to_string()).collect();
            format!("{}!{}:{}", list(&subset.addresses), list(&subset.not_ready_addresses), ports.join(","))
        };
        subsets.iter().map(subset).collect::<Vec<_>>().join(" ")
    }

    /// Checks the order of two Services on a real cluster.
    #[test]
    fn ports_are_in_the_order_of_kube_controller_manager() {
        let order = |ports: &[(&str, i32, &str)]| -> Vec<String> {
            let port = |(name, port, protocol): &(&str, i32, &str)| EndpointPort {
                name: Some((*name).to_owned()),
                port: *port,
                protocol: Some((*protocol).to_owned()),
                app_protocol: None,
            };
            let member =
                |(index, of): (usize, _)| Member { port: Some(port(of)), ..member(1, index as i32, true) };
            let subsets = pack(ports.iter().enumerate().map(member).collect());
            subsets[0].ports.iter().flatten().filter_map(|port| port.name.clone()).collect()
        };
        let usual = [("grpc", 50051, "TCP"), ("http", 8080, "TCP"), ("metrics", 9100, "TCP")];
        assert_eq!(order(&usual), ["http", "metrics", "grpc"]);
        let dns = [("dns", 53, "UDP"), ("dns-tcp", 53, "TCP"), ("metrics", 9153, "TCP")];
        assert_eq!(order(&dns), ["metrics", "dns-tcp", "dns"]);
    }

    #[test]
    fn addresses_with_the_same_ports_are_together() {
        for (case, members, want) in [
            ("one", &[(1, 80, true)][..], "1!:80"),
            ("sorted by text", &[(9, 80, true), (101, 80, true), (10, 80, true)], "10,101,9!:80"),
            ("two ports", &[(1, 80, true), (1, 81, true)], "1!:80,81"),
            ("not ready", &[(1, 80, true), (2, 80, false)], "1!2:80"),
            ("different ports", &[(1, 80, true), (2, 81, true)], "1!:80 2!:81"),
            ("different readiness", &[(1, 80, true), (1, 81, false)], "!1:81 1!:80"),
            ("not ready wins", &[(1, 80, true), (1, 80, false)], "!1:80"),
        ] {
            assert_eq!(text(&packed(members)), want, "{case}");
        }
    }

    #[test]
    fn too_many_addresses_are_truncated() {
        let many = |ready: u8, not_ready: u8| {
            let ready = (0..ready).map(|number| (number, 80, true));
            let not_ready = (100..100 + not_ready).map(|number| (number, 81, false));
            packed(&ready.chain(not_ready).collect::<Vec<_>>())
        };
        let count = |subsets: &[EndpointSubset]| {
            let of = |addresses: &Option<Vec<EndpointAddress>>| addresses.as_ref().map_or(0, Vec::len);
            let ready: usize = subsets.iter().map(|subset| of(&subset.addresses)).sum();
            (ready, subsets.iter().map(|subset| of(&subset.not_ready_addresses)).sum::<usize>())
        };
        for (ready, not_ready, truncated, want) in
            [(4, 6, false, (4, 6)), (4, 7, true, (4, 6)), (11, 3, true, (10, 0)), (10, 3, true, (10, 0))]
        {
            let mut subsets = many(ready, not_ready);
            assert_eq!(truncate(&mut subsets, 10), truncated, "{ready} {not_ready}");
            assert_eq!(count(&subsets), want, "{ready} {not_ready}");
        }
    }
}
