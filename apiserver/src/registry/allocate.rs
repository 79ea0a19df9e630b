//! What a write takes from a common stock: the cluster addresses and node ports of Services (and `charge.rs`: quotas).
//!
//! The IPAddress objects say which addresses are taken, the Services which ports. A lock keeps what is free so until the write
//! is stored; the IPAddresses are written in the same commit, and so keep it against writers that do not take the lock.

use std::net::{IpAddr, Ipv4Addr};

use coracle_storage::{Expect, Key, Write};
use serde_json::Value;

use super::deletion::rfc3339;
use super::object::ObjectMeta;
use super::served::Served;
use super::write::{Part, Writing, stored_bytes};
use super::{Registry, parse};
use crate::Result;
use crate::names::GroupResource;
use crate::resources::core::service::allocation::{self, Stock};
use crate::validation::ip::{self, Cidr};

const SERVICES: &str = "services";
const CLUSTER_IPS: Cidr = Cidr { address: IpAddr::V4(Ipv4Addr::new(10, 0, 0, 0)), prefix: 24 };

/// What comes with a write; the stock is closed to others until it is dropped.
#[derive(Default)]
pub(super) struct Allocation<'a> {
    /// To be committed together with the object.
    pub writes: Vec<Write>,
    exclusive: Vec<tokio::sync::MutexGuard<'a, ()>>,
}

impl<'a> Allocation<'a> {
    pub fn new(writes: Vec<Write>, exclusive: tokio::sync::MutexGuard<'a, ()>) -> Allocation<'a> {
        Allocation { writes, exclusive: vec![exclusive] }
    }

    pub fn add(&mut self, other: Allocation<'a>) {
        self.writes.extend(other.writes);
        self.exclusive.extend(other.exclusive);
    }
}

impl Registry {
    /// Takes what a new or changed object needs, and writes it into the object.
    pub(super) async fn allocate(
        &self,
        writing: &Writing<'_>,
        object: &mut Value,
        old: Option<&Value>,
    ) -> Result<Allocation<'_>> {
        if &*writing.target.served.bucket != SERVICES || writing.part != Part::Main {
            return Ok(Allocation::default());
        }
        let exclusive = self.allocating.lock().await;
        let mut stock = self.stock(object, writing.dry_run);
        allocation::allocate(object, old, &mut stock, &mut below)?;
        let held = |service: &Value| allocation::addresses(service).collect::<Vec<_>>();
        let (has, had) = (held(object), old.map(held).unwrap_or_default());
        let taken = has.iter().filter(|address| !had.contains(address));
        let returned = had.iter().filter(|address| !has.contains(address));
        let mut writes: Vec<Write> = taken.filter_map(|address| self.take(*address, object)).collect();
        writes.extend(returned.filter_map(|address| self.give_back(*address, object)));
        Ok(Allocation::new(writes, exclusive))
    }

    /// The writes that give back what an object had taken.
    pub(super) fn release(&self, served: &Served, object: &Value) -> Vec<Write> {
        if &*served.bucket != SERVICES {
            return Vec::new();
        }
        allocation::addresses(object).filter_map(|address| self.give_back(address, object)).collect()
    }

    fn stock(&self, service: &Value, dry_run: bool) -> Stock {
        let snapshot = self.store.snapshot();
        let addresses = self.ip_addresses().map(|served| snapshot.bucket(&served.bucket));
        let addresses = addresses.iter().flat_map(|bucket| bucket.iter());
        let services = snapshot.bucket(SERVICES);
        let ports = allocation::deals_in_ports(service).then(|| services.iter()).into_iter().flatten();
        Stock::new(
            CLUSTER_IPS,
            addresses.filter_map(|stored| ip::parse(stored.key.name())),
            ports.flat_map(|stored| allocation::held_ports(&parse(stored)).collect::<Vec<_>>()),
            dry_run,
        )
    }

    fn ip_addresses(&self) -> Option<&Served> {
        self.table
            .by_resource(&GroupResource::new("networking.k8s.io", "ipaddresses"))
            .map(|served| &**served)
    }

    fn take(&self, address: IpAddr, service: &Value) -> Option<Write> {
        let served = self.ip_addresses()?;
        let mut object = allocation::ip_address(address, service.namespace(), service.name());
        object.set_meta("uid", uuid::Uuid::new_v4().to_string());
        object.set_meta("creationTimestamp", rfc3339(self.now()));
        let key = Key::new(served.bucket.clone(), address.to_string());
        Some(Write::put(key, Expect::Absent, stored_bytes(served, object)))
    }

    /// None for an address allocated to another Service: one created through its status names an address without
    /// allocating it.
    fn give_back(&self, address: IpAddr, service: &Value) -> Option<Write> {
        let stored = self.current(self.ip_addresses()?, "", &address.to_string())?;
        let holder = allocation::ip_address(address, service.namespace(), service.name());
        if parse(&stored).pointer("/spec/parentRef") != holder.pointer("/spec/parentRef") {
            return None;
        }
        Some(Write::delete(stored.key.clone(), Expect::Revision(stored.revision)))
    }
}

/// A random number below a limit.
fn below(limit: u64) -> u64 {
    uuid::Uuid::new_v4().as_u64_pair().0 % limit.max(1)
}
