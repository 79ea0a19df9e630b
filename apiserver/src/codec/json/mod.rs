//! JSON as the real server reads and writes it.
//!
//! Start at [`decode()`] and [`write()`]; [`normalize`] makes any value what decoding would have made of it.

mod decode;
mod reader;
mod write;

#[cfg(test)]
mod tests;

use serde_json::Value;

use super::{DecodeError, Decoded};
use crate::schema::StructId;

pub use decode::{decode, decode_untyped, decode_value};
pub(super) use decode::{decode_raw, decode_with_meta, float};
pub(super) use reader::repair;
pub use reader::{MAX_COLLECTIONS, MAX_DEPTH};
pub use write::{indent, write, write_string, write_type, write_untyped};

/// What decoding the JSON text of a value gives, such as of a patch's result.
pub fn normalize(value: &Value, id: StructId) -> Result<Decoded, DecodeError> {
    decode(&serde_json::to_vec(value).unwrap_or_default(), id)
}
