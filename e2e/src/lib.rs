//! What the tests of the whole stand on: a control plane of one's own, a plain HTTP client, and the recordings' runner.
//!
//! A test reads like this:
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
//! Nothing here knows how Coracle works inside: it is started as its users start it, and seen over its API only.

pub mod attacks;
pub mod binary;
pub mod cluster;
pub mod http;
pub mod kubectl;
pub mod random;
pub mod recordings;
pub mod statefulsets;
pub mod volumes;
pub mod wait;

pub use cluster::{Cluster, cluster};
