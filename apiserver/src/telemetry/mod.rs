//! Telemetry: [`health`], [`metrics`], [`latency`] and the log of [`slow_requests`].
//!
//! None depends on other modules: health checks are closures that are passed in, all else are values that are reported.

pub mod health;
pub mod latency;
pub mod metrics;
pub mod slow_requests;

pub use health::{Endpoint, Health, Hook};
pub use metrics::{Metrics, RequestLabels};
