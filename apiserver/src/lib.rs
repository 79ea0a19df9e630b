//! The Kubernetes API over a store. Knows no controller.

#![warn(missing_docs)]

pub mod access;
pub mod admission;
pub mod answer;
pub mod apiextensions;
pub mod bootstrap;
pub mod clock;
pub mod cluster;
pub mod codec;
pub mod conditions;
pub mod discovery;
pub mod error;
pub mod features;
pub mod field;
pub mod fields;
pub mod flow_control;
mod go_value;
pub mod names;
pub mod object_meta;
pub mod patch;
pub mod registry;
pub mod render;
pub mod request;
pub mod resource_info;
pub mod resources;
pub mod schema;
pub mod selector;
pub mod serve;
pub mod telemetry;
#[cfg(test)]
pub(crate) mod testing;
pub mod validation;

pub use coracle_quantity as quantity;
pub use error::{Error, Result};
