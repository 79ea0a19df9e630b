//! Validation: the rules that an object must satisfy before it is stored, those of metadata and of
//! the kind together, in kube-apiserver's order.
//!
//! This module has the rules that many kinds share; `strategy::validate` combines them with those
//! of a kind. Start at [`metadata`].

pub mod conditions;
pub mod content;
pub mod custom_resource_schema;
pub mod expressions;
pub mod formats;
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
pub mod rules;
pub mod structural;
pub mod volume_sources;
pub mod webhook;
