//! The ResourceSlices of a cluster, indexed by node and by pool.

use std::collections::HashMap;
use std::sync::Arc;

use k8s_openapi::api::resource::v1::{ResourceSlice, ResourceSliceSpec};

/// The driver and the name of a pool.
pub(crate) type PoolKey<'a> = (&'a str, &'a str);

/// The ResourceSlices of a cluster.
#[derive(Debug, Default)]
pub struct Inventory {
    /// The slices of a single node, by its name.
    of_node: HashMap<String, Vec<Arc<ResourceSlice>>>,
    /// The slices that several nodes may use, and those with counters.
    shared: Vec<Arc<ResourceSlice>>,
    /// All slices of each pool, by driver and name.
    of_pool: HashMap<String, HashMap<String, Vec<Arc<ResourceSlice>>>>,
}

impl Inventory {
    /// Indexes slices.
    pub fn new(slices: impl IntoIterator<Item = Arc<ResourceSlice>>) -> Inventory {
        let mut inventory = Inventory::default();
        for slice in slices {
            let ResourceSliceSpec { driver, pool, .. } = &slice.spec;
            let pools = inventory.of_pool.entry(driver.clone()).or_default();
            pools.entry(pool.name.clone()).or_default().push(slice.clone());
            match slice.spec.node_name.as_deref().filter(|name| !name.is_empty()) {
                Some(node) if !has_counters(&slice) => {
                    inventory.of_node.entry(node.to_owned()).or_default().push(slice);
                }
                _ => inventory.shared.push(slice),
            }
        }
        inventory
    }

    /// Iterates over the slices that may be for a node.
    pub(crate) fn of_node(&self, name: &str) -> impl Iterator<Item = &ResourceSlice> {
        let of_node = self.of_node.get(name).into_iter().flatten();
        of_node.chain(&self.shared).map(Arc::as_ref)
    }

    /// Returns all slices of a pool.
    pub(crate) fn of_pool(&self, (driver, name): PoolKey<'_>) -> &[Arc<ResourceSlice>] {
        let slices = self.of_pool.get(driver).and_then(|pools| pools.get(name));
        slices.map(Vec::as_slice).unwrap_or_default()
    }
}

/// Returns `true` if a slice has the counters of its pool.
pub(crate) fn has_counters(slice: &ResourceSlice) -> bool {
    slice.spec.shared_counters.as_ref().is_some_and(|sets| !sets.is_empty())
}
