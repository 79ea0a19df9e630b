//! The assembly of a control plane: the API server, its store and the controllers, and their start and end.
//!
//! It knows no kind: whoever starts it passes [`Kinds`]. So an edit in the strategy of a kind rebuilds none of this.

#![warn(missing_docs)]

mod control_plane;
pub mod controllers;
mod data_dir;
mod error;
mod etcd;
mod health;
pub mod maintenance;
pub mod options;
pub mod range;
mod start;
#[cfg(test)]
mod timers;

use coracle_apimachinery::resource_info::{ExtensionGroup, ResourceTable};

pub use control_plane::ControlPlane;
pub use error::Error;
pub use etcd::Etcd;
pub use options::{Options, ServiceAccountIssuer};

/// The kinds that a control plane serves besides those of CustomResourceDefinitions.
#[derive(Clone, Copy, Debug)]
pub struct Kinds {
    /// Makes the table of the built-in kinds.
    pub built_in: fn() -> ResourceTable,
    /// Makes the group that is served from outside of the store once somebody provides for it, if there is one.
    pub extension: fn() -> Option<ExtensionGroup>,
}
