//! Shared counters: devices that are parts of one whole, and consume what it has.

use std::collections::BTreeMap;

use coracle_quantity::Quantity;
use k8s_openapi::api::resource::v1::{Device, DeviceCounterConsumption};

use crate::capacity::parse;
use crate::pools::Pool;

/// Amounts by the names of sets and counters.
type Counters<'a> = BTreeMap<&'a str, BTreeMap<&'a str, Quantity>>;

/// The counters of a pool.
#[derive(Debug)]
pub(crate) struct PoolCounters<'a> {
    /// The amounts that the devices of other claims leave.
    available: Counters<'a>,
    /// The amounts that the devices of this search consume.
    consumed: Counters<'a>,
}

impl<'a> PoolCounters<'a> {
    /// Computes the counters of a pool.
    ///
    /// - `is_allocated`: returns whether a claim has a device of the pool
    pub fn new(pool: &Pool<'a>, is_allocated: impl Fn(&Device) -> bool) -> PoolCounters<'a> {
        let mut available = Counters::new();
        for (name, set) in &pool.counter_sets {
            let counters = set.counters.iter().map(|(name, c)| (name.as_str(), parse(&c.value)));
            available.insert(*name, counters.collect());
        }
        let devices =
            pool.slices.iter().chain(&pool.others).flat_map(|slice| slice.spec.devices.iter().flatten());
        for device in devices.filter(|device| is_allocated(device)) {
            for (set, name, amount) in consumption(device) {
                if let Some(left) = available.get_mut(set).and_then(|set| set.get_mut(name)) {
                    *left = left.minus(&amount);
                }
            }
        }
        PoolCounters { available, consumed: Counters::new() }
    }

    /// Consumes the counters of a device. Returns `false`, and consumes none, if they do not
    /// suffice.
    pub fn consume(&mut self, device: &'a Device) -> bool {
        for (set, name, amount) in consumption(device) {
            let sum = self.consumed.entry(set).or_default().entry(name).or_insert(Quantity::from_int(0));
            *sum = sum.plus(&amount);
        }
        let suffices = self.available.iter().all(|(set, counters)| {
            let consumed = self.consumed.get(set);
            counters.iter().all(|(name, left)| match consumed.and_then(|consumed| consumed.get(name)) {
                Some(consumed) => consumed <= left,
                None => !left.is_negative(),
            })
        });
        if !suffices {
            self.release(device);
        }
        suffices
    }

    /// Gives the counters of a device back.
    pub fn release(&mut self, device: &'a Device) {
        for (set, name, amount) in consumption(device) {
            if let Some(sum) = self.consumed.get_mut(set).and_then(|set| set.get_mut(name)) {
                *sum = sum.minus(&amount);
            }
        }
    }

    /// Returns the number of counters that are compared for a device.
    pub fn len(&self) -> usize {
        self.available.values().map(BTreeMap::len).sum()
    }
}

/// Returns `true` if a device consumes counters.
pub(crate) fn consumes_counters(device: &Device) -> bool {
    device.consumes_counters.as_ref().is_some_and(|all| !all.is_empty())
}

fn consumption(device: &Device) -> impl Iterator<Item = (&str, &str, Quantity)> {
    device.consumes_counters.iter().flatten().flat_map(
        |DeviceCounterConsumption { counter_set, counters }| {
            counters
                .iter()
                .map(|(name, counter)| (counter_set.as_str(), name.as_str(), parse(&counter.value)))
        },
    )
}
