//! Strategies of the group apps, one file a kind; what its kinds share is in [`workload`].

pub mod controller_revision;
pub mod daemon_set;
pub mod deployment;
pub mod replica_set;
pub mod stateful_set;
pub mod workload;

pub use controller_revision::ControllerRevisionStrategy;
pub use daemon_set::{DEPRECATED_TEMPLATE_GENERATION, DaemonSetStrategy};
pub use deployment::DeploymentStrategy;
pub use replica_set::ReplicaSetStrategy;
pub use stateful_set::StatefulSetStrategy;

#[cfg(test)]
mod tests;
