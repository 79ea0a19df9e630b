//! JSON as kube-apiserver reads and writes it.
//!
//! Start at [`decode()`] and [`write()`]; [`normalize`] converts any value to the result of
//! decoding it.

mod decode;
pub mod fields_v1;
mod members;
mod reader;
mod sparse;
mod text;
mod write;

#[cfg(test)]
mod tests;

use serde::de::DeserializeSeed as _;
use serde_json::Value;

use super::limits::Limits;
use super::{DecodeError, Decoded};
use crate::schema::StructId;

pub use decode::{decode, decode_response, decode_untyped, decode_value, decode_value_within};
pub(super) use decode::{decode_raw, decode_with_meta, float};
pub use members::{for_each_item, for_each_member};
pub(super) use reader::repair;
use reader::{Reader, SyntaxError};
pub use text::{write_string, write_untyped};
pub use write::{indent, write, write_object, write_type};

/// Checks that text is one JSON value within the limits of stored documents, without building it.
///
/// # Errors
/// It is no JSON, or nested deeper than [`MAX_STORED_DEPTH`](super::limits::MAX_STORED_DEPTH).
pub fn check_stored(text: &[u8]) -> Result<(), DecodeError> {
    let mut reader = Reader::within(text, Limits::STORED);
    reader.skip().and_then(|_| reader.finish()).map_err(|SyntaxError(text)| DecodeError::Unreadable(text))
}

/// Parses JSON text that this server wrote, such as a stored object's.
///
/// # Errors
/// If it is no JSON, or nested deeper than [`MAX_STORED_DEPTH`](super::limits::MAX_STORED_DEPTH).
pub fn parse_own(text: &[u8]) -> Result<Value, DecodeError> {
    // The faster parser stops at 127 levels, which no new object has.
    serde_json::from_slice(text).or_else(|_| decode::decode_stored(text))
}

/// Parses the members of an object to which JSON pointers lead, like [`parse_own`]. Other members
/// are skipped where that is possible.
///
/// # Errors
/// As [`parse_own`]; but a skipped member may be invalid JSON.
pub fn parse_own_sparse(text: &[u8], pointers: Vec<&str>) -> Result<Value, DecodeError> {
    if pointers.iter().any(|pointer| pointer.is_empty() || pointer.contains('~')) {
        return parse_own(text);
    }
    let sparse = sparse::Sparse { pointers }.deserialize(&mut serde_json::Deserializer::from_slice(text));
    sparse.or_else(|_| parse_own(text))
}

/// Decodes the JSON text of a value, such as a patched object.
pub fn normalize(value: &Value, id: StructId) -> Result<Decoded, DecodeError> {
    decode(&serde_json::to_vec(value).unwrap_or_default(), id)
}
