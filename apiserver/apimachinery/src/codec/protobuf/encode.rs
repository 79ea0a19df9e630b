//! Encode: converts an object to a protobuf message, field by field in the order of the numbers.
//!
//! As in kube-apiserver's generated code, fields that are not pointers are always written, even if
//! they are zero.

use serde_json::{Map, Value};

use super::envelope::MAGIC;
use super::wire::{Wire, Write};
use crate::codec::{base64, json, time, zero};
use crate::schema::{FieldSchema, StructId, Type, schema};

/// The field number of `items` in every list type.
const ITEMS: u32 = 2;

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

/// Encodes a list without its items: returns the bytes before and after the items, which are
/// encoded one by one with [`write_item`].
///
/// - `list`: the list without items, and its type, whose last field is the items.
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
    let number = fields.iter().find(|(_, field)| field.name == member).map_or(ITEMS, |(number, _)| *number);
    out.message_field(number, |out| write_message(item, id, out));
}

/// Encodes an object's message alone.
pub fn write_message(value: &Value, id: StructId, out: &mut Vec<u8>) {
    write_struct(value.as_object(), id, out);
}

/// Returns one frame of a watch: its length in four bytes, then the event with the encoded object.
pub fn watch_frame(event: &str, object: &[u8]) -> Vec<u8> {
    let mut message = Vec::with_capacity(object.len() + 32);
    message.bytes_field(1, event.as_bytes());
    message.message_field(2, |out| out.bytes_field(1, object));
    let length = u32::try_from(message.len()).unwrap_or(u32::MAX);
    [&length.to_be_bytes()[..], &message].concat()
}

/// Writes a struct. Without members every field is zero, and fields that are not pointers are still
/// written.
fn write_struct(members: Option<&Map<String, Value>>, id: StructId, out: &mut Vec<u8>) {
    for (number, field) in schema().get(id).fields_by_number() {
        if let (true, Type::Struct(embedded)) = (field.inline, &field.ty) {
            out.message_field(*number, |out| write_struct(members, *embedded, out));
            continue;
        }
        let value = members.and_then(|members| members.get(field.name)).filter(|value| !value.is_null());
        write_field(*number, field, value, out);
    }
}

fn write_field(number: u32, field: &FieldSchema, value: Option<&Value>, out: &mut Vec<u8>) {
    match (&field.ty, value) {
        (Type::List(item), Some(Value::Array(items))) => {
            for value in items {
                write_value(number, item, value, out);
            }
        }
        (Type::Map(entry), Some(Value::Object(entries))) => {
            for (key, value) in entries {
                out.message_field(number, |out| {
                    out.bytes_field(1, key.as_bytes());
                    write_value(2, entry, value, out);
                });
            }
        }
        (Type::List(_) | Type::Map(_), _) => {}
        (ty, Some(value)) => write_value(number, ty, value, out),
        // Nil.
        (Type::Bytes | Type::ListMessage(_), None) => {}
        (_, None) if field.pointer => {}
        (ty, None) => write_value(number, ty, &zero::of(ty), out),
    }
}

/// Writes one value with its tag; one that does not match its type counts as zero.
fn write_value(number: u32, ty: &Type, value: &Value, out: &mut Vec<u8>) {
    match ty {
        Type::Struct(id) => {
            out.message_field(number, |out| write_struct(value.as_object(), *id, out));
        }
        Type::ListMessage(item) => out.message_field(number, |out| {
            for value in value.as_array().into_iter().flatten() {
                write_value(1, item, value, out);
            }
        }),
        Type::String => out.bytes_field(number, value.as_str().unwrap_or_default().as_bytes()),
        Type::Bytes => out.bytes_field(number, &base64::decode(value.as_str().unwrap_or_default())),
        Type::Bool => out.int_field(number, value.as_bool().unwrap_or_default().into()),
        Type::Int32 | Type::Int64 => out.int_field(number, value.as_i64().unwrap_or_default()),
        Type::Double => {
            out.tag(number, Wire::Fixed64);
            out.extend_from_slice(&value.as_f64().unwrap_or_default().to_le_bytes());
        }
        Type::Quantity => out.message_field(number, |out| {
            out.bytes_field(1, value.as_str().unwrap_or("0").as_bytes());
        }),
        Type::IntOrString => out.message_field(number, |out| {
            out.int_field(1, value.is_string().into());
            out.int_field(2, value.as_i64().unwrap_or_default());
            out.bytes_field(3, value.as_str().unwrap_or_default().as_bytes());
        }),
        Type::Time | Type::MicroTime => out.message_field(number, |out| {
            if let Some((seconds, nanos)) = value.as_str().and_then(time::to_unix) {
                out.int_field(1, seconds);
                out.int_field(2, nanos.into());
            }
        }),
        Type::Duration => out.message_field(number, |out| {
            let duration = value.as_str().and_then(|text| coracle_duration::parse(text).ok());
            let nanos = duration.unwrap_or_default().as_nanos();
            out.int_field(1, i64::try_from(nanos).unwrap_or_default());
        }),
        Type::RawExtension | Type::FieldsV1 | Type::Json | Type::Any => out.message_field(number, |out| {
            if !value.is_null() {
                out.bytes_field(1, &text(value, ty));
            }
        }),
        Type::SchemaOrBool | Type::SchemaOrArray | Type::SchemaOrStrings => {
            out.message_field(number, |out| write_schema_or(ty, value, out));
        }
        // Neither can contain another.
        Type::List(_) | Type::Map(_) => {}
    }
}

fn write_schema_or(ty: &Type, value: &Value, out: &mut Vec<u8>) {
    let schema_type = Type::Struct(zero::json_schema());
    match (ty, value) {
        (Type::SchemaOrBool, Value::Object(_)) => {
            out.int_field(1, 1);
            write_value(2, &schema_type, value, out);
        }
        (Type::SchemaOrBool, _) => out.int_field(1, value.as_bool().unwrap_or_default().into()),
        (_, Value::Object(_)) => write_value(1, &schema_type, value, out),
        (_, Value::Array(items)) => {
            let item = if *ty == Type::SchemaOrArray { &schema_type } else { &Type::String };
            for value in items {
                write_value(2, item, value, out);
            }
        }
        _ => {}
    }
}

fn text(value: &Value, ty: &Type) -> Vec<u8> {
    let mut text = Vec::new();
    json::write_type(value, ty, &mut text);
    text
}
