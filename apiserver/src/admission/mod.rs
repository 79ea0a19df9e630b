//! Admission: the chain of plugins between a decoded object and its validation.
//!
//! First each plugin may mutate the object (`admit`); after the object has been prepared, named and
//! validated, each plugin may reject it (`validate`). Here are the plugins that know no built-in
//! kind but those that configure them. The list of all plugins is passed in.
//!
//! Plugins read other objects through [`Cluster`](crate::cluster::Cluster) and know neither store
//! nor HTTP. They run on every write: each checks the resource first, and none lists anything for a
//! resource that it does not handle. Most decide without waiting ([`AdmissionPlugin`]); those that
//! wait implement [`AsyncAdmissionPlugin`]. The chain runs without any lock.
//!
//! Start at [`AdmissionChain`].

mod attributes;
mod chain;
pub mod generic;
pub mod json;
mod metrics;
mod namespace_lifecycle;
mod plugin;
pub mod policy;
mod quota;
pub mod testing;
pub mod webhook;

pub use attributes::{AdmissionAttributes, GroupVersionKind, Operation, OperationOptions};
pub use chain::AdmissionChain;
pub use metrics::AdmissionMetrics;
pub use namespace_lifecycle::NamespaceLifecycle;
pub use plugin::{AdmissionPlugin, AsyncAdmissionPlugin};
pub use quota::QuotaReserver;
