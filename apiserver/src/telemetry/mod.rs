//! Telemetry: [`health`] and [`metrics`].
//!
//! Neither depends on other modules: health checks are closures that are passed in, metrics are values that are
//! reported.

pub mod health;
pub mod metrics;

pub use health::{Endpoint, Health, Hook};
pub use metrics::{Metrics, RequestLabels};
