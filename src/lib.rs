//! Coracle: a Kubernetes control plane in one small binary, and a library for tests that need a
//! control plane of their own.
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
//! The feature `jemalloc`, on by default, is the allocator of the binary. The library does not use
//! it: a test that depends on this crate builds a minute faster without default features.
//!
//! [`ControlPlane::client`] is a client of kube 5 with the types of k8s-openapi 0.29 for Kubernetes 1.36
//! (`v1_36`). A test that names these crates has the same versions, and enables no other version of
//! k8s-openapi, such as its feature `latest`.
//!
//! `coracle-control-plane` assembles the parts, `coracle-cli` is the command line; this crate,
//! which is the binary too, adds the kinds.

#![warn(missing_docs)]

mod builder;
mod clock;
mod control_plane;

pub use builder::Builder;
pub use clock::ClockHandle;
pub use control_plane::ControlPlane;
/// The error of what a test does with a control plane: settling, and moving its clock on.
pub use coracle_apimachinery::Error as TestingError;
pub use coracle_apimachinery::features::{self, FeatureGates, GateError};
pub use coracle_apimachinery::validation::ip::Cidr;
pub use coracle_apiserver::audit;
pub use coracle_apiserver::serve::GoawayChance;
pub use coracle_behavior::{AddressBlock, Profile as SimulationProfile};
pub use coracle_builtin::admission::{PluginError, PluginSelection};
pub use coracle_builtin::authorization::Mode as AuthorizationMode;
pub use coracle_builtin::forwarding::ForwardAddresses;
pub use coracle_builtin::services::{ServiceUrl, ServiceUrlError};
pub use coracle_clock::Work;
pub use coracle_control_plane::{
    Error, Etcd, ForkOptions, Kinds, KubeconfigError, Name, Problems, ProblemsError, controllers, maintenance,
};
pub use coracle_storage::StoreError;
pub use coracle_storage::log::Durability;
pub use coracle_testing_api::{
    ClockEvent, ClockMode, ClockMoved, ClockRequest, ClockStatus, NextTimer, SettleRequest, Settled,
};

/// The kinds of Kubernetes.
pub const KINDS: Kinds = Kinds {
    built_in: coracle_resources::built_in,
    extension: |profile| {
        coracle_resources::metrics_extension(match profile {
            SimulationProfile::Realistic => coracle_resources::Measured::Simulated,
            SimulationProfile::Inert => coracle_resources::Measured::Annotated,
        })
    },
};
