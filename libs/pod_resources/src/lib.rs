//! The arithmetic of resources: requests and limits of a whole pod, QoS class, and what quotas
//! count of each kind.
//!
//! The API server reads pods as JSON, the controllers as typed objects. Both turn what they read
//! into [`ResourceList`]s and compute with them here, so that admission, the quota controller and
//! the scheduler never disagree about an object.
//!
//! Nothing here knows how an object is written, nor reads a clock or the status of a pod: what a
//! caller counts is what it passes in.
#![warn(missing_docs)]

mod aggregate;
mod list;
pub mod names;
mod qos;
pub mod quota;

pub use aggregate::{InitContainer, add_overhead_to_limits, aggregate_containers, apply_pod_level_resources};
pub use list::{ResourceList, add_resource_list, max_resource_list};
pub use qos::{QosClass, qos_class};
