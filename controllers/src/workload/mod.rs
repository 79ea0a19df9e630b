//! The shared parts of the workload controllers: ReplicaSet, ReplicationController, Deployment,
//! StatefulSet, DaemonSet and Job.
//!
//! - [`pod_control`]: creates and deletes the pods of an owner, with its events
//! - [`controller_revision`]: creates the revisions of an owner
//! - [`owners`]: the owners that a change of a dependent enqueues
//! - [`ranking`]: the order in which pods are deleted
//! - [`pacing`]: the number of pods that an owner may create at once
//! - [`replica_owner`]: the two kinds that only keep a number of pods
//! - [`int_or_percent`]: numbers that may be percentages
//!
//! Adoption and release are in `coracle_controller_runtime::controller_ref`, histories in
//! `coracle_kinds::controller_revision`. Nothing here depends on a single controller. Expectations
//! are not needed: a key is not reconciled before its own writes are observed.

pub mod controller_revision;
pub mod int_or_percent;
pub mod owners;
pub mod pacing;
pub mod pod_control;
pub mod ranking;
pub mod replica_owner;
