//! The assembly of a control plane: the API server, its store and the controllers, and their start
//! and end.
//!
//! It knows no kind: whoever starts it passes [`Kinds`]. So an edit in the strategy of a kind
//! rebuilds none of this.

#![warn(missing_docs)]

mod client;
mod control_plane;
pub mod controllers;
mod data_dir;
mod error;
mod etcd;
mod forks;
mod kinds;
pub mod maintenance;
mod opened;
pub mod options;
mod recording;
mod start;
#[cfg(test)]
mod timers;
mod workers;

pub use control_plane::{ControlPlane, KubeconfigError, Problems, ProblemsError};
pub use coracle_kubeconfig::Name;
pub use coracle_testing_api::Testing;
pub use data_dir::background;
pub use error::Error;
pub use kinds::Kinds;
pub use opened::{InvalidMoment, Moment, OpenRecord};
pub use options::{Etcd, ForkOptions, Options, ServiceAccountIssuer, listen_address, range};
