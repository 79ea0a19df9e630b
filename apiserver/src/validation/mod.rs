//! Validation: what an object must be before it is stored, metadata and the kind's own rules together, in the real
//! server's order.
//!
//! Start at [`create`], [`update`], [`status_update`] and [`part_update`]. The other modules hold the rules that many kinds share.

pub mod conditions;
pub mod content;
pub mod immutable;
pub mod ip;
pub mod labels;
pub mod member;
pub mod metadata;
pub mod node_selector;
pub mod numbers;
pub mod paths;
pub mod printed;
pub mod resource_list;
pub mod volume_sources;
pub mod webhook;
