//! What the controllers of workloads share: ReplicaSet, ReplicationController, Deployment, StatefulSet, DaemonSet and Job.
//!
//! - [`pod_control`]: creates and deletes the pods of an owner, with its events
//! - [`controller_revision`]: creates the revisions of an owner
//! - [`owners`]: which owners a change of a dependent enqueues
//! - [`ranking`]: which pods are deleted first
//! - [`pacing`]: how many pods an owner may create at once
//! - [`replica_owner`]: the two kinds that want a number of pods and no more
//! - [`int_or_percent`]: numbers that may be shares of a whole
//!
//! Adoption and release are in `coracle_controller_runtime::controller_ref`, histories in `coracle_kinds::controller_revision`. Nothing here knows a
//! single controller. Expectations are not needed: a key is not reconciled before its own writes are observed.

pub mod controller_revision;
pub mod int_or_percent;
pub mod owners;
pub mod pacing;
pub mod pod_control;
pub mod ranking;
pub mod replica_owner;
