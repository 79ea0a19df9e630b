//! PEM blocks, the subjects of certificates, and certificate signing requests, as Go's packages read them.
//!
//! Validation, admission, the approver, the signer and the authenticator of client certificates all decide by these types, so
//! that a document has one meaning. No other crate parses a certificate signing request or reads names from a subject.
#![warn(missing_docs)]

mod alternative_names;
mod certificate_request;
pub mod pem;
mod subject;

pub use alternative_names::AlternativeNames;
pub use certificate_request::CertificateRequest;
pub use subject::{COMMON_NAME, ORGANIZATION, Subject};

/// The reason why a document cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The first PEM block is no certificate signing request, or there is none.
    #[error("PEM block type must be CERTIFICATE REQUEST")]
    BlockType,
    /// The DER value has another structure.
    #[error("asn1: structure error")]
    Structure,
    /// Bytes follow the DER value.
    #[error("asn1: syntax error: trailing data")]
    TrailingData,
    /// A text of a subject has bytes that its type does not have.
    #[error("asn1: syntax error: invalid string")]
    InvalidString,
    /// An extension is requested twice.
    #[error("x509: certificate request contains duplicate requested extensions")]
    DuplicateExtensions,
    /// The alternative names cannot be read.
    #[error("x509: invalid subject alternative names")]
    AlternativeNames,
    /// The request is not signed by its own key.
    #[error("x509: signature does not verify")]
    Signature,
}
