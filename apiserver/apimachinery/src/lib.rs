//! The shared foundation of the API server and the built-in kinds: types and their schema table,
//! codecs, conversion, fields, selectors, validation and patches, and the definition of a resource.
//! The counterpart of k8s.io/apimachinery. It does not depend on kinds, stores or servers.
//!
//! Start at [`resource_info`], the description of a resource, and [`strategy`], the rules of a
//! kind.

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
