//! What a write takes from a common stock: the cluster addresses and node ports of Services.
//!
//! What is free is read from the present Services; a lock keeps it free until the write is stored, and the IPAddress objects
//! written in the same commit say whose an address is.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};

use coracle_storage::{Expect, Key, Write};
use serde_json::Value;
use tokio::sync::MutexGuard;

use super::Registry;
use super::deletion::rfc3339;
use super::object::ObjectMeta;
use super::served::Served;
use super::write::stored_bytes;
use crate::Result;
use crate::admission::Cluster;
use crate::names::GroupResource;
use crate::resources::core::service::allocation::{self, Stock};
use crate::validation::ip::Cidr;

/// Where cluster addresses come from: kube-apiserver's default range.
const CLUSTER_RANGE: Cidr = Cidr { address: IpAddr::V4(Ipv4Addr::new(10, 0, 0, 0)), prefix: 24 };

/// While it lives, nobody else takes from the stock.
#[derive(Default)]
pub(super) struct Allocation<'a> {
    _exclusive: Option<MutexGuard<'a, ()>>,
}

impl Registry {
    /// Gives a new or changed object what it needs.
    pub(super) async fn allocate(
        &self,
        served: &Served,
        object: &mut Value,
        old: Option<&Value>,
        dry_run: bool,
    ) -> Result<Allocation<'_>> {
        if !is_service(served) {
            return Ok(Allocation::default());
        }
        let exclusive = self.allocating.lock().await;
        let services = Cluster::list(self, &served.group_resource, "");
        let mut stock = Stock::new(CLUSTER_RANGE, services.iter(), dry_run);
        allocation::allocate(object, old, &mut stock, &mut random_below)?;
        Ok(Allocation { _exclusive: Some(exclusive) })
    }

    /// The writes that take for `new` what it has more than `old`, and give back what it has less.
    pub(super) fn allocation_writes(
        &self,
        served: &Served,
        new: Option<&Value>,
        old: Option<&Value>,
    ) -> Vec<Write> {
        if !is_service(served) {
            return Vec::new();
        }
        let addresses = |object: Option<&Value>| -> BTreeSet<IpAddr> {
            object.into_iter().flat_map(allocation::addresses).collect()
        };
        let resource = GroupResource::new("networking.k8s.io", "ipaddresses");
        let Some(addresses_served) = self.table.by_resource(&resource) else { return Vec::new() };
        let key = |address: &IpAddr| Key::new(addresses_served.bucket.clone(), address.to_string());
        let (has, had) = (addresses(new), addresses(old));
        let taken = has.difference(&had).map(|address| {
            let owner = new.map(|o| (o.namespace(), o.name())).unwrap_or_default();
            let mut object = allocation::ip_address(*address, owner.0, owner.1);
            object.set_meta("uid", uuid::Uuid::new_v4().to_string());
            object.set_meta("creationTimestamp", rfc3339(self.now()));
            Write::put(key(address), Expect::Any, stored_bytes(addresses_served, object))
        });
        let given_back = had.difference(&has).map(key).filter(|key| self.store.get(key).is_some());
        taken.chain(given_back.map(|key| Write::delete(key, Expect::Any))).collect()
    }
}

fn is_service(served: &Served) -> bool {
    &*served.bucket == "services"
}

fn random_below(bound: u64) -> u64 {
    let (random, _) = uuid::Uuid::new_v4().as_u64_pair();
    random.checked_rem(bound).unwrap_or(0)
}
