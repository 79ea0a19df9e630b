//! Strategies of the group flowcontrol, one file a kind.

pub mod flow_schema;
pub mod priority_level_configuration;
