//! Strategies of the group certificates, one file a kind.

pub mod certificate_signing_request;
