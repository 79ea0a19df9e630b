//! The cluster addresses and node ports of Services.
//!
//! The IPAddress objects say which addresses are taken, the Services which ports. Choices of writes
//! under way are reserved in memory. The IPAddresses are written in the same commit as the Service,
//! which keeps them against writers that do not come through here.

mod node_port_range;

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use coracle_apimachinery::Result;
use coracle_apimachinery::allocation::{Allocate, Allocators, family_of};
use coracle_apimachinery::field::Field;
use coracle_apimachinery::names::GroupResource;
use coracle_apimachinery::object_meta::ObjectMeta;
use coracle_apimachinery::resource_info::ResourceInfo;
use coracle_apimachinery::validation::ip::{self, Cidr};
use coracle_apiserver::registry::deletion::rfc3339;
use coracle_apiserver::registry::{
    Allocated, AllocationRequest, Allocator, ObjectIndex, Registry, Reservation, parse, stored_bytes,
};
use coracle_storage::{BucketSnapshot, Expect, Key, Revision, Snapshot, Write};
use parking_lot::Mutex;
use serde_json::{Value, json};

use node_port_range::record_node_ports;

/// The addresses of a block and of the ServiceCIDRs, and all node ports. Clones share the
/// reservations.
#[derive(Clone)]
pub struct ServiceAllocator {
    cidr: Cidr,
    reserved: Arc<Mutex<Reserved>>,
}

/// Addresses and ports that writes in progress have reserved.
#[derive(Default)]
struct Reserved {
    addresses: BTreeSet<IpAddr>,
    node_ports: BTreeSet<i64>,
}

/// The choice for a write.
struct ServiceReservation {
    reserved: Arc<Mutex<Reserved>>,
    addresses: BTreeSet<IpAddr>,
    node_ports: BTreeSet<i64>,
    /// The kind that holds node ports, and where its objects are.
    kind: &'static dyn Allocate,
    bucket: Arc<str>,
    /// The revision at which the choice was free.
    free_at: Revision,
    /// Whether the choice is reserved, so that no other write can take it until this is dropped.
    held: bool,
}

impl Drop for ServiceReservation {
    fn drop(&mut self) {
        if !self.held {
            return;
        }
        let mut reserved = self.reserved.lock();
        self.addresses.iter().for_each(|address| _ = reserved.addresses.remove(address));
        self.node_ports.iter().for_each(|port| _ = reserved.node_ports.remove(port));
    }
}

impl ServiceAllocator {
    /// Creates an allocator for a block of cluster IPs.
    pub fn new(cidr: Cidr) -> ServiceAllocator {
        ServiceAllocator { cidr: cidr.network(), reserved: Arc::default() }
    }

    /// Returns `true` if no write in progress has reserved anything.
    pub fn is_idle(&self) -> bool {
        let reserved = self.reserved.lock();
        reserved.addresses.is_empty() && reserved.node_ports.is_empty()
    }

    /// Chooses what a Service needs of what neither stored objects hold nor other writes have
    /// reserved.
    fn choose(
        &self,
        registry: &Registry,
        kind: &'static dyn Allocate,
        bucket: &Arc<str>,
        service: &mut Value,
        request: &AllocationRequest<'_>,
    ) -> Result<ServiceReservation> {
        let reserved = self.reserved.lock();
        // Taken under the lock: allocations that are no longer reserved are stored by then.
        let snapshot = registry.store.snapshot();
        let addresses = || {
            let bucket = ip_addresses(registry).map(|info| snapshot.bucket(&info.storage.bucket));
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
        let mut allocators = Allocators::new(self.cidr, addresses, node_ports, request.dry_run)
            .with_ranges(|| other_ranges(registry, &snapshot));
        let target = request.target;
        let name = service.name().to_owned();
        let path = [&**bucket, &*target.namespace, &name];
        let mut below = registry.identities().choices(&path);
        let allocated = kind.allocate(service, request.old, &mut allocators, &mut below);
        let (addresses, node_ports) = allocators.into_allocated();
        if let Some(error) = unreadable.into_inner() {
            return Err(error);
        }
        allocated?;
        let free_at = snapshot.revision();
        let (reserved, bucket) = (self.reserved.clone(), bucket.clone());
        Ok(ServiceReservation { reserved, addresses, node_ports, kind, bucket, free_at, held: false })
    }
}

impl Allocator for ServiceAllocator {
    fn allocate(
        &self,
        registry: &Registry,
        request: &AllocationRequest<'_>,
        object: &mut Value,
    ) -> Result<Option<Allocated>> {
        let info = &request.target.info;
        let Some(kind) = info.behavior.allocation else { return Ok(None) };
        let reservation = self.choose(registry, kind, &info.storage.bucket, object, request)?;
        let held = |object: &Value| kind.addresses(object);
        let (has, had) = (held(object), request.old.map(held).unwrap_or_default());
        let taken = has.iter().filter(|address| !had.contains(address));
        let returned = had.iter().filter(|address| !has.contains(address));
        let mut writes: Vec<Write> =
            taken.filter_map(|address| allocate_address(registry, *address, object)).collect();
        writes.extend(returned.filter_map(|address| release_address(registry, *address, object)));
        let stored = request.old.map(|old| request.target.key_of(old.name()));
        let bucket = &info.storage.bucket;
        writes.extend(record_node_ports(registry, kind, bucket, stored.as_ref(), Some(object), request.old)?);
        Ok(Some(Allocated { writes, reservation: Box::new(reservation) }))
    }

    fn release(
        &self,
        registry: &Registry,
        info: &ResourceInfo,
        key: &Key,
        object: &Value,
    ) -> Result<Vec<Write>> {
        let Some(kind) = info.behavior.allocation else { return Ok(Vec::new()) };
        let addresses = kind.addresses(object).into_iter();
        let mut writes: Vec<_> =
            addresses.filter_map(|address| release_address(registry, address, object)).collect();
        writes.extend(record_node_ports(
            registry,
            kind,
            &info.storage.bucket,
            Some(key),
            None,
            Some(object),
        )?);
        Ok(writes)
    }
}

impl Reservation for ServiceReservation {
    fn reserve(&mut self, registry: &Registry) -> Result<bool> {
        let mut reserved = self.reserved.lock();
        // Taken under the lock: allocations that are no longer reserved are stored by then.
        let services = registry.store.snapshot().bucket(&self.bucket);
        let is_changed = services.iter().any(|service| service.revision > self.free_at);
        let stored = match is_changed && !self.node_ports.is_empty() {
            true => stored_node_ports(self.kind, &services)?,
            false => BTreeSet::new(),
        };
        let info = ip_addresses(registry);
        let is_stored = |address: &IpAddr| {
            info.as_ref().is_some_and(|info| registry.current(info, "", &address.to_string()).is_some())
        };
        let taken = self.addresses.iter().any(is_stored)
            || !self.addresses.is_disjoint(&reserved.addresses)
            || !self.node_ports.is_disjoint(&reserved.node_ports)
            || !self.node_ports.is_disjoint(&stored);
        if !taken {
            reserved.addresses.extend(&self.addresses);
            reserved.node_ports.extend(&self.node_ports);
            self.held = true;
        }
        Ok(!taken)
    }
}

/// Returns the ranges of the ServiceCIDRs. One that is terminating or not ready has no more
/// addresses to give; one without a condition is ready, as no controller may run.
fn other_ranges(registry: &Registry, snapshot: &Snapshot<ObjectIndex>) -> Vec<Cidr> {
    let info = registry.by_resource(&GroupResource::new("networking.k8s.io", "servicecidrs"));
    let Some(info) = info else { return Vec::new() };
    let service_cidrs = snapshot.bucket(&info.storage.bucket);
    let mut ranges = Vec::new();
    for stored in service_cidrs.iter().filter(|stored| !stored.meta.terminating) {
        let Ok(object) = parse(stored) else { continue };
        let field = Field::root(&object);
        let is_ready = |condition: &Field<'_>| condition.get("type").str() == "Ready";
        let ready = field.walk("status.conditions").items().find(is_ready);
        if ready.is_none_or(|ready| ready.get("status").str() == "True") {
            ranges.extend(field.walk("spec.cidrs").items().filter_map(|range| Cidr::parse(range.str())));
        }
    }
    ranges
}

fn ip_addresses(registry: &Registry) -> Option<Arc<ResourceInfo>> {
    registry.by_resource(&GroupResource::new("networking.k8s.io", "ipaddresses"))
}

/// Returns the write that creates the IPAddress of an address. None if that kind is not served.
fn allocate_address(registry: &Registry, address: IpAddr, service: &Value) -> Option<Write> {
    let info = ip_addresses(registry)?;
    let mut object = ip_address(address, service.namespace(), service.name());
    let path = [&*info.storage.bucket, "", &*address.to_string()];
    object.set_meta("uid", registry.identities().uid(&path).to_string());
    registry.identities().created(&path);
    object.set_meta("creationTimestamp", rfc3339(registry.now()));
    let key = Key::new(info.storage.bucket.clone(), address.to_string());
    Some(Write::put(key, Expect::Absent, stored_bytes(&info, object)))
}

/// Returns the write that deletes the IPAddress of an address. None for an address allocated to
/// another Service: a Service that is created through its status names an address without
/// allocating it.
fn release_address(registry: &Registry, address: IpAddr, service: &Value) -> Option<Write> {
    let stored = registry.current(&*ip_addresses(registry)?, "", &address.to_string())?;
    let holder = ip_address(address, service.namespace(), service.name());
    let stored_holder = parse(&stored).ok()?;
    if stored_holder.pointer("/spec/parentRef") != holder.pointer("/spec/parentRef") {
        return None;
    }
    Some(Write::delete(stored.key.clone(), Expect::Revision(stored.revision)))
}

/// Returns the node ports that Services hold.
fn stored_node_ports(kind: &dyn Allocate, services: &BucketSnapshot<ObjectIndex>) -> Result<BTreeSet<i64>> {
    let mut ports = BTreeSet::new();
    for stored in services.iter() {
        ports.extend(kind.node_ports(&parse(stored)?));
    }
    Ok(ports)
}

/// Builds the IPAddress object of an allocated address.
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
