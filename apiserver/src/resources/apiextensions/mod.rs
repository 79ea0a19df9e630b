//! Strategies of the group apiextensions, one file a kind.

pub mod custom_resource_definition;
