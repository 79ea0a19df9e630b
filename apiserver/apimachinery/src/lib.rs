//! What the API server and the built-in kinds share: types and their schema table, codecs, conversion, fields, selectors,
//! validation and patches, and what a resource is. The counterpart of k8s.io/apimachinery. Knows no kind, no store and no
//! server.
//!
//! Start at [`resource_info`], everything about a resource, and [`strategy`], the rules of a kind.

#![warn(missing_docs)]
#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests wait and measure"))]

pub mod allocation;
pub mod annotations;
pub mod bootstrap;
pub mod cluster;
pub mod codec;
pub mod conditions;
pub mod error;
pub mod features;
pub mod field;
pub mod go_value;
pub mod names;
pub mod object_meta;
pub mod patch;
pub mod pods;
pub mod qos;
pub mod render;
pub mod request;
pub mod resource_info;
pub mod schema;
pub mod selector;
pub mod strategy;
pub mod user;
pub mod validation;

pub use error::{Error, Result};
