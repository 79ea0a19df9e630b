//! Coracle: a Kubernetes control plane in one small binary, and a library for tests that need a control plane of their own.
//!
//! ```no_run
//! # async fn example() -> Result<(), coracle::Error> {
//! let control_plane = coracle::ControlPlane::builder().ephemeral().start().await?;
//! let kubeconfig: String = control_plane.kubeconfig();
//! // ... point any client at it ...
//! // With a data directory, all writes are on disk after this.
//! let _ = control_plane.shutdown().await;
//! # Ok(())
//! # }
//! ```
//!
//! This crate assembles the parts: the API is in `apiserver/`, the log in `storage/`, the loops in `controllers/`.

#![warn(missing_docs)]

mod builder;
mod control_plane;
pub mod controllers;
mod data_dir;
mod error;
mod etcd;
mod health;
pub mod maintenance;
mod start;

pub use builder::Builder;
pub use control_plane::ControlPlane;
pub use coracle_apimachinery::features::{self, FeatureGates, GateError};
pub use coracle_apimachinery::validation::ip::Cidr;
pub use coracle_apiserver::access::authorize::Mode;
pub use coracle_apiserver::admission::{PluginError, PluginSelection};
pub use coracle_apiserver::audit;
pub use coracle_apiserver::serve::GoawayChance;
pub use coracle_apiserver::webhook::{ServiceUrl, ServiceUrlError};
pub use coracle_storage::StoreError;
pub use coracle_storage::log::Durability;
pub use error::Error;
pub use etcd::Etcd;
