//! Strategies of the group apiextensions.k8s.io, one file a kind.

pub mod custom_resource_definition;
pub mod internal;
mod rules;

pub use custom_resource_definition::CustomResourceDefinitionStrategy;

#[cfg(test)]
mod tests;
