//! Strategies of the group certificates.k8s.io, one file a kind.

pub mod certificate_signing_request;

pub use certificate_signing_request::CertificateSigningRequestStrategy;

#[cfg(test)]
mod tests;
