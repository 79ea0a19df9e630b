//! The built-in kinds: how each behaves in the generic pipeline, and the strategy where data cannot
//! say it.
//!
//! Names, scopes, verbs and fields come from the schema table; this is what the published modules
//! do not say. Start at [`behavior`], which reads the table in `built_in.rs`; [`built_in()`] makes
//! the table of resources of it. The API server knows no kind of this crate: whoever starts it
//! passes the table.

#![warn(missing_docs)]

pub mod admissionregistration;
#[cfg(test)]
mod answers;
pub mod apiextensions;
pub mod apiregistration;
pub mod apps;
pub mod autoscaling;
pub mod batch;
mod built_in;
pub mod certificates;
pub mod claim_spec;
pub mod coordination;
pub mod core;
#[cfg(test)]
mod corpus;
pub mod discovery;
pub mod dynamic_resource_allocation;
pub mod flowcontrol;
#[cfg(test)]
mod metadata_tests;
pub mod metrics;
pub mod networking;
pub mod node;
pub mod pod_spec;
pub mod policy;
pub mod printers;
pub mod rbac;
#[cfg(test)]
mod recorded;
pub mod scheduling;
pub mod storage;
mod table;

use coracle_apimachinery::names::GroupKind;
use serde_json::Value;

pub use built_in::behavior;
pub use metrics::Measured;
pub use table::{built_in, metrics_extension};

/// Converts an object to another version of its kind.
pub fn convert(kind: &GroupKind, to: &str, object: Value) -> Value {
    match (kind.kind.as_str(), to) {
        ("Event", "v1") => core::event::to_core(object),
        ("Event", _) => core::event::to_events(object),
        ("HorizontalPodAutoscaler", "autoscaling/v1") => autoscaling::convert::to_v1(object),
        ("HorizontalPodAutoscaler", _) => autoscaling::convert::to_v2(object),
        // No other kind is served in two versions.
        _ => object,
    }
}
