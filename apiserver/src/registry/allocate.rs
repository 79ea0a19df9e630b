//! What a write takes from a common stock: the cluster addresses and node ports of Services (and `charge.rs`: quotas).
//!
//! The IPAddress objects say which addresses are taken, the Services which ports. What a write takes is reserved in memory
//! until it is stored, so that nobody waits for another's write; the IPAddresses are written in the same commit, which keeps
//! them against writers that do not come through here.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use coracle_storage::{Commit, Expect, Key, Write};
use serde_json::Value;

use super::deletion::rfc3339;
use super::locks::NamedGuard;
use super::write::{Writing, store_failed, stored_bytes};
use super::{ObjectIndex, Registry, parse};
use crate::names::GroupResource;
use crate::object_meta::ObjectMeta;
use crate::resource_info::{Part, ResourceInfo};
use crate::resources::core::service::allocation::{self, Allocators};
use crate::validation::ip::{self, Cidr};
use crate::{Error, Result};

const SERVICES: &str = "services";
const CLUSTER_IPS: Cidr = Cidr { address: IpAddr::V4(Ipv4Addr::new(10, 0, 0, 0)), prefix: 24 };

/// What comes with a write.
#[derive(Default)]
pub(super) struct Allocation<'a> {
    /// To be committed together with the object.
    pub writes: Vec<Write>,
    pub reservation: Option<Reservation>,
    /// The turn at the namespace's quotas.
    pub turn: Option<NamedGuard<'a>>,
}

/// What writes under way have taken.
#[derive(Default)]
pub(super) struct Reserved {
    addresses: BTreeSet<IpAddr>,
    node_ports: BTreeSet<i64>,
}

#[cfg(test)]
impl Reserved {
    pub fn is_empty(&self) -> bool {
        self.addresses.is_empty() && self.node_ports.is_empty()
    }
}

/// Keeps addresses and node ports from others until it is dropped.
pub(super) struct Reservation {
    reserved: Arc<Mutex<Reserved>>,
    addresses: BTreeSet<IpAddr>,
    node_ports: BTreeSet<i64>,
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let mut reserved = lock(&self.reserved);
        self.addresses.iter().for_each(|address| _ = reserved.addresses.remove(address));
        self.node_ports.iter().for_each(|port| _ = reserved.node_ports.remove(port));
    }
}

fn lock(reserved: &Mutex<Reserved>) -> MutexGuard<'_, Reserved> {
    reserved.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Registry {
    /// Takes what a new or changed object needs, and writes it into the object.
    pub(super) fn allocate(
        &self,
        writing: &Writing<'_>,
        object: &mut Value,
        old: Option<&Value>,
    ) -> Result<Allocation<'_>> {
        if &*writing.target.info.storage.bucket != SERVICES || writing.part != Part::Main {
            return Ok(Allocation::default());
        }
        let reservation = self.reserve(object, old, writing.dry_run())?;
        let held = |service: &Value| allocation::addresses(service).collect::<Vec<_>>();
        let (has, had) = (held(object), old.map(held).unwrap_or_default());
        let taken = has.iter().filter(|address| !had.contains(address));
        let returned = had.iter().filter(|address| !has.contains(address));
        let mut writes: Vec<Write> = taken.filter_map(|address| self.take(*address, object)).collect();
        writes.extend(returned.filter_map(|address| self.give_back(*address, object)));
        Ok(Allocation { writes, reservation: Some(reservation), turn: None })
    }

    /// Chooses what a Service needs of what neither stored objects hold nor other writes have reserved.
    fn reserve(&self, service: &mut Value, old: Option<&Value>, dry_run: bool) -> Result<Reservation> {
        let mut reserved = lock(&self.reserved);
        // Taken under the lock: what is no longer reserved is stored by then.
        let snapshot = self.store.snapshot();
        let addresses = || {
            let bucket = self.ip_addresses().map(|info| snapshot.bucket(&info.storage.bucket));
            let stored = bucket.iter().flat_map(|bucket| bucket.iter());
            let stored = stored.filter_map(|stored| ip::parse(stored.key.name()));
            stored.chain(reserved.addresses.iter().copied()).collect()
        };
        let unreadable = RefCell::new(None);
        let node_ports = || {
            let mut ports = reserved.node_ports.clone();
            for stored in snapshot.bucket(SERVICES).iter() {
                match parse(stored) {
                    Ok(service) => ports.extend(allocation::held_node_ports(&service)),
                    Err(error) => _ = unreadable.replace(Some(error)),
                }
            }
            ports
        };
        let mut allocators = Allocators::new(CLUSTER_IPS, addresses, node_ports, dry_run);
        let allocated = allocation::allocate(service, old, &mut allocators, &mut below);
        let (addresses, node_ports) = allocators.into_allocated();
        if let Some(error) = unreadable.into_inner() {
            return Err(error);
        }
        allocated?;
        if !dry_run {
            reserved.addresses.extend(&addresses);
            reserved.node_ports.extend(&node_ports);
        }
        Ok(Reservation { reserved: self.reserved.clone(), addresses, node_ports })
    }

    /// Commits an object with what was allocated for it. What was reserved stays so until the store has answered, even if the
    /// client no longer waits for that.
    pub(super) async fn commit_allocated(
        &self,
        object: Write,
        allocation: Allocation<'_>,
    ) -> Result<Commit<ObjectIndex>> {
        let mut writes = vec![object];
        writes.extend(allocation.writes);
        let Some(reservation) = allocation.reservation else {
            return self.store.commit(writes).await.map_err(store_failed);
        };
        let store = self.store.clone();
        let commit = tokio::spawn(async move {
            let commit = store.commit(writes).await;
            drop(reservation);
            commit
        });
        commit.await.map_err(|error| Error::Internal(error.to_string()))?.map_err(store_failed)
    }

    /// The writes that give back what an object had taken.
    pub(super) fn release(&self, info: &ResourceInfo, object: &Value) -> Vec<Write> {
        if &*info.storage.bucket != SERVICES {
            return Vec::new();
        }
        allocation::addresses(object).filter_map(|address| self.give_back(address, object)).collect()
    }

    fn ip_addresses(&self) -> Option<Arc<ResourceInfo>> {
        self.by_resource(&GroupResource::new("networking.k8s.io", "ipaddresses"))
    }

    fn take(&self, address: IpAddr, service: &Value) -> Option<Write> {
        let info = self.ip_addresses()?;
        let mut object = allocation::ip_address(address, service.namespace(), service.name());
        object.set_meta("uid", uuid::Uuid::new_v4().to_string());
        object.set_meta("creationTimestamp", rfc3339(self.now()));
        let key = Key::new(info.storage.bucket.clone(), address.to_string());
        Some(Write::put(key, Expect::Absent, stored_bytes(&info, object)))
    }

    /// None for an address allocated to another Service: one created through its status names an address without
    /// allocating it.
    fn give_back(&self, address: IpAddr, service: &Value) -> Option<Write> {
        let stored = self.current(&*self.ip_addresses()?, "", &address.to_string())?;
        let holder = allocation::ip_address(address, service.namespace(), service.name());
        let stored_holder = parse(&stored).ok()?;
        if stored_holder.pointer("/spec/parentRef") != holder.pointer("/spec/parentRef") {
            return None;
        }
        Some(Write::delete(stored.key.clone(), Expect::Revision(stored.revision)))
    }
}

/// A random number below a limit.
fn below(limit: u64) -> u64 {
    uuid::Uuid::new_v4().as_u64_pair().0 % limit.max(1)
}
