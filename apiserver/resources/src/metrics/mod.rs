//! `metrics.k8s.io`: what metrics-server would measure, simulated by annotations of the pods and by
//! their requests.
//!
//! A running pod with `sim.coracle.dev/cpu` or `sim.coracle.dev/memory` uses that much, shared
//! equally by its running containers; a node uses what its pods use. Pods without these annotations
//! are not measured with [`Measured::Annotated`]. With [`Measured::Simulated`] their usage follows
//! from their requests, and a node uses something itself. The group is served as soon as there is a
//! pod that is measured, so that a cluster without one is a cluster without metrics-server.
//!
//! Source of names and texts: metrics-server's `pkg/api`.

mod extension;
mod node_metrics;
mod pod_metrics;
mod usage;

pub use extension::extension;
pub use node_metrics::SimulatedNodeMetrics;
pub use pod_metrics::SimulatedPodMetrics;
pub use usage::{GROUP, Measured};

#[cfg(test)]
mod tests;
