//! JSON, YAML and protobuf, read and written by the schema table.
//!
//! Every format leads to the same normalised `serde_json::Value` and back; nothing here knows a kind. Invariants:
//!
//! - No input makes this panic, recurse without bound or grow beyond a small multiple of its length.
//! - A decoded object is what the real server would hold after a round trip through its Go types.
//!
//! Start at [`json::decode()`] and [`json::write()`]; the body of a request is read by [`body::decode`].

pub mod base64;
pub mod body;
pub mod json;
pub mod limits;
pub mod protobuf;
pub mod time;
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
    /// Normalised.
    pub value: Value,
    /// Messages about unknown and repeated members, as field validation tells them.
    pub strict: Vec<String>,
}

/// A body that cannot be decoded, in the real server's words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// It does not even tell its kind.
    #[error("couldn't get version/kind; json parse error: {0}")]
    Unreadable(String),
    /// Some value does not fit its type.
    #[error("{0}")]
    TypeMismatch(String),
}

/// What an object says it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TypeMeta {
    pub api_version: String,
    pub kind: String,
}
