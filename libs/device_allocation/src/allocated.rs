//! The devices that claims have already.

use std::collections::{BTreeMap, HashMap};

use coracle_quantity::Quantity;
use k8s_openapi::api::resource::v1::AllocationResult;

use crate::capacity::{Capacity, parse};

/// The devices that claims have already, with the capacity that is consumed of each.
#[derive(Clone, Debug, Default)]
pub struct AllocatedState {
    /// By driver, pool and device.
    drivers: HashMap<String, HashMap<String, HashMap<String, DeviceState>>>,
}

/// The allocations of a device.
#[derive(Clone, Debug, Default)]
pub(crate) struct DeviceState {
    /// Whether a claim has the device for itself.
    pub is_dedicated: bool,
    /// The capacity consumed by the claims that share it; None if it is not known.
    pub consumed: Option<Capacity>,
}

impl AllocatedState {
    /// Adds the devices of an allocation. Devices with access for administrators stay available to
    /// others.
    pub fn add(&mut self, allocation: &AllocationResult) {
        let devices = allocation.devices.iter().flat_map(|devices| devices.results.iter().flatten());
        for result in devices.filter(|result| result.admin_access != Some(true)) {
            let pools = self.drivers.entry(result.driver.clone()).or_default();
            let devices = pools.entry(result.pool.clone()).or_default();
            let state = devices.entry(result.device.clone()).or_default();
            if result.share_id.is_none() {
                state.is_dedicated = true;
                continue;
            }
            if let Some(capacity) = &result.consumed_capacity {
                let consumed = state.consumed.get_or_insert_with(BTreeMap::new);
                for (name, quantity) in capacity {
                    let sum = consumed.entry(name.clone()).or_insert_with(|| Quantity::from_int(0));
                    *sum = sum.plus(&parse(quantity));
                }
            }
        }
    }

    /// Returns the allocations of a device; None if it has none.
    pub(crate) fn get(&self, driver: &str, pool: &str, device: &str) -> Option<&DeviceState> {
        self.drivers.get(driver)?.get(pool)?.get(device)
    }
}
