//! Strategies of the group apiregistration.k8s.io, one file a kind.

pub mod api_service;

#[cfg(test)]
mod tests;
