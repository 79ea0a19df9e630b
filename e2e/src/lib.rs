//! The foundation of the end-to-end tests: a control plane for each test, a plain HTTP client, and
//! the player of recordings.
//!
//! A test looks like this:
//!
//! ```no_run
//! # async fn example() -> anyhow::Result<()> {
//! let cluster = coracle_e2e::cluster().start().await?;
//! let client = cluster.client().await?;
//! // ... talk to it; the process ends when `cluster` is dropped ...
//! # Ok(())
//! # }
//! ```
//!
//! Nothing here depends on Coracle's internals: it is started as users start it, and observed
//! through its API only.

#![warn(missing_docs)]

pub mod attacks;
pub mod binary;
pub mod cluster;
pub mod consistency;
pub mod http;
pub mod json_client;
pub mod kubectl;
pub mod ports;
pub mod random;
pub mod random_workloads;
pub mod recordings;
pub mod skipped;
pub mod statefulsets;
pub mod volumes;
pub mod wait;
pub mod webhook;
pub mod workloads;

pub use cluster::{Cluster, cluster};
