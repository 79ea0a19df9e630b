//! What a write takes from a common stock: the cluster addresses and node ports of Services (and `charge.rs`: quotas).
//!
//! The IPAddress objects say which addresses are taken, the Services which ports. A write chooses first; once its object is
//! valid and admitted, which may take long, it reserves what it chose in memory until it is stored, so that nobody waits for
//! another's write. If another was faster, all is made again. The IPAddresses are written in the same commit, which keeps them
//! against writers that do not come through here.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use coracle_storage::{BucketSnapshot, Commit, Expect, Key, Revision, Write};
use serde_json::{Value, json};

use super::deletion::rfc3339;
use super::locks::NamedGuard;
use super::write::{Writing, store_failed, stored_bytes};
use super::{ObjectIndex, Registry, parse};
use crate::allocation::{Allocate, Allocators, family_of};
use crate::names::GroupResource;
use crate::object_meta::ObjectMeta;
use crate::resource_info::{Part, ResourceInfo};
use crate::telemetry::latency::{Phase, measure};
use crate::validation::ip::{self, Cidr};
use crate::{Error, Result};

/// The default block of cluster IPs.
pub(super) const SERVICE_CIDR: Cidr = Cidr { address: IpAddr::V4(Ipv4Addr::new(10, 0, 0, 0)), prefix: 24 };

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

/// What was chosen for a write.
pub(super) struct Reservation {
    reserved: Arc<Mutex<Reserved>>,
    addresses: BTreeSet<IpAddr>,
    node_ports: BTreeSet<i64>,
    /// The kind that holds node ports, and where its objects are.
    kind: &'static dyn Allocate,
    bucket: Arc<str>,
    /// The revision at which it was free.
    free_at: Revision,
    /// Whether it is kept from others, until this is dropped.
    held: bool,
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if !self.held {
            return;
        }
        let mut reserved = lock(&self.reserved);
        self.addresses.iter().for_each(|address| _ = reserved.addresses.remove(address));
        self.node_ports.iter().for_each(|port| _ = reserved.node_ports.remove(port));
    }
}

fn lock(reserved: &Mutex<Reserved>) -> MutexGuard<'_, Reserved> {
    reserved.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Registry {
    /// Chooses what a new or changed object needs, and writes it into the object.
    pub(super) fn allocate(
        &self,
        writing: &Writing<'_>,
        object: &mut Value,
        old: Option<&Value>,
    ) -> Result<Allocation<'_>> {
        let info = &writing.target.info;
        let Some(kind) = info.behaviour.allocation.filter(|_| writing.part == Part::Main) else {
            return Ok(Allocation::default());
        };
        let reservation = self.choose(kind, &info.storage.bucket, object, old, writing.dry_run())?;
        let held = |object: &Value| kind.addresses(object);
        let (has, had) = (held(object), old.map(held).unwrap_or_default());
        let taken = has.iter().filter(|address| !had.contains(address));
        let returned = had.iter().filter(|address| !has.contains(address));
        let mut writes: Vec<Write> = taken.filter_map(|address| self.take(*address, object)).collect();
        writes.extend(returned.filter_map(|address| self.give_back(*address, object)));
        let stored = old.map(|old| writing.target.key_of(old.name()));
        let bucket = &info.storage.bucket;
        writes.extend(self.record_node_ports(kind, bucket, stored.as_ref(), Some(object), old)?);
        Ok(Allocation { writes, reservation: Some(reservation), turn: None })
    }

    /// Chooses what a Service needs of what neither stored objects hold nor other writes have reserved.
    fn choose(
        &self,
        kind: &'static dyn Allocate,
        bucket: &Arc<str>,
        service: &mut Value,
        old: Option<&Value>,
        dry_run: bool,
    ) -> Result<Reservation> {
        let reserved = lock(&self.reserved);
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
            match stored_node_ports(kind, &snapshot.bucket(bucket)) {
                Ok(stored) => ports.extend(stored),
                Err(error) => _ = unreadable.replace(Some(error)),
            }
            ports
        };
        let mut allocators = Allocators::new(self.service_cidr, addresses, node_ports, dry_run);
        let allocated = kind.allocate(service, old, &mut allocators, &mut below);
        let (addresses, node_ports) = allocators.into_allocated();
        if let Some(error) = unreadable.into_inner() {
            return Err(error);
        }
        allocated?;
        let free_at = snapshot.revision();
        let (reserved, bucket) = (self.reserved.clone(), bucket.clone());
        Ok(Reservation { reserved, addresses, node_ports, kind, bucket, free_at, held: false })
    }

    /// Reserves what was chosen, right before it is stored. Returns false if another was faster.
    pub(super) fn reserve(&self, allocation: &mut Allocation<'_>) -> Result<bool> {
        let Some(reservation) = &mut allocation.reservation else { return Ok(true) };
        let mut reserved = lock(&self.reserved);
        // Taken under the lock: what is no longer reserved is stored by then.
        let services = self.store.snapshot().bucket(&reservation.bucket);
        let is_changed = services.iter().any(|service| service.revision > reservation.free_at);
        let stored = match is_changed && !reservation.node_ports.is_empty() {
            true => stored_node_ports(reservation.kind, &services)?,
            false => BTreeSet::new(),
        };
        let info = self.ip_addresses();
        let is_stored = |address: &IpAddr| {
            info.as_ref().is_some_and(|info| self.current(info, "", &address.to_string()).is_some())
        };
        let taken = reservation.addresses.iter().any(is_stored)
            || !reservation.addresses.is_disjoint(&reserved.addresses)
            || !reservation.node_ports.is_disjoint(&reserved.node_ports)
            || !reservation.node_ports.is_disjoint(&stored);
        if !taken {
            reserved.addresses.extend(&reservation.addresses);
            reserved.node_ports.extend(&reservation.node_ports);
            reservation.held = true;
        }
        Ok(!taken)
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
            return self.commit(writes).await;
        };
        let _timer = measure(Phase::Store);
        let store = self.store.clone();
        let commit = tokio::spawn(async move {
            let commit = store.commit(writes).await;
            drop(reservation);
            commit
        });
        commit.await.map_err(|error| Error::Internal(error.to_string()))?.map_err(store_failed)
    }

    /// The writes that give back what an object had taken.
    pub(super) fn release(&self, info: &ResourceInfo, key: &Key, object: &Value) -> Result<Vec<Write>> {
        let Some(kind) = info.behaviour.allocation else { return Ok(Vec::new()) };
        let addresses = kind.addresses(object).into_iter();
        let mut writes: Vec<_> = addresses.filter_map(|address| self.give_back(address, object)).collect();
        writes.extend(self.record_node_ports(kind, &info.storage.bucket, Some(key), None, Some(object))?);
        Ok(writes)
    }

    fn ip_addresses(&self) -> Option<Arc<ResourceInfo>> {
        self.by_resource(&GroupResource::new("networking.k8s.io", "ipaddresses"))
    }

    fn take(&self, address: IpAddr, service: &Value) -> Option<Write> {
        let info = self.ip_addresses()?;
        let mut object = ip_address(address, service.namespace(), service.name());
        object.set_meta("uid", uuid::Uuid::new_v4().to_string());
        object.set_meta("creationTimestamp", rfc3339(self.now()));
        let key = Key::new(info.storage.bucket.clone(), address.to_string());
        Some(Write::put(key, Expect::Absent, stored_bytes(&info, object)))
    }

    /// None for an address allocated to another Service: one created through its status names an address without
    /// allocating it.
    fn give_back(&self, address: IpAddr, service: &Value) -> Option<Write> {
        let stored = self.current(&*self.ip_addresses()?, "", &address.to_string())?;
        let holder = ip_address(address, service.namespace(), service.name());
        let stored_holder = parse(&stored).ok()?;
        if stored_holder.pointer("/spec/parentRef") != holder.pointer("/spec/parentRef") {
            return None;
        }
        Some(Write::delete(stored.key.clone(), Expect::Revision(stored.revision)))
    }
}

/// The node ports that Services hold.
fn stored_node_ports(kind: &dyn Allocate, services: &BucketSnapshot<ObjectIndex>) -> Result<BTreeSet<i64>> {
    let mut ports = BTreeSet::new();
    for stored in services.iter() {
        ports.extend(kind.node_ports(&parse(stored)?));
    }
    Ok(ports)
}

/// The IPAddress object of an allocated address.
fn ip_address(address: IpAddr, namespace: &str, name: &str) -> Value {
    json!({
        "apiVersion": "networking.k8s.io/v1",
        "kind": "IPAddress",
        "metadata": {
            "name": address.to_string(),
            "labels": {
                "ipaddress.kubernetes.io/ip-family": family_of(address),
                "ipaddress.kubernetes.io/managed-by": "ipallocator.k8s.io",
            },
        },
        "spec": {"parentRef": {"resource": "services", "namespace": namespace, "name": name}},
    })
}

/// A random number below a limit.
fn below(limit: u64) -> u64 {
    uuid::Uuid::new_v4().as_u64_pair().0 % limit.max(1)
}
