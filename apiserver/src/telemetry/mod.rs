//! Telemetry: [`health`], [`metrics`], [`latency`], the log of [`slow_requests`], pages about the
//! process ([`z_pages`]), and spans for a collector ([`tracer`]).
//!
//! None depends on modules of the server: health checks are closures that are passed in, all else
//! are values that are reported.

pub mod health;
pub mod latency;
pub mod metrics;
pub mod slow_requests;
pub mod trace_context;
pub mod tracer;
pub mod z_pages;

pub use health::{Endpoint, Health, Hook};
pub use metrics::{Metrics, RequestLabels};
pub use z_pages::ZPages;
