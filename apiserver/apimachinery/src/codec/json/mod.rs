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
mod unchanged;
mod write;

#[cfg(test)]
mod tests;

use std::io;

use serde::Serialize as _;
use serde::de::DeserializeSeed as _;
use serde_json::Value;

use super::limits::Limits;
use super::{DecodeError, Decoded};
use crate::schema::StructId;

pub use decode::{
    decode, decode_response, decode_untyped, decode_value, decode_value_within, decode_with_fractions,
    whole_numbers,
};
pub(super) use decode::{decode_raw, decode_with_meta, float};
pub use members::{for_each_item, for_each_member};
pub(super) use reader::repair;
use reader::{Reader, SyntaxError};
pub use text::{write_string, write_untyped};
pub use unchanged::Unchanged;
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
    let mut text = Vec::new();
    // Writing to a vector does not fail.
    let written = value.serialize(&mut serde_json::Serializer::with_formatter(&mut text, WholeNumbers));
    debug_assert!(written.is_ok());
    decode(&text, id)
}

/// Writes a whole number beyond 64 bits with all digits, which is how it was sent most probably.
/// Error texts quote it.
struct WholeNumbers;

impl serde_json::ser::Formatter for WholeNumbers {
    fn write_f64<W: ?Sized + io::Write>(&mut self, writer: &mut W, value: f64) -> io::Result<()> {
        /// The range between the integers of 64 bits and the numbers that Go writes with an
        /// exponent.
        const RANGE: std::ops::Range<f64> = 9_223_372_036_854_775_808.0..1e21;
        match RANGE.contains(&value.abs()) {
            true => write!(writer, "{value:.0}"),
            false => write!(writer, "{value:?}"),
        }
    }
}
