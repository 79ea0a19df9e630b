//! The envelope of a body: the magic, the type meta, and the object's message.

use std::cell::Cell;
use std::rc::Rc;

use super::wire::{Reader, Wire, error};
use crate::codec::json::repair;
use crate::codec::{DecodeError, TypeMeta};

/// The prefix of every body.
pub const MAGIC: &[u8] = b"k8s\0";

/// An opened envelope.
#[derive(Debug)]
pub struct Envelope<'a> {
    /// The kind and version of the object.
    pub meta: TypeMeta,
    /// The object's message.
    pub(super) message: &'a [u8],
    /// The depth of the message, and the number of messages begun in the whole body.
    pub(super) depth: usize,
    pub(super) collection_count: CollectionCount,
}

/// Counts messages, objects and arrays anywhere in a body.
pub type CollectionCount = Rc<Cell<usize>>;

/// Opens the envelope of a body.
///
/// # Errors
/// With kube-apiserver's messages, before the kind is known.
pub fn open(body: &[u8]) -> Result<Envelope<'_>, DecodeError> {
    open_inside(body, 0, CollectionCount::default())
}

/// Opens the envelope of a body inside of another one, `depth` messages deep.
pub fn open_inside(
    body: &[u8],
    depth: usize,
    collection_count: CollectionCount,
) -> Result<Envelope<'_>, DecodeError> {
    if body.is_empty() {
        return Err(error("empty data"));
    }
    let envelope = body.strip_prefix(MAGIC).ok_or_else(|| {
        error("provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]")
    })?;
    if envelope.is_empty() {
        return Err(error("empty body"));
    }
    let mut reader = Reader::inside(envelope, depth, collection_count.clone());
    let mut opened = Envelope { meta: TypeMeta::default(), message: &[], depth, collection_count };
    while let Some((number, wire)) = reader.tag("Unknown")? {
        match (number, wire) {
            (1, Wire::Bytes) => opened.meta = read_meta(reader.message()?)?,
            (2, Wire::Bytes) => opened.message = reader.bytes()?,
            _ => reader.skip(wire)?,
        }
    }
    Ok(opened)
}

fn read_meta(mut reader: Reader<'_>) -> Result<TypeMeta, DecodeError> {
    let mut meta = TypeMeta::default();
    while let Some((number, wire)) = reader.tag("TypeMeta")? {
        match (number, wire) {
            (1, Wire::Bytes) => meta.api_version = repair(reader.bytes()?),
            (2, Wire::Bytes) => meta.kind = repair(reader.bytes()?),
            _ => reader.skip(wire)?,
        }
    }
    Ok(meta)
}
