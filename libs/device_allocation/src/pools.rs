//! The pools of a node: slices of one driver that belong together.
//!
//! Source: `pools_incubating.go` of the structured allocator.

use std::collections::{BTreeMap, HashSet};

use coracle_kinds::node_affinity::selects;
use k8s_openapi::api::core::v1::{Node, NodeSelector};
use k8s_openapi::api::resource::v1::{CounterSet, Device, ResourceSlice};

use crate::budget::Budget;
use crate::error::AllocationError;
use crate::inventory::{Inventory, PoolKey, has_counters};

/// The state of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PoolState {
    /// Its devices can be allocated.
    Complete,
    /// The driver has not published all its slices yet.
    Incomplete,
    /// Its slices contradict each other.
    Invalid,
}

/// The slices of a pool, as far as they are for a node.
#[derive(Debug)]
pub(crate) struct Pool<'a> {
    pub driver: &'a str,
    pub name: &'a str,
    pub state: PoolState,
    /// The slices with devices, by name; only those of complete pools.
    pub slices: Vec<&'a ResourceSlice>,
    /// The slices for other nodes. Their devices may consume the same counters.
    pub others: Vec<&'a ResourceSlice>,
    pub counter_sets: BTreeMap<&'a str, &'a CounterSet>,
}

/// Gathers the pools with devices for a node, ordered by driver and name. Those with binding
/// conditions are the last ones.
pub(crate) fn gather_pools<'a>(
    inventory: &'a Inventory,
    node: &Node,
    budget: &Budget,
) -> Result<Vec<Pool<'a>>, AllocationError> {
    let mut by_pool: BTreeMap<PoolKey<'a>, Vec<&'a ResourceSlice>> = BTreeMap::new();
    for slice in inventory.of_node(node.metadata.name.as_deref().unwrap_or_default()) {
        budget.spend(1)?;
        if is_for_node(slice, node, budget)? {
            add_slice(by_pool.entry((&slice.spec.driver, &slice.spec.pool.name)).or_default(), slice);
        }
    }
    let mut pools = Vec::new();
    for (key, slices) in by_pool {
        let all = inventory.of_pool(key);
        budget.spend((all.len() as u64).saturating_add(work(slices.iter().copied())))?;
        let wanted = slices.first().map(|first| first.spec.pool.resource_slice_count);
        if i64::try_from(slices.len()).ok() != wanted {
            // The others are looked at, too.
            budget.spend(work(all.iter().map(AsRef::as_ref)))?;
        }
        pools.extend(build(key, slices, all.iter().map(AsRef::as_ref)));
    }
    let has_binding_conditions = |pool: &Pool<'_>| {
        let mut devices = pool.slices.iter().flat_map(|slice| slice.spec.devices.iter().flatten());
        devices.any(|device| device.binding_conditions.is_some())
    };
    // The sort is stable.
    pools.sort_by_key(has_binding_conditions);
    Ok(pools)
}

/// Returns the steps of a look at the devices of slices and at the counters that they consume. It
/// is several times faster than to consider them.
fn work<'a>(slices: impl Iterator<Item = &'a ResourceSlice>) -> u64 {
    let devices = slices.flat_map(|slice| slice.spec.devices.iter().flatten());
    let counters = |device: &Device| {
        let consumed = device.consumes_counters.iter().flatten();
        consumed.map(|consumed| consumed.counters.len() as u64).fold(0, u64::saturating_add)
    };
    devices.map(|device| counters(device).saturating_add(1)).fold(0, u64::saturating_add) / 8
}

impl Pool<'_> {
    /// Returns the steps of a computation of the counters that are left.
    pub fn work_of_counters(&self) -> u64 {
        let sets = self.counter_sets.values().map(|set| set.counters.len() as u64);
        let slices = self.slices.iter().chain(&self.others).copied();
        sets.fold(work(slices), u64::saturating_add)
    }
}

/// Adds a slice to those of its pool. Only the newest generation counts.
fn add_slice<'a>(slices: &mut Vec<&'a ResourceSlice>, slice: &'a ResourceSlice) {
    let generation = slice.spec.pool.generation;
    match slices.first().map(|first| first.spec.pool.generation) {
        Some(newest) if newest > generation => return,
        Some(newest) if newest < generation => slices.clear(),
        _ => {}
    }
    slices.push(slice);
}

/// Builds a pool. None: its slices are obsolete, as the newer ones are not for the node.
fn build<'a>(
    (driver, name): PoolKey<'a>,
    mut slices: Vec<&'a ResourceSlice>,
    all: impl Iterator<Item = &'a ResourceSlice>,
) -> Option<Pool<'a>> {
    let first = &slices.first()?.spec.pool;
    let (generation, count) = (first.generation, first.resource_slice_count);
    let is_complete = |slices: &[&ResourceSlice]| i64::try_from(slices.len()) == Ok(count);
    let mut others = Vec::new();
    let mut pool = Pool {
        driver,
        name,
        state: PoolState::Complete,
        slices: Vec::new(),
        others: Vec::new(),
        counter_sets: BTreeMap::new(),
    };
    if !is_complete(&slices) {
        let mut of_generation = Vec::new();
        for slice in all {
            match slice.spec.pool.generation {
                newer if newer > generation => return None,
                same if same == generation => of_generation.push(slice),
                _ => {}
            }
        }
        if !is_complete(&of_generation) {
            pool.state = PoolState::Incomplete;
            return Some(pool);
        }
        let known: HashSet<Option<&str>> =
            slices.iter().map(|slice| slice.metadata.name.as_deref()).collect();
        of_generation.retain(|slice| !known.contains(&slice.metadata.name.as_deref()));
        others = of_generation;
    }
    slices.sort_by(|one, other| one.metadata.name.cmp(&other.metadata.name));
    let (with_counters, with_devices): (Vec<_>, Vec<_>) =
        slices.into_iter().partition(|slice| has_counters(slice));
    let sets = counter_sets(&with_counters);
    let is_valid = |sets: &BTreeMap<&str, &CounterSet>| {
        let devices = devices(&with_devices).chain(devices(&with_counters)).chain(devices(&others));
        have_unique_names(&with_devices) && devices.into_iter().all(|device| consumes_known(device, sets))
    };
    match sets.filter(is_valid) {
        Some(sets) => {
            (pool.slices, pool.others, pool.counter_sets) = (with_devices, others, sets);
        }
        None => pool.state = PoolState::Invalid,
    }
    Some(pool)
}

/// Returns `true` if a slice has devices for a node, or the counters of its pool.
fn is_for_node(slice: &ResourceSlice, node: &Node, budget: &Budget) -> Result<bool, AllocationError> {
    let spec = &slice.spec;
    let name = spec.node_name.as_deref().filter(|name| !name.is_empty());
    let all = spec.all_nodes == Some(true);
    if has_counters(slice) {
        return Ok(true);
    }
    if name.is_some() || all || spec.node_selector.is_some() {
        return Ok(matches_node(node, name, all, spec.node_selector.as_ref()));
    }
    if !has_nodes_of_devices(slice) {
        return Ok(false);
    }
    for device in spec.devices.iter().flatten() {
        budget.spend(1)?;
        if is_device_for_node(device, node) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Returns `true` if each device of a slice names its nodes itself.
pub(crate) fn has_nodes_of_devices(slice: &ResourceSlice) -> bool {
    slice.spec.per_device_node_selection == Some(true)
}

/// Returns `true` if a device that names its nodes is for this one.
pub(crate) fn is_device_for_node(device: &Device, node: &Node) -> bool {
    let name = device.node_name.as_deref().filter(|name| !name.is_empty());
    matches_node(node, name, device.all_nodes == Some(true), device.node_selector.as_ref())
}

fn matches_node(node: &Node, name: Option<&str>, all: bool, selector: Option<&NodeSelector>) -> bool {
    match (name, selector) {
        (Some(name), _) => node.metadata.name.as_deref() == Some(name),
        (None, Some(selector)) if !all => selects(selector, node),
        (None, _) => all,
    }
}

fn devices<'s, 'a>(slices: &'s [&'a ResourceSlice]) -> impl Iterator<Item = &'a Device> + use<'s, 'a> {
    slices.iter().flat_map(|slice| slice.spec.devices.iter().flatten())
}

fn have_unique_names(slices: &[&ResourceSlice]) -> bool {
    let mut names = HashSet::new();
    devices(slices).all(|device| names.insert(device.name.as_str()))
}

/// Returns the sets of counters by their names; None if two have the same name.
fn counter_sets<'a>(slices: &[&'a ResourceSlice]) -> Option<BTreeMap<&'a str, &'a CounterSet>> {
    let mut sets = BTreeMap::new();
    let all = slices.iter().flat_map(|slice| slice.spec.shared_counters.iter().flatten());
    for set in all {
        if sets.insert(set.name.as_str(), set).is_some() {
            return None;
        }
    }
    Some(sets)
}

/// Returns `true` if all counters that a device consumes exist.
fn consumes_known(device: &Device, sets: &BTreeMap<&str, &CounterSet>) -> bool {
    device.consumes_counters.iter().flatten().all(|consumption| {
        let set = sets.get(consumption.counter_set.as_str());
        set.is_some_and(|set| consumption.counters.keys().all(|name| set.counters.contains_key(name)))
    })
}
