//! Protobuf: any kind, from the table alone.
//!
//! A body is the magic `k8s\0` and an envelope with the type meta and the object's message; kinds, lists, options and
//! reviews differ only in the table's rows. Tables have no protobuf encoding, as in the real server.
//!
//! Start at [`encode`] and [`open`].

mod decode;
mod encode;
mod wire;

#[cfg(test)]
mod tests;

use std::cell::Cell;
use std::rc::Rc;

use serde_json::Value;

use super::limits::{MAX_DEPTH, measure};
use super::{DecodeError, TypeMeta};
use crate::schema::{StructId, schema};
use wire::{Reader, Wire, Write, error};

/// The prefix of every body.
pub const MAGIC: &[u8] = b"k8s\0";

/// An opened envelope.
#[derive(Debug)]
pub struct Envelope<'a> {
    /// The kind and version of the object.
    pub meta: TypeMeta,
    /// The object's message.
    message: &'a [u8],
    /// The depth of the message, and the number of messages begun in the whole body.
    depth: usize,
    begun: Begun,
}

/// Counts messages, objects and arrays anywhere in a body.
type Begun = Rc<Cell<usize>>;

impl Envelope<'_> {
    /// Decodes the object, normalized and without kind and apiVersion, which are in the envelope.
    ///
    /// # Errors
    /// With the real server's messages; also for objects that would be nested too deep in JSON, where a message is up
    /// to two levels.
    pub fn decode(&self, id: StructId) -> Result<Value, DecodeError> {
        let reader = Reader::inside(self.message, self.depth, self.begun.clone());
        let value = decode::read_struct(reader, id).map(Value::Object)?;
        if measure(&value).depth > MAX_DEPTH {
            return Err(error("proto: exceeded max depth"));
        }
        Ok(value)
    }
}

/// Opens the envelope of a body.
///
/// # Errors
/// With the real server's messages, before the kind is known.
pub fn open(body: &[u8]) -> Result<Envelope<'_>, DecodeError> {
    open_inside(body, 0, Begun::default())
}

fn open_inside(body: &[u8], depth: usize, begun: Begun) -> Result<Envelope<'_>, DecodeError> {
    if body.is_empty() {
        return Err(error("empty data"));
    }
    let envelope = body.strip_prefix(MAGIC).ok_or_else(|| {
        error("provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]")
    })?;
    if envelope.is_empty() {
        return Err(error("empty body"));
    }
    let mut reader = Reader::inside(envelope, depth, begun.clone());
    let mut opened = Envelope { meta: TypeMeta::default(), message: &[], depth, begun };
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
            (1, Wire::Bytes) => meta.api_version = super::json::repair(reader.bytes()?),
            (2, Wire::Bytes) => meta.kind = super::json::repair(reader.bytes()?),
            _ => reader.skip(wire)?,
        }
    }
    Ok(meta)
}

/// Decodes a body inside of another one, of any kind.
fn decode_inside(body: &[u8], depth: usize, begun: Begun) -> Result<Value, DecodeError> {
    let envelope = open_inside(body, depth, begun)?;
    let TypeMeta { api_version, kind } = &envelope.meta;
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let id = schema()
        .kind(group, version, kind)
        .ok_or_else(|| error(format!("no kind {kind:?} is registered for version {api_version:?}")))?;
    let mut value = envelope.decode(id)?;
    value["apiVersion"] = api_version.as_str().into();
    value["kind"] = kind.as_str().into();
    Ok(value)
}

/// Encodes an object with its envelope; `apiVersion` and `kind` are the object's.
pub fn encode(value: &Value, id: StructId) -> Vec<u8> {
    let own = |name: &str| value.get(name).and_then(Value::as_str).unwrap_or_default().as_bytes();
    let mut out = MAGIC.to_vec();
    out.message_field(1, |out| {
        out.bytes_field(1, own("apiVersion"));
        out.bytes_field(2, own("kind"));
    });
    out.message_field(2, |out| write_message(value, id, out));
    // Content encoding and type.
    out.bytes_field(3, b"");
    out.bytes_field(4, b"");
    out
}

/// The bytes before and after the items of a list that are encoded one by one with [`write_item`].
///
/// - `list`: the list without items, and its type, whose items are the last of its fields.
/// - `items`: the bytes of all encoded items together.
pub fn encode_around(list: &Value, id: StructId, items: usize) -> (Vec<u8>, Vec<u8>) {
    let own = |name: &str| list.get(name).and_then(Value::as_str).unwrap_or_default().as_bytes();
    let mut message = Vec::new();
    write_message(list, id, &mut message);
    let mut head = MAGIC.to_vec();
    head.message_field(1, |out| {
        out.bytes_field(1, own("apiVersion"));
        out.bytes_field(2, own("kind"));
    });
    head.tag(2, Wire::Bytes);
    head.varint((message.len() + items) as u64);
    head.append(&mut message);
    let mut tail = Vec::new();
    tail.bytes_field(3, b"");
    tail.bytes_field(4, b"");
    (head, tail)
}

/// Encodes one item of a list as a field of the list's message.
///
/// - `list`: the type of the list; `member`: the name of its items.
pub fn write_item(item: &Value, list: StructId, member: &str, id: StructId, out: &mut Vec<u8>) {
    let fields = schema().get(list).fields_by_number();
    let number = fields.iter().find(|(_, field)| field.name == member).map_or(2, |(number, _)| *number);
    out.message_field(number, |out| write_message(item, id, out));
}

/// Encodes an object's message alone.
pub fn write_message(value: &Value, id: StructId, out: &mut Vec<u8>) {
    encode::write_struct(value.as_object(), id, out);
}

/// One frame of a watch: its length in four bytes, then the event with the encoded object.
pub fn watch_frame(event: &str, object: &[u8]) -> Vec<u8> {
    let mut message = Vec::with_capacity(object.len() + 32);
    message.bytes_field(1, event.as_bytes());
    message.message_field(2, |out| out.bytes_field(1, object));
    let length = u32::try_from(message.len()).unwrap_or(u32::MAX);
    [&length.to_be_bytes()[..], &message].concat()
}
