//! The Kubernetes API over a store. Knows no controller and no rule of a built-in kind: the table
//! of resources is passed in.
//!
//! The modules below it are those of `coracle-apimachinery`, under the same names.

#![warn(missing_docs)]
#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests wait and measure"))]

pub mod access;
pub mod admission;
pub mod aggregator;
pub mod apiextensions;
pub mod audit;
pub mod background;
pub mod discovery;
pub mod fields;
pub mod flow_control;
pub mod flow_schema_status;
pub mod policy_status;
pub mod registry;
pub mod representation;
pub mod serve;
pub mod telemetry;
#[cfg(test)]
pub(crate) mod testing;
pub mod timers;
pub mod webhook;

pub(crate) use coracle_apimachinery::{
    Error, Result, cluster, codec, conditions, error, features, field, go_value, names, object_meta, patch,
    pods, render, request, resource_info, schema, selector, strategy, validation,
};
