//! Strategies of the group certificates.k8s.io, one file a kind.

pub mod certificate_signing_request;

#[cfg(test)]
mod tests;
