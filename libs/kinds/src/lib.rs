//! The semantics of objects of the built-in kinds, for all who read them by the API: pods, nodes,
//! claims, volumes, attachments, ControllerRevisions, certificate requests. The metadata that all
//! kinds have is `coracle-object-meta`.
//!
//! Annotations, finalizers, labels and names are Kubernetes' own, letter for letter. There is no
//! I/O here, no cache, no clock and no decision of a single controller.
#![warn(missing_docs)]

pub mod certificate_request;
pub mod conditions;
pub mod controller_revision;
pub mod decoders;
pub mod jobs;
pub mod node_affinity;
pub mod nodes;
pub mod pods;
pub mod resources;
pub mod storage;
pub mod taints;
pub mod template_hash;
