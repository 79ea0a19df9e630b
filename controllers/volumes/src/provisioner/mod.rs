//! The loop of the provisioners of directories: the one in persistentvolume-binder-controller and
//! the simulated CSI driver.
//!
//! - [`provision`] is the loop over claims; a [`ProvisionerPlugin`] is what differs in it.
//! - only [`directories`] touches the directories; [`journal`] lists those that are not volumes
//!   yet.
//! - [`operations`] lets an operation take long or fail, as `sim.coracle.dev/` parameters and
//!   annotations ask for.
//!
//! Reclaiming differs in more than it shares, so that each has a loop of its own for it.

pub mod directories;
pub mod journal;
pub mod operations;
mod plugin;
pub mod provision;

pub use plugin::{ProvisionError, ProvisionRequest, ProvisionerPlugin};
