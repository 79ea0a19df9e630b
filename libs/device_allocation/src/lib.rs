//! The allocation of devices to ResourceClaims (dynamic resource allocation with structured
//! parameters).
//!
//! [`Allocator::allocate`] chooses devices of ResourceSlices for the claims of one pod on one node:
//! 1. the slices that are for the node are grouped to pools ([`Inventory`]);
//! 2. each request of a claim is resolved: its class, its selectors, the number of its devices;
//! 3. a backtracking search takes one device after the other, in the order of pools and slices,
//!    until all requests are met; the first solution is the result;
//! 4. the result has the devices, the configuration of class and claim, and the nodes on which the
//!    devices are available.
//!
//! Always true here:
//! - A search does a bounded number of steps ([`Budget`]), and needs no recursion.
//! - The same input has the same result, but for the ids of shares.
//! - A device is in the result at most once, unless it allows several allocations, or a request has
//!   access for administrators.
//!
//! There is no I/O here, no cache of objects and no clock.
//!
//! Source: `k8s.io/dynamic-resource-allocation/structured`, its allocator for the features that
//! Kubernetes 1.36 has by default.

#![warn(missing_docs)]

mod allocated;
mod allocation;
mod allocator;
mod budget;
mod capacity;
mod constraints;
mod counters;
mod error;
mod inventory;
mod pools;
mod requests;
mod search;
mod selectors;
#[cfg(test)]
mod tests;

pub use allocated::AllocatedState;
pub use allocator::{Allocator, DeviceClasses};
pub use budget::Budget;
pub use error::AllocationError;
pub use inventory::Inventory;
pub use selectors::SelectorCache;

/// The number of devices that a claim can have.
pub const MAX_RESULTS: usize = 32;
