//! PEM blocks, the subjects of certificates, and certificate signing requests, as Go's packages
//! read them.
//!
//! Validation, admission, the approver, the signer and the authenticator of client certificates all
//! decide by these types, so that a document has one meaning. No other crate parses a certificate
//! signing request or reads names from a subject.
#![warn(missing_docs)]

mod alternative_names;
mod certificate_request;
mod error;
pub mod pem;
mod subject;

pub use alternative_names::AlternativeNames;
pub use certificate_request::CertificateRequest;
pub use error::Error;
pub use subject::{COMMON_NAME, ORGANIZATION, Subject};
