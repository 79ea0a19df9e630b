//! Strategies of the group autoscaling, one file a kind.

pub mod horizontal_pod_autoscaler;
pub mod scale;
