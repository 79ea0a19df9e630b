//! Strategies of the group apiregistration.k8s.io, one file a kind.

pub mod api_service;

pub use api_service::ApiServiceStrategy;

#[cfg(test)]
mod tests;
