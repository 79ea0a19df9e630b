//! JSON, YAML and protobuf, read and written by the schema table.
//!
//! Every format is converted to and from the same normalized `serde_json::Value`; nothing here
//! depends on a kind. Invariants:
//!
//! - No input causes a panic, unbounded recursion or more memory than a small multiple of its
//!   length.
//! - A decoded object equals kube-apiserver's after a round trip through its Go types.
//!
//! Start at [`json::decode()`] and [`json::write()`]; the body of a request is decoded by
//! [`body::decode`].

pub mod base64;
pub mod body;
pub mod json;
pub mod limits;
pub mod protobuf;
pub mod structural;
pub mod time;
pub mod unstructured;
pub mod yaml;
pub mod zero;

#[cfg(test)]
mod arbitrary;
#[cfg(test)]
mod tests;

use serde_json::Value;

/// A decoded body.
#[derive(Clone, Debug, PartialEq)]
pub struct Decoded {
    /// Normalized.
    pub value: Value,
    /// Messages about unknown and duplicate fields, for field validation.
    pub strict: Vec<String>,
}

/// A body that cannot be decoded, with kube-apiserver's message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// Its kind cannot be determined.
    #[error("couldn't get version/kind; json parse error: {0}")]
    Unreadable(String),
    /// A value does not match its type.
    #[error("{0}")]
    TypeMismatch(String),
}

/// The kind and version of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TypeMeta {
    /// Group and version, `apps/v1`; may be empty.
    pub api_version: String,
    /// The kind; may be empty.
    pub kind: String,
}
