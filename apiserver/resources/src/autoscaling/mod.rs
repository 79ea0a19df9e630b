//! Strategies of the group autoscaling, one file a kind; [`convert`] converts between the two
//! versions of a HorizontalPodAutoscaler.

pub mod convert;
pub mod horizontal_pod_autoscaler;
mod metrics;
mod references;

pub use horizontal_pod_autoscaler::HorizontalPodAutoscalerStrategy;

#[cfg(test)]
mod tests;
