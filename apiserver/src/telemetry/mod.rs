//! What the server tells about itself: [`health`] and [`metrics`].
//!
//! Neither knows the other rooms: health is closures that were handed in, metrics are numbers that were reported.

pub mod health;
pub mod metrics;

pub use health::{Endpoint, Health, Hook};
pub use metrics::{Metrics, RequestLabels};
