//! Strategies of the group apps, one file a kind; what its kinds share is in [`workload`].

pub mod controller_revision;
pub mod daemon_set;
pub mod deployment;
pub mod replica_set;
pub mod stateful_set;
pub mod workload;

#[cfg(test)]
mod tests;
