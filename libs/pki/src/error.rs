//! Documents that cannot be read.

/// The reason why a document cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The first PEM block is not a certificate signing request, or there is none.
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
